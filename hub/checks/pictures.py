"""Pictures and tables by their signatures: PNG, JPEG, WebP, GIF; Parquet."""

from typing import BinaryIO

from kcard.hub.refusals import Invalid

__all__ = ["check_parquet", "check_picture"]

STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")


def check_picture(path: str, stream: BinaryIO) -> None:
    """Raise Invalid for a file that is no picture of a kind that is stored."""
    start = stream.read(12)
    if not start.startswith(STARTS) and not (start.startswith(b"RIFF") and start[8:] == b"WEBP"):
        raise Invalid(f"{path} is no PNG, JPEG, WebP or GIF")


def check_parquet(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Invalid for a file that does not begin and end as Parquet does."""
    start = stream.read(4)
    stream.seek(max(0, size - 8))
    end = stream.read(8)
    # Before the last four bytes stands the length of the file's description.
    described = int.from_bytes(end[:4], "little")
    if start != b"PAR1" or end[4:] != b"PAR1" or described > size - 12:
        raise Invalid(f"{path} is no Parquet file, or not all of it")
