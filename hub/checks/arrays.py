"""numpy arrays that are a card's index: one row of numbers, and nothing that numpy would unpickle."""

import re
from typing import BinaryIO

from kcard.hub.refusals import Dangerous, Invalid

__all__ = ["check_array"]

START = b"\x93NUMPY\x01\x00"
# As numpy writes it. Whatever else Python would read as the same dictionary is refused.
HEADER = re.compile(rb"\{'descr': '<[if]([48])', 'fortran_order': False, 'shape': \((\d{1,15}),\), \} *\n")


def check_array(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Dangerous for an array that is not of plain numbers, Invalid for one that is not whole."""
    start = stream.read(len(START) + 2)
    length = int.from_bytes(start[len(START) :], "little")
    header = HEADER.fullmatch(stream.read(length))
    if not start.startswith(START) or header is None:
        raise Dangerous(
            f"{path} is not a row of 4- or 8-byte numbers as numpy saves it: make the card's index again"
        )
    if len(start) + length + int(header[1]) * int(header[2]) != size:
        raise Invalid(f"{path} does not have the {int(header[2])} numbers that it tells of")
