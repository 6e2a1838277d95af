"""What prompts of a causal model have in common, such as their examples, is read once: its keys and values are kept."""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

__all__ = ["LEAST", "SharedPrefix"]

LEAST = 64  # tokens, below which reading them again costs less than the bookkeeping


class SharedPrefix:
    """Keys and values of the last prefix, for models of transformers that take positions and keep all keys."""

    def __init__(self, model: Any) -> None:
        self._model = model
        takes = inspect.signature(model.forward).parameters.keys()
        self._able = not model.config.is_encoder_decoder and takes >= {"position_ids", "logits_to_keep"}
        self._tokens: tuple[int, ...] = ()
        self._kept: Any = None

    def cache(self, tokens: Sequence[int], rows: int) -> Any:
        """The keys and values of these tokens for so many rows, free to be written to; None where they are too few, or
        the model is of another kind."""
        if not self._able or len(tokens) < LEAST:
            return None
        if tuple(tokens) != self._tokens:
            self._read(tokens)
        if self._kept is None:
            return None
        found = copy.deepcopy(self._kept)
        if rows > 1:
            found.batch_repeat_interleave(rows)
        return found

    def _read(self, tokens: Sequence[int]) -> None:
        import torch
        from transformers import DynamicCache

        ids = torch.tensor([list(tokens)], device=self._model.device)
        with torch.inference_mode():
            made = self._model(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values
        # Layers of another kind, such as those with a sliding window, forget keys.
        plain = type(made) is DynamicCache and {type(layer).__name__ for layer in made.layers} == {
            "DynamicLayer"
        }
        self._tokens, self._kept = tuple(tokens), made if plain else None
