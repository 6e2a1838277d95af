"""Plan an evaluation: settings, presets, variants, and the questions."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from kcard import system
from kcard.config import ENDPOINTS, without_shortcut
from kcard.config import settings as configured
from kcard.errors import UsageError
from kcard.evaluation.runs.run import RunPlan, RunTask, SettingName
from kcard.evaluation.runs.runner import sample_ids
from kcard.evaluation.tasks.base import GROUP as TASKS
from kcard.evaluation.tasks.base import TaskData, read_task, task_names
from kcard.events import OnEvent
from kcard.integrators.options import GATE, PAPER_GATE, AskOptions, BaselineOptions, Paper, with_preset
from kcard.options import check_values, declared
from kcard.version import __version__

if TYPE_CHECKING:
    from kcard.hub.registry import Hub
    from kcard.interfaces import LLM, Answerer

# Options in the name of a setting, such as bottom-up+n1=1, converted to those of AskOptions.

SEVERAL = ("cards", "evidence")
OVERRIDES = (
    *SEVERAL,
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
        if option in SEVERAL:
            changes[key] = values
            continue
        if len(values) > 1:
            raise UsageError(f"setting {name}: {option} is given twice")
        # Convert the value of a numeric option.
        kind = kinds[key]
        number = next((each for each in (int, float) if each is kind or each in get_args(kind)), None)
        try:
            changes[key] = values[0] if number is None else number(values[0])
        except ValueError:
            what = "a whole number" if number is int else "a number"
            raise UsageError(f"setting {name}: {option} is {values[0]!r}, expected {what}") from None
    try:
        check_values(AskOptions, changes)
    except UsageError as error:
        raise UsageError(f"setting {name}: {error}") from None
    # A card's name stands for its reference (name@version).
    if cards is not None and "cards" in changes:
        references = []
        for card in changes["cards"]:
            matches = [each for each in cards if card in (each, each.partition("@")[0])]
            if not matches:
                raise UsageError(
                    f"setting {name}: card {card} is not among this run's cards: {', '.join(cards)}"
                )
            references.append(matches[0])
        changes["cards"] = tuple(references)
    return changes


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

DEFAULT = "direct,bottom-up,top-down"
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
SEARCHING = {"retrieval", "replug"}  # baselines that search the cards' passages unless a corpus is given
TOGETHER = "cards+retrieval"


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
        return self.way == TOGETHER or (self.way in SEARCHING and baseline.corpus is None)

    @property
    def has_selectors(self) -> bool:
        """Return whether selectors choose among what cards generate."""
        if self.sides:
            return any(side.has_selectors for side in self.sides)
        return self.way == TOGETHER or (self.way in MODES and self.way != "direct")

    def options(self, base: AskOptions) -> AskOptions:
        """Return the options `base`, overridden by those of this setting.

        Raises UsageError for a wrong option in the name.
        """
        if self.sides:
            return replace(base, gate=self.parts.gate)
        way = self.way
        if way in ("top-down", "hybrid") and base.prompts == "paper":
            way = f"{way}:{base.select if base.select != 'question' else 'auto'}"
        changes: dict[str, Any] = dict(MODES[way]) if way in MODES else {"gate": GATE}
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
    names = [name.strip() for name in (settings.split(",") if isinstance(settings, str) else settings)]
    choices = ", ".join([*MODES, *BASELINES])
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
DEFAULTS = {"patch": "top-down", "adding": "top-down", "selectors": "bottom-up", "documents": "bottom-up"}
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
            f"the analysis {analysis} varies a setting with cards: add one, such as {DEFAULTS[analysis]}"
        )
    names = ["direct"]
    for base in bases:
        changes: Iterator[Options]
        if analysis in ("patch", "adding"):
            one = [(("cards", card.partition("@")[0]),) for card in cards]
            changes = iter(one) if analysis == "patch" else accumulate(one)
        elif analysis == "selectors":
            changes = iter([(), *(((key, value),) for key, value in WITHOUT.items()), tuple(WITHOUT.items())])
        else:
            changes = (((key, str(count)),) for key, counts in COUNTS.items() for count in counts)
        for change in changes:
            if base.changed & {key for key, _ in change}:
                raise UsageError(
                    f"setting {base} has an option that the analysis {analysis} varies: leave it out"
                )
            names.append(str(SettingName(base.base, (*base.options, *change))))
    return names


T = TypeVar("T", AskOptions, BaselineOptions)
LIBRARIES = ("numpy", "tokenizers", "torch", "transformers")
NEGATABLE = {name for name, declaration in declared(AskOptions).items() if declaration.option.negatable}
PLACES = ("path", "examples", "evidence", "corpus")  # options that may name files


@dataclass(frozen=True)
class EvaluationPlan:
    """An evaluation with its tasks read and its cards resolved. `notes`: sentences for the user."""

    plan: RunPlan
    tasks: Mapping[str, TaskData]
    settings: tuple[EvalSetting, ...]
    options: AskOptions
    baseline: BaselineOptions
    shots: int | None
    notes: tuple[str, ...] = ()


def prepare(arguments: Mapping[str, Any], hub: "Hub") -> EvaluationPlan:
    """Read the tasks and resolve the cards of an evaluation with these arguments of kcard.evaluate.

    Raises UsageError for a wrong option or file, HubError where a card is not found.
    """
    # Options that are not None override those of the preset.
    values = {key: value for key, value in arguments.items() if value is not None}
    values = {**SETTINGS.get(values.get("preset", ""), {}), **with_preset(values)}
    options, baseline = _options_of(AskOptions, values), _options_of(BaselineOptions, values)

    # The settings that are compared, or those of an analysis, which varies them.
    analysis = values.get("analysis")
    settings = parse_settings(values.get("settings", DEFAULT if analysis is None else DEFAULTS[analysis]))
    if analysis is not None:
        references = [version.reference for version in hub.select(options.card_names).versions]
        settings = parse_settings(variants(analysis, [setting.name for setting in settings], references))
    for setting in settings:
        setting.check(options)

    # The questions, by task.
    seed, limit = options.seed, values.get("limit")
    task_list = [values["tasks"]] if isinstance(values["tasks"], str) else list(values["tasks"])
    paths = task_paths(task_list, values.get("path", ()))
    tasks = {path: read_task(name, path) for name, path in paths}
    described = [
        RunTask(data.name, path, data.sha256, data.metric, sample_ids(data, limit, seed), len(data.items))
        for path, data in tasks.items()
    ]
    for task in described:
        if sum(other.name == task.name for other in described) > 1:
            raise UsageError(
                f"two files are of the task {task.name}: evaluate {task.path} in a run of its own, so that its results "
                "can be told apart"
            )

    # The cards, and the options as a later run can have them again.
    cards: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    if any(setting.uses_cards(baseline) for setting in settings):
        selection = hub.select(options.card_names)
        cards = {version.reference: version.sha256 for version in selection.versions}
        notes = (selection.note,) if selection.note else ()
        options = replace(options, cards=tuple(cards))
    llm = options.llm
    if llm is None:
        llm = configured().llm
    elif not isinstance(llm, str):
        llm = type(llm).__name__  # an object, which no later run can make again
    llm, own_url = without_shortcut(llm)
    llm_url = (
        own_url or options.llm_url or (configured().llm_url if llm.partition(":")[0] in ENDPOINTS else None)
    )
    stored = {
        **{key: _json_ready(key, value) for key, value in values.items() if key != "analysis"},
        "tasks": [name for name, _ in paths],
        "path": list(tasks),
        "settings": ",".join(setting.name for setting in settings),
        "llm": llm,
        **({"cards": list(cards)} if cards else {}),
        **({"llm_url": llm_url} if llm_url else {}),
    }
    names = tuple(setting.name for setting in settings)
    versions = {"kcard": __version__, "python": platform.python_version(), "platform": platform.platform()}
    versions |= {name: metadata.version(name) for name in LIBRARIES}
    plan = RunPlan(
        ("eval", *command_line(stored)), tuple(described), names, llm, seed, cards, stored, versions
    )
    by_name = {task.name: tasks[task.path] for task in described}
    return EvaluationPlan(plan, by_name, settings, options, baseline, values.get("shots"), notes)


def command_line(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options as they are typed after `kcard eval`."""
    yield from options["tasks"]
    for key, value in options.items():
        flag = "--" + key.replace("_", "-")
        if key == "tasks" or (value is False and key not in NEGATABLE):
            continue
        if value is False:
            yield "--no-" + flag.removeprefix("--")
            continue
        if value is True:
            yield flag
        elif key in ("path", "evidence"):
            for each in value:
                yield from (flag, str(each))
        else:
            yield from (flag, ",".join(value) if isinstance(value, list) else str(value))


