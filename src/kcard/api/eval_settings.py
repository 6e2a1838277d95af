"""The settings that `kcard eval` compares: ways of answering by name, with their gates and options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from kcard import system
from kcard.errors import UsageError
from kcard.evaluation.runs.run import SettingName
from kcard.events import OnEvent
from kcard.integrators.options import GATE, PAPER_GATE, AskOptions, BaselineOptions, Paper
from kcard.manifest import DRAFT
from kcard.options import check_values, declared

if TYPE_CHECKING:
    from kcard.hub.registry import Hub
    from kcard.interfaces import LLM, Answerer

# Options in the name of a setting, such as bottom-up+n1=1, converted to those of AskOptions.

LIST_OPTIONS = ("cards", "evidence")
OVERRIDES = (
    *LIST_OPTIONS,
    "selectors",
    "relevance",
    "pruner",
    "checker",
    "n1",
    "n2",
    "n3",
    "floor",
    "min-factuality",
    "card-temperature",
    "card-tokens",
    "max-iterations",
    "shortlist",
    "max-cards",
)


def overrides(name: SettingName, cards: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the options of a setting's name by their names in AskOptions. `cards`: the references of the run's cards.

    Raises UsageError for an option that a setting can't have, a value of the wrong type or out of range, and a card
    that is not among `cards`.
    """
    changes: dict[str, Any] = {}
    kinds: Mapping[str, Any] = {key: option.kind for key, option in declared(AskOptions).items()}
    for option in dict.fromkeys(key for key, _ in name.options):
        if option not in OVERRIDES:
            raise UsageError(
                f"setting {name}: {option} can't be set here: choose among {', '.join(OVERRIDES)}"
            )
        values, key = name.values(option), option.replace("-", "_")
        if option in LIST_OPTIONS:
            changes[key] = values
            continue
        if len(values) > 1:
            raise UsageError(f"setting {name}: {option} is given twice")
        # Convert the value of a numeric option.
        types = {kinds[key], *get_args(kinds[key])}
        changes[key] = values[0]
        try:
            if int in types:
                changes[key] = int(values[0])
            elif float in types:
                changes[key] = float(values[0])
        except ValueError:
            what = "a whole number" if int in types else "a number"
            raise UsageError(f"setting {name}: {option} is {values[0]!r}, expected {what}") from None
    try:
        check_values(AskOptions, changes)
    except UsageError as error:
        raise UsageError(f"setting {name}: {error}") from None
    # A card's name stands for its reference.
    if cards is not None and "cards" in changes:
        references = {card: card for card in cards}
        for card in reversed(cards):
            references[_name_of(card)] = card
        for card in changes["cards"]:
            if card not in references:
                raise UsageError(
                    f"setting {name}: card {card} is not among this run's cards: {', '.join(cards)}"
                )
        changes["cards"] = tuple(references[card] for card in changes["cards"])
    return changes


def _name_of(reference: str) -> str:
    return reference.removeprefix(DRAFT).partition("@")[0]


# The settings that each paper compares, and its demonstrations; how a question is answered is in PAPERS.

SETTINGS: Mapping[Paper, Mapping[str, Any]] = {
    "knowledge-card": {"settings": "direct,bottom-up@always,top-down:auto,top-down:explicit", "samples": 20},
    # All the knowledge, or that of the questions that a gate picks.
    "thrust": {"settings": "direct,bottom-up@always,bottom-up@thrust,bottom-up@bm25,bottom-up@random"},
    "skr": {
        "settings": "direct,bottom-up@always,bottom-up@skr-prompt,bottom-up@skr-icl,bottom-up@skr-fine-tuned,"
        "bottom-up@skr-knn",
        "shots": 4,
    },
    "adaptive-retrieval": {
        "settings": "direct,bottom-up@always,genread,bottom-up@popularity,retrieval/genread@popularity",
        "shots": 15,
        "passages": 1,
    },
}


# The settings that `kcard eval` compares: ways of answering, by name.

