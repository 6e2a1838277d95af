"""Options, each declared once: in the signature of the function, or in the dataclass, that takes it.

    def exam(card: str, *, limit: Annotated[int, Option("At most this many questions.", least=1)] = 200): ...

The command line (kcard.cli.options), the tables of the config file, the docs and the Python arguments all come from
there.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin

from kcard.errors import UsageError

__all__ = ["REQUIRED", "DeclaredOption", "Option", "check_values", "declared", "documented"]

REQUIRED = inspect.Parameter.empty
T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """Metadata of an option beyond its name, type and default.

    help          one sentence or two
    least, most   the range of a number, both inclusive
    default       what the default amounts to, where the value alone does not say it
    argument      whether it is positional on the command line
    flag          its flag on the command line, where that is not its name with dashes
    short         a one-letter flag besides, such as -o
    command_line  its type on the command line, where Python takes more than a word or a number
    negatable     whether a switch has a --no- form
    completes     what the shell completes: cards, drafts or published
    """

    help: str
    least: float | None = None
    most: float | None = None
    default: str = ""
    argument: bool = False
    flag: str = ""
    short: str = ""
    command_line: Any = None
    negatable: bool = False
    completes: str = ""

    @property
    def range(self) -> str:
        """The range in words; empty where there is none."""
        if self.least is not None and self.most is not None:
            return f"between {self.least:g} and {self.most:g}"
        return "" if self.least is None else f"at least {self.least:g}"


@dataclass(frozen=True)
class DeclaredOption:
    """An option with the name, type and default that its signature gives it; REQUIRED where it has no default."""

    name: str
    kind: Any
    default: Any
    option: Option

    @property
    def choices(self) -> tuple[str, ...]:
        """The words of a Literal, or of one that may be None; none of any other type."""
        parts = (self.kind, *get_args(self.kind))
        return next((get_args(part) for part in parts if get_origin(part) is Literal), ())


def declared(target: Callable[..., Any]) -> dict[str, DeclaredOption]:
    """Return the options of a function or a dataclass, by name, in the order of its signature."""
    options = {}
    for name, parameter in inspect.signature(target).parameters.items():
        for note in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(note, Option):
                options[name] = DeclaredOption(
                    name, get_args(parameter.annotation)[0], parameter.default, note
                )
    return options


def check_values(target: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Raise UsageError for a number out of the range of its option, or a word not among its choices. None passes."""
    for name, declaration in declared(target).items():
        value, option = values.get(name), declaration.option
        if value is None:
            continue
        if declaration.choices and value not in declaration.choices:
            raise UsageError(f"{name} {value!r} is unknown: choose one of {', '.join(declaration.choices)}")
        if (
            option.least is not None and not value >= option.least
        ):  # what is not a number is not in range either
            raise UsageError(f"{name.replace('_', '-')} is {value}: it must be {option.range}")
        if option.most is not None and value > option.most:
            raise UsageError(f"{name.replace('_', '-')} is {value}: it must be {option.range}")


def documented(target: T) -> T:
    """List the options in the docstring; a decorator."""
    lines = [
        f"    {name}: {declaration.option.help}"
        + (f" Default: {declaration.option.default}." if declaration.option.default else "")
        for name, declaration in declared(target).items()
    ]
    target.__doc__ = f"{inspect.getdoc(target) or ''}\n\nOptions:\n" + "\n".join(lines)
    return target
