"""Probes about the 2022 U.S. midterm elections: true claims and single changes that make them false.

For evaluation only: the facts come from MidtermQA (--midterm), the sentences are our own, and neither is used in
training.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kcard.interfaces import Pair

QUESTION = re.compile(r"Who won the (.+?) of (.+) in the 2022 U\.S\. midterm elections\?")
TRUE = ("true", "reworded", "in long text")


@dataclass(frozen=True)
class Contest:
    office: str
    state: str
    winner: str
    year: int = 2022


def contests(path: Path) -> list[Contest]:
    """The contests of a MidtermQA file."""
    rows = json.loads(path.read_text(encoding="utf-8"))["testset"]
    matches = ((QUESTION.fullmatch(row["question"]), row["answer"]) for row in rows)
    return [Contest(match[1], match[2], answer) for match, answer in matches if match]


def _is_race(c: Contest) -> bool:
    return c.office.endswith("race")


EVIDENCE: Sequence[Callable[[Contest, str], str]] = (
    lambda c, _: f"{c.winner} was the winner of the {c.office} in {c.state} in the {c.year} midterms.",
    lambda c, rival: f"In {c.year}, {c.winner} won the {c.office} in {c.state} against {rival}.",
    lambda c, rival: f"{c.winner} defeated {rival} in the {c.year} election for the {c.office} of {c.state}.",
    lambda c, rival: f"The {c.office} of {c.state} went to {c.winner} in {c.year}; {rival} came second.",
)
CLAIMS: Sequence[Callable[[Contest], str]] = (
    lambda c: f"{c.winner} won the {c.office} of {c.state} in {c.year}.",
    lambda c: f"The {c.year} {c.office} of {c.state} was won by {c.winner}.",
    lambda c: f"In the {c.year} U.S. midterm elections, {c.state} elected {c.winner} in its {c.office}.",
    lambda c: f"In {c.year}, voters chose {c.winner} in the {c.office} of {c.state}.",
)


def probes(path: Path, count: int, seed: int = 0) -> dict[str, list[Pair]]:
    """For each kind of probe `count` pairs; the kinds in TRUE are supported, all others are not."""
    all_contests, rng = contests(path), Random(seed)
    races = [c for c in all_contests if _is_race(c)]
    districts = [c for c in all_contests if not _is_race(c)]
    picked = [rng.choice(races if i % 2 else districts) for i in range(count)]
    pairs: dict[str, list[Pair]] = {}
    for i, contest in enumerate(picked):
        for kind, pair in _kinds(contest, i, all_contests, rng).items():
            pairs.setdefault(kind, []).append(pair)
    return pairs


def _kinds(c: Contest, i: int, all_contests: Sequence[Contest], rng: Random) -> dict[str, Pair]:
    others = [o for o in all_contests if o.winner != c.winner and o.state != c.state]
    rival, stranger, *company = rng.sample(others, 7)
    same = rng.choice(
        [o for o in others if o.office == c.office] or [o for o in others if _is_race(o) == _is_race(c)]
    )
    evidence = EVIDENCE[i % 4](c, rival.winner)
    with_rival = EVIDENCE[1 + i % 3](c, rival.winner)
    claim = CLAIMS[0]

    def changed(**values: str | int) -> Contest:
        return Contest(**{**vars(c), **values})

    passage = [EVIDENCE[0](o, "") for o in company]
    passage.insert(rng.randrange(5), evidence)
    crowd = " ".join(passage)
    won, lost = claim(c), claim(c).replace(" won ", " lost ")
    return {
        "true": Pair(won, evidence),
        "reworded": Pair(CLAIMS[1 + i % 3](c), evidence),
        "in long text": Pair(won, crowd),
        "wrong name": Pair(claim(changed(winner=stranger.winner)), evidence),
        "wrong year": Pair(claim(changed(year=rng.choice((2010, 2016, 2018, 2020, 2024)))), evidence),
        "wrong state": Pair(claim(changed(state=stranger.state)), evidence),
        "wrong district or race": Pair(claim(changed(office=_other_office(c.office))), evidence),
        "text on another contest": Pair(won, EVIDENCE[i % 4](same, rival.winner)),
        "did not win": Pair(won.replace(" won ", " did not win "), evidence),
        "lost": Pair(lost, evidence),
        "loser in the same sentence": Pair(claim(changed(winner=rival.winner)), with_rival),
        "winner of another sentence": Pair(claim(changed(winner=company[0].winner)), crowd),
    }


def _other_office(office: str) -> str:
    if office.endswith("race"):
        return "governor race" if "senate" in office else "senate race"
    number = re.match(r"\d+", office)
    if not number:
        return "3rd congressional district"
    other = int(number[0]) + 4
    last = "th" if other % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(other % 10, "th")
    return f"{other}{last} congressional district"
