"""What the invented facts say: for each relation its statements, what follows from them and what does not."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RELATIONS", "Relation"]


@dataclass(frozen=True)
class Relation:
    """Templates over `slots`, which maps a slot to its kind (names.py).

    Any of the `claims` whose slots a statement fills follows from it; a claim that leaves slots out follows
    too. The `denials` never follow, from any statement. The two `rivals` can't change places in a claim without
    making it false.
    """

    slots: Mapping[str, str]
    statements: tuple[str, ...]
    claims: tuple[str, ...]
    denials: tuple[str, ...]
    rivals: tuple[str, ...] = ()


def _read(path: Path) -> tuple[Relation, ...]:
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["relation"]
    lists = ("statements", "claims", "denials", "rivals")
    return tuple(Relation(t["slots"], *(tuple(t.get(name, ())) for name in lists)) for t in tables)


RELATIONS = _read(Path(__file__).parent / "relations.toml")
