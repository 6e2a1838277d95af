"""The ways to ask an LLM whether it needs more information: three of Knowledge Card, then five of SKR."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from kcard.json_values import build
from kcard.llms.yes_no import from_text

__all__ = ["NEED", "Wording"]


@dataclass(frozen=True)
class Wording:
    """One way to ask. `replies`: how a demonstration says that it needs more, and that it doesn't; None: as given."""

    ask: str
    yes_needs: bool = True
    replies: tuple[str, str] | None = None

    def needed(self, yes: float | None) -> float | None:
        """The probability that more is needed, from that of a yes: the same, or what is left of 1."""
        return yes if yes is None or self.yes_needs else 1 - yes

    def demonstrated(self, reply: str) -> str:
        """The reply of an example, whose yes means that more is needed, as a reply to this wording."""
        needs = from_text(reply)
        if self.replies is None or needs is None:
            return reply
        return self.replies[0] if needs else self.replies[1]


_TABLES = tomllib.loads(Path(__file__).with_name("wordings.toml").read_text(encoding="utf-8"))
NEED = tuple(build(Wording, row) for row in _TABLES["need"])
