"""Write facts.tsv, the widely known facts that the memory is trained on, from the tables beside this script.

    python recipes/memory/facts.py [--output recipes/memory/facts.tsv]

Every table is our own. A relation has one wording, so that the memory learns facts and not phrases. A `-` marks a cell
without a single undisputed answer, which gives no question.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
TABLES = HERE / "tables"
UNASKED = "-"

WORDINGS = {
    "countries.tsv": {
        "capital": "What is the capital of {}?",
        "continent": "On which continent is {}?",
        "currency": "What is the currency of {}?",
        "language": "What is the official language of {}?",
    },
    "states.tsv": {"capital": "What is the state capital of {}?"},
    "elements.tsv": {
        "symbol": "What is the chemical symbol of {}?",
        "number": "What is the atomic number of {}?",
    },
    "presidents.tsv": {"president": "Who was the {} president of the United States?"},
}

Fact = tuple[str, str]


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a tab-separated table with a header line; quotes are ordinary characters."""
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def tabular(name: str, wordings: dict[str, str]) -> Iterator[Fact]:
    """One question for each filled cell of a table; the first column is the subject."""
    table = rows(TABLES / name)
    subject = next(iter(table[0]))
    for column, wording in wordings.items():
        for row in table:
            if row[column] != UNASKED:
                yield wording.format(row[subject]), row[column]


def relations(path: Path) -> Iterator[Fact]:
    """The facts of a file of sections: `# Wording with {}?`, then lines `subject|answer`."""
    wording = ""
    for line in filter(None, path.read_text(encoding="utf-8").splitlines()):
        if line.startswith("# "):
            wording = line.removeprefix("# ")
        else:
            subject, answer = line.split("|")
            yield wording.format(subject), answer


def facts() -> list[Fact]:
    """Every fact, in a stable order; ValueError where a question is asked twice."""
    all_facts = [fact for name, wordings in WORDINGS.items() for fact in tabular(name, wordings)]
    all_facts += relations(TABLES / "relations.txt")
    all_facts += ((row["question"], row["answer"]) for row in rows(TABLES / "others.tsv"))
    questions: set[str] = set()
    for question, _ in all_facts:
        if question in questions:
            raise ValueError(f"asked twice: {question!r}")
        questions.add(question)
    return all_facts


def render() -> str:
    """The text of facts.tsv."""
    return "".join(f"{question}\t{answer}\n" for question, answer in [("question", "answer"), *facts()])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=HERE / "facts.tsv")
    output: Path = parser.parse_args().output
    output.write_text(render(), encoding="utf-8")
    print(f"{len(facts())} facts in {output}")


if __name__ == "__main__":
    main()
