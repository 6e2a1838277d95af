"""Write the corpus nobel-prizes: the Nobel laureates of 2010 to 2024, in our own sentences.

    python recipes/corpora/nobel.py [--output demo/corpora/nobel-prizes]

The facts are in nobel.tsv, beside this script. A prize gives one fact (who received it), and a second one if the table
has a topic: in the sciences the achievement, in literature the kind of writer.
"""

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_suffix(".tsv")
OUTPUT = Path(__file__).parents[2] / "demo" / "corpora" / "nobel-prizes"
UNSAID = "-"

PRIZES = {
    "physics": "Nobel Prize in Physics",
    "chemistry": "Nobel Prize in Chemistry",
    "medicine": "Nobel Prize in Physiology or Medicine",
    "literature": "Nobel Prize in Literature",
    "peace": "Nobel Peace Prize",
    "economics": "Nobel Memorial Prize in Economic Sciences",
}
RECEIVED = (
    "The {year} {prize} went to {laureates}.",
    "The {field} Nobel of {year} was awarded to {laureates}.",
    "{laureates} {were} honoured with the {prize} for {year}.",
)
REWARDED = (
    "The {year} {prize} was given for work on {topic}.",
    "Work on {topic} was rewarded with the {field} Nobel of {year}.",
    "For work on {topic}, {laureates} received the {field} Nobel of {year}.",
)
WROTE = (
    "The {field} Nobel of {year} went to {a} {topic}, {laureates}.",
    "{laureates}, {a} {topic}, was the Nobel laureate in {field} of {year}.",
)


@dataclass(frozen=True)
class Prize:
    field: str
    year: str
    laureates: tuple[str, ...]
    topic: str | None


def read(path: Path = TABLE) -> list[Prize]:
    """Every prize of the table, in its order."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        Prize(
            field=row["field"],
            year=row["year"],
            laureates=tuple(row["laureates"].split("; ")),
            topic=None if row["topic"] == UNSAID else row["topic"],
        )
        for row in rows
    ]


def facts(prize: Prize) -> list[list[str]]:
    """The facts about one prize, each as its wordings."""
    *others, last = prize.laureates
    values = {
        "field": prize.field,
        "year": prize.year,
        "prize": PRIZES[prize.field],
        "laureates": f"{', '.join(others)} and {last}" if others else last,
        "were": "were" if others else "was",
        "topic": prize.topic or "",
        "a": "an" if (prize.topic or "").startswith(("A", "E", "I", "O", "U")) else "a",
    }
    wordings: list[tuple[str, ...]] = [RECEIVED]
    if prize.topic:
        wordings.append(WROTE if prize.field == "literature" else REWARDED)
    return [[_sentence(wording.format_map(values)) for wording in fact] for fact in wordings]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def render() -> dict[str, str]:
    """File name -> text, one statement a line."""
    texts = {f"{field}.txt": "" for field in PRIZES}
    for prize in read():
        texts[f"{prize.field}.txt"] += "".join(f"{s}\n" for fact in facts(prize) for s in fact)
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=OUTPUT)
    output: Path = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (output / name).write_text(text, encoding="utf-8")
    print(f"{sum(len(facts(prize)) for prize in read())} facts in {output}")


if __name__ == "__main__":
    main()
