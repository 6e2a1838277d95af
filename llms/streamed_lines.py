"""Pieces of a stream on one line: those of a chat model all of them, else those of the first line."""

from collections.abc import Iterable, Iterator

__all__ = ["first_line", "spaced"]


def spaced(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces on one line, from the first word on."""
    begun = False
    for piece in pieces:
        text = piece.replace("\n", " ")
        text = text if begun else text.lstrip()
        begun = begun or bool(text)
        yield text


def first_line(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces up to the end of the first line that is not blank; the rest is read and dropped."""
    begun = ended = False
    for piece in pieces:
        text = piece if begun else piece.lstrip()
        begun = begun or bool(text)
        if not ended:
            line, end, _ = text.partition("\n")
            ended = bool(end)
            yield line
