"""The draft gate decides by a first answer without cards.

One head predicts how much better the answer would be with cards, another the probability that it is right without them.
They read the sentence vectors of question and answer, and surface features of question, answer and draft through a
Gaussian kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from kcard.errors import UsageError
from kcard.gates.base import FittedGate, GateState, Resources, Settings, parse_settings
from kcard.gates.draft_features import FREQUENCIES, SURFACE_FEATURES, Floats, FourierFeatures, inputs
from kcard.gates.features import Representation, bind, find
from kcard.gates.heads import LinearHead, LogisticHead, fit_calibrated, fit_linear
from kcard.gates.records import Query, Record
from kcard.interfaces import LLM, Array, replies

KIND = "draft"
MIN_RIGHT = 0.5  # correctness from which an answer counts as right
SAFETY_ERRORS = 1.645  # standard errors, so that the share on other questions rarely exceeds the target


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
    """The score is P(the LLM is right without cards) minus P(it is right with cards), in [-1, 1].

    reader   makes of features what the heads read
    right    P(right without cards); weights of shape (2 * FREQUENCIES + vectors,)
    benefit  P(right with cards) minus P(right without); weights of the same shape
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
        reader = FourierFeatures.fit(values, SURFACE_FEATURES + sure, options.seed)
        vectors = reader.transform(values)
        is_right = np.array([record.correct_without >= MIN_RIGHT for record in records])
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
        weights, bias = state.arrays["weights"], state.arrays["bias"]
        centre, scale = state.arrays["centre"], state.arrays["scale"]
        frequencies = state.arrays["frequencies"]
        drafted, sure = bool(state.values["drafted"]), bool(state.values["log_probability"])
        if frequencies.shape != (SURFACE_FEATURES + sure, FREQUENCIES):
            raise ValueError("an earlier kcard fitted it on other features")
        width = 2 * FREQUENCIES + len(centre) - len(frequencies)
        if (
            weights.shape != (2, width)
            or bias.shape != (2,)
            or not centre.shape == scale.shape == (len(centre),)
        ):
            raise ValueError("its arrays don't fit each other")
        for array in (weights, bias, centre, scale, frequencies):
            if not np.isfinite(array).all():
                raise ValueError("its arrays are not finite")
        representation = bind(options.encoder, state.values["encoder_sha256"], resources.representation)
        weights = weights.astype(np.float64)
        right = LogisticHead(weights[0], float(bias[0]))
        benefit = LinearHead(weights[1], float(bias[1]))
        reader = FourierFeatures(
            centre.astype(np.float64), scale.astype(np.float64), frequencies.astype(np.float64)
        )
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
            completed = list(queries)
            undrafted = []
            for place, query in enumerate(queries):
                if self.drafted or not _has_answer(query):
                    undrafted.append(place)
            written = _with_drafts(self.llm, [queries[place] for place in undrafted])
            for place, query in zip(undrafted, written, strict=True):
                completed[place] = query
            queries = completed
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
        mean = None
        if reply.tokens:
            mean = float(np.mean([token.log_probability for token in reply.tokens]))
        drafted.append(replace(query, answer=reply.text, draft=None, draft_log_probability=mean))
    return drafted


def _threshold(scores: Floats, share: float) -> float:
    """Return 0, so that the gate fires if cards are more likely right, or a lower threshold that keeps to the share.

    `scores` are held out. Their quantile is uncertain, so the target is a little below the share.
    """
    if share == 1:
        return 0.0
    aimed = share - SAFETY_ERRORS * float(np.sqrt(share * (1 - share) / len(scores)))
    return min(0.0, float(np.quantile(scores, max(aimed, 0.0))))
