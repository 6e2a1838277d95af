"""What `kcard ask` would be given where there is no flag: what is configured, else the defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kcard.config import Settings
from kcard.integrators.options import GATE, AskOptions
from kcard.option import declared
from kcard.selectors.presets import SelectorChoice
from kcard.setting import Setting

__all__ = ["BareAsk"]

SELECTORS = ("selectors", "relevance", "pruner", "checker")


@dataclass(frozen=True)
class BareAsk:
    """Values by option, each with its origin."""

    settings: Mapping[str, Setting]

    @classmethod
    def configured(cls, configured: Settings) -> "BareAsk":
        """Raises UsageError for an unknown preset of selectors."""
        defaults = declared(AskOptions)
        found = {
            name: configured.found.get(f"ask.{name}") or Setting(name, defaults[name].default)
            for name in ("mode", "select", "gate", "cards", *SELECTORS, "device")
        }
        llm = configured.found.get("llm", Setting("llm", configured.llm))
        if found["gate"].value is None:
            found["gate"] = Setting("gate", GATE if found["cards"].value is None else "always")
        ask = cls({"llm": Setting("llm", configured.llm, llm.origin), **found})
        _ = ask.choice
        return ask

    def __str__(self) -> str:
        shown = {name: s for name, s in self.settings.items() if s.value or name not in SELECTORS}
        return ", ".join(f"{name} {s.value or 'all'} ({s.origin})" for name, s in shown.items())

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
        if not self.uses_cards:
            return own
        checker = ("checker",) if self.choice.spec("checker") == "minilm" else ()
        return (*own, "encoder", *checker)

    @property
    def choice(self) -> SelectorChoice:
        """The selectors."""
        return SelectorChoice(*(self[name] for name in SELECTORS))
