"""Files that gzip compressed: read from a temporary file, whatever their format."""

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kcard.errors import CorpusError

__all__ = ["opened"]

MOST = 2_000_000_000  # bytes
PART = 1 << 20


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The file itself or, where its name ends in .gz, what it holds, as a file that lasts as long as the context.

    Raises CorpusError where it can't be decompressed, holds more than 2 GB, or the disk is full.
    """
    if path.suffix != ".gz":
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="kcard-") as folder:
        plain = Path(folder) / path.stem
        _decompress(path, plain)
        yield plain


def _decompress(path: Path, plain: Path) -> None:
    try:
        with gzip.open(path) as packed, plain.open("wb") as file:
            while part := packed.read(PART):
                file.write(part)
                if file.tell() > MOST:
                    raise CorpusError(f"{path} holds more than {MOST // 10**9} GB: decompress and split it")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorpusError(f"{path} can't be decompressed ({error}): is it damaged?") from error
    except OSError as error:
        room = shutil.disk_usage(plain.parent).free
        raise CorpusError(
            f"{path} can't be decompressed ({error.strerror or error}; {room // 10**6} MB are free in {plain.parent})"
        ) from error
