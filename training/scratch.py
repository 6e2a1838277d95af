"""Bytes beside memory: a nameless file in the system's temporary folder, which goes with the process."""

import tempfile
import weakref
from contextlib import suppress
from typing import IO

from kcard.errors import CorpusError

__all__ = ["Scratch"]


class Scratch:
    """Append and read back; `size` is in bytes. Raises CorpusError where the disk is full."""

    def __init__(self) -> None:
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its owner
        except OSError as error:
            raise _no_room(error) from error
        self.size = self._at = 0
        weakref.finalize(self, _close, self._file)

    def append(self, data: bytes) -> None:
        try:
            if self._at != self.size:
                self._file.seek(self.size)
            self._at = -1
            self._file.write(data)
        except OSError as error:
            raise _no_room(error) from error
        self.size = self._at = self.size + len(data)

    def read(self, start: int, length: int) -> bytes:
        try:
            if self._at != start:
                self._file.seek(start)  # writes what is still in the buffer
            data = self._file.read(length)
        except OSError as error:
            raise _no_room(error) from error
        self._at = start + len(data)
        return data

    def truncate(self, size: int) -> None:
        """Forget everything from byte `size` on."""
        self.size = min(self.size, size)


def _no_room(error: OSError) -> CorpusError:
    return CorpusError(
        f"not enough space for the corpus in {tempfile.gettempdir()} ({error.strerror}): free some, or set "
        "TMPDIR to a folder with more"
    )


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # what could not be written then is of no use now
        file.close()
