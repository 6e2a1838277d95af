"""Options, each declared once: in the signature of the function or dataclass that takes it.

    def exam(card: str, *, limit: Annotated[int, Option("At most this many questions.", least=1)] = 200): ...

The command line (kcard.cli.options), the tables of the config file and the docs are generated from these.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin

from kcard.errors import UsageError

REQUIRED = inspect.Parameter.empty
T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """Metadata of an option beyond its name, type and default.

    help          one or two sentences
    least, most   the range of a number, inclusive
    default       description of the default, if its value does not explain itself
    argument      whether it is positional on the command line
    flag          its flag on the command line, if that is not its name with dashes
    short         a second, one-letter flag, such as -o
    command_line  its type on the command line, if Python accepts more types
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
        """Return the range in words; empty if there is none."""
        if self.least is not None and self.most is not None:
            return f"between {self.least:g} and {self.most:g}"
        return "" if self.least is None else f"at least {self.least:g}"


@dataclass(frozen=True)
class DeclaredOption:
    """An option with the name, type and default of its signature; REQUIRED if it has no default."""

    name: str
    kind: Any
    default: Any
    option: Option

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the words of a Literal, which may be optional; none for other types."""
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
    """Raise UsageError for a number out of range and for a word that is not among the choices; None is accepted."""
    for name, declaration in declared(target).items():
        value, option = values.get(name), declaration.option
        if value is None:
            continue
        if declaration.choices and value not in declaration.choices:
            raise UsageError(f"{name} {value!r} is unknown: choose one of {', '.join(declaration.choices)}")
        if option.least is not None and not value >= option.least:  # true of NaN too
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
