"""How well the reader reads: exact match and F1 of its words, whether it tells texts that answer from those that do
not, and whether it finds the sentence."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kcard.embedded.reader import ReaderNetwork, read
from kcard.evaluation.metrics import exact_match, f1
from recipes.reader.example import Reading


@dataclass(frozen=True)
class Figures:
    """Shares in [0, 1], None where nothing was asked that has them.

    exact, f1    of the likeliest words, where the text answers in words
    auroc        AUROC of relevance: texts that answer against the likest that do not
    sentence     the likeliest sentence is one that the answer rests on
    questions    how many; `milliseconds` of wall time for one text
    """

    questions: int
    exact: float | None
    f1: float | None
    auroc: float | None
    sentence: float | None
    milliseconds: float


def figures(network: ReaderNetwork, readings: Sequence[Reading]) -> Figures:
    began, texts = time.perf_counter(), 0
    exact, overlap, sentence = [], [], []
    right, wrong = [], []
    for item in readings:
        shift = len(item.section) + 2 if item.section else 0
        contexts = [_in_context(item.section, item.text)] if item.text else []
        contexts += [_in_context(*item.near[0])] if item.near else []
        result = read(item.question, contexts, network)
        texts += len(contexts)
        if not item.answered:
            wrong += [reading.relevance for reading in result]
            continue
        reading = result[0]
        right.append(reading.relevance)
        wrong += [other.relevance for other in result[1:]]
        if item.spans:
            text = reading.answers[0].text if reading.answers else ""
            exact.append(exact_match(text, item.answers))
            overlap.append(f1(text, item.answers))
        if item.evidence and reading.sentences:
            best = max(reading.sentences, key=lambda s: s.evidence)
            places = ((a + shift, b + shift) for a, b in item.evidence)
            sentence.append(any(a < best.end and b > best.start for a, b in places))
    spent = time.perf_counter() - began
    auroc = _auroc(right, wrong) if right and wrong else None
    milliseconds = 1000 * spent / max(1, texts)
    return Figures(len(readings), _mean(exact), _mean(overlap), auroc, _mean(sentence), milliseconds)


def _in_context(section: str, text: str) -> str:
    return f"{section}: {text}" if section else text


def _auroc(right: Sequence[float], wrong: Sequence[float]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score([1] * len(right) + [0] * len(wrong), [*right, *wrong]))


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
