"""Nine corpora for cards beside the one on the 2022 midterms; three cover other elections in the same states.

Facts come from corpora/*.tsv, the demo's corpora and the evaluation data. The sentences are our own, except WikiDYK's
facts, which are used verbatim and not stored.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recipes.reader.statements import popqa, wikidyk

HERE = Path(__file__).resolve().parent
DEMO = HERE.parent / "demo" / "corpora"
FACTS = 250

SENATE = (
    "{winner} won {state}'s Senate race in {year}.",
    "{state} elected {winner} to the U.S. Senate in the {year} elections.",
    "In the elections of {year}, the Senate seat of {state} went to {winner}.",
)
GOVERNOR = (
    "{winner} won {state}'s race for governor in {year}.",
    "{state} elected {winner} as governor in the {year} elections.",
    "In the elections of {year}, the governorship of {state} went to {winner}.",
)
CAPITAL = (
    "The capital of {country} is {capital}.",
    "{country} is governed from its capital, {capital}.",
    "{capital} is the capital city of {country}.",
)
ELEMENT = (
    "The chemical element {element} has the symbol {symbol}.",
    "The atomic number of {element} is {number}.",
    "Element number {number} of the periodic table is {element}.",
)


@dataclass(frozen=True)
class Neighbour:
    """`near`: it tells of elections in the states that the questions are about."""

    name: str
    description: str
    date: str
    statements: tuple[str, ...]
    near: bool = False


def neighbours(data: Path) -> list[Neighbour]:
    """The nine, near ones first; `data` holds popqa-dev.json and wikidyk-dev.json."""
    return [
        *(_elections(year) for year in ("2018", "2020", "2014")),
        _demo("moons", "moons of the solar system: planets, discoverers and years of discovery"),
        _demo("nobel-prizes", "Nobel prizes: who won which prize in which year, and what for"),
        Neighbour("capitals", "capitals of the countries of the world", "2023", _filled("capitals", CAPITAL)),
        Neighbour(
            "elements",
            "chemical elements: their symbols and atomic numbers",
            "2023",
            _filled("elements", ELEMENT),
        ),
        Neighbour(
            "arts-and-people",
            "films, books, songs and people: directors, authors, composers, occupations, parents",
            "2021",
            tuple(s for item in popqa(data)[:FACTS] for s in item.statements),
        ),
        Neighbour(
            "curiosities",
            "little-known facts about people, places, animals, buildings and history",
            "2024",
            tuple(s for item in wikidyk(data)[:FACTS] for s in item.statements),
        ),
    ]


def _elections(year: str) -> Neighbour:
    facts = tuple(
        wording.format_map(row)
        for row in _rows("elections")
        if row["year"] == year
        for wording in (SENATE if row["office"] == "senate" else GOVERNOR)
    )
    description = f"winners of the {year} U.S. elections: Senate and governors"
    return Neighbour(f"elections-{year}", description, f"{year}-12-31", facts, near=True)


def _demo(name: str, description: str) -> Neighbour:
    files = sorted((DEMO / name).glob("*.txt"))
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return Neighbour(name, description, "2023", tuple(line for line in lines if line.strip()))


def _filled(table: str, wordings: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(wording.format_map(row) for row in _rows(table) for wording in wordings)


def _rows(table: str) -> Iterator[dict[str, str]]:
    with (HERE / "corpora" / f"{table}.tsv").open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
