"""A stream of tokens on disk, cut into blocks: what causal language modelling is trained on."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.prompt_styles import all_prompt_ids
from kcard.training.example_batches import TrainingExample
from kcard.training.scratch import Scratch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["TokenBlocks"]

AT_ONCE = 100_000  # characters that are tokenised at a time
BYTES = 4  # a token


class TokenBlocks:
    """Tokenised documents, one after the other, each with what begins a text in front and an end-of-text token after
    it, in blocks of `size` tokens.

    A tokenizer whose texts begin with that very token (OPT's) puts one between two documents, not two. The last block
    may be shorter; one of a single token, from which nothing can be learned, is left out.
    """

    def __init__(self, documents: Iterable[str], tokenizer: Any, size: int) -> None:
        self._bytes, self.size = Scratch(), size
        end, framed = tokenizer.eos_token_id, False
        for part in _parts(documents):
            for ids in all_prompt_ids(tokenizer, part):
                framed = ids[:1] == [end]
                self._append(ids if framed else [*ids, end])
        if framed:
            self._append([end])

    def __len__(self) -> int:
        return -(-max(self.tokens - 1, 0) // self.size)

    @property
    def tokens(self) -> int:
        return self._bytes.size // BYTES

    def __getitem__(self, index: int) -> TrainingExample:
        length = min(self.size, self.tokens - index * self.size)
        return TrainingExample((), tuple(self._read(index * self.size, length).tolist()))

    def _append(self, ids: list[int]) -> None:
        import numpy as np

        self._bytes.append(np.array(ids, np.uint32).tobytes())

    def _read(self, start: int, length: int) -> "npt.NDArray[np.uint32]":
        import numpy as np

        return np.frombuffer(self._bytes.read(start * BYTES, length * BYTES), np.uint32)


def _parts(documents: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for document in documents:
        if part and size + len(document) > AT_ONCE:
            yield part
            part, size = [], 0
        part.append(document)
        size += len(document)
    if part:
        yield part
