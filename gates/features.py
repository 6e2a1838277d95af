"""Questions as vectors, and a logistic head on them."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from kcard import system
from kcard.batching import batched, by_length
from kcard.embedded import minilm
from kcard.errors import UsageError
from kcard.hidden_states import CAUSAL, ENCODERS, depth, first, layer_and_pooling, pooled, weights_digest
from kcard.interfaces import Array
from kcard.system import loading

if TYPE_CHECKING:
    from torch import Tensor

# Representations embed questions for gates. By name: minilm, hf:MODEL, card:FOLDER.
#
# Options follow after commas (hf:gpt2,layer=6,pooling=mean). Kinds are registered under the entry-point group
# `kcard.representations`, and called with the text after the colon and the options, all of them strings.

GROUP = "kcard.representations"


class Representation(Protocol):
    @property
    def name(self) -> str:
        """Return the name that `find` takes."""
        ...

    @property
    def digest(self) -> str:
        """Return the sha256 of all that determines its vectors: weights, layer, pooling."""
        ...

    def vectors(self, questions: Sequence[str]) -> Array:
        """Embed questions, shape (n, d), with a constant d; a row depends on its question only, up to rounding."""
        ...


class MiniLMRepresentation:
    """The embedded sentence encoder (kcard.embedded.minilm): unit length, d = 384."""

    name = "minilm"
    digest = minilm.SHA256

    def vectors(self, questions: Sequence[str]) -> Array:
        return minilm.embed(questions)


class CachedRepresentation:
    """A representation that embeds each question once and remembers it."""

    def __init__(self, representation: Representation) -> None:
        self._representation = representation
        self._vectors: dict[str, Array] = {}

    @property
    def name(self) -> str:
        return self._representation.name

    @property
    def digest(self) -> str:
        return self._representation.digest

    def vectors(self, questions: Sequence[str]) -> Array:
        new = [question for question in dict.fromkeys(questions) if question not in self._vectors]
        if new or not questions:
            vectors = self._representation.vectors(new)
            self._vectors.update(zip(new, vectors, strict=True))
        return np.stack([self._vectors[question] for question in questions]) if questions else vectors


def find(name: str) -> Representation:
    """Return the representation of that name. Raises UsageError for an unknown kind or option, or a missing value."""
    kind, _, argument = name.partition(":")
    where, *options = argument.split(",")
    make = system.load(GROUP, kind)
    signature = inspect.signature(make)
    try:
        bound = signature.bind(*[where] if where else [], **dict(option.split("=", 1) for option in options))
    except (TypeError, ValueError):
        parameters = signature.parameters.values()
        needs_name = any(p.default is p.empty for p in parameters)
        optional = [f"{p.name}=..." for p in parameters if p.default is not p.empty]
        usage = ",".join([f"{kind}:NAME" if needs_name else kind, *optional])
        raise UsageError(f"encoder {name!r}: expected {usage}") from None
    representation: Representation = make(*bound.args, **bound.kwargs)
    return representation


def bind(name: str, digest: str, preferred: Representation | None = None) -> Representation:
    """Return the representation of a gate that was fitted on `name` with `digest`: `preferred`, or else the named one.

    Raises UsageError, which names both, if its digest differs.
    """
    representation = preferred or find(name)
    if representation.digest != digest:
        raise UsageError(
            f"this gate was fitted on the encoder {name} ({digest[:12]}…), not on {representation.name} "
            f"({representation.digest[:12]}…): use that one, or fit the gate again"
        )
    return representation


def finite_vectors(representation: Representation, questions: Sequence[str]) -> Array:
    """Embed questions. Raises UsageError, which names the first question without a finite vector."""
    vectors = representation.vectors(questions)
    wrong = ~np.isfinite(vectors).all(axis=1)
    if wrong.any():
        raise UsageError(
            f"encoder {representation.name} gives {questions[int(wrong.argmax())][:60]!r} a vector that is "
            "not finite: choose "
            "another encoder or layer"
        )
    return vectors


def normalize(vectors: Array) -> Array:
    """Scale the vectors to unit length; a vector of zeros stays zero."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


ROWS = 32
TOKENS = 512


