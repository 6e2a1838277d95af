"""All gates on PopQA with a real LLM: what it knows itself is its own, and a card knows a random half of the facts.

    python -m benchmarks.popqa_gates --path popqa-dev.json --llm gguf:FILE.gguf --output FOLDER [--questions 300]

The card is an index of two statements for each of its facts. The LLM answers each question without cards and, at
kcard's defaults, with the card; then the gates are compared as by `kcard calibrate`, each fitted on other questions
than it is judged by. What was answered is kept in FOLDER: the same command goes on from there.
"""

import argparse
import json
import sys
from pathlib import Path

import kcard
from benchmarks.gates import Fact, carded, popqa_facts, say, table
from kcard.api.gates import calibrate
from kcard.evaluation.gates.calibration import calibration_data
from kcard.events import Event
from kcard.gates.records import read_records
from kcard.hub.registry import Hub


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="popqa-dev.json")
    parser.add_argument("--llm", required=True, help="as for kcard ask")
    parser.add_argument("--output", type=Path, required=True, help="where the card and the answers are kept")
    parser.add_argument("--questions", type=int, default=300, help="drawn with the seed")
    parser.add_argument("--gates", help="comma-separated [default: all that fit]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    facts = popqa_facts(args.path)
    questions = args.output / "questions.jsonl"
    write_questions(facts, questions)
    hub = Hub(args.output / "hub")
    if not hub.list():
        publish_card(facts, args, hub)
    records = args.output / "records.jsonl"
    kcard.collect(
        questions, records,
        limit=args.questions, resume=records.exists(), hub=hub, llm=args.llm, seed=args.seed, on_event=print_progress,
    )  # fmt: skip
    result = calibrate(
        read_records(records),
        gates=args.gates,
        llm=args.llm,
        seed=args.seed,
        on_event=lambda e: say(e.message),
    )
    report = {
        "world": "PopQA", "card": "of a random half", "memory": "its own", **calibration_data(result.comparison),
        "recommendation": result.choice.text,
    }  # fmt: skip
    (args.output / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(json.dumps(report) if args.json else table(report))


def print_progress(event: Event) -> None:
    if not event.is_note and event.done % 10 == 0:
        print(f"{event.kind}: {event.done} of {event.total}", file=sys.stderr, flush=True)


def write_questions(facts: list[Fact], path: Path) -> None:
    lines = []
    for fact in facts:
        row = {
            "question": fact.question,
            "answers": fact.answers,
            "group": fact.relation,
            "popularity": fact.popularity,
        }
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def publish_card(facts: list[Fact], args: argparse.Namespace, hub: Hub) -> None:
    corpus = args.output / "facts.txt"
    known = carded(facts, "independent", args.seed)
    statements: list[str] = []
    for fact, has in zip(facts, known, strict=True):
        if has:
            statements.extend(fact.statements)
    corpus.write_text("".join(f"{statement}\n" for statement in statements), encoding="utf-8")
    card = kcard.train(
        corpus, kind="retrieval", name="facts", description="Facts about people, works and places",
        output=args.output / "card", exam=False,
    )  # fmt: skip
    hub.publish(card.folder)


if __name__ == "__main__":
    main()
