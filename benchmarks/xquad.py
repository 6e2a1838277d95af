"""XQuAD English, prose with human questions as one corpus of 24 articles: a card's model, its index, and both.

    python -m benchmarks.xquad --path xquad-en-dev.json [--limit N] [--json]

A card of kind `both` is trained; the model alone is that card without its index, the index alone a retrieval card of
the same paragraphs. Prints recall of the first document (temperature 0), of any of three (temperature .7; for the
index, its best three) and of the passages that the selectors kept, and EM and F1 of the pipeline's answers with the
embedded reader. A document has at most 100 tokens.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import kcard
from benchmarks.recall import Question, documents, holds, measured, recalled, rows, share
from benchmarks.wikidyk import times
from kcard.cards.card import Card, finish
from kcard.cards.passages import passages
from kcard.evaluation.metrics import exact_match, f1
from kcard.hub.registry import Hub
from kcard.integrators.pipeline import Pipeline
from kcard.types import Sampling

COLUMNS = ("card", "greedy", "any of 3", "whole", "kept", "EM", "F1", "s a question")
DESCRIPTION = "paragraphs of encyclopedic articles on history, science, sport and places"
MODES: dict[str, dict[str, Any]] = {
    "top-down": {"mode": "top-down", "gate": "always"},
    "bottom-up": {"mode": "bottom-up", "gate": "always"},
}
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="xquad-en-dev.json")
    parser.add_argument("--limit", type=int, help="ask the first N questions only")
    parser.add_argument("--card", type=Path, help="a card of kind both that was trained before")
    parser.add_argument("--mode", choices=list(MODES), default="top-down")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    paragraphs, questions = read(args.path)
    questions = questions[: args.limit]
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        corpus = home / "paragraphs.txt"
        corpus.write_text("".join(f"{paragraph}\n" for paragraph in paragraphs), encoding="utf-8")
        cards, training = learn(home, corpus, args.card, args.seed)
        hub = Hub(home)
        for card in cards:
            hub.publish(card.folder)
        rows = [measure(card, questions, hub, MODES[args.mode]) for card in cards]
    report = {"questions": len(questions), "mode": args.mode, **training, "cards": rows}
    print(json.dumps(report) if args.json else table(report))


def read(path: Path) -> tuple[list[str], list[Question]]:
    """Paragraphs on one line each, and the questions on all of them."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    questions = [
        Question(item["question"], tuple(answer["text"] for answer in item["answers"]))
        for paragraph in paragraphs
        for item in paragraph["qas"]
    ]
    return [" ".join(paragraph["context"].split()) for paragraph in paragraphs], questions


def learn(home: Path, corpus: Path, trained: Path | None, seed: int) -> tuple[list[Card], dict[str, Any]]:
    """The cards `model`, `index` and `both`, and how long training took."""
    begun = time.monotonic()
    if trained is None:
        print("training the card", file=sys.stderr)
        both = kcard.train(
            corpus, kind="both", name="both", description=DESCRIPTION, base="embedded",
            output=home / "both", minutes=600, seed=seed, exam=False,
        )  # fmt: skip
    else:
        both = renamed(Card.open(trained), home, "both", kind="both")
    figures = times(both, time.monotonic() - begun) | {"passages": both.manifest.training.passages}
    index = kcard.train(
        corpus, kind="retrieval", name="index", description=DESCRIPTION, output=home / "index"
    )
    return [renamed(both, home, "model", kind="model"), index, both], figures


def renamed(card: Card, home: Path, name: str, *, kind: str) -> Card:
    """A copy of the card, of another name and kind: of both, or its model alone."""
    folder = home / name
    shutil.copytree(card.folder, folder)
    texts = list(passages(card.folder))
    return finish(folder, replace(card.manifest, name=name, kind=kind), texts)


def measure(card: Card, questions: Sequence[Question], hub: Hub, options: dict[str, Any]) -> dict[str, Any]:
    figures: dict[str, Any] = {"card": card.name}
    if card.name == "both":
        figures |= side_by_side(card, questions)
    else:
        alone = measured(card, questions)
        figures |= {key: alone[key] for key in ("greedy", "any of 3", "whole")}
    pipeline, begun = Pipeline(hub=hub, cards=[card.name], **options), time.perf_counter()
    texts = [question.text for question in questions]
    answers = [a for at in range(0, len(texts), BATCH) for a in pipeline(texts[at : at + BATCH])]
    seconds = (time.perf_counter() - begun) / len(questions)
    pairs = list(zip(answers, questions, strict=True))
    return figures | {
        "kept": share(any(holds(p.knowledge, q) for p in a.passages if p.kept) for a, q in pairs),
        "EM": share(bool(exact_match(a.answer, q.answers)) for a, q in pairs),
        "F1": round(sum(f1(a.answer, q.answers) for a, q in pairs) / len(pairs), 3),
        "s a question": round(seconds, 3),
    }


def side_by_side(card: Card, questions: Sequence[Question]) -> dict[str, float]:
    """Recall where either writer's document counts: the first of each, and the first three of each."""
    one = documents(card, questions, 1, Sampling(temperature=0.0, tokens=100))
    three = documents(card, questions, 3, Sampling(temperature=0.7, tokens=100))
    return {"greedy": recalled(questions, one), "any of 3": recalled(questions, three)}


def table(report: dict[str, Any]) -> str:
    head = (
        f"{report['questions']} questions, {report['passages']} passages, {report['mode']}; style {report['style']}, "
        f"{report['steps']} steps, estimated {report['estimated']} s, taken {report['taken']} s\n\n"
    )
    return head + rows(COLUMNS, report["cards"])


if __name__ == "__main__":
    main()