class HiddenStates:
    """hf:MODEL, a folder or a Hugging Face name. It reads the first 512 tokens of a question.

    layer    of an encoder-decoder, a layer of the decoder, which reads its start token (Thrust, footnote 1)
    pooling  auto: the last token of a decoder, the mean of an encoder; cls (the first token's state) and pooler (the
             model's own pooler on that of the last layer) are for encoders that were trained so, such as SimCSE's

    Raises ModelUnavailable if the model can't be loaded, UsageError for an unknown layer or pooling.
    """

    def __init__(self, where: str, layer: str = "-1", pooling: str = "auto") -> None:
        self._model, self._tokenizer = _load(where)
        # Of a model that writes from left to right, only the last token has seen all others.
        config = self._model.config
        architecture = (config.architectures or [""])[0]
        decodes = bool(config.is_encoder_decoder or architecture.endswith(("ForCausalLM", "LMHeadModel")))
        poolings = CAUSAL if decodes else ENCODERS
        self._layer, chosen_pooling = layer_and_pooling(layer, pooling, depth(self._model), poolings)
        self._pooling = ("last" if decodes else "mean") if chosen_pooling == "auto" else chosen_pooling
        if self._pooling == "pooler" and self._layer % (depth(self._model) + 1) != depth(self._model):
            raise UsageError(
                f"encoder hf:{where}: its pooler reads the last layer only: leave out layer={layer}"
            )
        self.name = f"hf:{where},layer={self._layer},pooling={self._pooling}"

    @cached_property
    def digest(self) -> str:
        vocabulary = sorted(self._tokenizer.get_vocab().items())
        how = {"mean": True, "last": False}.get(self._pooling, self._pooling)  # as older gates have it
        return weights_digest(self._model, vocabulary, self._layer % (depth(self._model) + 1), how)

    def vectors(self, questions: Sequence[str]) -> Array:
        import torch

        if not questions:
            width = self._model.config.get_text_config(decoder=True).hidden_size
            return np.zeros((0, width), dtype=np.float32)
        order = by_length([*map(len, questions)])
        with torch.inference_mode():
            batches = [
                self._embed([questions[i] for i in batch]).cpu().numpy() for batch in batched(order, ROWS)
            ]
        back: Array = np.concatenate(batches)[np.argsort(order)]
        return back

    def _embed(self, questions: list[str]) -> "Tensor":
        import torch

        longest = min(TOKENS, getattr(self._model.config, "max_position_embeddings", None) or TOKENS)
        inputs = self._tokenizer(
            questions, padding=True, truncation=True, max_length=longest, return_tensors="pt"
        ).to(self._model.device)
        mask = inputs["attention_mask"]
        if not self._model.config.is_encoder_decoder:
            out = self._model(**inputs, output_hidden_states=True)
            if self._pooling == "pooler":
                output: Tensor | None = getattr(out, "pooler_output", None)
                if output is None:
                    raise UsageError(f"encoder {self.name}: the model has no pooler: choose pooling=cls")
                return output.float()
            states = out.hidden_states[self._layer]
            return first(states) if self._pooling == "cls" else pooled(states, mask, self._pooling == "mean")
        start = torch.full((len(questions), 1), self._model.config.decoder_start_token_id, device=mask.device)
        states = self._model(
            **inputs, decoder_input_ids=start, output_hidden_states=True
        ).decoder_hidden_states
        return pooled(states[self._layer], torch.ones_like(start), self._pooling == "mean")


def contriever(where: str = "facebook/contriever") -> HiddenStates:
    """contriever[:MODEL], a dense retriever's encoder: the mean over the last layer's states (Izacard et al., 2022).

    Vectors are compared by their dot product. Adaptive Retrieval has the one that was tuned on MS MARCO,
    contriever:facebook/contriever-msmarco.
    """
    return HiddenStates(where, pooling="mean")


def simcse(where: str = "princeton-nlp/sup-simcse-bert-base-uncased") -> HiddenStates:
    """simcse[:MODEL], SKR's sentence encoder: what the pooler makes of [CLS] (Gao et al., 2021, section 4).

    The unsupervised models are read without it: hf:princeton-nlp/unsup-simcse-bert-base-uncased,pooling=cls.
    """
    return HiddenStates(where, pooling="pooler")


def _load(where: str) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    with loading(f"the encoder hf:{where}"):
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
        model = AutoModel.from_pretrained(where, dtype="auto", trust_remote_code=False).eval()
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.bos_token
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


# Logistic regression with an L2 penalty, and its calibration: a small head on another model's vectors.

Floats = npt.NDArray[np.float64]
PENALTIES = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
FOLDS = 5
ITERATIONS = 1000


