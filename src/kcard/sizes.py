"""Amounts of bytes as people write and read them."""

import re

from kcard.errors import UsageError

__all__ = ["parse_size", "shown_size"]

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
SHOWN = ("B", "kB", "MB", "GB", "TB")
SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?i?b?)", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes in "10GB", "512 MiB" or "1000"; UsageError for anything else."""
    found = SIZE.fullmatch(text.strip())
    unit = found[2].lower() if found else "?"
    if found is None or unit not in UNITS:
        raise UsageError(f"size {text!r}: give a number of bytes, or one with a unit, such as 500MB or 10GB")
    return round(float(found[1]) * UNITS[unit])


def shown_size(count: int) -> str:
    """Bytes for people: 4.6 MB."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(SHOWN) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {SHOWN[unit]}" if value >= 99.5 or unit == 0 else f"{value:.1f} {SHOWN[unit]}"