def _options_of(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return the options of that kind, from those of `values` that it declares."""
    names = declared(kind)
    return kind(**{key: value for key, value in values.items() if key in names})


def task_paths(tasks: Sequence[str], path: str | Path | Sequence[str | Path]) -> list[tuple[str, str]]:
    """Return (task, absolute path) of each task: from TASK=PATH, else in order; one task may have several paths."""
    paths = [str(path) for path in ([path] if isinstance(path, str | Path) else path)]
    if not tasks:
        raise UsageError(f"no task: choose among {', '.join(task_names())}")
    named = [tuple(text.partition("=")[::2]) for text in tasks]
    for name, _ in named:
        system.load(TASKS, name)  # raises UsageError for an unknown name
    for path in [path for path in paths if _task_of(path, tasks)]:
        paths.remove(path)
        name = _task_of(path, tasks)
        place = named.index((name, "")) if (name, "") in named else len(named)
        named[place : place + 1] = [(name, path.partition("=")[2])]
    without = [i for i, (_, path) in enumerate(named) if not path]
    if len(named) == len(without) == 1 and paths:
        named, without = [(named[0][0], path) for path in paths], []
    elif len(without) != len(paths):
        lacking = ", ".join(named[i][0] for i in without) or "no task"
        raise UsageError(
            f"{len(paths)} paths for {lacking}: give --path FILE for each task, in order, or as --path TASK=FILE"
        )
    for i, path in zip(without, paths, strict=False):
        named[i] = (named[i][0], path)
    return [(name, str(Path(path).expanduser().absolute())) for name, path in named]


def _task_of(path: str, tasks: Sequence[str]) -> str:
    """Return the task of TASK=PATH; empty for a mere path."""
    name, equals, _ = path.partition("=")
    return name if equals and name in tasks else ""


def _json_ready(key: str, value: Any) -> Any:
    """Return a JSON-ready value, with absolute paths for files."""
    if isinstance(value, Path):
        return str(value.expanduser().absolute())
    if isinstance(value, list | tuple):
        return [_json_ready(key, each) for each in value]
    if key in PLACES and isinstance(value, str) and Path(value).expanduser().exists():
        return str(Path(value).expanduser().absolute())
    return value
