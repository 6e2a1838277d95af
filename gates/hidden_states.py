"""Questions as hidden states of a transformers model: the local LLM itself, or a smaller one that stands in for it."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.batches import batched, by_length
from kcard.errors import UsageError
from kcard.hidden_states import (
    CAUSAL,
    ENCODERS,
    depth,
    first,
    layer_and_pooling,
    pooled,
    weights_digest,
)
from kcard.protocols import Array
from kcard.quiet import loading

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["HiddenStates", "contriever"]

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
        known = CAUSAL if decodes else ENCODERS
        self._layer, given = layer_and_pooling(layer, pooling, depth(self._model), known)
        self._pooling = ("last" if decodes else "mean") if given == "auto" else given
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
            found = [
                self._batch([questions[i] for i in batch]).cpu().numpy() for batch in batched(order, ROWS)
            ]
        back: Array = np.concatenate(found)[np.argsort(order)]
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
        found: Tensor | None = getattr(out, "pooler_output", None)
        if found is None:
            raise UsageError(f"encoder {self.name}: the model has no pooler: choose pooling=cls")
        return found.float()

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
