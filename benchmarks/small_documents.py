"""Questions to house rules and small tables, which the embedded reader answers with a yes or no, or with one cell.

    python -m benchmarks.small_documents [--part rules tables] [--wrong]

rules/*.jsonl: passages of rules, manuals and licences, each with questions that it answers with yes, with no, or not at
all. A verdict is a reply that begins with "Yes" or "No" and is sure enough to be given; all else is a quotation or "I
don't know". A verdict on a question without an answer is wrong.

tables/*/: documents with tables, as one card each. tables/*.jsonl: questions about their cells. `gold`: a regular
expression that finds the right reply; null where "I don't know" is right.
"""

import argparse
import json
import re
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.kinds import hub_with
from kcard.integrators.pipeline import Pipeline
from kcard.llms.extraction.extract import extract

FOLDER = Path(__file__).parent
LABELS = ("yes", "no", "none")


def verdict(question: str, passage: str) -> tuple[str, str]:
    """Return "yes", "no" or "quoted" and the reply's text."""
    reply = extract(question, [passage])
    if reply is None or not reply.is_sure:
        return "quoted", ""
    word = re.match(r"(yes|no)\b", reply.text.casefold())
    return (word[1] if word else "quoted"), reply.text


def ask_rules(file: Path, *, show_wrong: bool) -> Counter[str]:
    """Count the verdicts on a file's questions: right, wrong, quoted, and quoted where there is no answer (none)."""
    counts: Counter[str] = Counter()
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for label in LABELS:
            for question in row[label]:
                reply, text = verdict(question, row["passage"])
                if reply == "quoted":
                    outcome = "none" if label == "none" else "quoted"
                else:
                    outcome = "right" if reply == label else "wrong"
                counts[outcome] += 1
                if outcome == "wrong" and show_wrong:
                    print(f"- {question} ({label}) -> {text}")
    return counts


def ask_tables(folder: Path, home: Path, *, show_wrong: bool) -> Counter[str]:
    """Count the replies to questions about tables: right, wrong, unknown (there is an answer), admitted."""
    pipeline = Pipeline(hub=hub_with("retrieval", folder, folder.name, home))
    counts: Counter[str] = Counter()
    for line in folder.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        answer = pipeline([row["question"]])[0]
        if not answer.known:
            outcome = "admitted" if row["gold"] is None else "unknown"
        elif row["gold"] is not None and re.search(row["gold"], answer.answer):
            outcome = "right"
        else:
            outcome = "wrong"
        counts[outcome] += 1
        if outcome in ("wrong", "unknown") and show_wrong:
            print(f"- {row['question']} ({row['gold']}) -> {answer.answer!r}")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=("rules", "tables"), default=["rules", "tables"])
    parser.add_argument("--wrong", action="store_true", help="print wrong replies")
    args = parser.parse_args()
    if "rules" in args.part:
        for file in sorted((FOLDER / "rules").glob("*.jsonl")):
            counts = ask_rules(file, show_wrong=args.wrong)
            print(
                f"rules, {file.stem}: {counts['right']} right, {counts['wrong']} wrong, {counts['quoted']} quoted; "
                f"without an answer: {counts['none']} quoted"
            )
    if "tables" in args.part:
        for file in sorted((FOLDER / "tables").glob("*.jsonl")):
            with tempfile.TemporaryDirectory() as scratch:
                counts = ask_tables(file.with_suffix(""), Path(scratch), show_wrong=args.wrong)
            print(
                f"tables, {file.stem}: {counts['right']} right, {counts['wrong']} wrong, "
                f"{counts['unknown']} don't know; without an answer: {counts['admitted']} admitted"
            )


if __name__ == "__main__":
    main()
