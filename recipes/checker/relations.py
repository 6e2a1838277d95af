"""Relations of the invented facts: the statements of each, what follows from them and what does not."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILES = ("relations.toml", "rivals.toml")
EVIDENCE = ("statements", "colour")


@dataclass(frozen=True)
class Relation:
    """Templates over `slots`, which maps a slot to its kind (names.py); `[x|y]` in them is either wording.

    Any of the `claims` whose slots a statement fills follows from it; a claim that leaves slots out follows
    too. `colour` are statements that say more than others do: none of them follows from another. The `denials`
    never follow, from any statement. The two `rivals` can't change places in a claim without making it false.
    """

    slots: Mapping[str, str]
    statements: tuple[str, ...]
    colour: tuple[str, ...]
    claims: tuple[str, ...]
    denials: tuple[str, ...]
    rivals: tuple[str, ...] = ()
    weight: float = 1.0


def _read(path: Path) -> Iterator[Relation]:
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    for table in tables["relation"]:
        sources = [tables["shared"][name] for name in table.get("like", ())] + [table]
        events, briefs = table.get("events", ()), table.get("briefs", ())
        lists = {
            name: tuple(_with(sources, name, events if name in EVIDENCE else (*events, *briefs)))
            for name in ("statements", "colour", "claims", "denials")
        }
        rivals = tuple(table.get("rivals", ("w", "l") if "contest" in table.get("like", ()) else ()))
        yield Relation(slots=table["slots"], **lists, rivals=rivals, weight=table.get("weight", 1.0))


def _with(sources: list[Mapping[str, Any]], name: str, events: tuple[str, ...]) -> Iterator[str]:
    """The templates of that name, one for each event where they speak of one."""
    for source in sources:
        for template in source.get(name, ()):
            yield from (template.replace("{e}", e) for e in events) if "{e}" in template else [template]


RELATIONS = tuple(r for name in FILES for r in _read(Path(__file__).parent / name))
