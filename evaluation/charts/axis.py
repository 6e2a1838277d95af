"""The ticks of an axis, and where a value lies on it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Axis"]

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """A linear axis from `start` to `end`, in a picture's units, with its ticks; `end` may lie before `start`."""

    ticks: tuple[float, ...]
    start: float
    end: float

    @classmethod
    def over(
        cls,
        values: Iterable[float],
        start: float,
        end: float,
        *,
        least: float = -math.inf,
        most: float = math.inf,
        count: int = 5,
    ) -> "Axis":
        """An axis with about `count` round ticks that covers the values, and not more than [least, most]."""
        known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(known), max(known)
        if high - low < 1e-9:
            low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
        low, high = max(low, least), min(high, most)
        rough = (high - low) / count or 1.0
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(s for s in STEPS if s * size >= rough - 1e-12) * size
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return cls(tuple(round(step * i, 10) for i in range(first, last + 1)), start, end)

    def at(self, value: float) -> float:
        """Where the value lies, cut to the axis' ends."""
        low, high = self.ticks[0], self.ticks[-1]
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        return round(self.start + share * (self.end - self.start), 2)

    def named(self, tick: float) -> str:
        """A tick as text."""
        return f"{tick:,.10g}"
