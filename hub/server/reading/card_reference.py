"""References to versions of cards, as pages have them."""

import re

from kcard.hub.refusals import Invalid

__all__ = ["parse"]

REFERENCE = re.compile(r"([\w.-]+/[\w.-]+)(?:@v([1-9][0-9]{0,8}))?", re.ASCII)


def parse(text: str) -> tuple[str, int | None]:
    """The repository and the version's number, None for the newest. Raises Invalid."""
    match = REFERENCE.fullmatch(text.strip())
    if match is None:
        raise Invalid(f"invalid card {text[:200]!r}: use NAMESPACE/NAME or NAMESPACE/NAME@v2")
    return match[1], None if match[2] is None else int(match[2])
