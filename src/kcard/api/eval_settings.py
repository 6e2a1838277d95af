"""The settings that `kcard eval` compares: ways of answering, by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kcard import plugins
from kcard.api.eval_overrides import overrides
from kcard.errors import UsageError
from kcard.evaluation.runs.setting_name import SettingName
from kcard.integrators.baselines.options import BaselineOptions
from kcard.integrators.options import GATE, AskOptions

if TYPE_CHECKING:
    from kcard.hub.registry import Hub
    from kcard.protocols import LLM, Answerer

__all__ = ["DEFAULT", "MODES", "EvalSetting", "parse_settings"]

DEFAULT = "direct,bottom-up,top-down"
# The gate of a mode unless one is given: bottom-up asks every card, in top-down the LLM decides (Knowledge Card, 2.3).
MODES: dict[str, dict[str, str]] = {
    "direct": {"mode": "direct"},
    "bottom-up": {"mode": "bottom-up", "gate": "always"},
    "top-down": {"mode": "top-down", "select": "auto", "gate": GATE},
    "top-down:auto": {"mode": "top-down", "select": "auto", "gate": GATE},
    "top-down:explicit": {"mode": "top-down", "select": "explicit", "gate": GATE},
    "hybrid": {"mode": "hybrid", "select": "auto", "gate": GATE},
    "hybrid:auto": {"mode": "hybrid", "select": "auto", "gate": GATE},
    "hybrid:explicit": {"mode": "hybrid", "select": "explicit", "gate": GATE},
}
SEARCHING = {"retrieval", "replug"}  # baselines that search the cards' passages unless a corpus is given
TOGETHER = "cards+retrieval"


@dataclass(frozen=True)
class EvalSetting:
    """A way of answering.

    name  as it was given: a mode, a mode with a gate (bottom-up@thrust), a baseline, or two ways with a gate between
          them (retrieval/genread@popularity), the first of which answers where the gate seeks knowledge; a mode perhaps
          with options that differ from the run's (bottom-up+n1=1)
    """

    name: str

    @property
    def parts(self) -> SettingName:
        return SettingName.of(self.name)

    @property
    def way(self) -> str:
        """The name without gate and options."""
        return self.parts.base.partition("@")[0]

    @property
    def sides(self) -> "tuple[EvalSetting, EvalSetting] | None":
        """The ways below and above the gate; None where there is one way."""
        below, slash, above = self.way.partition("/")
        return (EvalSetting(below), EvalSetting(above)) if slash else None

    def uses_cards(self, baseline: BaselineOptions) -> bool:
        """Whether it opens cards."""
        if self.sides:
            return any(side.uses_cards(baseline) for side in self.sides)
        if self.way in MODES:
            return self.way != "direct"
        return self.way == TOGETHER or (self.way in SEARCHING and baseline.corpus is None)

    def options(self, given: AskOptions) -> AskOptions:
        """The options with those of this setting; what its name says decides before what is given.

        Raises UsageError for an option in the name that is wrong.
        """
        if self.sides:
            return replace(given, gate=self.name.partition("@")[2])
        changes: dict[str, Any] = dict(MODES[self.way]) if self.way in MODES else {"gate": "always"}
        gate = self.parts.base.partition("@")[2] or given.gate
        if gate and self.way != "direct":
            changes["gate"] = gate
        cards = given.cards if isinstance(given.cards, tuple) else None
        return replace(given, **changes, **overrides(self.parts, cards))

    def check(self, given: AskOptions) -> None:
        """Raise UsageError for a gate that is unknown or not fitted yet, and a wrong option."""
        from kcard.integrators.named_gate import UNFITTED, gate_file

        gate = self.options(given).gate_name
        if gate not in plugins.names(UNFITTED):
            gate_file(gate)

    def answerer(
        self,
        given: AskOptions,
        baseline: BaselineOptions,
        llm: "LLM",
        hub: "Hub",
        report: Callable[[str], None] | None,
    ) -> "Answerer":
        """What answers in this way, with `llm` in place of the one in the options."""
        from kcard.integrators.baselines.factory import baseline as make_baseline
        from kcard.integrators.pipeline import Pipeline

        options = replace(self.options(given), llm=llm)
        if self.sides:
            ungated = replace(given, gate=None)
            below, above = (side.answerer(ungated, baseline, llm, hub, report) for side in self.sides)
            return _routed(options, llm, below, above)
        if self.way in MODES:
            return Pipeline(options, hub=hub, report=report)
        return make_baseline(self.way, options, baseline, hub=hub, report=report)


def _routed(options: AskOptions, llm: "LLM", below: "Answerer", above: "Answerer") -> "Answerer":
    from kcard.integrators.metered import Metered
    from kcard.integrators.named_gate import named_gate
    from kcard.integrators.routed import Routed
    from kcard.llms.examples import load

    metered = Metered(llm, options.concurrency or 1)
    return Routed(named_gate(options.gate_name, metered, load(options.examples)), metered, below, above)


def parse_settings(given: str | Sequence[str]) -> tuple[EvalSetting, ...]:
    """The settings of a comma-separated list. Raises UsageError for an unknown one, one named twice, and for none."""
    from kcard.integrators.baselines.factory import BASELINES

    ways = {*MODES, *BASELINES}
    names = [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]
    known = ", ".join([*MODES, *BASELINES])
    for name in names:
        parts = SettingName.of(name)
        if parts.options and parts.base.partition("@")[0] not in MODES:
            raise UsageError(f"setting {name!r}: options go with {', '.join(MODES)}, not with a baseline")
        if not _well_formed(parts.base, ways):
            raise UsageError(
                f"unknown setting {name!r}: choose among {known}; one with cards may name its gate, as in "
                "bottom-up@always, and a gate may choose between two, as in retrieval/genread@popularity"
            )
        if names.count(name) > 1:
            raise UsageError(f"setting {name!r} is named twice")
    if not names:
        raise UsageError(f"no settings: choose among {known}")
    return tuple(map(EvalSetting, names))


def _well_formed(name: str, ways: set[str]) -> bool:
    """WAY, WAY@GATE of a mode with cards, or BELOW/ABOVE@GATE."""
    way, at, gate = name.partition("@")
    below, slash, above = way.partition("/")
    if slash:
        return {below, above} <= ways and bool(gate)
    return way in ways and (not at or (way in MODES and way != "direct" and bool(gate)))
