"""What the draft gate reads of a question, its answer and the draft: surface features and sentence vectors."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np
import numpy.typing as npt

from kcard.embedded.question_forms import Form, fits, form_of
from kcard.gates.features import Representation, finite_vectors
from kcard.gates.records import Query

Floats = npt.NDArray[np.float64]
FORMS: tuple[Form, ...] = get_args(Form)
DRAFT_FEATURES = 10
SURFACE_FEATURES = len(FORMS) + DRAFT_FEATURES + 21
HEDGE = re.compile(
    r"\b(unknown|not (?:available|known|mentioned|specified|provided|given|sure|clear|possible|enough)"
    r"|no information|don't know|do not know|cannot|can't|unable|unclear|uncertain|incomplete|insufficient"
    r"|probably|possibly|perhaps|might|may be|i think|i believe)\b",
    re.IGNORECASE,
)
CONCLUSION = re.compile(r"\banswer is:?\s+", re.IGNORECASE)
REASONED_CONCLUSION = re.compile(r"\bso the answer is\b", re.IGNORECASE)
ESCAPE_SEQUENCE = re.compile(r"\\u([0-9a-fA-F]{4})")
WORD = re.compile(r"\w+")
CAPITAL = re.compile(r"(?<=\s)[A-Z]\w+")
RELATION = re.compile(r"\b(?:of|that|which|whose)\b")
NAME = re.compile(r"(?<!^)(?<![.!?] )\b[A-Z]\w+")  # not the first word of a sentence
CHOICE = re.compile(r"\bor\b")
COMPARISON = re.compile(r"\b(?:same|both|older|younger|earlier|later|more|longer|than)\b")
PREPOSITION = re.compile(r"(?:in|on|at|to|from|by)\b")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
MAX_ANSWER_CHARACTERS = 200


def plain(text: str) -> str:
    """Resolve escapes that some files contain as plain text (backslash, u, four digits), and put it on one line."""
    return " ".join(
        ESCAPE_SEQUENCE.sub(lambda match: chr(int(match[1], 16)), text).replace('\\"', '"').split()
    )


def answer_of(draft: str) -> str:
    """Return what follows "the answer is:" in a draft that reasons first, else the text; at most 200 characters."""
    return CONCLUSION.split(draft)[-1].strip().removesuffix(".")[:MAX_ANSWER_CHARACTERS]


def features(question: str, answer: str, draft: str | None) -> list[float]:
    """Return SURFACE_FEATURES numbers for any text, even an empty one; those of the draft are NaN if there is none."""
    form = form_of(question)
    question_words, answer_words = _words(question), _words(answer)
    return [
        *(float(form == other) for other in FORMS),
        *_draft_features(question_words, answer, draft),
        # The answer
        float(fits(form, answer)),
        float(answer.lower().strip(" .") in {"yes", "no"}),
        float(bool(HEDGE.search(answer))),
        float(bool(re.search(r"\d", answer))),
        float(bool(re.fullmatch(r"\W*\d{4}\W*", answer))),
        float(answer[:1].isupper()),
        float("," in answer),
        float(np.log1p(len(answer))),
        float(len(answer_words)),
        _overlap(answer_words, question_words),
        # The question
        float(len(question_words)),
        float(np.log1p(len(question))),
        float(bool(re.search(r"\d", question))),
        float(question[:1].isupper()),
        float(question.rstrip().endswith("?")),
        float(len(CAPITAL.findall(question))),
        float(len(RELATION.findall(question.lower()))),
        float(bool(CHOICE.search(question.lower()))),
        float(bool(COMPARISON.search(question.lower()))),
        float(bool(PREPOSITION.match(question.lower()))),
        sum(map(len, question_words)) / max(1, len(question_words)),
    ]


def _draft_features(question_words: list[str], answer: str, draft: str | None) -> list[float]:
    if draft is None:
        return [float("nan")] * DRAFT_FEATURES
    words = draft.lower().split()
    draft_words = _words(draft)
    names = {name.lower() for name in NAME.findall(CONCLUSION.split(draft)[0])}
    return [
        float(bool(HEDGE.search(draft))),
        float(bool(REASONED_CONCLUSION.search(draft))),
        float(np.log1p(len(draft))),
        float(len(SENTENCE_END.split(draft))),
        len(set(words)) / max(1, len(words)),
        float(len(CAPITAL.findall(draft))),
        float(bool(answer) and draft.lower().count(answer.lower())),
        _overlap(question_words, draft_words),
        _overlap(draft_words, question_words),
        # What the draft brings in by itself: intermediate steps of a longer way, or inventions
        float(len(names.difference(question_words, _words(answer)))),
    ]


def _overlap(words: Sequence[str], others: Sequence[str]) -> float:
    """Return the share of the words that stand among the others."""
    vocabulary = set(others)
    return sum(word in vocabulary for word in words) / max(1, len(words))


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


FREQUENCIES = 512
KERNEL_SQUARED_LENGTH = 2.0  # the vectors of questions have variance 1, those of answers, too
MAX_DEVIATIONS = 4.0  # standard deviations, beyond which a feature is as if it were there
MIN_SPREAD = 1e-9  # of a feature, below which it is the same everywhere


def inputs(representation: Representation, queries: Sequence[Query], sure: bool) -> Floats:
    """Return the features of queries, shape (n, d): SURFACE_FEATURES of each, the log-probability if `sure`, then the
    vectors of questions and of answers. NaN: unknown."""
    questions, answers, surface = [], [], []
    for query in queries:
        draft = None
        if query.draft:
            draft = plain(query.draft)
        answer = answer_of(plain(query.answer or draft or ""))
        row = features(query.question, answer, draft)
        if sure:
            log_probability = query.draft_log_probability
            row.append(np.nan if log_probability is None else log_probability)
        questions.append(query.question)
        answers.append(answer)
        surface.append(row)
    numbers = np.array(surface, dtype=np.float64).reshape(len(queries), SURFACE_FEATURES + sure)
    return np.hstack(
        [numbers, finite_vectors(representation, questions), finite_vectors(representation, answers)]
    )


@dataclass(frozen=True, eq=False)
class FourierFeatures:
    """What the heads read of the features that `inputs` returns.

    Surface features say more together than one by one: a hedge means something else after a long draft than after a
    short one. So the heads read them through a Gaussian kernel, whose width is the typical distance of two records,
    approximated by random Fourier features (Rahimi & Recht, 2007, algorithm 1): cosines and sines of random
    projections.

    centre       the mean of each feature, which replaces unknown values; shape (d,)
    scale        what it is multiplied by; 0 for a feature without known values, or with equal ones; shape (d,)
    frequencies  the random projections of the surface features, which come first; shape (surface, FREQUENCIES)
    """

    centre: Floats
    scale: Floats
    frequencies: Floats

    @classmethod
    def fit(cls, values: Floats, surface: int, seed: int) -> Self:
        """Fit centre and scale to features, shape (n, d), of which the first `surface` go through the kernel."""
        is_number = ~np.isnan(values)
        counts = np.maximum(is_number.sum(axis=0), 1)
        centre = np.where(is_number, values, 0).sum(axis=0) / counts
        spread = np.sqrt((np.where(is_number, values - centre, 0) ** 2).sum(axis=0) / counts)
        differs = spread > MIN_SPREAD
        scale = np.where(differs, 1 / np.maximum(spread, MIN_SPREAD), 0.0)
        scale[surface:] /= np.sqrt((values.shape[1] - surface) / 2)  # the vectors of questions and of answers
        frequencies = np.random.default_rng(seed % 2**32).standard_normal((surface, FREQUENCIES))
        return cls(centre, scale, frequencies / np.sqrt(max(1, int(differs[:surface].sum()))))

    def transform(self, values: Floats) -> Floats:
        """Return what the heads read, shape (n, 2 * FREQUENCIES + d - surface)."""
        surface = len(self.frequencies)
        standard = np.where(np.isnan(values), 0.0, values - self.centre) * self.scale
        phases = np.clip(standard[:, :surface], -MAX_DEVIATIONS, MAX_DEVIATIONS) @ self.frequencies
        weight = np.sqrt(KERNEL_SQUARED_LENGTH / FREQUENCIES)
        return np.hstack([weight * np.cos(phases), weight * np.sin(phases), standard[:, surface:]])
