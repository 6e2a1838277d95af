"""Options of commands: their declaration, defaults from settings, completion.

The signatures of the commands say what can be set. Click's default_map carries the configured values, so that flags
win, `--help` shows the effective defaults, and commands need not know about settings.
"""

import difflib
import inspect
import json
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

from kcard.cli.output import echo
from kcard.config import Settings
from kcard.config_file import TABLES, TOP, Setting, typed
from kcard.errors import KcardError, UsageError
from kcard.integrators.options import AskOptions, PresetOption, with_preset
from kcard.options import REQUIRED, DeclaredOption, declared

# KEY=VALUE options, such as --set k=5.


def parse_key_values(texts: list[str] | None) -> dict[str, Any]:
    """Parse KEY=VALUE texts; values are JSON (numbers, true, false, null) or else texts."""
    values: dict[str, Any] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"--set {text}: expected KEY=VALUE, such as k=5")
        key = key.strip().replace("-", "_")
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    return values


# Not in [ask], since they apply to every command that uses an LLM or cards.
TOP_LEVEL = {"llm", "llm_url", "llm_threads", "engine"}
# They make sense for a single run only.
SINGLE_RUN = {"help_all", "json", "input", "output", "resume", "update"}
# No file may set these, least of all one that came with a project.
COMMAND_LINE_ONLY = {"trust_remote_code", "hub", "repository", "ray", "ray_cpus"}
ONE_CARD = {"corpus", "name", "description"}
COMMA_SEPARATED = {"ask.cards"}
# Words that stand beside paths.
EVIDENCE_WORDS: Mapping[str, tuple[str, ...]] = {"ask.evidence": ("own", "none"), "exam.evidence": ()}


@dataclass(frozen=True)
class ConfigurableOption:
    """An option that a file can set: its type, its default and the name of the command's parameter."""

    parameter: str
    kind: Any
    default: Any


def options(tables: Collection[str] = TABLES) -> dict[str, ConfigurableOption]:
    """Return the configurable options by key (llm, ask.n1): those of the top level and of these tables' commands."""
    configurable = {}
    for key, (kind, default) in TOP.items():
        configurable[key] = ConfigurableOption(key, kind, default)
    for name in TABLES:
        if name not in tables:
            continue
        command = getattr(import_module(f"kcard.cli.{name}"), name)
        for parameter in inspect.signature(command).parameters.values():
            key = parameter.name.rstrip("_")
            annotations = typing.get_args(parameter.annotation)
            is_option = any(isinstance(part, typer.models.OptionInfo) for part in annotations)
            if is_option and key not in SINGLE_RUN | TOP_LEVEL | COMMAND_LINE_ONLY:
                configurable[f"{name}.{key}"] = ConfigurableOption(
                    parameter.name, parameter.annotation, parameter.default
                )
    return configurable


def option(key: str) -> ConfigurableOption:
    """Return the configurable option of a key. Raises UsageError, which suggests similar keys, for an unknown one."""
    configurable = options()
    if key not in configurable:
        similar = difflib.get_close_matches(key, configurable)
        if not similar:
            similar = [name for name in configurable if name.endswith(f".{key}")]
        hint = "`kcard config` shows them all"
        if similar:
            hint = f"did you mean {' or '.join(similar)}?"
        raise UsageError(f"unknown setting {key!r}: {hint}")
    return configurable[key]


def value_of(setting: Setting, option: ConfigurableOption) -> Any:
    """Return a setting's value with the type of its option; in a file, comma-separated values may be a list."""
    if setting.key in COMMA_SEPARATED and isinstance(setting.value, list):
        setting = replace(setting, value=",".join(typed(setting, list[str])))
    words: Sequence[str] | None = EVIDENCE_WORDS.get(setting.key)
    if words is not None and setting.origin.kind != "project":
        # A list of paths may also name registered evidence, but not in a project's file: some of it sends queries to a
        # remote service, which a project can't choose.
        from kcard.selectors.evidence import names

        items = setting.value
        if isinstance(items, str):
            items = items.split(",")
        if isinstance(items, list):
            for item in items:
                if isinstance(item, str) and item.strip().partition(":")[0] in names():
                    words = (*words, item.strip())
    return typed(setting, option.kind, words)


