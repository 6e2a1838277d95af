"""From the options of an evaluation to its plan: tasks read, cards resolved, everything named that decides results."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kcard import __version__
from kcard.api.eval_presets import PRESETS
from kcard.api.eval_settings import DEFAULT, EvalSetting, parse_settings
from kcard.api.eval_variants import DEFAULTS, variants
from kcard.config import ENDPOINTS
from kcard.config import settings as configured
from kcard.errors import UsageError
from kcard.evaluation.runs.questions import sampled
from kcard.evaluation.runs.run import RunPlan, RunTask
from kcard.evaluation.tasks.registry import read_task, task_names
from kcard.evaluation.tasks.task import TaskData
from kcard.integrators.baselines.options import BaselineOptions
from kcard.integrators.options import AskOptions
from kcard.option import declared

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["Prepared", "command_line", "prepare"]

T = TypeVar("T", AskOptions, BaselineOptions)
LIBRARIES = ("numpy", "tokenizers", "torch", "transformers")
NEGATABLE = {name for name, known in declared(AskOptions).items() if known.option.negatable}
PLACES = ("path", "examples", "evidence", "corpus")  # options that may name files


@dataclass(frozen=True)
class Prepared:
    """An evaluation that is ready to be asked. `notes`: sentences for the user."""

    plan: RunPlan
    tasks: Mapping[str, TaskData]
    settings: tuple[EvalSetting, ...]
    options: AskOptions
    baseline: BaselineOptions
    shots: int | None
    notes: tuple[str, ...] = ()


def prepare(given: Mapping[str, Any], hub: "Hub") -> Prepared:
    """Read the tasks and resolve the cards of an evaluation with these options of kcard.evaluate.

    Raises UsageError for a wrong option or file, HubError where a card is not found.
    """
    given = _with_preset(given)
    options, baseline = _of(AskOptions, given), _of(BaselineOptions, given)
    found = _settings(given, options, hub)
    for setting in found:
        setting.check(options)
    seed, limit = options.seed, given.get("limit")
    paths = _paths(_listed(given["tasks"]), given.get("path", ()))
    tasks = {path: read_task(name, path) for name, path in paths}
    described = [
        RunTask(data.name, path, data.sha256, data.metric, sampled(data, limit, seed), len(data.items))
        for path, data in tasks.items()
    ]
    _check_distinct(described)
    cards: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    if any(setting.uses_cards(baseline) for setting in found):
        chosen = hub.select(options.card_names)
        cards = {version.reference: version.sha256 for version in chosen.versions}
        notes = (chosen.note,) if chosen.note else ()
        options = replace(options, cards=tuple(cards))
    llm = _named(options.llm)
    kept = {
        **{key: _json_ready(key, value) for key, value in given.items() if key != "analysis"},
        "tasks": [name for name, _ in paths],
        "path": list(tasks),
        "settings": ",".join(setting.name for setting in found),
        "llm": llm,
        **({"cards": list(cards)} if cards else {}),
        **({"llm_url": url} if (url := options.llm_url or _url(llm)) else {}),
    }
    names = tuple(setting.name for setting in found)
    plan = RunPlan(
        ("eval", *command_line(kept)), tuple(described), names, llm, seed, cards, kept, _versions()
    )
    return Prepared(
        plan, {d.name: tasks[d.path] for d in described}, found, options, baseline, given.get("shots"), notes
    )


def _settings(given: Mapping[str, Any], options: AskOptions, hub: "Hub") -> tuple[EvalSetting, ...]:
    """The settings that are compared, or those of an analysis, which varies them."""
    analysis = given.get("analysis")
    if analysis is None:
        return parse_settings(given.get("settings", DEFAULT))
    found = parse_settings(given.get("settings", DEFAULTS[analysis]))
    cards = [version.reference for version in hub.select(options.card_names).versions]
    return parse_settings(variants(analysis, [setting.name for setting in found], cards))


def command_line(options: Mapping[str, Any]) -> Iterator[str]:
    """The options as they are typed after `kcard eval`."""
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


def _with_preset(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those that are None, and with those of the preset that are not given."""
    named = {key: value for key, value in given.items() if value is not None}
    name = named.pop("preset", None)
    if name is None:
        return named
    if name not in PRESETS:
        raise UsageError(f"preset {name!r} is unknown: choose one of {', '.join(PRESETS)}")
    return {**PRESETS[name], **named}


def _of(kind: type[T], given: Mapping[str, Any]) -> T:
    """The options of that kind among those given."""
    known = declared(kind)
    return kind(**{key: value for key, value in given.items() if key in known})


def _listed(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _paths(tasks: Sequence[str], given: str | Path | Sequence[str | Path]) -> list[tuple[str, str]]:
    """(task, absolute path) of each task: from TASK=PATH, else in order; one task may have several paths."""
    paths = [str(path) for path in ([given] if isinstance(given, str | Path) else given)]
    if not tasks:
        raise UsageError(f"no task: choose among {', '.join(task_names())}")
    named = [tuple(text.partition("=")[::2]) for text in tasks]
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
    """The task of TASK=PATH; empty for a mere path."""
    name, equals, _ = path.partition("=")
    return name if equals and name in tasks else ""


def _check_distinct(tasks: Sequence[RunTask]) -> None:
    names = [task.name for task in tasks]
    for task in tasks:
        if names.count(task.name) > 1:
            raise UsageError(
                f"two files are of the task {task.name}: evaluate {task.path} in a run of its own, so that its results "
                "can be told apart"
            )


def _json_ready(key: str, value: Any) -> Any:
    """The value as JSON has it; what names files by absolute paths."""
    if isinstance(value, Path):
        return str(value.expanduser().absolute())
    if isinstance(value, list | tuple):
        return [_json_ready(key, each) for each in value]
    if key in PLACES and isinstance(value, str) and Path(value).expanduser().exists():
        return str(Path(value).expanduser().absolute())
    return value


def _named(llm: Any) -> str:
    """The LLM as backend:model; an object by its type, which no later run can make again."""
    if llm is None:
        return configured().llm
    return llm if isinstance(llm, str) else type(llm).__name__


def _url(llm: str) -> str | None:
    return configured().llm_url if llm.partition(":")[0] in ENDPOINTS else None


def _versions() -> dict[str, str]:
    found = {"kcard": __version__, "python": platform.python_version(), "platform": platform.platform()}
    return found | {name: metadata.version(name) for name in LIBRARIES}
