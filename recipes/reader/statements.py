"""Statements to read, made from evaluation sets for measuring only: MidtermQA, PopQA and WikiDYK.

Each reader yields (question, statements in our own words, accepted answers, group): distractors come from the
same group. The files stay where `--path` points; nothing of them is kept here.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOUSE = [
    "{who} prevailed in {state}'s {n} congressional district in the November 2022 elections.",
    "The {n} congressional district of {state} elected {who} to Congress in the 2022 midterms.",
    "In the midterm elections of 2022, {who} captured the {n} district of {state}.",
    "{who} was the winner of the 2022 House contest in the {n} district of {state}.",
    "A majority in {state}'s {n} district voted {who} into the House of Representatives in November 2022.",
]
STATEWIDE = [
    "{who} prevailed in {state}'s race for {office} in November 2022.",
    "The 2022 midterms made {who} the {office} of {state}.",
    "In the midterm elections of 2022, {state} elected {who} as {office}.",
    "{who} was the winner of the 2022 contest for {office} in {state}.",
    "A majority in {state} voted for {who} as {office} in November 2022.",
]
OFFICES = {"senate": "senator", "governor": "governor"}
POPQA = [
    (
        r"Who was the director of (.+)\?",
        "director",
        ["{o} directed {s}.", "{s} is a film by the director {o}."],
    ),
    (r"Who was the screenwriter for (.+)\?", "screenwriter", ["{o} wrote the script for {s}."]),
    (r"Who was the producer of (.+)\?", "producer", ["{s} was produced by {o}."]),
    (r"Who is the author of (.+)\?", "author", ["{s} is a book by {o}.", "{o} wrote {s}."]),
    (r"Who is the father of (.+)\?", "father", ["{s}'s father is {o}."]),
    (r"Who is the mother of (.+)\?", "mother", ["{s}'s mother is {o}."]),
    (r"Who was the composer of (.+)\?", "composer", ["{s} was set to music by {o}.", "{o} composed {s}."]),
    (r"What genre is (.+)\?", "genre", ["{s} is an example of {o}.", "The genre of {s} is {o}."]),
    (r"What is (.+)'s occupation\?", "occupation", ["{s} made a career as {o}.", "{s} is a {o} by trade."]),
    (r"What is the religion of (.+)\?", "religion", ["{s} adheres to {o}."]),
    (r"What is the capital of (.+)\?", "capital", ["{s} has its capital in {o}."]),
    (r"What is (.+) the capital of\?", "capital of", ["{s} is the capital city of {o}."]),
    (r"In what country is (.+)\?", "country", ["{s} can be found in {o}."]),
    (r"In what city was (.+) born\?", "birthplace", ["{s} was born in the city of {o}."]),
    (r"What sport does (.+) play\?", "sport", ["{s} is a {o} player.", "{s} takes part in {o}."]),
    (r"What color is (.+)\?", "colour", ["{s} is coloured {o}."]),
]


@dataclass(frozen=True)
class Item:
    """One question; `answer` is the first of the accepted answers and occurs in every statement."""

    question: str
    statements: tuple[str, ...]
    answer: str
    group: str


def midterm(folder: Path) -> list[Item]:
    """All 505 test questions; the group is the state, so that distractors are its other races."""
    rows = json.loads((folder / "MidtermQA-openbook.json").read_text(encoding="utf-8"))["testset"]
    return [_race(row["question"], row["answer"]) for row in rows]


def _race(question: str, who: str) -> Item:
    house = re.match(r"Who won the (\S+) congressional district of (.+) in the 2022", question)
    if house:
        n, state = house.groups()
        return Item(question, tuple(t.format(who=who, n=n, state=state) for t in HOUSE), who, state)
    statewide = re.match(r"Who won the (senate|governor) race of (.+) in the 2022", question)
    if statewide is None:
        raise ValueError(f"not a race: {question!r}")
    office, state = OFFICES[statewide[1]], statewide[2]
    return Item(question, tuple(t.format(who=who, office=office, state=state) for t in STATEWIDE), who, state)


def popqa(folder: Path) -> list[Item]:
    """PopQA; the group is the relation."""
    return list(_popqa(json.loads((folder / "popqa-dev.json").read_text(encoding="utf-8"))["rows"]))


def _popqa(rows: list[dict[str, str]]) -> Iterator[Item]:
    for row in rows:
        answer = json.loads(row["output"])[0]
        for pattern, relation, templates in POPQA:
            if match := re.fullmatch(pattern, row["input"]):
                yield Item(
                    row["input"], tuple(t.format(s=match[1], o=answer) for t in templates), answer, relation
                )
                break


def wikidyk(folder: Path) -> list[Item]:
    """WikiDYK facts whose statement holds the answer; one group."""
    rows = json.loads((folder / "wikidyk-dev.json").read_text(encoding="utf-8"))["rows"]
    statements = []
    for row in rows:
        text = (
            re.sub(r"\s*\([^)]*pictured[^)]*\)", "", row["fact"])
            .removeprefix("that ")
            .strip()
            .rstrip("?")
            .strip()
        )
        text = re.sub(r"\s+", " ", text.replace(" 's ", "'s ")) + "."
        if row["output"].lower() in text.lower():
            statements.append(Item(row["input"], (text[0].upper() + text[1:],), row["output"], "fact"))
    return statements
