"""SKR (Wang et al., 2023): nearest neighbours, a classifier, or a fine-tuned encoder."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from kcard.batching import batched, by_length
from kcard.embedded import minilm
from kcard.errors import UsageError
from kcard.gates.base import FittedGate, GateState, Resources, Settings, parse_settings
from kcard.gates.features import Representation, bind, find, finite_vectors, normalize
from kcard.gates.heads import LogisticHead, fit_calibrated
from kcard.gates.records import Bools, Query, Record, split_records
from kcard.interfaces import Array
from kcard.system import loading

if TYPE_CHECKING:
    import torch

Indices = npt.NDArray[np.int64]

KNN_KIND = "skr-knn"
PAPER_K = range(3, 11)
SIMILARITY_STEPS = 1e6  # similarities that agree to a millionth count as equal; then the order decides
KNN_ROWS = 1024
LOWEST_KEY = -(2**62)  # below every key, and its negative is still a number


@dataclass(frozen=True)
class NearestNeighboursSettings:
    """k: neighbours; None: the best of 3 to 10, by leave-one-out. encoder: see kcard.gates.features."""

    k: int | None = None
    encoder: str = "minilm"


@dataclass(frozen=True, eq=False)
class NearestNeighbours(FittedGate):
    """A question counts as known if its nearest records are (SKR, section 3.2).

    The score is l/k: l of the k nearest records, by cosine, belong to D+; of equally near ones the first are taken.
    The threshold is m/(m+n), with m records in D+ and n in D-: the paper's l/(k-l) >= m/n, but finite at l = k.

    vectors   of the records, unit length, shape (m+n, d)
    is_known  which of them belong to D+
    """

    k: int
    representation: Representation
    vectors: Array
    is_known: Bools
    kind = KNN_KIND

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        """Fit without records wrong both ways. Raises UsageError if D+ or D- is empty, and for too large a k."""
        options = parse_settings(NearestNeighboursSettings, settings, KNN_KIND)
        usable, is_known = split_records(records, KNN_KIND)
        if options.k is not None and not 1 <= options.k <= len(usable):
            raise UsageError(
                f"gate {KNN_KIND}: k is {options.k}, expected 1 to {len(usable)}, the records to fit on (those wrong "
                "both ways are left out): choose a smaller k or add records"
            )
        representation = resources.representation or find(options.encoder)
        vectors = normalize(finite_vectors(representation, [record.question for record in usable]))
        k = options.k
        if k is None:
            most = min(PAPER_K[-1], len(usable) - 1)
            neighbours = np.concatenate(list(nearest(vectors, vectors, most, leave_out=True)))
            k = tune_k(neighbours, is_known, usable)
        return cls(k, representation, vectors, is_known)

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        options = parse_settings(NearestNeighboursSettings, settings, KNN_KIND)
        vectors, is_known, k = state.arrays["vectors"], state.arrays["known"], options.k or 0
        if vectors.ndim != 2 or is_known.shape != vectors.shape[:1] or not 1 <= k <= len(is_known):
            raise ValueError("its arrays don't fit each other")
        representation = bind(options.encoder, state.values["encoder_sha256"], resources.representation)
        gate = cls(k, representation, vectors, is_known.astype(bool))
        if gate.threshold != threshold:
            raise ValueError("its threshold does not match its records")
        return gate

    @property
    def settings(self) -> Settings:
        return {"k": self.k, "encoder": self.representation.name}

    @property
    def threshold(self) -> float:  # type: ignore[override] # it follows from the records
        """As float32, like the scores, so that equal shares compare as equal."""
        return float(np.float32(self.is_known.mean()))

    def scores(self, queries: Sequence[Query]) -> Array:
        vectors = normalize(finite_vectors(self.representation, [query.question for query in queries]))
        shares = [np.zeros(0)]
        for neighbours in nearest(self.vectors, vectors, self.k):
            shares.append(self.is_known[neighbours].mean(axis=1))
        return np.concatenate(shares).astype(np.float32)

    def state(self) -> GateState:
        return GateState(
            {"vectors": self.vectors, "known": self.is_known.astype(np.uint8)},
            {"encoder_sha256": self.representation.digest},
        )


def tune_k(lists: Indices, is_known: Bools, records: Sequence[Record]) -> int:
    """Return the k of 3 to 10 whose decisions give the most right answers by leave-one-out; of equals the smallest.

    `lists`: the nearest neighbours of each record, without itself, shape (m+n, at most 10). The record that is left out
    counts in neither m nor n. If it is alone in D+ or D-, the others tell nothing about it, so it is skipped.
    """
    count = len(records)
    positive = is_known.sum() - is_known  # m without the record
    judged = (positive > 0) & (positive < count - 1)
    if not judged.any():
        return min(PAPER_K[0], count)
    largest = lists.shape[1]
    ks = np.arange(min(PAPER_K[0], largest), largest + 1)
    # l / k >= m / (m + n), in whole numbers
    knows = is_known[lists].cumsum(axis=1)[:, ks - 1] * (count - 1) >= positive[:, None] * ks
    without = np.array([record.correct_without for record in records])
    with_ = np.array([record.correct_with for record in records])
    right = np.where(knows, without[:, None], with_[:, None])[judged].mean(axis=0)
    return int(ks[right.round(9).argmax()])


def nearest(vectors: Array, queries: Array, k: int, leave_out: bool = False) -> Iterator[Indices]:
    """Yield the k nearest vectors of each query, nearest first, shape (rows, k), some rows at a time.

    `leave_out`: query i is vector i, which is not its own neighbour.
    """
    count = len(vectors)
    order = count - 1 - np.arange(count, dtype=np.int64)
    for start in range(0, len(queries), KNN_ROWS):
        rows = queries[start : start + KNN_ROWS]
        keys = np.rint((rows @ vectors.T) * SIMILARITY_STEPS).astype(np.int64) * count + order
        if leave_out:
            keys[np.arange(len(rows)), start + np.arange(len(rows))] = LOWEST_KEY
        columns = np.argpartition(-keys, k - 1, axis=1)[:, :k]
        near = np.take_along_axis(keys, columns, axis=1)
        yield np.take_along_axis(columns, np.argsort(-near, axis=1), axis=1)


CLASSIFIER_KIND = "skr-classifier"


@dataclass(frozen=True)
class ClassifierSettings:
    """encoder: see kcard.gates.features; it is frozen, only the head is trained."""

    encoder: str = "minilm"
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Classifier(FittedGate):
    """A head on a sentence encoder tells D+ from D- (SKR, section 3.2).

    The score is the calibrated probability that a question belongs to D+; the threshold is 0.5.
    """

    options: ClassifierSettings
    representation: Representation
    head: LogisticHead
    kind = CLASSIFIER_KIND
    threshold: float = 0.5

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        """Fit without records wrong both ways. Raises UsageError if D+ or D- is empty."""
        options = parse_settings(ClassifierSettings, settings, CLASSIFIER_KIND)
        usable, is_known = split_records(records, CLASSIFIER_KIND)
        representation = resources.representation or find(options.encoder)
        vectors = finite_vectors(representation, [record.question for record in usable])
        head = fit_calibrated(vectors, is_known, options.seed)
        return cls(replace(options, encoder=representation.name), representation, head)

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        options = parse_settings(ClassifierSettings, settings, CLASSIFIER_KIND)
        weights, bias = state.arrays["weights"], state.arrays["bias"]
        if weights.ndim != 1 or bias.shape != (1,) or threshold != cls.threshold:
            raise ValueError("its arrays or its threshold are invalid")
        representation = bind(options.encoder, state.values["encoder_sha256"], resources.representation)
        return cls(options, representation, LogisticHead(weights.astype(np.float64), float(bias[0])))

    def scores(self, queries: Sequence[Query]) -> Array:
        vectors = finite_vectors(self.representation, [query.question for query in queries])
        return self.head.probabilities(vectors).astype(np.float32)

    def state(self) -> GateState:
        return GateState(
            {"weights": self.head.weights, "bias": np.array([self.head.bias])},
            {"encoder_sha256": self.representation.digest},
        )


TUNED_KIND = "skr-fine-tuned"
MAX_QUESTION_TOKENS = 128
FINE_TUNED_ROWS = 64


@dataclass(frozen=True)
class FineTunedSettings:
    """encoder: minilm, or hf:NAME of an encoder of transformers (the paper's: hf:bert-base-uncased).

    learning_rate 0 stands for 2e-5, as in the paper's code, and for 2e-4 with minilm, which is so much smaller than
    BERT that it needs a higher rate.
    """

    encoder: str = "minilm"
    epochs: int = 10
    learning_rate: float = 0.0
    batch: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not 0 <= self.learning_rate < 1:
            raise ValueError("epochs and batch must be at least 1, learning_rate from 0 to 1")


@dataclass(frozen=True, eq=False)
class FineTuned(FittedGate):
    """The classifier as in the paper: the whole encoder is trained with its head to tell D+ from D- (SKR, section 3.2).

    A gate of this kind is as large as its encoder, and takes minutes where the others take seconds. The score is the
    network's uncalibrated probability that a question belongs to D+; the threshold is 0.5. Weights are rounded to half
    precision, so that a stored gate scores as it did before.
    """

    options: FineTunedSettings
    model: Any
    tokenizer: Any
    kind = TUNED_KIND
    threshold: float = 0.5

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        """Fit without records wrong both ways. Raises UsageError if D+ or D- is empty, and for too high a rate."""
        import torch

        del resources
        options = parse_settings(FineTunedSettings, settings, TUNED_KIND)
        if not options.learning_rate and options.encoder == "minilm":
            options = replace(options, learning_rate=2e-4)
        elif not options.learning_rate:
            options = replace(options, learning_rate=2e-5)
        usable, is_known = split_records(records, TUNED_KIND)
        with torch.random.fork_rng():
            torch.manual_seed(options.seed)
            model, tokenizer = _pretrained(options.encoder)
            _train(model, tokenizer, [record.question for record in usable], is_known.tolist(), options)
        return cls(options, model.half().float().eval(), tokenizer)

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        import torch

        del resources
        options = parse_settings(FineTunedSettings, settings, TUNED_KIND)
        model, tokenizer = _pretrained(options.encoder)
        sha256 = _digest(model, tokenizer)
        if sha256 != state.values["encoder_sha256"]:
            raise UsageError(
                f"this gate was fitted on the encoder {options.encoder} "
                f"({state.values['encoder_sha256'][:12]}…), not on the model that now has this name "
                f"({sha256[:12]}…): use that one, or fit the gate again"
            )
        weights = {}
        for name, array in state.arrays.items():
            weights[name] = torch.from_numpy(array.astype(np.float32))
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError("its arrays do not match its encoder") from error
        if threshold != cls.threshold:
            raise ValueError("its threshold is invalid")
        return cls(options, model.eval(), tokenizer)

    def scores(self, queries: Sequence[Query]) -> Array:
        import torch

        probabilities = np.zeros(len(queries), dtype=np.float32)
        with torch.inference_mode():
            for rows in batched(by_length([len(query.question) for query in queries]), FINE_TUNED_ROWS):
                logits = _logits(self.model, self.tokenizer, [queries[row].question for row in rows])
                probabilities[rows] = logits.softmax(-1)[:, 1].numpy()
        return probabilities

    def state(self) -> GateState:
        arrays = {}
        for name, weight in self.model.state_dict().items():
            arrays[name] = weight.half().numpy().copy()
        return GateState(arrays, {"encoder_sha256": _digest(self.model, self.tokenizer)})


def _pretrained(name: str) -> tuple[Any, Any]:
    """Load the encoder with a new head for two classes, and its tokenizer. Raises UsageError, ModelUnavailable."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    kind, _, where = name.partition(":")
    if name != "minilm" and (kind != "hf" or not where):
        raise UsageError(f"gate {TUNED_KIND}: encoder is {name!r}, expected minilm or hf:NAME")
    source: Path | str = where
    if name == "minilm":
        source = minilm.folder()
    with loading(f"the encoder {name}"):
        model = AutoModelForSequenceClassification.from_pretrained(
            source, num_labels=2, dtype="float32", trust_remote_code=False
        )
        return model, AutoTokenizer.from_pretrained(source, trust_remote_code=False)


def _train(
    model: Any, tokenizer: Any, questions: Sequence[str], is_known: Sequence[bool], options: FineTunedSettings
) -> None:
    """Train with AdamW at a rate that falls to 0, in a new random order each epoch."""
    import torch

    model.train()
    truth = torch.tensor(is_known, dtype=torch.long)
    steps = options.epochs * -(-len(questions) // options.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    rng = np.random.default_rng(options.seed)
    for _ in range(options.epochs):
        order = rng.permutation(len(questions)).tolist()
        for rows in batched(order, options.batch):
            loss = torch.nn.functional.cross_entropy(
                _logits(model, tokenizer, [questions[row] for row in rows]), truth[rows]
            )
            if not torch.isfinite(loss):
                raise UsageError(
                    f"gate {TUNED_KIND}: training diverged at learning_rate {options.learning_rate:g}: choose a "
                    "lower one"
                )
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


def _logits(model: Any, tokenizer: Any, questions: Sequence[str]) -> "torch.Tensor":
    """Return logits of shape (n, 2): seeks, knows."""
    inputs = tokenizer(
        list(questions), padding=True, truncation=True, max_length=MAX_QUESTION_TOKENS, return_tensors="pt"
    )
    logits: torch.Tensor = model(**inputs).logits
    return logits


def _digest(model: Any, tokenizer: Any) -> str:
    """Return the sha256 of the encoder's configuration and vocabulary; the weights are the gate's own."""
    shape = {}
    for key, value in model.config.to_diff_dict().items():
        if not key.startswith(("_", "transformers")):
            shape[key] = value
    vocabulary = sorted(tokenizer.get_vocab().items())
    text = json.dumps([shape, vocabulary], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
