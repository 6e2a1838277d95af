"""The headers Range, If-Range and If-None-Match (RFC 9110, sections 13 and 14)."""

import re
from dataclasses import dataclass

__all__ = ["Unsatisfiable", "Wanted", "matches", "wanted"]

# A single range. Several ranges, like an invalid one, may be answered with the whole file.
RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{1,18})?|-([0-9]{1,18}))", re.ASCII)
TAG = re.compile(r'(?:W/)?("[^"]*")')


class Unsatisfiable(Exception):
    """The range is outside the file."""


@dataclass(frozen=True)
class Wanted:
    """The bytes from `start` up to but excluding `stop`; `part`: whether a range was requested."""

    start: int
    stop: int
    part: bool

    @property
    def size(self) -> int:
        return self.stop - self.start


def wanted(size: int, etag: str, range_: str | None, if_range: str | None = None) -> Wanted:
    """The bytes to send of a file with that size and quoted etag. Raises Unsatisfiable.

    If If-Range has another etag, that is the whole file.
    """
    match = RANGE.fullmatch(range_.strip()) if range_ is not None else None
    if match is None or (if_range is not None and if_range.strip() != etag):
        return Wanted(0, size, part=False)
    first, last, suffix = match.groups()
    if suffix is not None:
        start, stop = max(0, size - int(suffix)), size
    else:
        start = int(first)
        stop = size if last is None else min(size, int(last) + 1)
        if last is not None and int(last) < start:
            return Wanted(0, size, part=False)  # invalid, so it is ignored
    if start >= stop:
        raise Unsatisfiable
    return Wanted(start, stop, part=True)


def matches(if_none_match: str | None, etag: str) -> bool:
    """Whether If-None-Match says that the client has the file."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag in TAG.findall(if_none_match)
