"""The name of a setting: a way of answering, perhaps with its gate, and options that differ from the run's.

bottom-up@always+n1=1+cards=moons+cards=rivers
"""

import re
from dataclasses import dataclass

__all__ = ["SettingName"]

OVERRIDE = re.compile(r"\+(?=[a-z0-9-]+=)")


@dataclass(frozen=True)
class SettingName:
    """`base`: the name without options; `options`: those that differ, an option with several values several times."""

    base: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, name: str) -> "SettingName":
        base, *options = OVERRIDE.split(name)
        return cls(base, tuple((key, value) for key, _, value in (text.partition("=") for text in options)))

    def __str__(self) -> str:
        return "".join([self.base, *(f"+{key}={value}" for key, value in self.options)])

    @property
    def changed(self) -> frozenset[str]:
        """The options that differ."""
        return frozenset(key for key, _ in self.options)

    def values(self, option: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.options if key == option)
