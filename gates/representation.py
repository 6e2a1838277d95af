"""A question as a vector: the one seam through which gates embed. By name: minilm, hf:MODEL, card:FOLDER.

Options follow after commas (hf:gpt2,layer=6,pooling=mean). The kinds are found through the entry-point group
`kcard.representations`, and made with what stands after the colon and the options, all of them texts.
"""

import inspect
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kcard import encoder, plugins
from kcard.errors import UsageError
from kcard.protocols import Array

__all__ = ["GROUP", "CachedRepresentation", "MiniLM", "Representation", "bind", "find", "finite", "unit"]

GROUP = "kcard.representations"


class Representation(Protocol):
    @property
    def name(self) -> str:
        """The name that `find` knows it by."""
        ...

    @property
    def digest(self) -> str:
        """sha256 of all that decides its vectors: the weights, the layer, the pooling."""
        ...

    def vectors(self, questions: Sequence[str]) -> Array:
        """Shape (n, d), the same d always; a row depends on its question only, up to rounding."""
        ...


class MiniLM:
    """The embedded sentence encoder (kcard.encoder): unit length, d = 384."""

    name = "minilm"
    digest = encoder.SHA256

    def vectors(self, questions: Sequence[str]) -> Array:
        return encoder.embed(questions)


class CachedRepresentation:
    """A representation that embeds each question once and remembers it."""

    def __init__(self, representation: Representation) -> None:
        self._representation = representation
        self._known: dict[str, Array] = {}

    @property
    def name(self) -> str:
        return self._representation.name

    @property
    def digest(self) -> str:
        return self._representation.digest

    def vectors(self, questions: Sequence[str]) -> Array:
        new = [question for question in dict.fromkeys(questions) if question not in self._known]
        if new or not questions:
            found = self._representation.vectors(new)
            self._known.update(zip(new, found, strict=True))
        return np.stack([self._known[question] for question in questions]) if questions else found


def find(name: str) -> Representation:
    """The representation of that name; UsageError for a kind or an option that there is not, or without its value."""
    kind, _, given = name.partition(":")
    where, *options = given.split(",")
    make = plugins.load(GROUP, kind)
    signature = inspect.signature(make)
    try:
        bound = signature.bind(*[where] if where else [], **dict(option.split("=", 1) for option in options))
    except (TypeError, ValueError):
        usage = ",".join(
            [f"{kind}:NAME" if _needed(signature) else kind, *(f"{o}=..." for o in _optional(signature))]
        )
        raise UsageError(f"encoder {name!r}: expected {usage}") from None
    made: Representation = make(*bound.args, **bound.kwargs)
    return made


def bind(name: str, digest: str, given: Representation | None = None) -> Representation:
    """What a gate that was fitted on representation `name` with `digest` is to be used with: `given`, or the named one.

    Raises UsageError, naming both, where it is another.
    """
    found = given or find(name)
    if found.digest != digest:
        raise UsageError(
            f"this gate was fitted on the encoder {name} ({digest[:12]}…), not on {found.name} "
            f"({found.digest[:12]}…): use that one, or fit the gate again"
        )
    return found


def finite(representation: Representation, questions: Sequence[str]) -> Array:
    """The vectors of the questions; UsageError names the first question that is given no finite vector."""
    found = representation.vectors(questions)
    wrong = ~np.isfinite(found).all(axis=1)
    if wrong.any():
        raise UsageError(
            f"encoder {representation.name} gives {questions[int(wrong.argmax())][:60]!r} a vector that is "
            "not finite: choose "
            "another encoder or layer"
        )
    return found


def unit(vectors: Array) -> Array:
    """The vectors at unit length; a vector of zeros stays one."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def _needed(signature: inspect.Signature) -> list[str]:
    return [name for name, p in signature.parameters.items() if p.default is p.empty]


def _optional(signature: inspect.Signature) -> list[str]:
    return [name for name, p in signature.parameters.items() if p.default is not p.empty]
