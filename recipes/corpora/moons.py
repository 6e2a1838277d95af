"""Write the corpus moons: moons of the solar system and their discoverers, in our own sentences.

    python recipes/corpora/moons.py [--output demo/corpora/moons]

moons.tsv, beside this script, has the planet, discoverer and year of each moon (`-`: shared or disputed, left out);
moon_features.txt has special features, with a paragraph for each fact and a line for each wording.
"""

import argparse
import csv
from pathlib import Path

TABLE = Path(__file__).with_suffix(".tsv")
FEATURES = Path(__file__).with_name("moon_features.txt")
OUTPUT = Path(__file__).parents[2] / "demo" / "corpora" / "moons"
UNSAID = "-"

WORDINGS = {
    "centre": (
        "{moon} is a moon of {centre}.",
        "{moon} travels around {centre}.",
        "One of the natural satellites of {centre} is {moon}.",
    ),
    "discoverer": (
        "{discoverer} discovered {moon}, a moon of {centre}.",
        "The discoverer of {moon} was {discoverer}.",
        "{moon} was first seen by the astronomer {discoverer}.",
    ),
    "year": (
        "{moon} was discovered in {year}.",
        "The year of the discovery of {moon} was {year}.",
        "{moon}, a moon of {centre}, has been known since {year}.",
    ),
}

Fact = list[str]


def rows() -> list[dict[str, str]]:
    """The moons, in the order of their planets."""
    with TABLE.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def names() -> list[str]:
    """Every moon of the table."""
    return [row["moon"] for row in rows()]


def facts(column: str) -> list[Fact]:
    """One fact for each filled cell of the column, as its wordings."""
    stated = [row for row in rows() if row[column] != UNSAID]
    return [[wording.format_map(row) for wording in WORDINGS[column]] for row in stated]


def features() -> list[Fact]:
    """The hand-written facts."""
    return [
        paragraph.splitlines() for paragraph in FEATURES.read_text(encoding="utf-8").strip().split("\n\n")
    ]


def files() -> dict[str, list[Fact]]:
    """File name -> its facts."""
    return {
        "planets.txt": facts("centre"),
        "discoverers.txt": facts("discoverer"),
        "years.txt": facts("year"),
        "features.txt": features(),
    }


def render() -> dict[str, str]:
    """File name -> text, one statement a line."""
    return {name: "".join(f"{s}\n" for fact in told for s in fact) for name, told in files().items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=OUTPUT)
    output: Path = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (output / name).write_text(text, encoding="utf-8")
    print(f"{sum(map(len, files().values()))} facts in {output}")


if __name__ == "__main__":
    main()
