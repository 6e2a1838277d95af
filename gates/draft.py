"""The draft gate decides by a first answer without cards.

One head predicts how much better the answer would be with cards, another the probability that it is right without them.
They read the sentence vectors of question and answer, and surface features of question, answer and draft through a
Gaussian kernel.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, get_args

import numpy as np
import numpy.typing as npt

from kcard.embedded.question_forms import Form, fits, form_of
from kcard.errors import UsageError
from kcard.gates.base import FittedGate, GateState, Resources, Settings, parse_settings
from kcard.gates.features import (
    LinearHead,
    LogisticHead,
    Representation,
    bind,
    find,
    finite_vectors,
    fit_calibrated,
    fit_linear,
)
from kcard.gates.records import Query, Record
from kcard.interfaces import LLM, Array, replies

# Surface features of a draft: its form against the question's, hedges, lengths, repetition.

Floats = npt.NDArray[np.float64]
FORMS: tuple[Form, ...] = get_args(Form)
OF_DRAFT = 10
COUNT = len(FORMS) + OF_DRAFT + 21
HEDGE = re.compile(
    r"\b(unknown|not (?:available|known|mentioned|specified|provided|given|sure|clear|possible|enough)"
    r"|no information|don't know|do not know|cannot|can't|unable|unclear|uncertain|incomplete|insufficient"
    r"|probably|possibly|perhaps|might|may be|i think|i believe)\b",
    re.IGNORECASE,
)
CONCLUSION = re.compile(r"\banswer is:?\s+", re.IGNORECASE)
CONCLUDED = re.compile(r"\bso the answer is\b", re.IGNORECASE)
ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
WORD = re.compile(r"\w+")
CAPITAL = re.compile(r"(?<=\s)[A-Z]\w+")
RELATION = re.compile(r"\b(?:of|that|which|whose)\b")
NAME = re.compile(r"(?<!^)(?<![.!?] )\b[A-Z]\w+")  # not the first word of a sentence
CHOICE = re.compile(r"\bor\b")
COMPARISON = re.compile(r"\b(?:same|both|older|younger|earlier|later|more|longer|than)\b")
PREPOSITION = re.compile(r"(?:in|on|at|to|from|by)\b")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
LONGEST = 200  # characters of an answer


def plain(text: str) -> str:
    """Resolve escapes that some files contain as plain text (backslash, u, four digits), and put it on one line."""
    return " ".join(ESCAPED.sub(lambda match: chr(int(match[1], 16)), text).replace('\\"', '"').split())


def answer_of(draft: str) -> str:
    """Return what follows "the answer is:" in a draft that reasons first, else the text; at most 200 characters."""
    return CONCLUSION.split(draft)[-1].strip().removesuffix(".")[:LONGEST]


def features(question: str, answer: str, draft: str | None) -> list[float]:
    """Return COUNT numbers for any text, even an empty one. Features of the draft are NaN if there is none."""
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
        return [float("nan")] * OF_DRAFT
    words = draft.lower().split()
    draft_words = _words(draft)
    names = {name.lower() for name in NAME.findall(CONCLUSION.split(draft)[0])}
    return [
        float(bool(HEDGE.search(draft))),
        float(bool(CONCLUDED.search(draft))),
        float(np.log1p(len(draft))),
        float(len(SENTENCE_END.split(draft))),
        len(set(words)) / max(1, len(words)),
        float(len(CAPITAL.findall(draft))),
        float(draft.lower().count(answer.lower()) if answer else 0),
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


# Surface features say more together than one by one: a hedge means something else after a long draft than after a
# short one. So the heads read them through a Gaussian kernel, whose width is the typical distance of two records,
# approximated by random Fourier features (Rahimi & Recht, 2007, algorithm 1): cosines and sines of random projections.

FREQUENCIES = 512
OF_SURFACE = 2.0  # squared length of the kernel's part; the vectors of questions have variance 1, those of answers, too
FARTHEST = 4.0  # standard deviations, beyond which a feature is as if it were there
LEAST = 1e-9  # spread of a feature below which it is the same everywhere


def inputs(representation: Representation, queries: Sequence[Query], sure: bool) -> Floats:
    """Return the features of queries, shape (n, d): COUNT surface features, the log-probability if `sure`, then the
    vectors of questions and of answers. NaN: unknown."""
    questions = [query.question for query in queries]
    drafts = [plain(query.draft) if query.draft else None for query in queries]
    answers = [
        answer_of(plain(query.answer or draft or "")) for query, draft in zip(queries, drafts, strict=True)
    ]
    form = np.array(
        [features(*three) for three in zip(questions, answers, drafts, strict=True)], dtype=np.float64
    ).reshape(len(queries), COUNT)
    if sure:
        log_probabilities = [query.draft_log_probability for query in queries]
        form = np.column_stack([form, [np.nan if value is None else value for value in log_probabilities]])
    return np.hstack(
        [form, finite_vectors(representation, questions), finite_vectors(representation, answers)]
    )


@dataclass(frozen=True, eq=False)
class FourierFeatures:
    """What the heads read of the features that `inputs` returns.

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
        differs = spread > LEAST
        scale = np.where(differs, 1 / np.maximum(spread, LEAST), 0.0)
        scale[surface:] /= np.sqrt((values.shape[1] - surface) / 2)  # the vectors of questions and of answers
        frequencies = np.random.default_rng(seed % 2**32).standard_normal((surface, FREQUENCIES))
        return cls(centre, scale, frequencies / np.sqrt(max(1, int(differs[:surface].sum()))))

    def transform(self, values: Floats) -> Floats:
        """Return what the heads read, shape (n, 2 * FREQUENCIES + d - surface)."""
        surface = len(self.frequencies)
        standard = np.where(np.isnan(values), 0.0, values - self.centre) * self.scale
        phases = np.clip(standard[:, :surface], -FARTHEST, FARTHEST) @ self.frequencies
        weight = np.sqrt(OF_SURFACE / FREQUENCIES)
        return np.hstack([weight * np.cos(phases), weight * np.sin(phases), standard[:, surface:]])


