"""JSON from outside: parsed so that whatever is odd is a ValueError, and built into frozen dataclasses by type.

Python's own reader lets through what breaks later and elsewhere: halves of characters that no file can hold, `true`
where a number is wanted, an object where a text is.
"""

import json
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["build", "canonical", "parse"]

T = TypeVar("T")
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def parse(text: str) -> Any:
    """The value that the text holds.

    Raises JSONDecodeError where it is not JSON, and another ValueError where it is nested too deeply or holds half
    of a character (a lone surrogate).
    """
    try:
        value = json.loads(text)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"it holds half of a character (\\u{ord(error.object[error.start]):04x})") from None


def canonical(value: "DataclassInstance", indent: int = 1) -> str:
    """A dataclass as JSON with sorted keys, in UTF-8, so that equal values have equal bytes."""
    return json.dumps(asdict(value), indent=indent, sort_keys=True, ensure_ascii=False) + "\n"


def build(cls: type[T], data: Any) -> T:
    """An instance of a dataclass whose fields are texts, numbers, such dataclasses, tuples and mappings of these.

    Raises TypeError, which names the key, for another type, an unknown key or a missing one; and what the class
    itself raises.
    """
    if not isinstance(data, dict):
        raise TypeError(f"{cls.__name__} must be an object, not {_name(data)}")
    kinds, needed = _fields(cast(Any, cls))
    if unknown := sorted(set(data) - kinds.keys()):
        raise TypeError(f"unknown key {unknown[0]!r}")
    if missing := sorted(needed - set(data)):
        raise TypeError(f"{missing[0]!r} is missing")
    return cls(**{key: _value(kinds[key], value, key) for key, value in data.items()})


@cache
def _fields(cls: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The type of each field, and the fields that have no default."""
    hints = get_type_hints(cls)
    needed = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    return {f.name: hints[f.name] for f in fields(cls)}, frozenset(needed)


def _value(kind: Any, given: Any, key: str) -> Any:
    if kind is Any or kind is type(
        given
    ):  # nearly all: looked at first, since a hub has thousands of manifests
        return given
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return None if given is None else _value(inner[0], given, key)
    if is_dataclass(kind):
        return build(kind, given)  # type: ignore[arg-type] # a class, since it is an annotation
    if origin is Literal:
        if not isinstance(given, str) or given not in inner:
            raise TypeError(f"{key} is {str(given)[:40]!r}, but must be one of {', '.join(inner)}")
        return given
    if origin is tuple:
        return tuple(_value(inner[0], item, key) for item in _of(list, given, key))
    if origin is Mapping:
        return {name: _value(inner[1], item, name) for name, item in _of(dict, given, key).items()}
    return _of(kind, given, key)


def _of(kind: type, given: Any, key: str) -> Any:
    """`given` if it is of that very type; a whole number is a number too, true is not."""
    if kind is float and type(given) is int:
        try:
            float(given)
        except OverflowError:
            raise TypeError(f"{key} is {str(given)[:40]}, a number beyond all bounds") from None
        return given
    if type(given) is not kind:
        raise TypeError(f"{key} must be {NAMES.get(kind, kind.__name__)}, not {_name(given)}")
    return given


def _name(given: Any) -> str:
    """What stands there: a plain value as JSON writes it, else only its type."""
    return (
        NAMES[type(given)] if isinstance(given, list | dict) else json.dumps(given, ensure_ascii=False)[:40]
    )
