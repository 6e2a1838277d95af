"""Keys and values: of each prompt once, shared by its documents; of each document in buffers that are there beforehand.

Products over whole, contiguous buffers are faster than over slices, which would be copied first: what is not written
yet is masked. The buffers of the documents grow when they are full. Documents are ordered by prompt and head, so that
what they see of their prompt and of their own text lies side by side.
"""

from typing import TYPE_CHECKING

from kcard.cards.lm.engine.decoder import Shape

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Cache"]

# A step reads the buffers whole: too large a room costs more than to grow now and then. Products are fastest over
# multiples of it.
ROOM = 16


class Cache:
    """What attention looks back at.

    documents  of each prompt
    tokens     most of a document
    bias       (prompts, 1, 1, length), added to the scores of prompt places; None: nothing is
    """

    def __init__(self, documents: int, shape: Shape, tokens: int, bias: "Tensor | None") -> None:
        self._documents, self._shape, self._tokens, self._bias = documents, shape, tokens, bias
        self._step, self._room = 0, 0
        self._prompts: list[tuple[Tensor, Tensor]] = []
        self._grown: list[tuple[Tensor, Tensor]] = []

    def add_prompt(self, keys: "Tensor", values: "Tensor") -> None:
        """The next layer's, (prompts, kv_heads, length, width) each."""
        self._prompts.append((keys.contiguous(), values.contiguous()))

    def pick(self, prompts: "Tensor") -> None:
        """Keep these prompts and their documents only."""
        self._prompts = [(keys[prompts], values[prompts]) for keys, values in self._prompts]
        self._grown = [(keys[prompts], values[prompts]) for keys, values in self._grown]
        if self._bias is not None:
            self._bias = self._bias[prompts]

    def open(self, step: int) -> None:
        """Make room for the token of `step` in every layer, which is what is written next."""
        if step >= self._room:
            self._grow()
        self._step = step

    def _grow(self) -> None:
        there = self._room
        most = min(_whole(there + max(ROOM, there // 2)), _whole(max(self._tokens, 1)))
        prompts, heads, _, width = self._prompts[0][0].shape
        for number, (first, _) in enumerate(self._prompts):
            keys, values = (first.new_empty((prompts, heads, self._documents, most, width)) for _ in range(2))
            keys[..., there:, :], values[..., there:, :] = 0, 0
            if there:
                keys[..., :there, :], values[..., :there, :] = self._grown[number]
                self._grown[number] = keys, values
            else:
                self._grown.append((keys, values))
        self._room = most

    def attend(self, layer: int, q: "Tensor", k: "Tensor", v: "Tensor") -> "Tensor":
        """What each row's new token sees, (rows, heads x width).

        q (rows, heads, width), k and v (rows, kv_heads, width): the token's own, which are kept.
        """
        import torch

        assert self._room, "open comes first"
        shape, rows = self._shape, q.shape[0]
        prompts, group = rows // self._documents, shape.heads // shape.kv_heads
        # Of each prompt and head, all its documents' queries (x group), or of each document its own (group).
        shared, own = (prompts * shape.kv_heads, self._documents * group), (rows * shape.kv_heads, group)
        keys, values = self._write(layer, k, v)
        old_keys, old_values = self._prompts[layer]
        q = self._by_head(q * shape.width**-0.5).contiguous()
        asked = torch.bmm(q.view(*shared, -1), old_keys.flatten(0, 1).transpose(1, 2))
        if self._bias is not None:
            asked = (asked.view(prompts, shape.kv_heads, shared[1], -1) + self._bias).flatten(0, 1)
        told = torch.bmm(q.view(*own, -1), keys.transpose(1, 2))
        told[..., self._step + 1 :] = -torch.inf
        weights = torch.softmax(torch.cat([asked.view(*own, -1), told], dim=-1), dim=-1)  # within in fp32
        on_prompt, on_own = weights.split([asked.shape[-1], told.shape[-1]], dim=-1)
        mixed = torch.bmm(on_prompt.reshape(*shared, -1).contiguous(), old_values.flatten(0, 1))
        mixed = mixed.view(*own, -1).baddbmm_(on_own.contiguous(), values)
        by_head = mixed.view(prompts, shape.kv_heads, self._documents, -1)
        return by_head.transpose(1, 2).reshape(rows, -1)

    def _write(self, layer: int, k: "Tensor", v: "Tensor") -> "tuple[Tensor, Tensor]":
        """Keys and values of all documents, (rows x kv_heads, room, width), with these."""
        found = []
        for buffer, new in zip(self._grown[layer], (k, v), strict=True):
            buffer[..., self._step, :] = self._by_head(new)
            found.append(buffer.flatten(0, 2))
        return found[0], found[1]

    def _by_head(self, x: "Tensor") -> "Tensor":
        """(rows, heads, width) -> (prompts, kv_heads, documents, group x width)"""
        grouped = x.reshape(x.shape[0] // self._documents, self._documents, self._shape.kv_heads, -1)
        return grouped.transpose(1, 2)


def _whole(room: int) -> int:
    """Rounded up to a multiple of ROOM."""
    return -(-room // ROOM) * ROOM
