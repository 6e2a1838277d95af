"""The gate that a name or a file means: one that needs no records, or one that was fitted and kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kcard import plugins
from kcard.config import settings
from kcard.errors import UsageError
from kcard.gates.decision import THRESHOLD
from kcard.protocols import LLM, Gate
from kcard.request import Example

if TYPE_CHECKING:
    from kcard.gates.kinds import Fitted

__all__ = [
    "UNFITTED",
    "NamedGate",
    "gate_file",
    "gates_folder",
    "kept_name",
    "kind_names",
    "named_gate",
    "title",
]

UNFITTED = "kcard.gates"  # entry points of gates that need no records


@dataclass(frozen=True)
class NamedGate:
    """A gate that is ready to be asked; `threshold` is what its scores are compared with."""

    name: str
    gate: Gate
    threshold: float = THRESHOLD


def named_gate(name: str, llm: LLM, examples: Sequence[Example] = ()) -> NamedGate:
    """The gate for `kcard ask --gate`: one that needs no records, a fitted one that is kept, or a gate's file.

    Raises UsageError for a kind that must be fitted first, and for what is not a gate.
    """
    if name in plugins.names(UNFITTED):
        return NamedGate(name, plugins.load(UNFITTED, name)(llm, examples))
    from kcard.gates import storage
    from kcard.gates.kinds import Asked, Resources

    fitted = storage.load(gate_file(name), Resources(llm=llm))
    return NamedGate(title(fitted), Asked(fitted), fitted.threshold)


def gates_folder() -> Path:
    """Where gates are kept by name."""
    return settings().home / "gates"


def kept_name(kind: str) -> str:
    """Under which name a fitted gate is kept: never that of a gate which needs no records (uncertainty, self-ask)."""
    return f"fitted-{kind}" if kind in plugins.names(UNFITTED) else kind


def gate_file(name: str) -> Path:
    """The file that a name or a path means."""
    kept = gates_folder() / name
    if Path(name).expanduser().is_file():
        return Path(name).expanduser()
    if "/" not in name and kept.is_file():
        return kept
    if name in kind_names():
        raise UsageError(
            f"gate {name!r} must be fitted first: kcard gate fit --records RECORDS --kind {name}, which "
            f"stores it as {kept_name(name)}"
        )
    known = ", ".join(sorted({*plugins.names(UNFITTED), *_kept()}))
    raise UsageError(
        f"unknown gate {name!r}: give a gate's file, one of {known}, or fit one (kcard gate fit --kind "
        f"{'|'.join(kind_names())})"
    )


def kind_names() -> list[str]:
    from kcard.gates import kinds

    return kinds.names()


def _kept() -> list[str]:
    folder = gates_folder()
    return (
        [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    )


def title(fitted: "Fitted") -> str:
    """What a fitted gate is called in answers: its kind."""
    return str(fitted.settings["gate"]) if fitted.kind == "calibrated" else fitted.kind
