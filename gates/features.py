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
from kcard.cache import CAUSAL, ENCODERS, depth, first, layer_and_pooling, pooled, weights_digest
from kcard.errors import UsageError
from kcard.interfaces import Array
from kcard.offline import minilm
from kcard.system import loading

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "GROUP",
    "CachedRepresentation",
    "HiddenStates",
    "LogisticHead",
    "MiniLM",
    "Representation",
    "bind",
    "contriever",
    "cross_fit",
    "find",
    "finite_vectors",
    "fit_calibrated",
    "normalize",
]


# A question as a vector: the one seam through which gates embed. By name: minilm, hf:MODEL, card:FOLDER.
#
# Options follow after commas (hf:gpt2,layer=6,pooling=mean). The kinds are found through the entry-point group
# `kcard.representations`, and made with what stands after the colon and the options, all of them texts.

GROUP = "kcard.representations"


class Representation(Protocol):
    @property
    def name(self) -> str:
        """The name that `find` knows it by."""
        ...

    @property
    def digest(self) -> str:
        """sha256 of all that decides its vectors: the weights, the layer, the pooling."""
        ...

    def vectors(self, questions: Sequence[str]) -> Array:
        """Shape (n, d), the same d always; a row depends on its question only, up to rounding."""
        ...


class MiniLM:
    """The embedded sentence encoder (kcard.offline.minilm): unit length, d = 384."""

    name = "minilm"
    digest = minilm.SHA256

    def vectors(self, questions: Sequence[str]) -> Array:
        return minilm.embed(questions)


class CachedRepresentation:
    """A representation that embeds each question once and remembers it."""

    def __init__(self, representation: Representation) -> None:
        self._representation = representation
        self._known: dict[str, Array] = {}

    @property
    def name(self) -> str:
        return self._representation.name

    @property
    def digest(self) -> str:
        return self._representation.digest

    def vectors(self, questions: Sequence[str]) -> Array:
        new = [question for question in dict.fromkeys(questions) if question not in self._known]
        if new or not questions:
            vectors = self._representation.vectors(new)
            self._known.update(zip(new, vectors, strict=True))
        return np.stack([self._known[question] for question in questions]) if questions else vectors


def find(name: str) -> Representation:
    """The representation of that name; UsageError for a kind or an option that there is not, or without its value."""
    kind, _, argument = name.partition(":")
    where, *options = argument.split(",")
    make = system.load(GROUP, kind)
    signature = inspect.signature(make)
    try:
        bound = signature.bind(*[where] if where else [], **dict(option.split("=", 1) for option in options))
    except (TypeError, ValueError):
        usage = ",".join(
            [f"{kind}:NAME" if _needed(signature) else kind, *(f"{o}=..." for o in _optional(signature))]
        )
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
    """The vectors of the questions; UsageError names the first question that is given no finite vector."""
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
    """The vectors at unit length; a vector of zeros stays one."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def _needed(signature: inspect.Signature) -> list[str]:
    return [name for name, p in signature.parameters.items() if p.default is p.empty]


def _optional(signature: inspect.Signature) -> list[str]:
    return [name for name, p in signature.parameters.items() if p.default is not p.empty]


ROWS = 32
TOKENS = 512


class HiddenStates:
    """hf:MODEL, a folder or a Hugging Face name. Of a longer question the first 512 tokens are read.

    layer    of an encoder-decoder, the decoder's, which is given its start token (Thrust, footnote 1)
    pooling  auto: the last token of a decoder, the mean of an encoder. cls and pooler are for encoders that were
             trained so, such as SimCSE's: the first token's state, and what the model's own pooler makes of that of
             the last layer

    Raises ModelUnavailable where the model can't be loaded, UsageError for a layer or pooling that there is not.
    """

    def __init__(self, where: str, layer: str = "-1", pooling: str = "auto") -> None:
        self._model, self._tokenizer = _load(where)
        decodes = _decodes(self._model.config)
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
                self._batch([questions[i] for i in batch]).cpu().numpy() for batch in batched(order, ROWS)
            ]
        back: Array = np.concatenate(batches)[np.argsort(order)]
        return back

    def _batch(self, questions: list[str]) -> "Tensor":
        import torch

        inputs = self._tokenizer(
            questions, padding=True, truncation=True, max_length=self._longest, return_tensors="pt"
        ).to(self._model.device)
        mask = inputs["attention_mask"]
        if not self._model.config.is_encoder_decoder:
            out = self._model(**inputs, output_hidden_states=True)
            return self._pooler_output(out) if self._pooling == "pooler" else self._pooled(out, mask)
        start = torch.full((len(questions), 1), self._model.config.decoder_start_token_id, device=mask.device)
        states = self._model(
            **inputs, decoder_input_ids=start, output_hidden_states=True
        ).decoder_hidden_states
        return pooled(states[self._layer], torch.ones_like(start), self._pooling == "mean")

    def _pooled(self, out: Any, mask: "Tensor") -> "Tensor":
        states = out.hidden_states[self._layer]
        return first(states) if self._pooling == "cls" else pooled(states, mask, self._pooling == "mean")

    def _pooler_output(self, out: Any) -> "Tensor":
        output: Tensor | None = getattr(out, "pooler_output", None)
        if output is None:
            raise UsageError(f"encoder {self.name}: the model has no pooler: choose pooling=cls")
        return output.float()

    @property
    def _longest(self) -> int:
        return min(TOKENS, getattr(self._model.config, "max_position_embeddings", None) or TOKENS)


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


def _decodes(config: Any) -> bool:
    """Whether the model writes from left to right, so that only the last token has seen them all."""
    names = config.architectures or [""]
    return bool(config.is_encoder_decoder or names[0].endswith(("ForCausalLM", "LMHeadModel")))


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


# Logistic regression with an L2 penalty, and its calibration: a small head for vectors that another model made.

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
        """P(1) of each vector, shape (n,)."""
        odds = vectors @ self.weights + self.bias
        probabilities: Floats = np.exp(-np.logaddexp(0, -odds))
        return probabilities


def fit_calibrated(
    vectors: npt.NDArray[np.floating], truth: npt.NDArray[np.bool_], seed: int
) -> LogisticHead:
    """The head whose probabilities can be believed. Both classes must occur; the same seed gives the same head.

    The penalty is the one of least log-loss over folds; then slope and intercept are fitted to what the folds said
    of what they had not seen (Platt), the slope at least 0: where the vectors say nothing, every score
    is the share of ones. A class with a single member can't be split into folds; then nothing is tuned.
    """
    return cross_fit(vectors, truth, seed)[0]


def cross_fit(
    vectors: npt.NDArray[np.floating], truth: npt.NDArray[np.bool_], seed: int
) -> tuple[LogisticHead, Floats]:
    """The same head, and P(1) of each vector by the heads of the folds that had not seen it, shape (n,).

    Those probabilities are calibrated as the head's are. Where nothing can be split, they are the head's own.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict

    centre = vectors.mean(axis=0, dtype=np.float64)
    scale = float(np.sqrt(((vectors - centre) ** 2).sum(axis=1).mean())) or 1.0
    inputs = (vectors - centre) / scale
    model, slope, shift = LogisticRegression(max_iter=ITERATIONS), 1.0, 0.0
    unseen: Floats | None = None
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
    head = LogisticHead(weights, slope * float(model.intercept_[0]) + shift - float(weights @ centre))
    if unseen is None:
        return head, head.probabilities(vectors)
    return head, np.exp(-np.logaddexp(0, -(slope * unseen + shift)))