KIND = "draft"
RIGHT = 0.5  # correctness from which an answer counts as right
SURE = 1.645  # standard errors, so that the share on other questions rarely exceeds the target


@dataclass(frozen=True)
class DraftSettings:
    """How the gate is fitted.

    share    the maximum share of questions that use cards, in (0, 1]
    encoder  see kcard.gates.features
    seed     of the folds on which penalties are chosen, and of the random projections
    """

    share: float = 0.65
    encoder: str = "minilm"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share is {self.share}, expected a number above 0 and up to 1")


@dataclass(frozen=True, eq=False)
class Draft(FittedGate):
    """The score is the expected correctness without cards less that with them, in [-1, 1].

    reader   makes of features what the heads read
    right    P(right without cards); weights of shape (2 * FREQUENCIES + vectors,)
    benefit  expected correctness with cards less that without; weights of the same shape
    drafted  whether it was fitted on drafts of the given LLM; then it scores only such drafts
    sure     whether the log-probability of the draft is a feature
    """

    representation: Representation
    options: DraftSettings
    threshold: float
    reader: FourierFeatures
    right: LogisticHead
    benefit: LinearHead
    drafted: bool
    sure: bool
    llm: LLM | None
    kind = KIND

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        """Fit on drafts by the LLM, if one is given, else on the drafts or answers of the records.

        The gate fires if cards are more likely right, or less often: see _threshold. Raises UsageError if there are no
        drafts, or nothing to tell apart.
        """
        options = parse_settings(DraftSettings, settings, KIND)
        drafted = resources.llm is not None
        queries = [record.query for record in records]
        if resources.llm is not None:
            queries = _with_drafts(resources.llm, queries)
        # Check that there is something to tell apart.
        if not records:
            raise UsageError(f"gate {KIND}: there are no records to fit it on: give about 1000")
        if not any(map(_has_answer, queries)):
            raise UsageError(
                f"gate {KIND}: none of {len(records)} records has a draft or answer_without: collect records with "
                "kcard gate collect, or choose an LLM that drafts with --llm"
            )
        if all(record.correct_without == record.correct_with for record in records):
            raise UsageError(
                f"gate {KIND}: in all {len(records)} records cards make no difference: add others, or use the "
                "gate never"
            )
        representation = resources.representation or find(options.encoder)
        sure = all(query.draft_log_probability is not None for query in queries)
        values = inputs(representation, queries, sure)
        reader = FourierFeatures.fit(values, COUNT + sure, options.seed)
        vectors = reader.transform(values)
        is_right = np.array([record.correct_without >= RIGHT for record in records])
        if is_right.any() and not is_right.all():
            right = fit_calibrated(vectors, is_right, options.seed)
        else:  # all are alike: their share, with one more of each class
            share = (float(is_right.sum()) + 1) / (len(is_right) + 2)
            right = LogisticHead(np.zeros(vectors.shape[1]), float(np.log(share / (1 - share))))
        # The gain is fitted itself and as a difference; these err in other places, so their mean is better than either.
        # The threshold is chosen on predictions for records that were left out.
        with_ = np.array([record.correct_with for record in records])
        without = np.array([record.correct_without for record in records])
        targets = np.column_stack([with_ - without, with_, without])
        benefit, unseen = fit_linear(vectors, targets, np.array([0.5, 0.5, -0.5]))
        threshold = _threshold(np.clip(-unseen, -1, 1), options.share)
        options = replace(options, encoder=representation.name)
        return cls(representation, options, threshold, reader, right, benefit, drafted, sure, resources.llm)

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        options = parse_settings(DraftSettings, settings, KIND)
        if "frequencies" not in state.arrays:
            raise ValueError("an earlier kcard fitted it on other features")
        names = ("weights", "bias", "centre", "scale", "frequencies")
        weights, bias, centre, scale, frequencies = arrays = [state.arrays[name] for name in names]
        drafted, sure = bool(state.values["drafted"]), bool(state.values["log_probability"])
        if frequencies.shape != (COUNT + sure, FREQUENCIES):
            raise ValueError("an earlier kcard fitted it on other features")
        width = 2 * FREQUENCIES + len(centre) - len(frequencies)
        if (
            weights.shape != (2, width)
            or bias.shape != (2,)
            or not centre.shape == scale.shape == (len(centre),)
        ):
            raise ValueError("its arrays don't fit each other")
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("its arrays are not finite")
        representation = bind(options.encoder, state.values["encoder_sha256"], resources.representation)
        weights, bias = weights.astype(np.float64), bias.astype(np.float64)
        right, benefit = LogisticHead(weights[0], float(bias[0])), LinearHead(weights[1], float(bias[1]))
        reader = FourierFeatures(*(array.astype(np.float64) for array in (centre, scale, frequencies)))
        return cls(representation, options, threshold, reader, right, benefit, drafted, sure, resources.llm)

    def scores(self, queries: Sequence[Query]) -> Array:
        """See FittedGate. Raises UsageError if a draft is needed and there is no LLM to write it."""
        gains = self.benefit.predict(self._read(queries))
        return np.clip(-gains, -1, 1).astype(np.float32)

    def correct_without(self, queries: Sequence[Query]) -> Array:
        """Return P(right without cards), shape (n,); raises as `scores`."""
        return self.right.probabilities(self._read(queries)).astype(np.float32)

    def state(self) -> GateState:
        return GateState(
            {
                "weights": np.stack([self.right.weights, self.benefit.weights]),
                "bias": np.array([self.right.bias, self.benefit.bias]),
                "centre": self.reader.centre,
                "scale": self.reader.scale,
                "frequencies": self.reader.frequencies,
            },
            {
                "encoder_sha256": self.representation.digest,
                "drafted": self.drafted,
                "log_probability": self.sure,
            },
        )

    def _read(self, queries: Sequence[Query]) -> Floats:
        """Return the features of queries; the LLM drafts answers that are missing.

        Without an LLM, missing answers count as empty, unless all of them are missing.
        """
        if self.llm is not None:
            undrafted = [query for query in queries if self.drafted or not _has_answer(query)]
            written = iter(_with_drafts(self.llm, undrafted))
            queries = [next(written) if self.drafted or not _has_answer(q) else q for q in queries]
        elif queries and not any(map(_has_answer, queries)):
            raise UsageError(f"gate {KIND} needs a draft by an LLM, and none is given: choose one with --llm")
        return self.reader.transform(inputs(self.representation, queries, self.sure))


def _has_answer(query: Query) -> bool:
    return bool(query.answer or query.draft)


def _with_drafts(llm: LLM, queries: Sequence[Query]) -> list[Query]:
    """Return the queries with short answers that the LLM writes without knowledge and without reasoning first."""
    written = replies(llm, [query.to_ask.request("answer", draft=True) for query in queries])
    drafted = []
    for query, reply in zip(queries, written, strict=True):
        scores = [token.log_probability for token in reply.tokens or ()]
        mean = float(np.mean(scores)) if scores else None
        drafted.append(replace(query, answer=reply.text, draft=None, draft_log_probability=mean))
    return drafted


def _threshold(scores: Floats, share: float) -> float:
    """Return 0, so that the gate fires if cards are more likely right, or a lower threshold that keeps to the share.

    `scores` are held out. Their quantile is uncertain, so the target is a little below the share.
    """
    if share == 1:
        return 0.0
    aimed = share - SURE * float(np.sqrt(share * (1 - share) / len(scores)))
    return min(0.0, float(np.quantile(scores, max(aimed, 0.0))))
