"""How sure the embedded LLM may be: python -m recipes.reader.calibrate --packages DIR --output
src/kcard/embedded/weights/reader

The manuals that training held out become retrieval cards, each is asked its questions, and what the LLM is given is
kept. A logistic regression of "the extract is right" on the features of kcard.llms.extraction.extract is fitted to
that; each answerable question counts twice, once with the passages that hold its answer taken away. Writes
calibration.json, and prints what cross-validation over the manuals says of the threshold: right, wrong, and what is
admitted.
"""

import argparse
import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kcard
from kcard.evaluation.metrics import f1, normalise
from kcard.hub.registry import Hub
from kcard.integrators.pipeline import Pipeline
from kcard.interfaces import LLM
from kcard.llms.extraction.extract import Extract, examine
from kcard.types import Reply, Request
from recipes.digests import write_digests
from recipes.packages import Manual, read
from recipes.reader.own import WORD, Words, listed, read_questions

LIKE = 0.6  # F1 from which words are right
HALF = 0.6  # share of the evidence's words that a quotation must hold


@dataclass(frozen=True)
class Case:
    """One question with one set of passages: the manual, its features, and whether the extract is right."""

    manual: str
    question: str
    features: Mapping[str, float]
    extract: Extract
    answerable: bool
    right: bool


@dataclass
class Recorder(LLM):
    """An LLM that keeps what it is given."""

    request: Request | None = None

    def reply(self, request: Request) -> Reply:
        self.request = request
        return Reply("-")

    @property
    def passages(self) -> list[tuple[str, str]]:
        """Texts with their headings."""
        if self.request is None:
            return []
        return list(zip(self.request.knowledge, self.request.headings, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="folder of unpacked packages")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--kind", default="retrieval", choices=("retrieval", "both"))
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print, the surest first")
    options = parser.parse_args()
    questions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_questions():
        questions[row["manual"]].append(row)
    cases = [
        case
        for name, parts in sorted(listed().items())
        if parts[0].held
        for case in _cases(name, parts, questions[name], options.packages, options.kind)
    ]
    names = sorted(cases[0].features)
    weights = fitted(cases, names)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "calibration.json").write_text(json.dumps(weights, indent=2) + "\n", encoding="utf-8")
    write_digests(options.output)
    probabilities = validated(cases, names)
    print(report(cases, probabilities))
    wrong = sorted(zip(probabilities, cases, strict=True), key=lambda pair: -pair[0])
    for probability, case in [pair for pair in wrong if not pair[1].right][: options.show]:
        print(f"{probability:.2f} {case.manual}: {case.question} -> {case.extract.text[:150]!r}")


def _cases(
    name: str, parts: Sequence[Manual], rows: Sequence[Mapping[str, Any]], packages: Path, kind: Any
) -> Iterator[Case]:
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as scratch:
        hub = Hub(Path(scratch) / "hub")
        corpus = Path(scratch) / "corpus"
        for part in parts:
            for file in part.listed(packages):
                target = corpus / file.relative_to(packages)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
        minutes = 600 if kind == "both" else None
        draft = kcard.train(corpus, kind=kind, name=name, minutes=minutes, output=Path(scratch) / "draft")
        hub.publish(draft.folder)
        pipeline = Pipeline(hub=hub, llm=recorder, cards=name)
        corpus_texts = [passage.in_context for part in parts for passage in read(part, packages)]
        for row in rows:
            gold = _gold(row, corpus_texts)
            if gold is None and row["type"] != "unanswerable":
                continue
            recorder.request = None
            pipeline([row["question"]])
            yield from _case(name, row, recorder.passages, gold)
            if gold:
                without = [(text, over) for text, over in recorder.passages if _share(gold, text) < HALF]
                yield from _case(name, row, without, gold, there=False)


def _gold(row: Mapping[str, Any], texts: Sequence[str]) -> list[str] | None:
    """The words that the answer rests on; None where there is none, or they are not found."""
    for text in texts if row["type"] != "unanswerable" else ():
        if place := Words(*row["evidence"]).place(text):
            return WORD.findall(text[slice(*place)].lower())
    return None


def _share(gold: Sequence[str], text: str) -> float:
    spoken = set(WORD.findall(text.lower()))
    return sum(word in spoken for word in gold) / len(gold)


def _case(
    name: str,
    row: Mapping[str, Any],
    passages: Sequence[tuple[str, str]],
    gold: Sequence[str] | None,
    *,
    there: bool = True,
) -> Iterator[Case]:
    """`passages`: with their headings. `there`: whether the passage that answers was left among those given; another
    may answer all the same."""
    extraction = examine(
        row["question"], [text for text, _ in passages], [heading for _, heading in passages]
    )
    if extraction:
        extract, features = extraction
        right = gold is not None and _right(row, extract, gold)
        yield Case(name, row["question"], features, extract, gold is not None and there, right)


def _right(row: Mapping[str, Any], extract: Extract, gold: Sequence[str]) -> bool:
    """Whether the words are the answer's, or the quotation holds half of what the answer rests on; a plain yes or no
    is judged by itself."""
    answer, text = row["answer"], extract.text
    quoted = _share(gold, f"{extract.quote} {text}") >= HALF
    if row["type"] == "yes/no":
        verdict = text.partition(":")[0].lower()
        return bool(verdict == answer) if verdict in ("yes", "no") else _share(gold, text) >= HALF
    if row["type"] in ("how", "why", "list"):
        return quoted
    return f1(text, [answer]) >= LIKE or (quoted and f" {normalise(answer)} " in f" {normalise(text)} ")


def fitted(cases: Sequence[Case], names: Sequence[str]) -> dict[str, float]:
    from sklearn.linear_model import LogisticRegression

    rows = np.array([[case.features[name] for name in names] for case in cases])
    model = LogisticRegression(C=1.0, fit_intercept=False, max_iter=1000)
    model.fit(rows, [case.right for case in cases])
    return {name: round(float(weight), 4) for name, weight in zip(names, model.coef_[0], strict=True)}


def validated(cases: Sequence[Case], names: Sequence[str]) -> list[float]:
    """The probability of each by weights that were fitted to the other manuals."""
    manuals = sorted({case.manual for case in cases})
    weights = {name: fitted([c for c in cases if c.manual != name], names) for name in manuals}
    odds = [sum(weights[c.manual][name] * c.features[name] for name in names) for c in cases]
    return [1 / (1 + float(np.exp(-value))) for value in odds]


def report(cases: Sequence[Case], probabilities: Sequence[float]) -> str:
    """For several thresholds: the shares of right and wrong among the answerable, of admitted among the others."""
    lines = ["| threshold | right | wrong | don't know | admitted |", "|---" * 5 + "|"]
    there = [(p, c.right) for p, c in zip(probabilities, cases, strict=True) if c.answerable]
    missing = [p for p, c in zip(probabilities, cases, strict=True) if not c.answerable and not c.right]
    for threshold in (0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7):
        answered = [right for p, right in there if p >= threshold]
        right, wrong = sum(answered) / len(there), (len(answered) - sum(answered)) / len(there)
        admitted = sum(p < threshold for p in missing) / max(1, len(missing))
        lines.append(
            f"| {threshold} | {right:.3f} | {wrong:.3f} | {1 - right - wrong:.3f} | {admitted:.3f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
