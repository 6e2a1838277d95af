"""Representations embed questions for gates. By name: minilm, hf:MODEL, card:FOLDER.

Options follow after commas (hf:gpt2,layer=6,pooling=mean). Kinds are registered under the entry-point group
`kcard.representations`, and called with the text after the colon and the options, all of them strings.
"""

import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kcard import system
from kcard.batching import batched, by_length
from kcard.embedded import minilm
from kcard.errors import UsageError
from kcard.hidden_states import CAUSAL, ENCODERS, depth, first, layer_and_pooling, pooled, weights_digest
from kcard.interfaces import Array
from kcard.system import loading

if TYPE_CHECKING:
    from torch import Tensor

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
        if not questions:
            return self._representation.vectors([])
        new = [question for question in dict.fromkeys(questions) if question not in self._vectors]
        if new:
            vectors = self._representation.vectors(new)
            self._vectors.update(zip(new, vectors, strict=True))
        return np.stack([self._vectors[question] for question in questions])


def find(name: str) -> Representation:
    """Return the representation of that name. Raises UsageError for an unknown kind or option, or a missing value."""
    kind, _, argument = name.partition(":")
    where, *options = argument.split(",")
    make = system.load(GROUP, kind)
    signature = inspect.signature(make)
    positional = []
    if where:
        positional.append(where)
    try:
        values = dict(option.split("=", 1) for option in options)
        bound = signature.bind(*positional, **values)
    except (TypeError, ValueError):
        usage = [kind]
        for parameter in signature.parameters.values():
            if parameter.default is parameter.empty:
                usage[0] = f"{kind}:NAME"
            else:
                usage.append(f"{parameter.name}=...")
        raise UsageError(f"encoder {name!r}: expected {','.join(usage)}") from None
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
            f"encoder {representation.name} gives {questions[int(wrong.argmax())][:60]!r} a vector that is not finite: "
            "choose another encoder or layer"
        )
    return vectors


def normalize(vectors: Array) -> Array:
    """Scale the vectors to unit length; a vector of zeros stays zero."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


BATCH_ROWS = 32
MAX_QUESTION_TOKENS = 512


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
        self._layer, self._pooling = layer_and_pooling(layer, pooling, depth(self._model), poolings)
        if self._pooling == "auto":
            self._pooling = "last" if decodes else "mean"
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
        batches = []
        with torch.inference_mode():
            for batch in batched(order, BATCH_ROWS):
                embedded = self._embed([questions[i] for i in batch])
                batches.append(embedded.cpu().numpy())
        back: Array = np.concatenate(batches)[np.argsort(order)]
        return back

    def _embed(self, questions: list[str]) -> "Tensor":
        import torch

        positions = getattr(self._model.config, "max_position_embeddings", None)
        longest = min(MAX_QUESTION_TOKENS, positions or MAX_QUESTION_TOKENS)
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
            if self._pooling == "cls":
                return first(states)
            return pooled(states, mask, self._pooling == "mean")
        start = torch.full((len(questions), 1), self._model.config.decoder_start_token_id, device=mask.device)
        out = self._model(**inputs, decoder_input_ids=start, output_hidden_states=True)
        return first(out.decoder_hidden_states[self._layer])


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
    if torch.cuda.is_available():
        model = model.to("cuda")
    return model, tokenizer