def default_map(configured: Settings) -> dict[str, dict[str, Any]]:
    """Return the configured values of each command, by parameter, in the form of Click's default_map.

    Options of ask apply to serve too, and those of train to train-many, except those that belong to a single card.
    Raises UsageError for a key that is not an option, or a value of the wrong type, wherever it was set.
    """
    # Only the commands of which something is configured are imported.
    configurable = options({key.partition(".")[0] for key in configured.found})
    defaults: dict[str, dict[str, Any]] = {}
    for key, setting in configured.found.items():
        command, _, name = key.partition(".")
        option = configurable.get(key) or _raise_unknown(setting, configurable)
        value = value_of(setting, option)
        if name:
            defaults.setdefault(command, {})[option.parameter] = value
    if "ask" in defaults:
        fields = AskOptions.__dataclass_fields__
        defaults["serve"] = {key: v for key, v in defaults["ask"].items() if key in fields}
    if "train" in defaults:
        defaults["train-many"] = {key: v for key, v in defaults["train"].items() if key not in ONE_CARD}
    return defaults


def effective_settings(configured: Settings) -> list[Setting]:
    """Return every setting with its effective value; raises as default_map does."""
    default_map(configured)
    settings = []
    for key, option in options().items():
        setting = configured.found.get(key)
        if setting is None:
            settings.append(Setting(key, option.default))
        else:
            settings.append(replace(setting, value=value_of(setting, option)))
    return settings


def _raise_unknown(setting: Setting, configurable: Mapping[str, ConfigurableOption]) -> typing.NoReturn:
    """Raise the UsageError for a key that is not an option, with a remedy."""
    table, _, name = setting.key.partition(".")
    if name in TOP_LEVEL:
        raise UsageError(
            f"{setting.origin}: set {name} itself, not {setting.key}: it applies to every command"
        )
    if name in COMMAND_LINE_ONLY:
        flag = f"--{name.replace('_', '-')}"
        raise UsageError(f"{setting.origin}: {name} can't be set here: give {flag} each time")
    names = [key.partition(".")[2] for key in configurable if key.startswith(f"{table}.")]
    hint = f"choose one of {', '.join(names)}"
    for similar in difflib.get_close_matches(name, names, n=1):
        hint = f"did you mean {similar!r}?"
    raise UsageError(f"{setting.origin}: unknown setting {name!r} in [{table}]: {hint}")


# Shell completion of the names of cards.


def complete_published(incomplete: str) -> list[str]:
    """Complete the name of a published card."""
    from kcard.hub.registry import Hub

    try:
        return [version.name for version in Hub() if version.name.startswith(incomplete)]
    except KcardError:
        return []


def complete_several(incomplete: str) -> list[str]:
    """Complete the last of several comma-separated names."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in complete_published(last)]


def complete_drafts(incomplete: str) -> list[str]:
    """Complete the name of a draft or a published card."""
    from kcard.config import settings
    from kcard.manifest import MANIFEST

    try:
        manifests = list(settings().drafts.glob(f"[!.]*/{MANIFEST}"))
    except (KcardError, OSError):
        manifests = []
    names = set(complete_published(incomplete))
    for path in manifests:
        if path.parent.name.startswith(incomplete):
            names.add(path.parent.name)
    return sorted(names)


# The help of commands with many options: `--help` leaves out those of a panel, `--help-all` has all of them.

IS_LONG = "kcard.is_long_help"  # in the context's meta
ARGUMENTS, OPTIONS = "Arguments", "Options"  # headings of the short help


class LongCommand(TyperCommand):
    """A command whose help comes in two lengths: the short one leaves out the options of a panel."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {ARGUMENTS: [], OPTIONS: []}
        for param in self.get_params(ctx):
            heading = getattr(param, "rich_help_panel", None) or OPTIONS
            if isinstance(param, TyperArgument):
                heading = ARGUMENTS
            record = param.get_help_record(ctx)
            if record is not None:
                sections.setdefault(heading, []).append(record)
        is_long = bool(ctx.meta.get(IS_LONG))
        left_out, count = [], 0
        for heading, records in sections.items():
            if heading not in (ARGUMENTS, OPTIONS) and not is_long:
                left_out.append(heading[0].lower() + heading[1:])
                count += len(records)
            elif records:
                with formatter.section(heading):
                    formatter.write_dl(records)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(
                f"{count} more options: {'; '.join(left_out)}. `{ctx.command_path} --help-all` shows them."
            )


