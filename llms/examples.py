"""In-context examples: the built-in ones (examples.jsonl) or a user's own file of the same form."""

from pathlib import Path
from typing import Any, get_args

from kcard.errors import UsageError
from kcard.json_values import parse
from kcard.request import Example, Kind

__all__ = ["BUILT_IN", "load"]

BUILT_IN = Path(__file__).resolve().with_name("examples.jsonl")
KEYS = {"kind", "question", "reply", "knowledge"}


def load(path: Path | str | None = None) -> tuple[Example, ...]:
    """The examples of a JSONL file, one object a line: kind, question, reply and, optionally, knowledge (a list).

    None: the built-in ones. Raises UsageError that names the file, the line and what is wrong with it.
    """
    return _read(BUILT_IN if path is None else Path(path))


def _read(path: Path) -> tuple[Example, ...]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise UsageError(f"examples {path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"examples {path} can't be read: {error}") from error
    found = tuple(_example(line, f"{path}, line {n}") for n, line in enumerate(lines, 1) if line.strip())
    if not found:
        raise UsageError(
            f"examples {path} contains no examples: write one JSON object per line, or leave out --examples"
        )
    return found


def _example(line: str, where: str) -> Example:
    try:
        data: Any = parse(line)
    except ValueError as error:
        raise UsageError(f"{where}: not JSON ({error})") from None
    if not isinstance(data, dict):
        raise UsageError(
            f"{where}: expected an object with kind, question and reply, not {type(data).__name__}"
        )
    if unknown := sorted(set(data) - KEYS):
        raise UsageError(f"{where}: unknown key {unknown[0]!r}; choose one of {', '.join(sorted(KEYS))}")
    for key in ("kind", "question", "reply"):
        if not isinstance(data.get(key), str) or not data[key].strip():
            raise UsageError(f"{where}: {key!r} must be a non-empty text")
    if data["kind"] not in get_args(Kind):
        raise UsageError(
            f"{where}: kind {data['kind']!r} is unknown: choose one of {', '.join(get_args(Kind))}"
        )
    knowledge = data.get("knowledge", [])
    if not isinstance(knowledge, list) or not all(isinstance(text, str) for text in knowledge):
        raise UsageError(f"{where}: 'knowledge' must be a list of texts")
    return Example(data["kind"], data["question"], data["reply"], tuple(knowledge))
