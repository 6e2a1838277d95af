"""What the config says in place of a command's defaults: [ask], [train] and so on hold the options of that command.

The commands' own signatures are the table of what can be set. Click's default_map carries the values, so a flag
wins, `--help` shows what would be used, and no command knows of it.
"""

import difflib
import inspect
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from kcard.config import CACHE_MB, Settings
from kcard.config_file import TABLES
from kcard.errors import UsageError
from kcard.integrators.options import AskOptions
from kcard.setting import Setting, typed

__all__ = ["ConfigurableOption", "default_map", "effective", "option", "options", "value_of"]

TOP: Mapping[str, tuple[Any, Any]] = {
    "home": (Path, None),
    "llm": (str, "embedded"),
    "llm_url": (str, None),
    "engine": (list[str], None),
    "trust": (list[Path], None),
    "cache_mb": (int, CACHE_MB),
    "hub_url": (str, None),
    "database_url": (str, None),
    "blobs_url": (str, None),
    "hub_evidence": (list[str], None),
}

TOP_LEVEL = {"llm", "llm_url", "engine"}  # not in [ask]: they hold for all that asks an LLM or cards
ONCE = {"json", "config", "input", "output", "resume", "update"}  # what is said for one run only
FLAGS = {
    "trust_remote_code",
    "hub",
    "repository",
    "ray",
    "ray_cpus",
}  # what no file may say, least of all one that came with a project
ONE_CARD = {"corpus", "name", "description", "study"}
COMMAS = {"ask.cards"}
WORDS: Mapping[str, tuple[str, ...]] = {"ask.evidence": ("own", "none"), "exam.evidence": ()}


@dataclass(frozen=True)
class ConfigurableOption:
    """What can be set: its type and default and, for the option of a command, its parameter's name."""

    parameter: str
    kind: Any
    default: Any


def options(tables: Collection[str] = TABLES) -> dict[str, ConfigurableOption]:
    """Everything that can be set, by key (llm, ask.n1): at the top level, and for the commands of these tables."""
    found = {key: ConfigurableOption(key, kind, default) for key, (kind, default) in TOP.items()}
    for name in TABLES:
        if name not in tables:
            continue
        command = getattr(import_module(f"kcard.cli.{name}"), name)
        for parameter in inspect.signature(command).parameters.values():
            key = parameter.name.rstrip("_")
            if _is_option(parameter) and key not in ONCE | TOP_LEVEL | FLAGS:
                found[f"{name}.{key}"] = ConfigurableOption(
                    parameter.name, parameter.annotation, parameter.default
                )
    return found


def _is_option(parameter: inspect.Parameter) -> bool:
    return any(isinstance(part, typer.models.OptionInfo) for part in typing.get_args(parameter.annotation))


def option(key: str) -> ConfigurableOption:
    """What can be set as `key`; UsageError names near ones where nothing can."""
    known = options()
    if key not in known:
        near = difflib.get_close_matches(key, known) or [k for k in known if k.endswith(f".{key}")]
        hint = f"did you mean {' or '.join(near)}?" if near else "`kcard config` shows them all"
        raise UsageError(f"unknown setting {key!r}: {hint}")
    return known[key]


def value_of(setting: Setting, option: ConfigurableOption) -> Any:
    """The setting's value, as the type that its option has; one that takes commas may be a list in a file."""
    if setting.key in COMMAS and isinstance(setting.value, list):
        setting = replace(setting, value=",".join(typed(setting, list[str])))
    return typed(setting, option.kind, _words(setting))


def _words(setting: Setting) -> Sequence[str] | None:
    """What a list of paths may hold besides: also registered evidence, but not in a project's file.

    Some of it sends what is looked up elsewhere, which a project can't choose.
    """
    known = WORDS.get(setting.key)
    if known is None or setting.origin.kind == "project":
        return known
    from kcard.selectors.evidence.registry import names

    given = setting.value.split(",") if isinstance(setting.value, str) else setting.value
    texts = [x.strip() for x in given if isinstance(x, str)] if isinstance(given, list) else []
    return (*known, *(x for x in texts if x.partition(":")[0] in names()))


def default_map(configured: Settings) -> dict[str, dict[str, Any]]:
    """What is configured for each command, by parameter, as Click wants it; options of ask hold for serve too, and
    those of train for train-many, but for what only one card can have.

    Raises UsageError for a key that is not an option, or a value of the wrong type, wherever it was set.
    """
    # Only the commands of which something is configured are imported.
    known = options({key.partition(".")[0] for key in configured.found})
    found: dict[str, dict[str, Any]] = {}
    for key, setting in configured.found.items():
        command, _, name = key.partition(".")
        option = known.get(key) or _unknown(setting, known)
        value = value_of(setting, option)
        if name:
            found.setdefault(command, {})[option.parameter] = value
    if "ask" in found:
        found["serve"] = {key: v for key, v in found["ask"].items() if key in AskOptions.__dataclass_fields__}
    if "train" in found:
        found["train-many"] = {key: v for key, v in found["train"].items() if key not in ONE_CARD}
    return found


def effective(configured: Settings) -> list[Setting]:
    """Every setting with the value that holds; raises as default_map does."""
    default_map(configured)
    found = []
    for key, option in options().items():
        given = configured.found.get(key)
        value = option.default if given is None else value_of(given, option)
        found.append(Setting(key, value) if given is None else Setting(key, value, given.origin))
    return found


def _unknown(setting: Setting, known: Mapping[str, ConfigurableOption]) -> typing.NoReturn:
    table, _, name = setting.key.partition(".")
    if name in TOP_LEVEL:
        raise UsageError(
            f"{setting.origin}: set {name} itself, not {setting.key}: it applies to every command"
        )
    if name in FLAGS:
        flag = f"--{name.replace('_', '-')}"
        raise UsageError(f"{setting.origin}: {name} can't be set here: give {flag} each time")
    names = [key.partition(".")[2] for key in known if key.startswith(f"{table}.")]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(names)}"
    raise UsageError(f"{setting.origin}: unknown setting {name!r} in [{table}]: {hint}")
