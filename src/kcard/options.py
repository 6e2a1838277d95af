"""Options, each declared once: in the dataclass or in the signature of the function that takes it.

    def exam(card: str, *, limit: Annotated[int, Option("At most this many questions.", least=1)] = 200): ...

The command line (kcard.cli.options), the tables of the config file and the docs are made from these.
"""

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin

from kcard.errors import UsageError

REQUIRED = inspect.Parameter.empty
T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """Metadata of an option beyond its name, type and default.

    help          one or two sentences
    least, most   the range of a number, inclusive
    default       description of the default, if its value does not explain itself
    panel         its heading in the long help of a command; "": the short help has it, too
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
    panel: str = ""
    argument: bool = False
    flag: str = ""
    short: str = ""
    command_line: Any = None
    negatable: bool = False
    completes: str = ""

    def __repr__(self) -> str:
        return "Option"  # in signatures; the docstring has the rest

    @property
    def range(self) -> str:
        """Return the range in words; empty if there is none."""
        if self.least is not None and self.most is not None:
            return f"between {self.least:g} and {self.most:g}"
        return "" if self.least is None else f"at least {self.least:g}"


@dataclass(frozen=True)
class DeclaredOption:
    """An option with the name, type and default of its declaration; REQUIRED if it has no default."""

    name: str
    kind: Any
    default: Any
    option: Option

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the words of a Literal, which may be optional; none for other types."""
        for part in (self.kind, *get_args(self.kind)):
            if get_origin(part) is Literal:
                return get_args(part)
        return ()


def declared(target: Callable[..., Any]) -> dict[str, DeclaredOption]:
    """Return the options of a function or a dataclass, by name; those of a dataclass before those of its bases."""
    declarations: list[tuple[str, Any, Any, str]] = []
    if isinstance(target, type):
        for part in target.__mro__:
            panel = vars(part).get("panel", "")
            for name, annotation in inspect.get_annotations(part).items():
                declarations.append((name, annotation, getattr(target, name, REQUIRED), panel))
    else:
        for name, parameter in inspect.signature(target).parameters.items():
            declarations.append((name, parameter.annotation, parameter.default, ""))
    options = {}
    for name, annotation, default, panel in declarations:
        for note in getattr(annotation, "__metadata__", ()):
            if isinstance(note, Option):
                option = replace(note, panel=note.panel or panel)
                options[name] = DeclaredOption(name, get_args(annotation)[0], default, option)
    return options


def check_values(target: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Raise UsageError for a number out of range and for a word that is not among the choices; None is accepted."""
    for name, declaration in declared(target).items():
        value, option = values.get(name), declaration.option
        if value is None:
            continue
        if declaration.choices and value not in declaration.choices:
            raise UsageError(f"{name} {value!r} is unknown: choose one of {', '.join(declaration.choices)}")
        is_low = option.least is not None and not value >= option.least  # true of NaN too
        if is_low or (option.most is not None and value > option.most):
            raise UsageError(f"{name.replace('_', '-')} is {value}: it must be {option.range}")


def check_keywords(function: str, keywords: Iterable[str], names: Collection[str]) -> None:
    """Raise TypeError, with the nearest of the names, for a keyword of the function that is none of them."""
    for keyword in keywords:
        if keyword not in names:
            nearest = difflib.get_close_matches(keyword, names, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"help({function}) lists them"
            raise TypeError(f"{function}() has no option {keyword!r}: {hint}")


def documented(target: T) -> T:
    """List the options of a function or dataclass in its docstring, for help(); a decorator."""
    lines = [inspect.getdoc(target) or "", "", "Options:"]
    for name, declaration in declared(target).items():
        option = declaration.option
        default = f" Default: {option.default}." if option.default else ""
        lines.append(f"    {name}: {option.help}{default}")
    target.__doc__ = "\n".join(lines)
    return target


@dataclass(frozen=True)
class OptionGroup:
    """Base class of dataclasses that declare options, whose values are checked. Raises UsageError for a wrong one.

    panel  heading of the options that the class itself declares, in the long help of commands
    """

    panel: ClassVar[str] = ""

    def __init_subclass__(cls, panel: str = "") -> None:
        cls.panel = panel
        documented(cls)

    def __post_init__(self) -> None:
        check_values(type(self), vars(self))

    @classmethod
    def of(cls, options: Self | None, keywords: Mapping[str, Any]) -> Self:
        """Return the options, or the defaults, overridden by keywords. Raises TypeError for a misspelt keyword."""
        check_keywords(cls.__name__, keywords, declared(cls))
        return replace(options or cls(), **keywords)
