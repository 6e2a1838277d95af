"""numpy arrays that are a card's index: a row of numbers or a table of bytes, and nothing that numpy would unpickle."""

import re
from typing import BinaryIO

from kcard.hub.refusals import Dangerous, Invalid

__all__ = ["check_array"]

START = b"\x93NUMPY\x01\x00"
# As numpy writes it. Whatever else Python would read as the same dictionary is refused.
HEADER = re.compile(
    rb"\{'descr': '(?:<[if]([48])', 'fortran_order': False, 'shape': \((\d{1,15}),\)"
    rb"|\|i(1)', 'fortran_order': False, 'shape': \((\d{1,15}), (\d{1,5})\)), \} *\n"
)


def check_array(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Dangerous for an array that is not of plain numbers, Invalid for one that is not whole."""
    start = stream.read(len(START) + 2)
    length = int.from_bytes(start[len(START) :], "little")
    header = HEADER.fullmatch(stream.read(length))
    if not start.startswith(START) or header is None:
        raise Dangerous(
            f"{path} is not a row of 4- or 8-byte numbers, or a table of bytes, as numpy saves them: make the "
            "card's index again"
        )
    numbers = int(header[2] or header[4]) * int(header[5] or 1)
    if len(start) + length + int(header[1] or header[3]) * numbers != size:
        raise Invalid(f"{path} does not have the {numbers} numbers that it tells of")
