"""Records on disk: a sequence that may be larger than memory, at 8 bytes of memory a record.

It knows bytes only; what the records are, its users know.
"""

from array import array
from collections.abc import Iterable

from kcard.training.scratch import Scratch

__all__ = ["Spool"]

LENGTH = 4  # bytes that tell the length of a record


class Spool:
    """Records of bytes. Raises CorpusError where the disk is full."""

    def __init__(self) -> None:
        self._bytes = Scratch()
        self._starts = array("Q")

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> bytes:
        start = self._starts[index]
        length = int.from_bytes(self._bytes.read(start, LENGTH), "little")
        return self._bytes.read(start + LENGTH, length)

    def append(self, record: bytes) -> None:
        start = self._bytes.size
        self._bytes.append(len(record).to_bytes(LENGTH, "little") + record)
        self._starts.append(start)

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` records."""
        if count < len(self._starts):
            self._bytes.truncate(self._starts[count])
            del self._starts[count:]

    def keep(self, wanted: Iterable[bool]) -> None:
        """Forget the records for which `wanted` is false; their bytes stay on disk."""
        at = 0
        for start, keep in zip(self._starts, wanted, strict=True):
            if keep:
                self._starts[at] = start  # in place: at this moment memory holds the whole corpus' places
                at += 1
        del self._starts[at:]
