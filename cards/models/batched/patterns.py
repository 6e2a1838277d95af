"""Regular expressions in the config of an adapter: which modules it changes, and how.

A stranger may have written them, and Python's own engine can take for ever to match one, such as (a+)+$.
"""

import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

MATCHING_SECONDS = 5.0
MAX_PATTERN_CHARACTERS = 10_000
# The product of all counts in a pattern, such as 3 in a{3}: nested ones are expanded in memory.
MAX_REPETITIONS = 1_000
BRACE = re.compile(r"\{(?:(\d*)(?:,(\d*))?\})?")
# A name in which other characters than letters, digits and underscores are escaped: the suffix of a module's name.
NAME = re.compile(r"(?:\w|\\\W)+", re.ASCII)
ESCAPED_CHARACTER = re.compile(r"\\(\W)")


@lru_cache(1000)
def check_pattern(pattern: str) -> None:
    """Raise ValueError for a pattern that is no regular expression of Python's, or takes much memory to compile."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise ValueError(f"a pattern of its config has more than {MAX_PATTERN_CHARACTERS} characters")
    try:
        re.compile(pattern)  # fewer features than `regex` has, among which are recursion and fuzzy matching
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern {pattern[:80]!r} of its config is invalid: {error}") from None
    repetitions = 1
    for brace in BRACE.finditer(pattern):
        repetitions *= max(int(count or 1) for count in brace.groups())
    if repetitions > MAX_REPETITIONS:
        raise ValueError(
            f"the pattern {pattern[:80]!r} of its config repeats more than {MAX_REPETITIONS} times"
        )


class PatternMatcher:
    """Matches patterns as peft does, for MATCHING_SECONDS in all. Raises ValueError after that."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + MATCHING_SECONDS

    def matches(self, pattern: str, module: str) -> bool:
        """Return whether the pattern matches the whole name of the module."""
        import regex  # unlike re, it can be stopped

        check_pattern(pattern)
        try:
            left = self._deadline - time.monotonic()
            if left > 0:
                return regex.fullmatch(pattern, module, timeout=left) is not None
        except TimeoutError:
            pass
        except (regex.error, RecursionError) as error:
            raise ValueError(f"the pattern {pattern[:80]!r} of its config is invalid: {error}") from None
        raise ValueError(
            f"matching the pattern {pattern[:80]!r} of its config takes more than {MATCHING_SECONDS:g} s: list the "
            "modules by name"
        )

    def find(self, patterns: Mapping[str, Any], module: str, otherwise: Any) -> Any:
        """Return the value of the first pattern for the module or the end of its name, `otherwise` if none."""
        for pattern, value in patterns.items():
            if NAME.fullmatch(pattern):
                name = ESCAPED_CHARACTER.sub(r"\1", pattern)
                is_match = module == name or module.endswith(f".{name}")
            else:
                is_match = self.matches(rf"(.*\.)?({pattern})", module)
            if is_match:
                return value
        return otherwise