DEFAULT_SETTINGS = "direct,bottom-up,top-down"
# Where the LLM picks cards, it also decides whether there is need of any, unless a gate is given (Knowledge Card, 2.3).
MODES: dict[str, dict[str, str]] = {
    "direct": {"mode": "direct"},
    "bottom-up": {"mode": "bottom-up", "gate": GATE},
    "top-down": {"mode": "top-down", "gate": GATE},
    "top-down:auto": {"mode": "top-down", "select": "auto", "gate": PAPER_GATE},
    "top-down:explicit": {"mode": "top-down", "select": "explicit", "gate": PAPER_GATE},
    "hybrid": {"mode": "hybrid", "gate": GATE},
    "hybrid:auto": {"mode": "hybrid", "select": "auto", "gate": PAPER_GATE},
    "hybrid:explicit": {"mode": "hybrid", "select": "explicit", "gate": PAPER_GATE},
}
SEARCH_BASELINES = {"retrieval", "replug"}  # they search the cards' passages unless a corpus is given
CARDS_AND_RETRIEVAL = "cards+retrieval"


@dataclass(frozen=True)
class EvalSetting:
    """A way of answering.

    name  a mode, a mode with a gate (bottom-up@thrust), a baseline, or two ways with a gate between them
          (retrieval/genread@popularity), of which the first answers if the gate fires; a mode may have options that
          override the run's (bottom-up+n1=1)
    """

    name: str

    @property
    def parts(self) -> SettingName:
        return SettingName.of(self.name)

    @property
    def way(self) -> str:
        """Return the name without gate and options."""
        return self.parts.way

    @property
    def sides(self) -> "tuple[EvalSetting, EvalSetting] | None":
        """Return the ways below and above the gate; None if there is only one way."""
        sides = self.parts.sides
        return sides and (EvalSetting(sides[0]), EvalSetting(sides[1]))

    def uses_cards(self, baseline: BaselineOptions) -> bool:
        """Return whether it opens cards."""
        if self.sides:
            return any(side.uses_cards(baseline) for side in self.sides)
        if self.way in MODES:
            return self.way != "direct"
        if self.way in SEARCH_BASELINES:
            return baseline.corpus is None
        return self.way == CARDS_AND_RETRIEVAL

    @property
    def has_selectors(self) -> bool:
        """Return whether selectors choose among what cards generate."""
        if self.sides:
            return any(side.has_selectors for side in self.sides)
        return self.way == CARDS_AND_RETRIEVAL or (self.way in MODES and self.way != "direct")

    def options(self, base: AskOptions) -> AskOptions:
        """Return the options `base`, overridden by those of this setting.

        Raises UsageError for a wrong option in the name.
        """
        if self.sides:
            return replace(base, gate=self.parts.gate)
        way = self.way
        if way in ("top-down", "hybrid") and base.prompts == "paper":
            way += ":auto" if base.select == "question" else f":{base.select}"
        changes: dict[str, Any] = dict(MODES.get(way, {"gate": GATE}))
        gate = self.parts.gate or base.gate
        if gate and self.way != "direct":
            changes["gate"] = gate
        cards = base.cards if isinstance(base.cards, tuple) else None
        return replace(base, **changes, **overrides(self.parts, cards))

    def check(self, base: AskOptions) -> None:
        """Raise UsageError for a gate that is unknown or not fitted yet, and a wrong option."""
        from kcard.gates.registry import UNFITTED_GROUP, gate_file

        gate = self.options(base).gate_name
        if gate not in system.names(UNFITTED_GROUP):
            gate_file(gate)

    def answerer(
        self,
        base: AskOptions,
        baseline: BaselineOptions,
        llm: "LLM",
        hub: "Hub",
        on_event: OnEvent,
    ) -> "Answerer":
        """Return the answerer of this setting, with `llm` instead of the one in the options."""
        from kcard.gates.registry import load_gate
        from kcard.integrators.baselines import baseline as make_baseline
        from kcard.integrators.pipeline import Pipeline
        from kcard.integrators.pool_views import GateRouter
        from kcard.llms.client import LLMClient
        from kcard.llms.prompts import load

        options = replace(self.options(base), llm=llm)
        if self.sides:
            ungated = replace(base, gate=None)
            below, above = (side.answerer(ungated, baseline, llm, hub, on_event) for side in self.sides)
            client = LLMClient(llm, options.concurrency or 1)
            return GateRouter(load_gate(options.gate_name, client, load(options.examples)), below, above)
        if self.way in MODES:
            return Pipeline(options, hub=hub, on_event=on_event)
        return make_baseline(self.way, options, baseline, hub=hub, on_event=on_event)


