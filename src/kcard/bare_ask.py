"""What `kcard ask` would be given where there is no flag: what is configured, else the defaults."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kcard.config import Settings
from kcard.setting import Setting

__all__ = ["BareAsk"]


@dataclass(frozen=True)
class BareAsk:
    """Values by option, each with its origin."""

    settings: Mapping[str, Setting]

    @classmethod
    def configured(cls, configured: Settings) -> "BareAsk":
        from kcard.pipeline import Pipeline

        defaults = inspect.signature(Pipeline).parameters
        found = {
            name: configured.found.get(f"ask.{name}") or Setting(name, defaults[name].default)
            for name in ("mode", "select", "gate", "cards", "device")
        }
        llm = configured.found.get("llm", Setting("llm", configured.llm))
        return cls({"llm": Setting("llm", configured.llm, llm.origin), **found})

    def __str__(self) -> str:
        told = {name: s.value or "all" for name, s in self.settings.items()}
        return ", ".join(f"{name} {told[name]} ({s.origin})" for name, s in self.settings.items())

    def __getitem__(self, name: str) -> Any:
        return self.settings[name].value

    @property
    def uses_cards(self) -> bool:
        return not (self["mode"] == "direct" or self["gate"] == "never")

    @property
    def cards(self) -> list[str] | None:
        """The selection; None for every card."""
        given: str | list[str] | None = self["cards"]
        return [c.strip() for c in given.split(",")] if isinstance(given, str) else given

    @property
    def models(self) -> tuple[str, ...]:
        """The embedded models without which it can't answer."""
        own = ("encoder", "reader", "memory") if self["llm"] == "embedded" else ()
        return (*own, *(("encoder", "checker") if self.uses_cards else ()))
