"""The decoding loop: prompts go through the model once each, then all documents grow by a token a step.

Prefill runs once a (card, question). The keys and values of a prompt are kept once and shared by its documents; those
of a document lie in buffers of their own. It knows weights and token ids, no cards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.engine.batch import Batch, Prompts, batched
from kcard.cards.lm.engine.cache import Cache
from kcard.cards.lm.engine.decoder import Decoder
from kcard.cards.lm.engine.sampler import Sampler
from kcard.cards.lm.engine.step import block, heads, take_step
from kcard.cards.lm.engine.whole import cards, picked

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["decode", "log_probabilities", "prefill", "until_eos"]

# Every how many steps it is asked which cards are through: when half of them are, the others go on without them.
ASK = 8


def decode(decoder: Decoder, batch: Batch, sampler: Sampler, tokens: int, eos: tuple[int, ...]) -> "Tensor":
    """int64 (prompts x documents, at most tokens): the new ids; it stops once every row has had an eos."""
    import torch

    with torch.inference_mode():
        past = 0 if decoder.past is None else decoder.past.tokens
        bias = _bias(batch, past, decoder.embed.table.dtype)
        cache = Cache(batch.documents, decoder.shape, tokens, bias)
        last = prefill(decoder, batch, cache).flatten(0, 1)
        logits = decoder.head(decoder.final_norm(last)).repeat_interleave(batch.documents, 0)
        device, rows = logits.device, len(logits)
        lengths = (
            torch.full((batch.prompts,), batch.length, device=device)
            if batch.mask is None
            else batch.mask.sum(1)
        )
        positions = past + lengths.repeat_interleave(batch.documents)
        ended = torch.zeros(rows, dtype=torch.bool, device=device)
        ends = torch.tensor(eos, dtype=torch.int64, device=device)
        found = torch.full((rows, tokens), eos[0] if eos else 0, dtype=torch.int64, device=device)
        going = _Going(decoder, cache, sampler, positions, torch.arange(rows, device=device))
        for step in range(tokens):
            new = going.sampler.draw(logits, step)
            found[going.rows, step] = new
            if eos:
                ended |= torch.isin(new, ends)
                if bool(ended.all()):
                    return found[:, : step + 1]
                if step % ASK == ASK - 1:
                    kept = going.live(ended, batch.documents)
                    if kept is not None:
                        going, new, ended = going.pick(kept, batch.documents), new[kept], ended[kept]
            if step + 1 < tokens:
                cache.open(step)
                logits = take_step(going.decoder, cache, new, going.positions + step)
        return found


@dataclass(frozen=True)
class _Going:
    """What still grows. positions, rows: of each document, the length of its prompt and its row in the result."""

    decoder: Decoder
    cache: Cache
    sampler: Sampler
    positions: "Tensor"
    rows: "Tensor"

    def live(self, ended: "Tensor", documents: int) -> "Tensor | None":
        """Documents of cards that are not through, where those are at most half of them; None where they are more.

        Without cards, of prompts that are not through.
        """
        each = len(ended) // (cards(self.decoder) or len(ended) // documents)
        through = ended.view(-1, each).all(1)
        if 2 * int(through.sum()) < len(through):
            return None
        kept: Tensor = (~through).repeat_interleave(each).nonzero().squeeze(1)
        return kept

    def pick(self, kept: "Tensor", documents: int) -> "_Going":
        """The same with these documents only."""
        self.cache.pick(kept[::documents] // documents)
        decoder, count = self.decoder, cards(self.decoder)
        if count is not None:
            each = len(self.rows) // count
            decoder = picked(decoder, kept[::each] // each)
        sampler = replace(self.sampler, seeds=self.sampler.seeds[kept])
        return _Going(decoder, self.cache, sampler, self.positions[kept], self.rows[kept])


def prefill(decoder: Decoder, batch: Batch, cache: Cache | None) -> "Tensor":
    """States (prompts, length, d) after the last layer, before the last norm.

    Where there is a cache, keys and values go into it, and states are those of the last place only: (prompts, 1, d).
    """
    from torch.nn.functional import scaled_dot_product_attention as attend

    rows, length = batch.prompts, batch.length
    x = (
        decoder.embed(batch.ids.reshape(-1))
        if batch.embeddings is None
        else batch.embeddings.reshape(rows * length, -1)
    )
    past = decoder.past
    positions, allowed = _places(batch, 0 if past is None else past.tokens, x.device)
    if decoder.positions is not None:
        x = x + decoder.positions(positions)
    tables = decoder.rotary.tables(positions, x.dtype) if decoder.rotary is not None else None
    shape = decoder.shape
    for number, layer in enumerate(decoder.layers):
        q, k, v = heads(decoder, layer, layer.attention_norm(x), tables)
        q, k, v = (part.view(rows, length, -1, shape.width).transpose(1, 2) for part in (q, k, v))
        if past is not None:
            k, v = past.before(number, k, v)
        mixed = attend(
            q, k, v, attn_mask=allowed, is_causal=allowed is None, enable_gqa=shape.heads != shape.kv_heads
        )
        mixed = mixed.transpose(1, 2).reshape(rows * length, -1)
        if cache is not None:
            cache.add_prompt(k, v)
            if number == len(decoder.layers) - 1:
                x, mixed = (part.view(rows, length, -1)[:, -1].contiguous() for part in (x, mixed))
        x = block(layer, x, mixed)
    return x.view(rows, -1, x.shape[-1])


def _places(batch: Batch, past: int, device: Any) -> "tuple[Tensor, Tensor | None]":
    """The position of each token, (prompts x length,), and which places each sees; None: all before it.

    past  tokens of the prefix, which all see
    """
    import torch
    from torch.nn.functional import pad

    rows, length = batch.prompts, batch.length
    if batch.mask is None and not past:
        return torch.arange(length, device=device).repeat(rows), None
    allowed = torch.ones((1, length, length), dtype=torch.bool, device=device).tril()
    positions = torch.arange(length, device=device).repeat(rows)
    if batch.mask is not None:
        positions = (batch.mask.long().cumsum(1) - 1).clamp(min=0).reshape(-1)
        # A padded place looks at itself, so that its softmax is defined; nobody looks at it.
        allowed = (allowed & batch.mask[:, None, :]) | torch.eye(length, dtype=torch.bool, device=device)
    return past + positions, pad(allowed, (past, 0), value=True).unsqueeze(1)


def _bias(batch: Batch, past: int, dtype: Any) -> "Tensor | None":
    """What is added to scores of prompt places, after those of the prefix: minus infinity for padding."""
    import torch
    from torch.nn.functional import pad

    if batch.mask is None:
        return None
    bias = torch.zeros(batch.mask.shape, dtype=dtype, device=batch.mask.device)
    return pad(bias.masked_fill(~batch.mask, -torch.inf), (past, 0))[:, None, None, :]


def log_probabilities(
    decoder: Decoder, prompts: Prompts, continuations: Sequence[Sequence[int]]
) -> list[list[float]]:
    """For each prompt the natural log-probability of every token of its continuation, 0 or less; nothing is drawn.

    The decoder is that of one card; all rows go through it at once, so they should be few and short.
    """
    import torch

    with torch.inference_mode():
        states = prefill(decoder, batched(decoder, prompts, 1, continuations), None)
        found = []
        for row, ids in zip(states, continuations, strict=True):
            # The state at a place speaks of the token after it.
            logits = decoder.head(decoder.final_norm(row[-len(ids) - 1 : -1].contiguous()))
            wanted = torch.tensor(list(ids), device=logits.device).unsqueeze(1)
            scores = logits.float().log_softmax(dim=-1).gather(1, wanted)
            found.append([float(x) for x in scores.squeeze(1)])
        return found


def until_eos(ids: Sequence[int], eos: Sequence[int]) -> tuple[list[int], bool]:
    """The ids before the first end of text, and whether there is one."""
    ends = [position for position, token in enumerate(ids) if token in eos]
    return (list(ids[: ends[0]]), True) if ends else (list(ids), False)
