"""A fitted gate as one small file: its arrays as safetensors, and in their header, as JSON, all the rest.

No pickle, so a gate from elsewhere can be loaded safely. Equal gates have equal bytes.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.files import replacing
from kcard.gates.kinds import Fitted, GateState, Resources, find
from kcard.json_values import build, parse

__all__ = ["GateHeader", "header", "load", "save"]

FORMAT = 1
KEY = "kcard.gate"
REMEDY = "fit it again with kcard gate fit"


@dataclass(frozen=True)
class GateHeader:
    """What a gate's file says of it.

    values   the part of its state that is not an array
    records  sha256 of the records that it was fitted on (kcard.gates.record.digest)
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


def save(fitted: Fitted, path: Path | str, records: str) -> None:
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
            stream.write(serialised(arrays, {KEY: text}))
    except OSError as error:
        raise UsageError(f"gate {path} can't be written: {error.strerror}: name another file") from error


def load(path: Path | str, resources: Resources | None = None) -> Fitted:
    """The gate that lies at `path`.

    Raises UsageError, naming the file, for what is not a gate, is damaged, of an unknown format or of an unknown kind,
    and for a gate that was fitted on another encoder than `resources` holds.
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
    """What the file says of its gate, without making it; raises as `load` does."""
    return _read(Path(path).expanduser())[0]


def _read(path: Path) -> tuple[GateHeader, dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        if not path.is_file():
            raise UsageError(f"gate {path}: no such file: {REMEDY}")
        with safe_open(path, framework="np") as stream:
            text = (stream.metadata() or {}).get(KEY)
            arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise UsageError(f"gate {path} is not a gate or is damaged ({error}): {REMEDY}") from error
    if text is None:
        raise UsageError(f"gate {path} holds arrays, but is not a gate: {REMEDY}")
    head = _header(text, path)
    if head.sha256 != _digest(head, arrays):
        raise UsageError(f"gate {path} is damaged: its sha256 does not match: {REMEDY}")
    return head, arrays


def _header(text: str, path: Path) -> GateHeader:
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
    return head


def _digest(head: GateHeader, arrays: Mapping[str, Any]) -> str:
    state = hashlib.sha256(replace(head, sha256="").to_json().encode())
    for name in sorted(arrays):
        array = arrays[name]
        state.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return state.hexdigest()
