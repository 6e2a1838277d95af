"""Options of commands: their declaration, defaults from settings, completion.

The commands' own signatures are the table of what can be set. Click's default_map carries the values, so a flag
wins, `--help` shows what would be used, and no command knows of it.
"""

import difflib
import inspect
import json
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from kcard.config import CACHE_MB, Settings
from kcard.config_file import TABLES, Setting, typed
from kcard.errors import KcardError, UsageError
from kcard.integrators.options import AskOptions
from kcard.options import REQUIRED, Declared, declared

__all__ = [
    "ConfigurableOption",
    "command_for",
    "default_map",
    "drafts",
    "effective",
    "given_settings",
    "option",
    "options",
    "published",
    "several",
    "value_of",
]


# KEY=VALUE options, such as --set k=5.


def given_settings(given: list[str] | None) -> dict[str, Any]:
    """key=value texts as settings: numbers, true, false and null as JSON has them, else texts."""
    found = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"--set {text}: expected KEY=VALUE, such as k=5")
        try:
            found[key.strip().replace("-", "_")] = json.loads(value)
        except ValueError:
            found[key.strip().replace("-", "_")] = value
    return found


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
    from kcard.selectors.evidence import names

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


# What the shell completes: names of cards.


def published(incomplete: str) -> list[str]:
    """Names of published cards."""
    from kcard.hub.registry import Hub

    try:
        return [version.name for version in Hub() if version.name.startswith(incomplete)]
    except KcardError:
        return []


def several(incomplete: str) -> list[str]:
    """The last of several names with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in published(last)]


def drafts(incomplete: str) -> list[str]:
    """Names of drafts and published cards."""
    from kcard.config import settings
    from kcard.manifest import MANIFEST

    try:
        own = [path.parent.name for path in settings().drafts.glob(f"*/{MANIFEST}")]
    except (KcardError, OSError):
        own = []
    return sorted({name for name in own if name.startswith(incomplete)} | set(published(incomplete)))


# Makes a command from the function that it stands for: the function's options become the command's.

COMPLETIONS = {
    "cards": several,
    "drafts": drafts,
    "published": published,
}


def command_for(
    *targets: Callable[..., Any], leave_out: Collection[str] = (), optional: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator for the view of a command. Typer sees the options of the targets, then those of the view itself.

    The view is called with the options of the targets in one dict, and with its own by name. `optional`: what the
    function requires and the command line may leave out.
    """
    known = [option for target in targets for option in declared(target).values()]
    shared = [
        replace(option, default=None) if option.name in optional else option
        for option in known
        if option.name not in leave_out
    ]

    def decorate(view: Callable[..., None]) -> Callable[..., None]:
        def command(**values: Any) -> None:
            view({option.name: values.pop(option.name) for option in shared}, **values)

        _, *own = inspect.signature(view).parameters.values()
        parameters = [*map(_parameter, shared), *(p.replace(kind=p.KEYWORD_ONLY) for p in own)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        command.__name__, command.__doc__ = view.__name__, view.__doc__
        return command

    return decorate


def _parameter(known: Declared) -> inspect.Parameter:
    option = known.option
    kind = known.kind if option.command_line is None else option.command_line
    default = list(known.default) if isinstance(known.default, tuple) else known.default
    kind = kind | None if default is None else kind
    text = f"{option.help} [default: {option.default}]" if option.default else option.help
    complete = COMPLETIONS.get(option.completes)
    info: Any
    if option.argument:
        info = typer.Argument(help=text, show_default=False, autocompletion=complete)
    else:
        flags = [_flag(known, kind), *([option.short] if option.short else [])]
        plain = not option.default and default not in (None, REQUIRED, []) and not isinstance(default, bool)
        info = typer.Option(*flags, help=text, show_default=plain, autocompletion=complete)
    return inspect.Parameter(
        known.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _flag(known: Declared, kind: Any) -> str:
    flag = known.option.flag or "--" + known.name.replace("_", "-")
    both_ways = kind == bool | None or known.option.negatable
    return f"{flag}/--no-{flag.removeprefix('--')}" if both_ways else flag
