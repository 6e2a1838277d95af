"""Untrusted YAML: limited in size, without anchors, aliases, tags and duplicate keys; front matter of a README."""

import math
import re
from datetime import date
from typing import Any

import yaml

from kcard.hub.refusals import Dangerous, Invalid, TooLarge

__all__ = ["check_yaml", "load_yaml", "split"]

LARGEST = 512 << 10  # characters of front matter
MOST_NODES = 30_000  # keys, values, lists and mappings; building them takes 150 ms
DEEPEST = 32
LONGEST_NUMBER = 100
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
FENCE = re.compile(r"---[ \t]*\r?\n(?:(.*?)\r?\n)?---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def split(text: str) -> tuple[str, str]:
    """The front matter of a README ("" if none), and the text after it."""
    text = text.removeprefix("\ufeff")
    found = FENCE.match(text)
    return (found[1] or "", text[found.end() :]) if found else ("", text)


def load_yaml(text: str, where: str, most: int | None = MOST_NODES) -> Any:
    """The value of one YAML document as JSON values: dates, NaN and infinities become strings.

    `most`: nodes of the document; None: any number. Raises Dangerous for anchors, aliases and tags, Invalid for
    malformed or deeply nested YAML, TooLarge.
    """
    if len(text) > LARGEST:
        raise TooLarge(
            f"{where} has {len(text)} characters of YAML: the limit is {LARGEST}; move data to a file of its own"
        )
    loader = None
    try:
        check_yaml(text, where, most)
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_node(node, where)
        return _plain(loader.construct_document(node))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Invalid(f"{where}: invalid YAML: {' '.join(str(error).split())[:200]}") from None
    finally:
        if loader is not None:
            loader.dispose()


def check_yaml(text: str, where: str, most: int | None = None) -> None:
    """Check the documents without building them. Raises as `load_yaml` does, and YAMLError."""
    depth, nodes = 0, 0
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise Dangerous(f"{where}: YAML anchors and aliases are not allowed: write the values out")
        if (tag := getattr(event, "tag", None)) not in (None, "!"):
            raise Dangerous(f"{where}: the YAML tag {str(tag)[:80]!r} is not allowed: use a plain value")
        nodes += isinstance(event, yaml.NodeEvent)
        if most is not None and nodes > most:
            raise TooLarge(
                f"{where} has more than {most} keys and values of YAML: move data to a file of its own"
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise Invalid(f"{where}: YAML nested too deeply: the limit is {DEEPEST} levels")


def _check_node(node: yaml.Node, where: str) -> None:
    """Keys must be unique strings, and numbers short: parsing a long one takes quadratic time."""
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise Invalid(f"{where}: YAML keys must be strings")
            if key.value in keys:
                raise Invalid(f"{where}: duplicate key {key.value[:80]!r}: keep one")
            keys.add(key.value)
            _check_node(key, where)
            _check_node(value, where)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check_node(value, where)
    elif node.tag in NUMBERS and len(node.value) > LONGEST_NUMBER:
        raise Invalid(f"{where}: a number has {len(node.value)} digits: the limit is {LONGEST_NUMBER}")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        value.encode()  # fails for a lone surrogate, which can't be stored
        return value
    if value is None or isinstance(value, bool | int | float):
        return value
    raise ValueError(f"{type(value).__name__} is not a JSON value")


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(_plain(key))
