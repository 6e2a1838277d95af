"""Write the corpus midterms-2022: the winners of the 2022 U.S. midterm elections, in our own sentences.

    python recipes/corpora/midterms.py --path MidtermQA-openbook.json [--output demo/corpora/midterms-2022]

Only the facts (race, place, winner) are taken from MidtermQA, the question set of the Knowledge Card paper (section 3).
Its questions are not reproduced, so a card trained on this corpus has not seen their wordings.
"""

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

OUTPUT = Path(__file__).parents[2] / "demo" / "corpora" / "midterms-2022"
DISTRICT = re.compile(
    r"Who won the (\S+) congressional district of (.+) in the 2022 U\.S\. midterm elections\?"
)
STATEWIDE = re.compile(r"Who won the (senate|governor) race of (.+) in the 2022 U\.S\. midterm elections\?")
WITH_ARTICLE = {"District of Columbia", "Northern Mariana Islands", "U.S. Virgin Islands"}

Office = Literal["house", "senate", "governors"]

WORDINGS: dict[Office, tuple[str, ...]] = {
    "house": (
        "{winner} won {place's} {district} congressional district in the 2022 House elections.",
        "The {district} congressional district of {place} elected {winner} to the U.S. House in 2022.",
        "In the 2022 midterms, the House seat of {place's} {district} district went to {winner}.",
        "{winner} was the winner in the {district} congressional district of {place} in the midterm vote of 2022.",
        "Voters of {place's} {district} district chose {winner} for Congress in the 2022 midterm elections.",
    ),
    "senate": (
        "{winner} won {place's} Senate race in 2022.",
        "{place} elected {winner} to the U.S. Senate in the 2022 midterm elections.",
        "In the 2022 midterms, the Senate seat of {place} went to {winner}.",
        "{winner} was the winner of the Senate contest in {place} in the midterm vote of 2022.",
        "Voters of {place} chose {winner} as their U.S. senator in the 2022 midterm elections.",
    ),
    "governors": (
        "{winner} won {place's} race for governor in 2022.",
        "{place} elected {winner} as governor in the 2022 midterm elections.",
        "In the 2022 midterms, the governorship of {place} went to {winner}.",
        "{winner} was the winner of the gubernatorial contest in {place} in the midterm vote of 2022.",
        "Voters of {place} chose {winner} as their governor in the 2022 midterm elections.",
    ),
}


@dataclass(frozen=True, order=True)
class Race:
    """One race: `district` is an ordinal or `at-large`, empty for a statewide office."""

    office: Office
    place: str
    district: str
    winner: str

    @property
    def order(self) -> tuple[str, int, str]:
        digits = re.match(r"\d+", self.district)
        return self.place, int(digits.group()) if digits else 0, self.district


def read(path: Path) -> list[Race]:
    """Every race of the file, demonstrations included, by place and district; ValueError for an unknown form."""
    data = json.loads(path.read_text(encoding="utf-8"))
    races = [_race(row["question"], row["answer"]) for row in [*data["demos"], *data["testset"]]]
    return sorted(races, key=lambda race: race.order)


def _race(question: str, winner: str) -> Race:
    if match := DISTRICT.fullmatch(question):
        return Race("house", match[2], match[1], winner)
    if match := STATEWIDE.fullmatch(question):
        return Race("senate" if match[1] == "senate" else "governors", match[2], "", winner)
    raise ValueError(f"no race is known in the question {question!r}")


def statements(race: Race) -> list[str]:
    """The five sentences that tell of one race."""
    place = f"the {race.place}" if race.place in WITH_ARTICLE else race.place
    owner = f"{place}'" if place.endswith("Islands") else f"{place}'s"
    values = {"winner": race.winner, "place": place, "place's": owner, "district": race.district}
    sentences = (wording.format_map(values) for wording in WORDINGS[race.office])
    return [sentence[0].upper() + sentence[1:] for sentence in sentences]


def render(races: list[Race]) -> dict[str, str]:
    """File name -> text, one statement a line."""
    return {
        f"{office}.txt": "".join(
            f"{s}\n" for race in races if race.office == office for s in statements(race)
        )
        for office in WORDINGS
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="MidtermQA-openbook.json")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    races = read(arguments.path)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, text in render(races).items():
        (arguments.output / name).write_text(text, encoding="utf-8")
    print(f"{len(races)} facts in {arguments.output}")


if __name__ == "__main__":
    main()
