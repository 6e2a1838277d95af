"""Matching of paths with a .gitignore.

Patterns are untrusted. They are matched segment by segment with fnmatch, which does not backtrack; one regular
expression for a whole path could run for hours.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kcard.hub.refusals import TooLarge

__all__ = ["gitignore"]

MOST_PARTS = 2_000  # of all patterns together
ANY = "**"
ESCAPED = re.compile(r"\\([*?[])|\\(.)")


@dataclass(frozen=True)
class Pattern:
    """A line of a .gitignore. `parts` are its segments; `keeps`: it negates other patterns (`!`)."""

    parts: tuple[str, ...]
    keeps: bool
    folders_only: bool


def gitignore(text: str) -> Callable[[str], bool]:
    """A function that says whether a path is excluded by the .gitignore at the top of the repository.

    As in git, the last matching pattern decides, and files in an excluded folder can't be included again. Raises
    TooLarge for too many patterns.
    """
    patterns = [found for line in text.splitlines() if (found := _pattern(line))]
    if sum(len(pattern.parts) for pattern in patterns) > MOST_PARTS:
        raise TooLarge(f".gitignore too long: its patterns have more than {MOST_PARTS} segments")

    def ignores(path: str) -> bool:
        names = path.split("/")
        reached = [_closed(pattern, {0}) for pattern in patterns]
        for depth, name in enumerate(names, start=1):
            reached = [_next(*both, name) for both in zip(patterns, reached, strict=True)]
            if _left_out(zip(patterns, reached, strict=True), folder=depth < len(names)):
                return True
        return False

    return ignores


def _pattern(line: str) -> Pattern | None:
    text = line if line.endswith("\\ ") else line.rstrip(" \t")
    if not text or text.startswith("#"):
        return None
    keeps, text = text.startswith("!"), text.removeprefix("!")
    folders_only, text = text.endswith("/"), text.rstrip("/")
    if not text:
        return None
    parts = [_for_fnmatch(part) for part in text.lstrip("/").split("/")]
    if "/" not in text:  # a name at any depth
        parts = [ANY, *parts]
    return Pattern(tuple(parts), keeps, folders_only)


def _for_fnmatch(part: str) -> str:
    """fnmatch has no backslash escapes, and negates a class with ! only."""
    return ESCAPED.sub(_literal, part.replace("[^", "[!"))


def _literal(escaped: re.Match[str]) -> str:
    return f"[{escaped[1]}]" if escaped[1] else escaped[2]


def _left_out(reached: Iterable[tuple[Pattern, set[int]]], folder: bool) -> bool:
    left_out = False
    for pattern, states in reached:
        if len(pattern.parts) in states and (folder or not pattern.folders_only):
            left_out = not pattern.keeps
    return left_out


def _next(pattern: Pattern, states: set[int], name: str) -> set[int]:
    """How many segments may have matched after one more name. A trailing `**` matches at least one name."""
    parts, after = pattern.parts, set[int]()
    for state in states:
        if state < len(parts) and parts[state] == ANY:
            after |= {state, state + 1} if state + 1 == len(parts) else {state}
        elif state < len(parts) and fnmatchcase(name, parts[state]):
            after.add(state + 1)
    return _closed(pattern, after)


def _closed(pattern: Pattern, states: set[int]) -> set[int]:
    """Adds the states reached because a `**` that is not trailing may match nothing."""
    last = len(pattern.parts) - 1
    for state in sorted(states):
        while state < last and pattern.parts[state] == ANY:
            state += 1
            states.add(state)
    return states
