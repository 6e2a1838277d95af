"""Amounts of bytes as people write them."""

import re

from kcard.errors import UsageError

__all__ = ["parse_size"]

UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?i?b?)", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes in "10GB", "512 MiB" or "1000"; UsageError for anything else."""
    found = SIZE.fullmatch(text.strip())
    unit = found[2].lower() if found else "?"
    if found is None or unit not in UNITS:
        raise UsageError(f"size {text!r}: give a number of bytes, or one with a unit, such as 500MB or 10GB")
    return round(float(found[1]) * UNITS[unit])
