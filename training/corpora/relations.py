"""How common relations become sentences: a template for each, other names that they go by, and Wikidata's numbers."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ALIASES", "PROPERTIES", "TEMPLATES"]

_TABLES = tomllib.loads(Path(__file__).with_name("relations.toml").read_text(encoding="utf-8"))
TEMPLATES: Mapping[str, str] = _TABLES["templates"]
ALIASES: Mapping[str, str] = {
    alias: label for label, aliases in _TABLES["aliases"].items() for alias in aliases
}
PROPERTIES: Mapping[str, str] = _TABLES["properties"]
