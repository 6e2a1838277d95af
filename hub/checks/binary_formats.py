"""Checks of the allowed binary formats: numpy arrays of a card's index, pictures, Parquet, tokenizer models."""

import re
from typing import BinaryIO

from kcard.hub.checks.text import check_text
from kcard.hub.refusals import Dangerous, Invalid

__all__ = ["check_array", "check_parquet", "check_picture", "check_vocabulary"]

ARRAY_START = b"\x93NUMPY\x01\x00"
# Exactly as numpy writes it.
ARRAY_HEADER = re.compile(
    rb"\{'descr': '(?:<[if]([48])', 'fortran_order': False, 'shape': \((\d{1,15}),\)"
    rb"|\|i(1)', 'fortran_order': False, 'shape': \((\d{1,15}), (\d{1,5})\)), \} *\n"
)
PICTURE_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")
# ModelProto's fields: pieces, trainer_spec, normalizer_spec, self_test_data, denormalizer_spec; each with a length.
VOCABULARY_TAGS = frozenset(number << 3 | 2 for number in range(1, 6))
VOCABULARY_PIECE = 0x0A
LONGEST_VARINT = 5
MOST_FIELDS = 2_000_000  # the largest vocabularies have 262,144 pieces


def check_array(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Dangerous unless it is a row of numbers or a table of bytes, Invalid if it is incomplete."""
    start = stream.read(len(ARRAY_START) + 2)
    length = int.from_bytes(start[len(ARRAY_START) :], "little")
    header = ARRAY_HEADER.fullmatch(stream.read(length))
    if not start.startswith(ARRAY_START) or header is None:
        raise Dangerous(
            f"{path} is not a numpy array of 4- or 8-byte numbers or a table of bytes: rebuild the card's index"
        )
    numbers = int(header[2] or header[4]) * int(header[5] or 1)
    if len(start) + length + int(header[1] or header[3]) * numbers != size:
        raise Invalid(f"{path} is incomplete: its header says {numbers} numbers")


def check_picture(path: str, stream: BinaryIO) -> None:
    """Raise Invalid unless it is a PNG, JPEG, WebP or GIF."""
    start = stream.read(12)
    if not start.startswith(PICTURE_STARTS) and not (start.startswith(b"RIFF") and start[8:] == b"WEBP"):
        raise Invalid(f"{path} is not a PNG, JPEG, WebP or GIF")


def check_parquet(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Invalid unless it starts and ends like Parquet."""
    start = stream.read(4)
    stream.seek(max(0, size - 8))
    end = stream.read(8)
    # The last four bytes follow the length of the footer.
    described = int.from_bytes(end[:4], "little")
    if start != b"PAR1" or end[4:] != b"PAR1" or described > size - 12:
        raise Invalid(f"{path} is not a complete Parquet file")


def check_vocabulary(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Invalid unless it is a sentencepiece model, or tiktoken's text under the same name."""
    data = stream.read(size + 1)
    if data[:1] != bytes([VOCABULARY_PIECE]):
        stream.seek(0)
        return check_text(path, stream)
    place, fields, end = 0, 0, len(data)
    while place < end and data[place] in VOCABULARY_TAGS:
        length, place = _varint(data, place + 1)
        place += length
        fields += 1
        if fields > MOST_FIELDS:
            raise Invalid(f"{path} is not a sentencepiece model: it has more than {MOST_FIELDS} pieces")
    if place != end:
        raise Invalid(f"{path} is not a sentencepiece model: invalid at byte {min(place, size)}")
    return None


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A varint and the place after it, which is beyond the data if the varint is incomplete."""
    if place < len(data) and data[place] < 0x80:  # most are short
        return data[place], place + 1
    number = 0
    for shift, byte in enumerate(data[place : place + LONGEST_VARINT]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, place + shift + 1
    return 0, len(data) + 1
