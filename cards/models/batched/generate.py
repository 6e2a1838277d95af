"""Generate texts of many cards at once.

Prefill runs once per (card, question). A prompt's keys and values are stored once and shared by its documents; each
document has buffers of its own. This module deals in weights and token ids, not cards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kcard.cards.models.batched.decoder import Decoder, Layer, Norm, Shape
from kcard.cards.models.batched.whole_models import cards, picked
from kcard.token_sampling import Sampler

if TYPE_CHECKING:
    from torch import Tensor

# Prompts of one batch: token ids or embeddings, padded to one length.


@dataclass(frozen=True)
class Prompts:
    """Prompts of one batch or many: `ids`, token ids per row, or `embeddings`, (rows, length, width)."""

    ids: tuple[tuple[int, ...], ...] = ()
    embeddings: "Tensor | None" = None

    def __len__(self) -> int:
        return len(self.ids) if self.embeddings is None else len(self.embeddings)

    def length(self, row: int) -> int:
        return len(self.ids[row]) if self.embeddings is None else self.embeddings.shape[1]

    def pick(self, rows: Sequence[int]) -> "Prompts":
        if self.embeddings is None:
            return replace(self, ids=tuple(self.ids[i] for i in rows))
        return replace(self, embeddings=self.embeddings[list(rows)])


@dataclass(frozen=True)
class DecodingBatch:
    """Prompts of one length, padded on the left, ordered by card.

    ids         int64 (prompts, length); ignored with `embeddings`
    embeddings  (prompts, length, d) if prompts are given as embeddings
    mask        bool (prompts, length): False for padding; None without padding
    documents   number of documents per prompt
    """

    ids: "Tensor"
    mask: "Tensor | None"
    documents: int
    embeddings: "Tensor | None" = None

    @property
    def prompts(self) -> int:
        return self.ids.shape[0] if self.embeddings is None else self.embeddings.shape[0]

    @property
    def length(self) -> int:
        return self.ids.shape[1] if self.embeddings is None else self.embeddings.shape[1]


def batched(
    decoder: Decoder, prompts: Prompts, documents: int, continuations: Sequence[Sequence[int]] = ()
) -> DecodingBatch:
    """Pad prompts, each with its continuation if any, on the left to one length."""
    import torch

    device = decoder.embed.table.device
    more = continuations or ((),) * len(prompts)
    lengths = [prompts.length(row) + len(ids) for row, ids in enumerate(more)]
    longest = max(lengths)
    mask: Tensor | None = None
    if min(lengths) < longest:
        places = torch.arange(longest, device=device)
        mask = places >= longest - torch.tensor(lengths, device=device).unsqueeze(1)
    if prompts.embeddings is None:
        rows = []
        for prompt, continuation in zip(prompts.ids, more, strict=True):
            padding = longest - len(prompt) - len(continuation)
            rows.append([0] * padding + [*prompt, *continuation])
        return DecodingBatch(torch.tensor(rows, device=device), mask, documents)
    width = prompts.embeddings.shape[-1]
    embedded = prompts.embeddings.new_zeros((len(prompts), longest, width))
    for row, tokens in enumerate(more):
        embedded[row, longest - lengths[row] : longest - len(tokens)] = prompts.embeddings[row]
        if tokens:
            embedded[row, longest - len(tokens) :] = decoder.embed(torch.tensor(list(tokens), device=device))
    return DecodingBatch(torch.empty((0, 0), dtype=torch.int64, device=device), mask, documents, embedded)


# Keys and values: stored once per prompt, shared by its documents, and in preallocated buffers per document.
#
# Products over whole, contiguous buffers are faster than over slices, which would be copied first, so unwritten places
# are masked. The documents' buffers grow when they are full. Documents are ordered by prompt and head, so that the keys
# and values of their prompt and of their own text are adjacent.

# Each step reads whole buffers, so too large a buffer costs more than growing now and then. Products are fastest over
# multiples of ROOM. On a GPU, growing means recording the step again (see _Steps), so buffers begin larger.
ROOM, ROOM_ON_GPU = 16, 128


class KVCache:
    """Keys and values for attention.

    documents  per prompt
    tokens     maximum per document
    bias       (prompts, 1, 1, length), added to the scores of prompt places; None: nothing is
    """

    def __init__(self, documents: int, shape: Shape, tokens: int, bias: "Tensor | None") -> None:
        self._documents, self._shape, self._tokens, self._bias = documents, shape, tokens, bias
        self.room = 0  # places of the documents' buffers
        self._prompts: list[tuple[Tensor, Tensor]] = []
        self._grown: list[tuple[Tensor, Tensor]] = []

    def add_prompt(self, keys: "Tensor", values: "Tensor") -> None:
        """Add the next layer's, (prompts, kv_heads, length, width) each."""
        self._prompts.append((keys.contiguous(), values.contiguous()))

    def pick(self, prompts: "Tensor") -> None:
        """Keep only these prompts and their documents."""
        self._prompts = [(keys[prompts], values[prompts]) for keys, values in self._prompts]
        self._grown = [(keys[prompts], values[prompts]) for keys, values in self._grown]
        if self._bias is not None:
            self._bias = self._bias[prompts]

    def open(self, step: int) -> None:
        """Make room in every layer for the token of `step`, which is written next."""
        import torch

        if step >= self.room:
            self._grow()
        # The place of this step, and those after it, as tensors: a recorded step reads them when it is replayed.
        self._step.fill_(step)
        torch.gt(self._places, self._step, out=self._future)

    def _grow(self) -> None:
        """Enlarge the documents' buffers of all layers."""
        import torch

        there, device = self.room, self._prompts[0][0].device
        more = max(ROOM_ON_GPU if device.type == "cuda" else ROOM, there // 2)
        most = min(_round_up(there + more), _round_up(max(self._tokens, 1)))
        prompts, heads, _, width = self._prompts[0][0].shape
        for number, (first, _) in enumerate(self._prompts):
            keys, values = (first.new_empty((prompts, heads, self._documents, most, width)) for _ in range(2))
            keys[..., there:, :], values[..., there:, :] = 0, 0
            if there:
                keys[..., :there, :], values[..., :there, :] = self._grown[number]
                self._grown[number] = keys, values
            else:
                self._grown.append((keys, values))
        self.room = most
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._places = torch.arange(most, device=device)
        self._future = torch.zeros(most, dtype=torch.bool, device=device)

    def attend(self, layer: int, q: "Tensor", k: "Tensor", v: "Tensor") -> "Tensor":
        """Attend with each row's new token, (rows, heads x width).

        q (rows, heads, width), k and v (rows, kv_heads, width): the token's own, which are stored.
        """
        import torch

        assert self.room, "open comes first"
        shape, rows = self._shape, q.shape[0]
        prompts, group = rows // self._documents, shape.heads // shape.kv_heads
        # Queries by prompt and head: of all its documents (x group), or of each document (group).
        shared, own = (prompts * shape.kv_heads, self._documents * group), (rows * shape.kv_heads, group)
        # Store the token's keys and values in the buffers of all documents, (rows x kv_heads, room, width).
        buffers = []
        for buffer, new in zip(self._grown[layer], (k, v), strict=True):
            buffer.index_copy_(3, self._step, self._by_head(new).unsqueeze(3))
            buffers.append(buffer.flatten(0, 2))
        keys, values = buffers
        old_keys, old_values = self._prompts[layer]
        q = self._by_head(q * shape.width**-0.5).contiguous()
        prompt_scores = torch.bmm(q.view(*shared, -1), old_keys.flatten(0, 1).transpose(1, 2))
        if self._bias is not None:
            prompt_scores = (prompt_scores.view(prompts, shape.kv_heads, shared[1], -1) + self._bias).flatten(
                0, 1
            )
        own_scores = torch.bmm(q.view(*own, -1), keys.transpose(1, 2))
        own_scores.masked_fill_(self._future, -torch.inf)
        weights = torch.softmax(
            torch.cat([prompt_scores.view(*own, -1), own_scores], dim=-1), dim=-1
        )  # computed in fp32 internally
        on_prompt, on_own = weights.split([prompt_scores.shape[-1], own_scores.shape[-1]], dim=-1)
        mixed = torch.bmm(on_prompt.reshape(*shared, -1).contiguous(), old_values.flatten(0, 1))
        mixed = mixed.view(*own, -1).baddbmm_(on_own.contiguous(), values)
        by_head = mixed.view(prompts, shape.kv_heads, self._documents, -1)
        return by_head.transpose(1, 2).reshape(rows, -1)

    def _by_head(self, x: "Tensor") -> "Tensor":
        """Map (rows, heads, width) to (prompts, kv_heads, documents, group x width)"""
        grouped = x.reshape(x.shape[0] // self._documents, self._documents, self._shape.kv_heads, -1)
        return grouped.transpose(1, 2)


def _round_up(room: int) -> int:
    """Round up to a multiple of ROOM."""
    return -(-room // ROOM) * ROOM


# One block of a decoder, and one step of all blocks: the next token of every row.


def take_step(decoder: Decoder, cache: KVCache, new: "Tensor", positions: "Tensor") -> "Tensor":
    """Return logits (rows, vocabulary) after one more token per document."""
    x = decoder.embed(new)
    if decoder.positions is not None:
        x = x + decoder.positions(positions)
    tables = decoder.rotary.tables(positions, x.dtype) if decoder.rotary is not None else None
    for number, layer in enumerate(decoder.layers):
        q, k, v = heads(decoder, layer, layer.attention_norm(x), tables)
        x = block(layer, x, cache.attend(number, q, k, v))
    return decoder.head(decoder.final_norm(x))


def heads(
    decoder: Decoder, layer: Layer, x: "Tensor", tables: "tuple[Tensor, Tensor] | None"
) -> "tuple[Tensor, Tensor, Tensor]":
    """Return queries, keys and values, (rows, heads, width) each, normalized and rotated."""
    shape = decoder.shape
    q, k, v = (part.reshape(x.shape[0], -1, shape.width) for part in layer.qkv(x).split(shape.sizes, dim=-1))
    if layer.query_norm is not None and layer.key_norm is not None:
        q, k = _normalize_heads(layer.query_norm, q), _normalize_heads(layer.key_norm, k)
    if decoder.rotary is not None and tables is not None:
        q, k = decoder.rotary.turn(q, tables), decoder.rotary.turn(k, tables)
    return q, k, v


def _normalize_heads(norm: Norm, x: "Tensor") -> "Tensor":
    return norm(x.reshape(-1, x.shape[-1])).view_as(x)


def block(layer: Layer, x: "Tensor", mixed: "Tensor") -> "Tensor":
    """Return the block's output for its input `x` and the values that attention `mixed`."""
    if layer.parallel:
        return x + layer.out(mixed) + layer.mlp(layer.mlp_norm(x))
    x = x + layer.out(mixed)
    return x + layer.mlp(layer.mlp_norm(x))


# Steps between checks for finished cards: once half of them are finished, the others continue without them.
STEPS_BETWEEN_CHECKS = 8


def decode(
    decoder: Decoder, batch: DecodingBatch, sampler: Sampler, tokens: int, eos: tuple[int, ...]
) -> "Tensor":
    """Return new ids, int64 (prompts x documents, at most tokens); stop once every row has had an eos."""
    import torch

    with torch.inference_mode():
        # Read the prompts. Scores of padding are minus infinity.
        bias: Tensor | None = None
        if batch.mask is not None:
            zeros = torch.zeros(batch.mask.shape, dtype=decoder.embed.table.dtype, device=batch.mask.device)
            bias = zeros.masked_fill(~batch.mask, -torch.inf)[:, None, None, :]
        cache = KVCache(batch.documents, decoder.shape, tokens, bias)
        last = prefill(decoder, batch, cache).flatten(0, 1)
        logits = decoder.head(decoder.final_norm(last)).repeat_interleave(batch.documents, 0)
        device, rows = logits.device, len(logits)
        lengths = (
            torch.full((batch.prompts,), batch.length, device=device)
            if batch.mask is None
            else batch.mask.sum(1)
        )
        positions = lengths.repeat_interleave(batch.documents)
        # Generate token by token; finished rows stay until half of the cards are finished.
        ended = torch.zeros(rows, dtype=torch.bool, device=device)
        ends = torch.tensor(eos, dtype=torch.int64, device=device)
        tokens_of = torch.full((rows, tokens), eos[0] if eos else 0, dtype=torch.int64, device=device)
        state = _DecodingState(_Steps(decoder, cache), sampler, positions, torch.arange(rows, device=device))
        for step in range(tokens):
            new = state.sampler.draw(logits, step)
            tokens_of[state.rows, step] = new
            if eos:
                ended |= torch.isin(new, ends)
                if bool(ended.all()):
                    return tokens_of[:, : step + 1]
                if step % STEPS_BETWEEN_CHECKS == STEPS_BETWEEN_CHECKS - 1:
                    unfinished = state.unfinished(ended, batch.documents)
                    if unfinished is not None:
                        state, new, ended = (
                            state.pick(unfinished, batch.documents),
                            new[unfinished],
                            ended[unfinished],
                        )
            if step + 1 < tokens:
                cache.open(step)
                logits = state.steps.take(new, state.positions + step)
        return tokens_of


class _Steps:
    """Takes steps of one decoder with its cache.

    A step is some 700 small kernels, which a GPU runs in a fraction of the time that it takes to launch them. So there
    the first step is recorded as a CUDA graph, which the next ones replay, until the buffers grow.
    """

    def __init__(self, decoder: Decoder, cache: KVCache) -> None:
        self.decoder, self.cache = decoder, cache
        self._graph: Any = None
        self._room = 0

    def take(self, new: "Tensor", positions: "Tensor") -> "Tensor":
        """See take_step; on a GPU, the result is valid until the next step."""
        if new.device.type != "cuda":
            return take_step(self.decoder, self.cache, new, positions)
        if self._room != self.cache.room:
            self._record(new, positions)
        self._new.copy_(new)
        self._positions.copy_(positions)
        self._graph.replay()
        return self._logits

    def _record(self, new: "Tensor", positions: "Tensor") -> None:
        import torch

        self._graph, self._room = None, self.cache.room
        self._new, self._positions = new.clone(), positions.clone()
        # The streams are those of the model's device, which need not be the current one.
        with torch.cuda.device(new.device):
            # Once without recording, on a stream of its own: libraries set themselves up at their first call.
            current, aside = torch.cuda.current_stream(), torch.cuda.Stream()
            aside.wait_stream(current)
            with torch.cuda.stream(aside):
                take_step(self.decoder, self.cache, self._new, self._positions)
            current.wait_stream(aside)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=aside, capture_error_mode="thread_local"):
                self._logits = take_step(self.decoder, self.cache, self._new, self._positions)


@dataclass(frozen=True)
class _DecodingState:
    """The documents still generated. positions, rows: each one's prompt length and its row in the result."""

    steps: _Steps
    sampler: Sampler
    positions: "Tensor"
    rows: "Tensor"

    def unfinished(self, ended: "Tensor", documents: int) -> "Tensor | None":
        """Return documents of unfinished cards, if those are at most half of the cards; otherwise None.

        Without cards, of unfinished prompts.
        """
        each = len(ended) // (cards(self.steps.decoder) or len(ended) // documents)
        through = ended.view(-1, each).all(1)
        if 2 * int(through.sum()) < len(through):
            return None
        unfinished: Tensor = (~through).repeat_interleave(each).nonzero().squeeze(1)
        return unfinished

    def pick(self, documents_left: "Tensor", documents: int) -> "_DecodingState":
        """Keep only these documents."""
        cache, decoder = self.steps.cache, self.steps.decoder
        cache.pick(documents_left[::documents] // documents)
        count = cards(decoder)
        if count is not None:
            each = len(self.rows) // count
            decoder = picked(decoder, documents_left[::each] // each)
        sampler = replace(self.sampler, seeds=self.sampler.seeds[documents_left])
        steps = _Steps(decoder, cache)
        return _DecodingState(steps, sampler, self.positions[documents_left], self.rows[documents_left])


def prefill(decoder: Decoder, batch: DecodingBatch, cache: KVCache | None) -> "Tensor":
    """Return states (prompts, length, d) after the last layer, before the final norm.

    With a cache, store keys and values in it, and return only the last place's states: (prompts, 1, d).
    """
    from torch.nn.functional import scaled_dot_product_attention as attend

    rows, length = batch.prompts, batch.length
    x = (
        decoder.embed(batch.ids.reshape(-1))
        if batch.embeddings is None
        else batch.embeddings.reshape(rows * length, -1)
    )
    positions, allowed = _positions_and_mask(batch, x.device)
    if decoder.positions is not None:
        x = x + decoder.positions(positions)
    tables = decoder.rotary.tables(positions, x.dtype) if decoder.rotary is not None else None
    shape = decoder.shape
    for number, layer in enumerate(decoder.layers):
        q, k, v = heads(decoder, layer, layer.attention_norm(x), tables)
        q, k, v = (part.view(rows, length, -1, shape.width).transpose(1, 2) for part in (q, k, v))
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


def _positions_and_mask(batch: DecodingBatch, device: Any) -> "tuple[Tensor, Tensor | None]":
    """Return each token's position, (prompts x length,), and the attention mask; None: plain causal."""
    import torch

    rows, length = batch.prompts, batch.length
    if batch.mask is None:
        return torch.arange(length, device=device).repeat(rows), None
    positions = (batch.mask.long().cumsum(1) - 1).clamp(min=0).reshape(-1)
    causal = torch.ones((length, length), dtype=torch.bool, device=device).tril()
    # A padded place attends to itself, so that its softmax is defined; no other place attends to it.
    allowed = (causal & batch.mask[:, None, :]) | torch.eye(length, dtype=torch.bool, device=device)
    return positions, allowed.unsqueeze(1)


def log_probabilities(
    decoder: Decoder, prompts: Prompts, continuations: Sequence[Sequence[int]]
) -> list[list[float]]:
    """Return the natural log-probability, 0 or less, of each continuation token per prompt, without sampling.

    The decoder is that of one card; all rows go through it at once, so they should be few and short.
    """
    import torch

    with torch.inference_mode():
        states = prefill(decoder, batched(decoder, prompts, 1, continuations), None)
        values = []
        for row, ids in zip(states, continuations, strict=True):
            # The state at a position predicts the next token.
            logits = decoder.head(decoder.final_norm(row[-len(ids) - 1 : -1].contiguous()))
            targets = torch.tensor(list(ids), device=logits.device).unsqueeze(1)
            scores = logits.float().log_softmax(dim=-1).gather(1, targets)
            values.append([float(x) for x in scores.squeeze(1)])
        return values


def until_eos(ids: Sequence[int], eos: Sequence[int]) -> tuple[list[int], bool]:
    """Return the ids before the first eos, and whether there is one."""
    for position, token in enumerate(ids):
        if token in eos:
            return list(ids[:position]), True
    return list(ids), False
