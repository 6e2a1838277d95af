"""Plan an evaluation: settings, presets, variants, and the questions."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kcard import system
from kcard.api.eval_settings import (
    DEFAULT_SETTINGS,
    SETTINGS,
    VARIED_SETTINGS,
    EvalSetting,
    parse_settings,
    variants,
)
from kcard.config import ENDPOINTS, without_shortcut
from kcard.config import settings as configured
from kcard.errors import UsageError
from kcard.evaluation.runs.run import RunPlan, RunTask
from kcard.evaluation.runs.runner import sample_ids
from kcard.evaluation.tasks.base import GROUP as TASKS
from kcard.evaluation.tasks.base import TaskData, read_task, task_names
from kcard.integrators.options import AskOptions, BaselineOptions, with_preset
from kcard.manifest import DRAFT, MANIFEST, file_digest
from kcard.options import declared
from kcard.version import __version__

if TYPE_CHECKING:
    from kcard.hub.registry import Hub
    from kcard.hub.selection import Selection

T = TypeVar("T", AskOptions, BaselineOptions)
LIBRARIES = ("numpy", "tokenizers", "torch", "transformers")
NEGATABLE_OPTIONS = {
    name for name, declaration in declared(AskOptions).items() if declaration.option.negatable
}
PATH_OPTIONS = ("path", "examples", "evidence", "corpus")  # they may name files


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
    if analysis is None:
        settings = parse_settings(values.get("settings", DEFAULT_SETTINGS))
    else:
        varied = parse_settings(values.get("settings", VARIED_SETTINGS[analysis]))
        references = list(card_digests(hub.select(options.card_names, drafts=True)))
        settings = parse_settings(variants(analysis, [setting.name for setting in varied], references))
    for setting in settings:
        setting.check(options)
    setting_names = tuple(setting.name for setting in settings)

    # The questions, by task.
    task_list = values["tasks"]
    if isinstance(task_list, str):
        task_list = [task_list]
    paths = task_paths(task_list, values.get("path", ()))
    data_by_name: dict[str, TaskData] = {}
    tasks = []
    for name, path in paths:
        data = read_task(name, path)
        if data.name in data_by_name:
            raise UsageError(
                f"two files are of the task {data.name}: evaluate {path} in a run of its own, so that its results "
                "can be told apart"
            )
        data_by_name[data.name] = data
        ids = sample_ids(data, values.get("limit"), options.seed)
        tasks.append(RunTask(data.name, path, data.sha256, data.metric, ids, len(data.items)))

    # The cards and the LLM.
    cards: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    if any(setting.uses_cards(baseline) for setting in settings):
        selection = hub.select(options.card_names, drafts=True)
        cards = card_digests(selection)
        if selection.note:
            notes = (selection.note,)
        options = replace(options, cards=tuple(cards))
    llm = options.llm
    if llm is None:
        llm = configured().llm
    elif not isinstance(llm, str):
        llm = type(llm).__name__  # an object, which no later run can make again
    llm, own_url = without_shortcut(llm)
    llm_url = own_url or options.llm_url
    if not llm_url and llm.partition(":")[0] in ENDPOINTS:
        llm_url = configured().llm_url

    # The options as a later run can have them again.
    stored = {key: _json_ready(key, value) for key, value in values.items() if key != "analysis"}
    stored |= {"tasks": [name for name, _ in paths], "path": [path for _, path in paths]}
    stored |= {"settings": ",".join(setting_names), "llm": llm}
    if cards:
        stored["cards"] = list(cards)
    if llm_url:
        stored["llm_url"] = llm_url
    versions = {"kcard": __version__, "python": platform.python_version(), "platform": platform.platform()}
    versions |= {name: metadata.version(name) for name in LIBRARIES}
    command = ("eval", *command_line(stored))
    plan = RunPlan(command, tuple(tasks), setting_names, llm, options.seed, cards, stored, versions)
    return EvaluationPlan(plan, data_by_name, settings, options, baseline, values.get("shots"), notes)


def card_digests(selection: "Selection") -> dict[str, str]:
    """Return the sha256 of the manifest of each card by its reference: name@version, or draft:name."""
    digests = {}
    for version in selection.versions:
        digests[version.reference] = version.sha256
    for folder in selection.drafts:
        digests[DRAFT + folder.name] = file_digest(folder / MANIFEST)
    return digests


def command_line(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options as they are typed after `kcard eval`."""
    yield from options["tasks"]
    for key, value in options.items():
        flag = "--" + key.replace("_", "-")
        if key == "tasks" or (value is False and key not in NEGATABLE_OPTIONS):
            continue
        if value is False:
            yield "--no-" + flag.removeprefix("--")
        elif value is True:
            yield flag
        elif key in ("path", "evidence"):
            for each in value:
                yield from (flag, str(each))
        elif isinstance(value, list):
            yield from (flag, ",".join(value))
        else:
            yield from (flag, str(value))


def _options_of(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return the options of that kind, from those of `values` that it declares."""
    names = declared(kind)
    return kind(**{key: value for key, value in values.items() if key in names})


def task_paths(tasks: Sequence[str], path: str | Path | Sequence[str | Path]) -> list[tuple[str, str]]:
    """Return (task, absolute path) of each task: from TASK=PATH, else in order; one task may have several paths."""
    if not tasks:
        raise UsageError(f"no task: choose among {', '.join(task_names())}")
    named = []
    for text in tasks:
        name, _, own_path = text.partition("=")
        system.load(TASKS, name)  # raises UsageError for an unknown name
        named.append((name, own_path))
    # Paths with the name of a task belong to it, the others to the tasks without a path, in order.
    unnamed = []
    for each in [path] if isinstance(path, str | Path) else path:
        name, equals, own_path = str(each).partition("=")
        if not equals or name not in tasks:
            unnamed.append(str(each))
        elif (name, "") in named:
            named[named.index((name, ""))] = (name, own_path)
        else:
            named.append((name, own_path))
    without = [place for place, (_, own_path) in enumerate(named) if not own_path]
    if len(named) == len(without) == 1 and unnamed:
        task = named[0][0]
        named = [(task, own_path) for own_path in unnamed]
    elif len(without) != len(unnamed):
        lacking = ", ".join(named[place][0] for place in without) or "no task"
        raise UsageError(
            f"{len(unnamed)} paths for {lacking}: give --path FILE for each task, in order, or as --path TASK=FILE"
        )
    else:
        for place, own_path in zip(without, unnamed, strict=True):
            named[place] = (named[place][0], own_path)
    return [(name, str(Path(own_path).expanduser().absolute())) for name, own_path in named]


def _json_ready(key: str, value: Any) -> Any:
    """Return a JSON-ready value, with absolute paths for files."""
    if isinstance(value, Path):
        return str(value.expanduser().absolute())
    if isinstance(value, list | tuple):
        return [_json_ready(key, each) for each in value]
    if key in PATH_OPTIONS and isinstance(value, str) and Path(value).expanduser().exists():
        return str(Path(value).expanduser().absolute())
    return value
