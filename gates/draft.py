"""The draft gate decides by a first answer without cards.

Two logistic heads predict the probability that the answer is right without cards, and with them. Their features are
the sentence vectors of question and answer, and surface features of the draft.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, get_args

import numpy as np
import numpy.typing as npt

from kcard.errors import UsageError
from kcard.gates.base import FittedGate, GateState, Resources, Settings, parse_settings
from kcard.gates.features import LogisticHead, Representation, bind, cross_fit, find, finite_vectors
from kcard.gates.records import Query, Record
from kcard.interfaces import LLM, Array, replies
from kcard.offline.questions import Form, fits, form_of

# Surface features of a draft: its form against the question's, hedges, lengths, repetition.

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
        *_draft_features(answer, draft),
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
        sum(map(len, question_words)) / max(1, len(question_words)),
    ]


def _draft_features(answer: str, draft: str | None) -> list[float]:
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


# Weights of surface features and vectors, per standard deviation; the penalty shrinks small ones first.
OF_FORM = 0.5
OF_VECTORS = 0.2
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


def standardise(values: Floats, of_form: int) -> tuple[Floats, Floats, Floats]:
    """Return the values centred and scaled, the scale of each column, and its mean.

    Unknown values are set to the mean; a column without known values, or with equal ones, gets scale 0. `of_form`: the
    number of columns that are surface features.
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
RIGHT = 0.5  # correctness from which an answer counts as right
SURE = 1.645  # standard errors, so that the share on other questions rarely exceeds the target


@dataclass(frozen=True)
class DraftSettings:
    """How the gate is fitted.

    share    the maximum share of questions that use cards, in (0, 1]
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
class Draft(FittedGate):
    """The score is P(right without cards) - P(right with them), in [-1, 1].

    centre   the mean of each feature, which replaces unknown values; shape (d,)
    heads    without cards and with them; weights of shape (d,)
    drafted  whether it was fitted on drafts of the given LLM; then it scores only such drafts
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
        vectors, scale, centre = standardise(inputs(representation, queries, sure), COUNT + sure)
        heads, unseen = [], []
        for name in ("correct_without", "correct_with"):
            truth = np.array([getattr(record, name) >= RIGHT for record in records])
            if truth.any() and not truth.all():
                head, probabilities = cross_fit(vectors, truth, options.seed)
            else:  # all are alike: their share, with one more of each class
                share = (float(truth.sum()) + 1) / (len(truth) + 2)
                head = LogisticHead(np.zeros(vectors.shape[1]), float(np.log(share / (1 - share))))
                probabilities = head.probabilities(vectors)
            weights = head.weights * scale
            heads.append(LogisticHead(weights, head.bias - float(weights @ centre)))
            unseen.append(probabilities)
        threshold = _threshold(unseen[0] - unseen[1], options.share)
        options = replace(options, encoder=representation.name)
        return cls(
            representation, options, threshold, centre, (heads[0], heads[1]), drafted, sure, resources.llm
        )

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
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

    def scores(self, queries: Sequence[Query]) -> Array:
        """See FittedGate. Raises UsageError if a draft is needed and there is no LLM to write it."""
        read = self._read(queries)
        without, with_ = (head.probabilities(read) for head in self.heads)
        return (without - with_).astype(np.float32)

    def correct_without(self, queries: Sequence[Query]) -> Array:
        """Return P(right without cards), shape (n,); raises as `scores`."""
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
        """Return the features of queries; the LLM drafts answers that are missing.

        Without an LLM, missing answers count as empty, unless all of them are missing.
        """
        if self.llm is not None:
            undrafted = [query for query in queries if self.drafted or not _has_answer(query)]
            written = iter(_with_drafts(self.llm, undrafted))
            queries = [next(written) if self.drafted or not _has_answer(q) else q for q in queries]
        elif queries and not any(map(_has_answer, queries)):
            raise UsageError(f"gate {KIND} needs a draft by an LLM, and none is given: choose one with --llm")
        rows = inputs(self.representation, queries, self.sure)
        return np.where(np.isnan(rows), self.centre, rows)


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