def parse_settings(settings: str | Sequence[str]) -> tuple[EvalSetting, ...]:
    """Parse a comma-separated list of settings. Raises UsageError for an unknown one, one named twice, and for none."""
    from kcard.integrators.baselines import BASELINES

    ways = {*MODES, *BASELINES}
    choices = ", ".join([*MODES, *BASELINES])
    if isinstance(settings, str):
        settings = settings.split(",")
    names = [name.strip() for name in settings]
    for name in names:
        parts = SettingName.of(name)
        if parts.options and parts.way not in MODES:
            raise UsageError(f"setting {name!r}: options go with {', '.join(MODES)}, not with a baseline")
        # WAY, WAY@GATE of a mode with cards, or BELOW/ABOVE@GATE.
        if parts.sides:
            is_known = ways.issuperset(parts.sides) and bool(parts.gate)
        else:
            has_gate = bool(parts.gate) and parts.way in MODES and parts.way != "direct"
            is_known = parts.way in ways and (parts.gate is None or has_gate)
        if not is_known:
            raise UsageError(
                f"unknown setting {name!r}: choose among {choices}; one with cards may name its gate, as in "
                "bottom-up@always, and a gate may choose between two, as in retrieval/genread@popularity"
            )
        if names.count(name) > 1:
            raise UsageError(f"setting {name!r} is named twice")
    if not names:
        raise UsageError(f"no settings: choose among {choices}")
    return tuple(map(EvalSetting, names))


# The settings that an analysis of Knowledge Card compares: one setting, varied in one respect.

EvalAnalysis = Literal["patch", "adding", "selectors", "documents"]

# What is varied unless settings are given, as in the paper's sections 5 and 6.
VARIED_SETTINGS = {
    "patch": "top-down",
    "adding": "top-down",
    "selectors": "bottom-up",
    "documents": "bottom-up",
}
# One selector after the other in the hands of chance, as figure 3 leaves them out, and all three.
WITHOUT = {"relevance": "random", "pruner": "none", "checker": "none"}
# Documents that each card generates, that relevance keeps and that factuality keeps, varied one by one (figure 4).
COUNTS = {"n1": (1, 2, 3, 4, 5), "n2": (3, 5, 8, 10), "n3": (1, 2, 3, 4, 5)}
Options = tuple[tuple[str, str], ...]


def variants(analysis: EvalAnalysis, settings: Sequence[str], cards: Sequence[str]) -> list[str]:
    """Return the settings of an analysis: direct, then each of `settings` that uses cards, varied.

    The cards are varied in the order of `cards`.

    Raises UsageError where no setting uses cards, or one has the options that are varied already.
    """
    bases = [SettingName.of(name) for name in settings if name != "direct"]
    if not bases:
        raise UsageError(
            f"the analysis {analysis} varies a setting with cards: add one, such as {VARIED_SETTINGS[analysis]}"
        )
    # The options of each variant.
    changes: list[Options] = []
    if analysis in ("patch", "adding"):
        before: Options = ()
        for card in cards:
            change = (*before, ("cards", _name_of(card)))
            changes.append(change)
            if analysis == "adding":
                before = change
    elif analysis == "selectors":
        changes.append(())
        for selector in WITHOUT.items():
            changes.append((selector,))
        changes.append(tuple(WITHOUT.items()))
    else:
        for key, counts in COUNTS.items():
            for count in counts:
                changes.append(((key, str(count)),))
    names = ["direct"]
    for base in bases:
        for change in changes:
            if base.changed & dict(change).keys():
                raise UsageError(
                    f"setting {base} has an option that the analysis {analysis} varies: leave it out"
                )
            names.append(str(SettingName(base.base, (*base.options, *change))))
    return names
