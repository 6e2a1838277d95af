"""Bulk work in independent pieces: what a piece is, what comes of it, and how it is done, wherever that is."""

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from kcard.errors import KcardError, one_line

__all__ = ["Mapper", "Outcome", "Piece", "digest", "perform"]


@dataclass(frozen=True)
class Piece:
    """A call that may be done in any process, also twice: its function returns what it found and keeps nothing else
    than files that doing it again replaces.

    key        names the piece among the others
    function   "package.module:name"
    arguments  by name, JSON-ready
    """

    key: str
    function: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a piece returned, JSON-ready, or in one line why it failed. `key`: the piece's."""

    key: str
    result: Any = None
    error: str = ""


class Mapper(Protocol):
    """Does pieces, each at least once, in processes of its choice."""

    def map(self, pieces: Sequence[Piece]) -> Generator[Outcome, None, None]:
        """One outcome for each piece, as soon as it is there. Closing the generator stops what is not done."""
        ...


def digest(value: Any) -> str:
    """The sha256 of a JSON-ready value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def perform(piece: Piece) -> Outcome:
    """Do the piece in this process; an exception becomes its outcome."""
    module, _, name = piece.function.partition(":")
    try:
        return Outcome(piece.key, getattr(import_module(module), name)(**piece.arguments))
    except KcardError as error:
        return Outcome(piece.key, error=one_line(error))
    except Exception as error:  # noqa: BLE001 - a bug, or memory that is short: the other pieces go on
        return Outcome(piece.key, error=f"{type(error).__name__}: {one_line(error)}")
