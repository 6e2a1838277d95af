"""Which files a .gitignore leaves out.

Patterns come from clients. They are matched part by part between the slashes, by fnmatch, whose expressions don't
backtrack; one expression for a whole path could be made to run for hours.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kcard.hub.refusals import TooLarge

__all__ = ["ignoring"]

MOST_PARTS = 2_000  # of all patterns together
ANY = "**"
ESCAPED = re.compile(r"\\([*?[])|\\(.)")


@dataclass(frozen=True)
class Pattern:
    """A line of a .gitignore. `parts` stand between its slashes; `keeps`: it takes back what others left out."""

    parts: tuple[str, ...]
    keeps: bool
    folders_only: bool


def ignoring(text: str) -> Callable[[str], bool]:
    """Whether a path is left out by a .gitignore of this text that lies at the top of the repository.

    As git has it: the last pattern that matches decides, and what lies in a folder that is left out can't be taken
    back. Raises TooLarge for more patterns than one request may cost.
    """
    patterns = [found for line in text.splitlines() if (found := _pattern(line))]
    if sum(len(pattern.parts) for pattern in patterns) > MOST_PARTS:
        raise TooLarge(f"the .gitignore has more than {MOST_PARTS} patterns or parts of them: shorten it")

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
    """fnmatch knows no backslashes, and negates a class by ! only."""
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
    """How many parts may have been matched after one more name. The last `**` matches at least one name."""
    parts, after = pattern.parts, set[int]()
    for state in states:
        if state < len(parts) and parts[state] == ANY:
            after |= {state, state + 1} if state + 1 == len(parts) else {state}
        elif state < len(parts) and fnmatchcase(name, parts[state]):
            after.add(state + 1)
    return _closed(pattern, after)


def _closed(pattern: Pattern, states: set[int]) -> set[int]:
    """With the states that are reached because `**` before another part may match no name at all."""
    last = len(pattern.parts) - 1
    for state in sorted(states):
        while state < last and pattern.parts[state] == ANY:
            state += 1
            states.add(state)
    return states