@dataclass(frozen=True, eq=False)
class LogisticHead:
    """P(1) of a vector x is 1 / (1 + exp(-(weights . x + bias))); weights of shape (d,)."""

    weights: Floats
    bias: float

    def probabilities(self, vectors: npt.NDArray[np.floating]) -> Floats:
        """Return P(1) of each vector, shape (n,)."""
        odds = vectors @ self.weights + self.bias
        probabilities: Floats = np.exp(-np.logaddexp(0, -odds))
        return probabilities


def fit_calibrated(
    vectors: npt.NDArray[np.floating], truth: npt.NDArray[np.bool_], seed: int
) -> LogisticHead:
    """Fit a calibrated head. Both classes must occur; the same seed gives the same head.

    The penalty has the least log-loss over folds; slope and intercept are then fitted to the held-out scores of the
    folds (Platt), with a slope of at least 0: if the vectors tell nothing, every probability is the share of ones. A
    class with a single member can't be split into folds; then nothing is tuned.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict

    centre = vectors.mean(axis=0, dtype=np.float64)
    scale = float(np.sqrt(((vectors - centre) ** 2).sum(axis=1).mean())) or 1.0
    inputs = (vectors - centre) / scale
    model, slope, shift = LogisticRegression(max_iter=ITERATIONS), 1.0, 0.0
    count = min(FOLDS, int(truth.sum()), int((~truth).sum()))
    if count > 1:
        folds = StratifiedKFold(count, shuffle=True, random_state=seed % 2**32)
        penalties = {"C": [1 / penalty for penalty in PENALTIES]}
        model = (
            GridSearchCV(model, penalties, scoring="neg_log_loss", cv=folds)
            .fit(inputs, truth)
            .best_estimator_
        )
        unseen = cross_val_predict(model, inputs, truth, cv=folds, method="decision_function")
        line = LogisticRegression(C=1000, max_iter=ITERATIONS).fit(unseen[:, None], truth)
        slope, shift = float(line.coef_[0, 0]), float(line.intercept_[0])
        if slope <= 0:
            share = float(truth.mean())
            slope, shift = 0.0, float(np.log(share / (1 - share)))
    model.fit(inputs, truth)
    weights = slope * model.coef_[0] / scale
    return LogisticHead(weights, slope * float(model.intercept_[0]) + shift - float(weights @ centre))


# Ridge regression: small heads for numbers, such as the gain in correctness by cards.

RIDGE_PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


@dataclass(frozen=True, eq=False)
class LinearHead:
    """It predicts weights . x + bias of a vector x; weights of shape (d,)."""

    weights: Floats
    bias: float

    def predict(self, vectors: npt.NDArray[np.floating]) -> Floats:
        """Return the prediction for each vector, shape (n,)."""
        predictions: Floats = vectors @ self.weights + self.bias
        return predictions


def fit_linear(
    vectors: npt.NDArray[np.floating], targets: Floats, mixture: Floats
) -> tuple[LinearHead, Floats]:
    """Fit k targets, shape (n, k), by ridge regression; return a head for their mixture and its held-out predictions.

    mixture  the weight of each target, shape (k,)

    Each target has the penalty with the least squared error when records are left out one at a time. The held-out
    predictions, shape (n,), are by weights fitted without a record, but with the mean of all: that of the others is
    higher where the target is lower, and under a large penalty that would be most of what they differ by.
    """
    from sklearn.linear_model import RidgeCV

    mean = targets.mean(axis=0)
    if len(targets) == 1:
        return LinearHead(np.zeros(vectors.shape[1]), float(mean @ mixture)), targets @ mixture
    # With a scorer, scikit-learn stores predictions rather than squared errors: shape (n, k, penalties).
    model = RidgeCV(
        RIDGE_PENALTIES, scoring="neg_mean_squared_error", store_cv_results=True, alpha_per_target=True
    )
    model.fit(vectors, targets - mean)
    # It drops the second axis of a single target.
    chosen = [RIDGE_PENALTIES.index(penalty) for penalty in np.atleast_1d(model.alpha_)]
    left_out = model.cv_results_.reshape(*targets.shape, -1)[:, range(len(chosen)), chosen]
    unseen = left_out + mean + (targets - mean) / (len(targets) - 1)
    bias = float((model.intercept_ + mean) @ mixture)
    return LinearHead(mixture @ np.atleast_2d(model.coef_), bias), unseen @ mixture
