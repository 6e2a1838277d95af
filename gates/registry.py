"""Gates by name or in a file.

Files contain no pickle, so a gate from elsewhere can be loaded safely. Equal gates have equal bytes.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kcard import system
from kcard.config import settings
from kcard.errors import UsageError
from kcard.gates.base import FittedGate, GateState, QuestionGate, Resources, find, names
from kcard.interfaces import LLM, Gate
from kcard.io import build, parse, replacing
from kcard.types import Example

FORMAT = 1
HEADER_KEY = "kcard.gate"
REMEDY = "fit it again with kcard gate fit"


@dataclass(frozen=True)
class GateHeader:
    """The metadata in a gate's file.

    values   the part of its state that is not an array
    records  sha256 of the records that it was fitted on (kcard.gates.records.digest)
    sha256   of its arrays and of the rest of this header
    """

    kind: str
    threshold: float
    settings: Mapping[str, Any]
    values: Mapping[str, Any]
    records: str
    sha256: str = ""
    format: int = FORMAT

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False, allow_nan=False)


def save(fitted: FittedGate, path: Path | str, records: str) -> None:
    """Write the gate; a reader sees the old file or the new one, never half of either.

    records  sha256 of what it was fitted on. Raises UsageError where the file can't be written.
    """
    from safetensors.numpy import save as serialised

    arrays, values = fitted.state()
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    head = GateHeader(fitted.kind, fitted.threshold, dict(fitted.settings), dict(values), records)
    text = replace(head, sha256=_digest(head, arrays)).to_json()
    path = Path(path).expanduser()
    try:
        with replacing(path, parents=True) as stream:
            stream.write(serialised(arrays, {HEADER_KEY: text}))
    except OSError as error:
        raise UsageError(f"gate {path} can't be written: {error.strerror}: name another file") from error


def load(path: Path | str, resources: Resources | None = None) -> FittedGate:
    """Load the gate at `path`.

    Raises UsageError, which names the file, if it is not a gate, is damaged, has an unknown format or kind, or was
    fitted on another encoder than that of `resources`.
    """
    head, arrays = _read(Path(path).expanduser())
    try:
        kind = find(head.kind)
        state = GateState(arrays, head.values)
        return kind.restore(head.settings, head.threshold, state, resources or Resources())
    except UsageError as error:
        raise UsageError(f"gate {path}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"gate {path}: not a gate of kind {head.kind}: {error}: {REMEDY}") from error


def header(path: Path | str) -> GateHeader:
    """Read the metadata of a gate's file, without making the gate; raises as `load` does."""
    return _read(Path(path).expanduser())[0]


def _read(path: Path) -> tuple[GateHeader, dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        if not path.is_file():
            raise UsageError(f"gate {path}: no such file: {REMEDY}")
        with safe_open(path, framework="np") as stream:
            text = (stream.metadata() or {}).get(HEADER_KEY)
            arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise UsageError(f"gate {path} is not a gate or is damaged ({error}): {REMEDY}") from error
    if text is None:
        raise UsageError(f"gate {path} holds arrays, but is not a gate: {REMEDY}")
    # Parse the header, and check it against the arrays.
    try:
        data = parse(text)
        if isinstance(data, dict) and data.get("format") != FORMAT:
            raise UsageError(
                f"gate {path} has format {data.get('format')!r}; this kcard reads {FORMAT}: {REMEDY}"
            )
        head = build(GateHeader, data)
        if not math.isfinite(head.threshold):
            raise ValueError("threshold is not a number")
    except (ValueError, TypeError) as error:
        raise UsageError(f"gate {path} is damaged: {error}: {REMEDY}") from error
    if head.sha256 != _digest(head, arrays):
        raise UsageError(f"gate {path} is damaged: its sha256 does not match: {REMEDY}")
    return head, arrays


def _digest(head: GateHeader, arrays: Mapping[str, Any]) -> str:
    state = hashlib.sha256(replace(head, sha256="").to_json().encode())
    for name in sorted(arrays):
        array = arrays[name]
        state.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return state.hexdigest()


UNFITTED_GROUP = "kcard.gates"  # entry points of gates that need no records


@dataclass(frozen=True)
class NamedGate:
    """A gate that is ready for use, and its name in answers."""

    name: str
    gate: Gate


def load_gate(name: str, llm: LLM, examples: Sequence[Example] = ()) -> NamedGate:
    """Load the gate for `kcard ask --gate`: one that needs no fitting, a stored fitted one, or a file.

    Raises UsageError for a kind that must be fitted first, and for what is not a gate.
    """
    if name in system.names(UNFITTED_GROUP):
        return NamedGate(name, system.load(UNFITTED_GROUP, name)(llm, examples))
    fitted = load(gate_file(name), Resources(llm=llm))
    return NamedGate(title(fitted), QuestionGate(fitted))


def gates_folder() -> Path:
    """Return the folder of fitted gates by name."""
    return settings().home / "gates"


def stored_gate_name(kind: str) -> str:
    """Return the name that a fitted gate is stored under: never that of an unfitted one (uncertainty, self-ask)."""
    if kind in system.names(UNFITTED_GROUP):
        return f"fitted-{kind}"
    return kind


def gate_file(name: str) -> Path:
    """Return the file of a gate, given its name or path."""
    file = gates_folder() / name
    if Path(name).expanduser().is_file():
        return Path(name).expanduser()
    if "/" not in name and file.is_file():
        return file
    if name in names():
        raise UsageError(
            f"gate {name!r} must be fitted first: kcard gate fit --records RECORDS --kind {name}, which "
            f"stores it as {stored_gate_name(name)}"
        )
    folder, stored = gates_folder(), []
    if folder.is_dir():
        stored = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    choices = ", ".join(sorted({*system.names(UNFITTED_GROUP), *stored}))
    raise UsageError(
        f"unknown gate {name!r}: give a gate's file, one of {choices}, or fit one (kcard gate fit --kind "
        f"{'|'.join(names())})"
    )


def title(fitted: FittedGate) -> str:
    """Return the name of a fitted gate in answers: its kind."""
    if fitted.kind == "calibrated":
        return str(fitted.settings["gate"])
    return fitted.kind