def _show_all(ctx: typer.Context, is_requested: bool) -> None:
    if is_requested and not ctx.resilient_parsing:
        ctx.meta[IS_LONG] = True
        echo(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show every option and exit."),
]


# Makes a command from a function of the API, whose options become the command's.

COMPLETIONS = {
    "cards": complete_several,
    "drafts": complete_drafts,
    "published": complete_published,
}


def command_for(
    *targets: Callable[..., Any], leave_out: Collection[str] = (), optional: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a decorator for the function behind a command. Typer sees its parameters, with the targets' options in place
    of `values`, and calls it with these in one dict. If some options have a panel, the command has --help-all, too.

    leave_out  options of the targets that the command does not have
    optional   options that the targets require and the command line may leave out
    """
    shared = []
    for target in targets:
        for option in declared(target).values():
            if option.name in optional:
                shared.append(replace(option, default=None))
            elif option.name not in leave_out:
                shared.append(option)

    def decorate(view: Callable[..., None]) -> Callable[..., None]:
        def command(**values: Any) -> None:
            values.pop("help_all", None)
            options = {option.name: values.pop(option.name) for option in shared}
            if PresetOption in targets:
                options = _as_in_paper(options, values.pop("context"))
            view(values=options, **values)

        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(view).parameters.values():
            if parameter.name == "values":
                parameters += map(_parameter, shared)
            else:
                parameters.append(parameter.replace(kind=keyword))
        if PresetOption in targets:
            parameters.append(inspect.Parameter("context", keyword, annotation=typer.Context))
        if any(option.option.panel for option in shared):
            parameters.append(inspect.Parameter("help_all", keyword, default=False, annotation=HelpAll))
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        command.__name__, command.__doc__ = view.__name__, view.__doc__
        return command

    return decorate


def typed_values(values: Mapping[str, Any], context: typer.Context) -> dict[str, Any]:
    """Return the values that the user typed or configured, without defaults."""
    typed = {}
    for key, value in values.items():
        source = context.get_parameter_source(key)
        if source is not None and source.name != "DEFAULT":
            typed[key] = value
    return typed


def _as_in_paper(values: dict[str, Any], context: typer.Context) -> dict[str, Any]:
    """Return the options with those of the preset, if one is chosen, in place of defaults."""
    preset = with_preset({"preset": values.pop("preset")})
    return values | preset | typed_values(values, context)


def _parameter(declaration: DeclaredOption) -> inspect.Parameter:
    """Return the parameter from which Typer makes the argument or flag."""
    option = declaration.option
    kind, default = option.command_line or declaration.kind, declaration.default
    if isinstance(default, tuple):
        default = list(default)
    if default is None:
        kind = kind | None
    text = option.help
    if option.default:
        text += f" [default: {option.default}]"
    complete = COMPLETIONS.get(option.completes)
    info: Any
    if option.argument:
        info = typer.Argument(help=text, autocompletion=complete)
    else:
        flag = option.flag or "--" + declaration.name.replace("_", "-")
        if "/" not in flag and (kind == bool | None or option.negatable):
            flag = f"{flag}/--no-{flag.removeprefix('--')}"
        has_plain_default = default not in (None, REQUIRED, []) and not isinstance(default, bool)
        info = typer.Option(
            *filter(None, (flag, option.short)),
            help=text,
            show_default=has_plain_default and not option.default,
            autocompletion=complete,
            rich_help_panel=option.panel or None,
        )
    return inspect.Parameter(
        declaration.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )
