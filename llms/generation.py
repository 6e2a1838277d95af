"""What a model of transformers generates for a batch of prompts, each row as if it were alone.

Rows are padded on the side where the model does not continue them. Sampling draws with a generator of each row's own,
so that a reply does not depend on the batch it came in; only rounding does, which in float32 hardly ever shows.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["Continuation", "Draw", "generate", "padded_rows"]


@dataclass(frozen=True)
class Draw:
    """How a row's tokens are chosen: at a temperature of at least 0 (greedy), with a seed."""

    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Continuation:
    """New tokens, the end of the text included; `logits`, shape (n, vocabulary), are those before each of them."""

    tokens: list[int]
    logits: "torch.Tensor | None" = None


def generate(
    model: Any,
    rows: Sequence[Sequence[int]],
    most: int,
    draws: Sequence[Draw],
    *,
    padding: int,
    logits: bool = False,
    streamer: Any = None,
    shared: int = 0,
    cache: Any = None,
    ends: Set[int] | None = None,
) -> list[Continuation]:
    """At most `most` new tokens for each row. `streamer`, for a single row, gets them as they come.

    `cache`: keys and values of the first `shared` tokens, which are the same in all rows. `ends`: the tokens that end a
    text; None: those of the model's generation config.
    """
    import torch
    from transformers import LogitsProcessorList

    reads_first = bool(model.config.is_encoder_decoder)
    ids, mask = padded_rows([row[shared:] for row in rows], padding, left=not reads_first)
    if shared:  # padding stands after what is shared
        first = torch.tensor([list(rows[0][:shared])] * len(rows))
        ids, mask = torch.cat([first, ids], 1), torch.cat([torch.ones_like(first), mask], 1)
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            max_new_tokens=most,
            pad_token_id=padding,
            do_sample=False,
            num_beams=1,
            logits_processor=LogitsProcessorList([_Drawn(draws)]),
            output_logits=logits,
            return_dict_in_generate=True,
            streamer=streamer,
            **({} if cache is None else {"past_key_values": cache}),
            **({} if ends is None else {"eos_token_id": sorted(ends)}),
        )
    new = out.sequences[:, 1 if reads_first else ids.shape[1] :].tolist()
    ends = _ends(model) if ends is None else ends
    kept = [row[: next((n for n, token in enumerate(row, 1) if token in ends), len(row))] for row in new]
    if not logits:
        return [Continuation(row) for row in kept]
    scores = torch.stack(out.logits, 1)
    return [Continuation(row, scores[i, : len(row)]) for i, row in enumerate(kept)]


def padded_rows(
    rows: Sequence[Sequence[int]], padding: int, left: bool
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Token ids and attention mask, both of shape (rows, longest)."""
    import torch

    width = max(map(len, rows))
    ids = torch.full((len(rows), width), padding)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return ids, mask


def _ends(model: Any) -> set[int]:
    given = model.generation_config.eos_token_id
    return set(given) if isinstance(given, list) else set() if given is None else {given}


class _Drawn:
    """Makes the largest score of a row a draw from softmax(scores / temperature), by adding Gumbel noise to it."""

    def __init__(self, draws: Sequence[Draw]) -> None:
        import torch

        self._draws = [(draw.temperature, torch.Generator().manual_seed(draw.seed)) for draw in draws]

    def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":
        import torch

        del input_ids
        if not any(temperature for temperature, _ in self._draws):
            return scores
        drawn = scores.float().clone()
        for row, (temperature, generator) in zip(drawn, self._draws, strict=True):
            if temperature:
                noise = -torch.empty(len(row)).exponential_(generator=generator).log()
                row.div_(temperature).add_(noise.to(row.device))
        return drawn
