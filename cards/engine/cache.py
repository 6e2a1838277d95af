"""Keys and values: of each prompt once, shared by its documents; of each document in buffers that are there beforehand.

Products over whole, contiguous buffers are faster than over exact slices, which would be copied first: what is not
written yet is masked. The buffers of the documents grow by half when they are full.
"""

from typing import TYPE_CHECKING

from kcard.cards.engine.decoder import Shape

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Cache"]

# A step reads the buffers whole: too large a room costs more than to grow now and then.
FIRST = 16


class Cache:
    """What attention looks back at.

    documents  of each prompt
    tokens     most of a document
    bias       (prompts, 1, 1, length), added to the scores of prompt places; None: nothing is
    static     the buffers never grow and the step is a tensor, so that one CUDA graph does every step
    """

    def __init__(
        self, documents: int, shape: Shape, tokens: int, bias: "Tensor | None", static: bool = False
    ) -> None:
        self._documents, self._shape, self._tokens, self._bias = documents, shape, tokens, bias
        self._static, self._step = static, 0
        self._prompts: list[tuple[Tensor, Tensor]] = []
        self._grown: list[tuple[Tensor, Tensor]] = []
        self._unwritten: Tensor | None = None
        self._at: Tensor | None = None

    def add_prompt(self, keys: "Tensor", values: "Tensor") -> None:
        """The next layer's, (prompts, kv_heads, length, width) each."""
        self._prompts.append((keys.transpose(-1, -2).contiguous(), values.contiguous()))

    def pick(self, prompts: "Tensor", rows: "Tensor") -> None:
        """Keep these prompts and their documents only."""
        self._prompts = [(keys[prompts], values[prompts]) for keys, values in self._prompts]
        self._grown = [(keys[rows], values[rows]) for keys, values in self._grown]
        if self._bias is not None:
            self._bias = self._bias[prompts]

    def open(self, step: int) -> None:
        """Make room for the token of `step` in every layer, which is what is written next."""
        import torch

        there = 0 if self._unwritten is None else self._unwritten.shape[0]
        if step >= there:
            self._grow(there, step)
        assert self._unwritten is not None
        self._step = step
        self._unwritten[step] = 0
        if self._static:
            if self._at is None:
                self._at = torch.zeros(1, dtype=torch.int64, device=self._unwritten.device)
            self._at.fill_(step)

    def _grow(self, there: int, step: int) -> None:
        import torch

        most = max(self._tokens, 1)
        room = most if self._static else min(there + max(FIRST, there // 2), most)
        first = self._prompts[0][0]
        rows, heads, width = first.shape[0] * self._documents, first.shape[1], first.shape[2]
        for number in range(len(self._prompts)):
            keys = first.new_zeros((rows, heads, width, room))
            values = first.new_zeros((rows, heads, room, width))
            if there:
                keys[..., :there] = self._grown[number][0]
                values[:, :, :there] = self._grown[number][1]
                self._grown[number] = (keys, values)
            else:
                self._grown.append((keys, values))
        unwritten = torch.full((room,), -torch.inf, dtype=first.dtype, device=first.device)
        unwritten[:step] = 0
        self._unwritten = unwritten

    def attend(self, layer: int, q: "Tensor", k: "Tensor", v: "Tensor") -> "Tensor":
        """What each row's new token sees, (rows, heads x width).

        q (rows, heads, width), k and v (rows, kv_heads, width): the token's own, which are kept.
        """
        import torch

        assert self._unwritten is not None, "open comes first"
        shape, rows = self._shape, q.shape[0]
        prompts, group = rows // self._documents, shape.heads // shape.kv_heads
        keys, values = self._grown[layer]
        if self._at is None:
            keys[..., self._step] = k
            values[:, :, self._step] = v
        else:
            keys.index_copy_(3, self._at, k.unsqueeze(-1))
            values.index_copy_(2, self._at, v.unsqueeze(2))
        old_keys, old_values = self._prompts[layer]
        q = q * shape.width**-0.5
        # The documents of a prompt look at its keys in one product.
        asked = torch.matmul(self._together(q, prompts, group), old_keys)
        if self._bias is not None:
            asked = asked + self._bias
        own = torch.matmul(q.view(rows, shape.kv_heads, group, shape.width), keys) + self._unwritten
        length = old_keys.shape[-1]
        scores = torch.cat([self._apart(asked, prompts, group), own], dim=-1)
        weights = torch.softmax(scores, dim=-1)  # in fp32 within, whatever the dtype
        on_prompt = self._together(weights[..., :length].reshape(rows, -1, length), prompts, group)
        mixed = self._apart(torch.matmul(on_prompt, old_values), prompts, group)
        return (mixed + torch.matmul(weights[..., length:], values)).reshape(rows, -1)

    def _together(self, x: "Tensor", prompts: int, group: int) -> "Tensor":
        """(rows, heads, n) -> (prompts, kv_heads, documents x group, n)"""
        heads = self._shape.kv_heads
        x = x.view(prompts, self._documents, heads, group, -1).transpose(1, 2)
        return x.reshape(prompts, heads, self._documents * group, -1)

    def _apart(self, x: "Tensor", prompts: int, group: int) -> "Tensor":
        """(prompts, kv_heads, documents x group, n) -> (rows, kv_heads, group, n)"""
        heads = self._shape.kv_heads
        x = x.view(prompts, heads, self._documents, group, -1).transpose(1, 2)
        return x.reshape(prompts * self._documents, heads, group, -1)
