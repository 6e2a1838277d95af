"""Questions as hidden states of a transformers model: the local LLM itself, or a smaller one that stands in for it."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.batches import batched, by_length
from kcard.hidden_states import depth, layer_and_pooling, pooled, weights_digest
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
    pooling  auto: the last token of a decoder, the mean of an encoder

    Raises ModelUnavailable where the model can't be loaded, UsageError for a layer or pooling that there is not.
    """

    def __init__(self, where: str, layer: str = "-1", pooling: str = "auto") -> None:
        self._model, self._tokenizer = _load(where)
        self._layer, given = layer_and_pooling(layer, pooling, depth(self._model))
        self._mean = given == "mean" or (given == "auto" and not _decodes(self._model.config))
        self.name = f"hf:{where},layer={self._layer},pooling={'mean' if self._mean else 'last'}"

    @cached_property
    def digest(self) -> str:
        vocabulary = sorted(self._tokenizer.get_vocab().items())
        return weights_digest(self._model, vocabulary, self._layer % (depth(self._model) + 1), self._mean)

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
            states = self._model(**inputs, output_hidden_states=True).hidden_states
            return pooled(states[self._layer], mask, self._mean)
        start = torch.full((len(questions), 1), self._model.config.decoder_start_token_id, device=mask.device)
        states = self._model(
            **inputs, decoder_input_ids=start, output_hidden_states=True
        ).decoder_hidden_states
        return pooled(states[self._layer], torch.ones_like(start), self._mean)

    @property
    def _longest(self) -> int:
        return min(TOKENS, getattr(self._model.config, "max_position_embeddings", None) or TOKENS)


def contriever(where: str = "facebook/contriever") -> HiddenStates:
    """contriever[:MODEL], a dense retriever's encoder: the mean over the last layer's states (Izacard et al., 2022).

    Vectors are compared by their dot product. Adaptive Retrieval has the one that was tuned on MS MARCO,
    contriever:facebook/contriever-msmarco.
    """
    return HiddenStates(where, pooling="mean")


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
