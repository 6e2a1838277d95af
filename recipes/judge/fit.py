"""Fit the judge, a logistic regression that decides between a card's model and its index if they disagree.

    python -m recipes.judge.fit --popqa popqa-dev.json --squad squad-dev.jsonl.gz [--home DIR]

A card of kind `both` is trained on each corpus (tokens and encoder prefix) and answers its questions, verbatim and
degraded; half of them again after their passages were deleted from the index, which the model still knows. The
regression is fitted on the questions that only the model or only the index answers. Writes integrators/judge.json and
prints, for several thresholds, how often the model is chosen and a document with the answer kept.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from benchmarks.recall import Question, holds, rows

import kcard
from kcard.cards.card import Card, finish
from kcard.cards.passages import passages
from kcard.cards.pool import CardPool
from kcard.integrators.disagreements import WEIGHTS, features
from kcard.types import Sampling
from recipes.judge.corpora import CorpusQuestion, popqa, squad, worn

THRESHOLDS = (0.0, 0.5, 1.0, 1.5, 2.0)


@dataclass(frozen=True)
class Case:
    """`model`, `index`: whether one of its documents holds the answer."""

    group: str
    values: dict[str, float]
    model: bool
    index: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--popqa", type=Path, required=True, help="popqa-dev.json")
    parser.add_argument("--squad", type=Path, required=True, help="squad-dev.jsonl.gz")
    parser.add_argument("--home", type=Path, help="keep the cards here, and use those that are there")
    args = parser.parse_args()
    corpora = {"popqa": popqa(args.popqa), "squad": squad(args.squad)}
    with tempfile.TemporaryDirectory() as scratch:
        home = args.home or Path(scratch)
        cases = [
            case
            for name, (texts, questions) in corpora.items()
            for case in _cases(name, _card(name, texts, home), questions, Path(scratch) / "without" / name)
        ]
    weights = fitted([case for case in cases if case.model != case.index])
    WEIGHTS.write_text(json.dumps(weights, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(weights), report(cases, weights), sep="\n\n")


def _card(name: str, texts: Sequence[str], home: Path) -> Card:
    if not (home / name).exists():
        corpus = home / f"{name}.txt"
        corpus.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        kcard.train(
            corpus, kind="both", name=name, base="embedded", minutes=600, output=home / name, exam=False
        )
    return Card.open(home / name)


def _cases(name: str, card: Card, items: Sequence[CorpusQuestion], scratch: Path) -> Iterator[Case]:
    rng = Random(0)
    forms = {
        "as it is": list(items),
        "worn": [CorpusQuestion(worn(a.question, rng), a.answers) for a in items],
    }
    hidden = set(rng.sample(range(len(items)), len(items) // 2))
    shutil.copytree(card.folder, scratch)
    answered = [Question("", items[i].answers) for i in hidden]
    remaining = [
        p for p in passages(card.folder) if not any(holds(p.text, question) for question in answered)
    ]
    lacking = finish(scratch, card.manifest, remaining)
    for form, questions in forms.items():
        yield from _answer_questions(f"{name}, {form}", card, questions)
        yield from _answer_questions(
            f"{name}, {form}, missing", lacking, [questions[i] for i in sorted(hidden)]
        )


def _answer_questions(group: str, card: Card, questions: Sequence[CorpusQuestion]) -> Iterator[Case]:
    written = CardPool([card]).generate(
        [a.question for a in questions], [[card.name]] * len(questions), 3, Sampling()
    )
    candidates = [[p for p in documents if p.text] for documents in written]
    both = [
        i for i, documents in enumerate(candidates) if {p.source is None for p in documents} == {True, False}
    ]
    feature_rows = features([(questions[i].question, candidates[i]) for i in both])
    for i, values in zip(both, feature_rows, strict=True):
        right = [(p.source is None, holds(p.text, Question("", questions[i].answers))) for p in candidates[i]]
        model, index = (any(hit for own, hit in right if own is written) for written in (True, False))
        yield Case(group, values, model, index)


def fitted(cases: Sequence[Case]) -> dict[str, float]:
    from sklearn.linear_model import LogisticRegression

    names = sorted(cases[0].values)
    table = np.array([[case.values[name] for name in names] for case in cases])
    model = LogisticRegression(C=1.0, fit_intercept=False, max_iter=1000)
    model.fit(table, [case.model for case in cases])
    return {name: round(float(weight), 4) for name, weight in zip(names, model.coef_[0], strict=True)}


def report(cases: Sequence[Case], weights: dict[str, float]) -> str:
    """The share of questions whose answer is in what is kept, and of those in which the model is taken."""
    lines = []
    for group in dict.fromkeys(case.group for case in cases):
        some = [case for case in cases if case.group == group]
        odds = [sum(weights[name] * value for name, value in case.values.items()) for case in some]
        row: dict[str, object] = {"questions": group, "n": len(some)}
        row["model"] = round(sum(case.model for case in some) / len(some), 3)
        row["index"] = round(sum(case.index for case in some) / len(some), 3)
        for threshold in THRESHOLDS:
            right = sum(
                case.model if o >= threshold else case.index for case, o in zip(some, odds, strict=True)
            )
            taken = sum(o >= threshold for o in odds)
            row[f"at {threshold}"] = f"{right / len(some):.3f} ({taken / len(some):.2f})"
        lines.append(row)
    return rows([*lines[0]], lines)


if __name__ == "__main__":
    main()
