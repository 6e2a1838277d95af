"""Makes a command from the function that it stands for: the function's options become the command's."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Annotated, Any

import typer

from kcard.cli import completion
from kcard.option import REQUIRED, Declared, declared

__all__ = ["command_for"]

COMPLETIONS = {
    "cards": completion.several,
    "drafts": completion.drafts,
    "published": completion.published,
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
