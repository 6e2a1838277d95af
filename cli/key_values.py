"""KEY=VALUE options, such as --set k=5."""

import json
from typing import Any

from kcard.errors import UsageError

__all__ = ["given_settings"]


def given_settings(given: list[str] | None) -> dict[str, Any]:
    """key=value texts as settings: numbers, true, false and null as JSON has them, else texts."""
    found = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"--set {text}: expected KEY=VALUE, such as k=5")
        try:
            found[key.strip().replace("-", "_")] = json.loads(value)
        except ValueError:
            found[key.strip().replace("-", "_")] = value
    return found
