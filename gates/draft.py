"""The draft gate: a first answer without cards decides.

Two logistic heads give the probability that the answer is right without cards, and with them. Their features are the
vectors of question and answer by a sentence encoder, and what the draft tells of itself (draft_features.py).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self, get_args

import numpy as np
import numpy.typing as npt

from kcard.errors import UsageError
from kcard.gates.base import GateState, Resources, parse_settings
from kcard.gates.features import LogisticHead, Representation, bind, cross_fit, find, finite_vectors
from kcard.gates.records import Query, Record
from kcard.gates.skr import Bools
from kcard.interfaces import LLM, Array, replies
from kcard.offline.questions import Form, fits, form_of
from kcard.types import Reply, Request

__all__ = [
    "COUNT",
    "Draft",
    "DraftSettings",
    "Floats",
    "answer_of",
    "features",
    "inputs",
    "plain",
    "standardise",
]


# What a draft tells of itself: its form against the question's, hedges, lengths, repetition. Numbers, no model.

Floats = npt.NDArray[np.float64]
FORMS: tuple[Form, ...] = get_args(Form)
OF_DRAFT = 7
COUNT = len(FORMS) + OF_DRAFT + 18
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
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
LONGEST = 200  # characters of an answer


def plain(text: str) -> str:
    """The text without the escapes that some files keep as letters (backslash, u, four digits), on one line."""
    return " ".join(ESCAPED.sub(lambda found: chr(int(found[1], 16)), text).replace('\\"', '"').split())


def answer_of(draft: str) -> str:
    """What follows "the answer is:" in a draft that reasons first, else the text; at most 200 characters."""
    return CONCLUSION.split(draft)[-1].strip().removesuffix(".")[:LONGEST]


def features(question: str, answer: str, draft: str | None) -> list[float]:
    """COUNT numbers; any text will do, an empty one too. What is known of a draft only is NaN where there is none."""
    form = form_of(question)
    question_words, answer_words = _words(question), _words(answer)
    return [
        *(float(form == known) for known in FORMS),
        *_of_draft(answer, draft),
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
        sum(word in set(question_words) for word in answer_words) / max(1, len(answer_words)),
        # The question
        float(len(question_words)),
        float(np.log1p(len(question))),
        float(bool(re.search(r"\d", question))),
        float(question[:1].isupper()),
        float(question.rstrip().endswith("?")),
        float(len(CAPITAL.findall(question))),
        float(len(RELATION.findall(question.lower()))),
        _letters(question_words),
    ]


def _of_draft(answer: str, draft: str | None) -> list[float]:
    if draft is None:
        return [float("nan")] * OF_DRAFT
    words = draft.lower().split()
    return [
        float(bool(HEDGE.search(draft))),
        float(bool(CONCLUDED.search(draft))),
        float(np.log1p(len(draft))),
        float(len(SENTENCE_END.split(draft))),
        len(set(words)) / max(1, len(words)),
        float(len(CAPITAL.findall(draft))),
        float(draft.lower().count(answer.lower()) if answer else 0),
    ]


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _letters(words: list[str]) -> float:
    """The mean length of a word."""
    return sum(map(len, words)) / max(1, len(words))


# Questions with their answers and drafts as rows of numbers, and these at the scales that they are to count with.

# How far features count beside each other, per standard deviation; a penalty shrinks what is small first.
OF_FORM = 0.5
OF_VECTORS = 0.2
LEAST = 1e-9  # spread of a feature below which it is the same everywhere


def inputs(representation: Representation, queries: Sequence[Query], sure: bool) -> Floats:
    """Shape (n, d): what answers and drafts tell of themselves, COUNT numbers or one more, then the vectors of
    questions and of answers. NaN: not known."""
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


def standardise(values: Floats, of_form: int) -> tuple[Floats, Floats, Floats]:
    """The values about their mean, each column at the scale that it is to count with; that scale, and the mean.

    What is not known is at the mean; a column in which nothing is known, or all is the same, does not count.
    `of_form`: how many of the columns are not of vectors.
    """
    is_number = ~np.isnan(values)
    counts = np.maximum(is_number.sum(axis=0), 1)
    centre = np.where(is_number, values, 0).sum(axis=0) / counts
    apart = np.where(is_number, values - centre, 0)
    spread = np.sqrt((apart**2).sum(axis=0) / counts)
    weight = np.full(values.shape[1], OF_VECTORS)
    weight[:of_form] = OF_FORM
    scale = np.where(spread > LEAST, weight / np.maximum(spread, LEAST), 0.0)
    return apart * scale, scale, centre


KIND = "draft"
RIGHT = 0.5  # correctness from which on an answer counts as right
SURE = 1.645  # standard errors: so that the share on other questions rarely exceeds the wanted one


@dataclass(frozen=True)
class DraftSettings:
    """How the gate is fitted.

    share    at most this share of the questions uses cards, in (0, 1]
    encoder  see kcard.gates.features
    seed     of the folds on which penalties are chosen
    """

    share: float = 0.7
    encoder: str = "minilm"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share is {self.share}, expected a number above 0 and up to 1")


@dataclass(frozen=True, eq=False)
class Draft:
    """The score is P(right without cards) - P(right with them), in [-1, 1].

    centre   the mean of each feature, which stands for one that is not known; shape (d,)
    heads    that of without and that of with; the weights of shape (d,)
    drafted  whether it was fitted on drafts by the LLM that it was given; then it scores such drafts only
    sure     whether the log-probability of the draft is a feature
    """

    representation: Representation
    options: DraftSettings
    threshold: float
    centre: Floats
    heads: tuple[LogisticHead, LogisticHead]
    drafted: bool
    sure: bool
    llm: LLM | None
    kind: ClassVar[str] = KIND

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> Self:
        """With an LLM, it drafts an answer to every question; without, the records' drafts or answers are read.

        The threshold seeks where cards are likelier right, or less than that: see _threshold. Raises UsageError where
        there is nothing to read or to tell apart.
        """
        options = parse_settings(DraftSettings, settings, KIND)
        drafted = resources.llm is not None
        queries = [record.query for record in records]
        if resources.llm is not None:
            queries = _drafted(resources.llm, queries)
        _check(records, queries)
        representation = resources.representation or find(options.encoder)
        sure = all(query.draft_log_probability is not None for query in queries)
        vectors, scale, centre = standardise(inputs(representation, queries, sure), COUNT + sure)
        heads, unseen = [], []
        for name in ("correct_without", "correct_with"):
            truth = np.array([getattr(record, name) >= RIGHT for record in records])
            head, probabilities = _head(vectors, truth, options.seed)
            weights = head.weights * scale
            heads.append(LogisticHead(weights, head.bias - float(weights @ centre)))
            unseen.append(probabilities)
        threshold = _threshold(unseen[0] - unseen[1], options.share)
        options = replace(options, encoder=representation.name)
        return cls(
            representation, options, threshold, centre, (heads[0], heads[1]), drafted, sure, resources.llm
        )

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> Self:
        options = parse_settings(DraftSettings, settings, KIND)
        weights, bias, centre = (state.arrays[name] for name in ("weights", "bias", "centre"))
        if weights.shape != (2, *centre.shape) or centre.ndim != 1 or bias.shape != (2,):
            raise ValueError("its arrays don't fit each other")
        if not all(np.isfinite(array).all() for array in (weights, bias, centre)):
            raise ValueError("its arrays are not finite")
        representation = bind(options.encoder, state.values["encoder_sha256"], resources.representation)
        without, with_ = (
            LogisticHead(row.astype(np.float64), float(b)) for row, b in zip(weights, bias, strict=True)
        )
        drafted, sure = bool(state.values["drafted"]), bool(state.values["log_probability"])
        return cls(representation, options, threshold, centre, (without, with_), drafted, sure, resources.llm)

    @property
    def settings(self) -> Mapping[str, Any]:
        return asdict(self.options)

    def scores(self, queries: Sequence[Query]) -> Array:
        """Raises UsageError where a draft is needed and there is no LLM to write it."""
        read = self._read(queries)
        without, with_ = (head.probabilities(read) for head in self.heads)
        return (without - with_).astype(np.float32)

    def correct_without(self, queries: Sequence[Query]) -> Array:
        """P(right without cards), shape (n,); raises as `scores`."""
        return self.heads[0].probabilities(self._read(queries)).astype(np.float32)

    def state(self) -> GateState:
        return GateState(
            {
                "weights": np.stack([head.weights for head in self.heads]),
                "bias": np.array([head.bias for head in self.heads]),
                "centre": self.centre,
            },
            {
                "encoder_sha256": self.representation.digest,
                "drafted": self.drafted,
                "log_probability": self.sure,
            },
        )

    def _read(self, queries: Sequence[Query]) -> Floats:
        rows = inputs(self.representation, self._answered(queries), self.sure)
        return np.where(np.isnan(rows), self.centre, rows)

    def _answered(self, queries: Sequence[Query]) -> Sequence[Query]:
        """Where some of many have neither answer nor draft and there is no LLM, their answers count as empty."""
        if self.llm is not None:
            undrafted = [query for query in queries if self.drafted or not _known(query)]
            written = iter(_drafted(self.llm, undrafted))
            return [next(written) if self.drafted or not _known(q) else q for q in queries]
        if queries and not any(map(_known, queries)):
            raise UsageError(f"gate {KIND} needs a draft by an LLM, and none is given: choose one with --llm")
        return queries


def _known(query: Query) -> bool:
    return bool(query.answer or query.draft)


def _drafted(llm: LLM, queries: Sequence[Query]) -> list[Query]:
    """The queries, each with a short answer that the LLM writes without knowledge; it does not reason first."""
    written = replies(llm, [Request("answer", query.question, draft=True) for query in queries])
    return [
        replace(query, answer=reply.text, draft=None, draft_log_probability=_sureness(reply))
        for query, reply in zip(queries, written, strict=True)
    ]


def _sureness(reply: Reply) -> float | None:
    """The mean log-probability of the reply's tokens; None where the LLM gives none."""
    return float(np.mean([token.log_probability for token in reply.tokens])) if reply.tokens else None


