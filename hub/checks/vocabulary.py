"""Tokenizer models: sentencepiece's (a protocol buffer of pieces), or tiktoken's text under the same name."""

from typing import BinaryIO

from kcard.hub.checks.text import check_text
from kcard.hub.refusals import Invalid

__all__ = ["check_vocabulary"]

# ModelProto's fields: pieces, trainer_spec, normalizer_spec, self_test_data, denormalizer_spec; each with a length.
TAGS = frozenset(number << 3 | 2 for number in range(1, 6))
PIECE = 0x0A
LONGEST_VARINT = 5


def check_vocabulary(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Invalid unless the file, of at most what its kind allows, is one or the other from end to end."""
    data = stream.read(size + 1)
    if data[:1] != bytes([PIECE]):
        stream.seek(0)
        return check_text(path, stream)
    place = 0
    while place < len(data):
        if data[place] not in TAGS:
            break
        length, place = _varint(data, place + 1)
        place += length
    if place != len(data):
        raise Invalid(f"{path} is no tokenizer model: at byte {min(place, size)} it is not sentencepiece's")
    return None


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place behind it; a place behind everything where it has no end."""
    number = 0
    for shift in range(LONGEST_VARINT):
        if place + shift >= len(data):
            break
        byte = data[place + shift]
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, place + shift + 1
    return 0, len(data) + 1