def _check(records: Sequence[Record], queries: Sequence[Query]) -> None:
    if not records:
        raise UsageError(f"gate {KIND}: there are no records to fit it on: give about 1000")
    if not any(map(_known, queries)):
        raise UsageError(
            f"gate {KIND}: none of {len(records)} records has a draft or answer_without: collect records with kcard "
            "gate collect, or choose an LLM that drafts with --llm"
        )
    if all(record.correct_without == record.correct_with for record in records):
        raise UsageError(
            f"gate {KIND}: in all {len(records)} records cards make no difference: add others, or use the gate never"
        )


def _head(vectors: Floats, truth: Bools, seed: int) -> tuple[LogisticHead, Floats]:
    """The head, and its probabilities of what it had not seen; where all are alike, their share, one more each."""
    if truth.any() and not truth.all():
        return cross_fit(vectors, truth, seed)
    share = (float(truth.sum()) + 1) / (len(truth) + 2)
    head = LogisticHead(np.zeros(vectors.shape[1]), float(np.log(share / (1 - share))))
    return head, head.probabilities(vectors)


def _threshold(scores: Floats, share: float) -> float:
    """Of held-out scores: 0, which seeks where cards are likelier right, or what keeps to the share where 0 does not.

    The quantile of so many scores is uncertain, so a little less than the share is aimed at.
    """
    if share == 1:
        return 0.0
    aimed = share - SURE * float(np.sqrt(share * (1 - share) / len(scores)))
    return min(0.0, float(np.quantile(scores, max(aimed, 0.0))))
