"""Options, each declared once: in the signature of the function or dataclass that takes it.

    def exam(card: str, *, limit: Annotated[int, Option("At most this many questions.", least=1)] = 200): ...

The command line (kcard.cli.options), the tables of the config file and the docs are generated from these.
"""

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ForwardRef, Literal, TypeVar, get_args, get_origin

from kcard.errors import UsageError

REQUIRED = inspect.Parameter.empty
DECLARATION = (
    "__kcard_declaration__"  # attribute with the signature in which a function's options are declared
)
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
    """Return the options of a function or a dataclass, by name, in the order of its signature.

    Those that a function takes over from others (see `takes`) are not its own.
    """
    options = {}
    signature = vars(target).get(DECLARATION) or inspect.signature(target)
    for name, parameter in signature.parameters.items():
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


def takes(*sources: Callable[..., Any], leave_out: Collection[str] = ()) -> Callable[[T], T]:
    """Make a decorator for a function, method or dataclass: its signature, as help() and notebooks show it, and its
    docstring list every option, and a misspelt one raises TypeError with the nearest name.

    sources    functions and dataclasses whose options it takes as `**options`. Type checkers know these by the
               TypedDict in the annotation, Unpack[...Keywords], which docs/keywords.py writes
    leave_out  options of the sources that it does not take
    """

    def decorate(target: T) -> T:
        function: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
        name = target.__name__ if isinstance(target, type) else target.__qualname__.removesuffix(".__init__")
        # Its own parameters, then the options that it takes over, with plain types.
        declaration = inspect.signature(function)
        own = [p for p in declaration.parameters.values() if p.kind is not p.VAR_KEYWORD]
        options = declared(target)
        for source in sources:
            options |= {k: o for k, o in declared(source).items() if k not in leave_out and k not in options}
        types = {
            key: option.kind.__forward_arg__ if isinstance(option.kind, ForwardRef) else option.kind
            for key, option in options.items()
        }
        shown = [p.replace(annotation=types.get(p.name, p.annotation)) for p in own]
        names = {p.name for p in own}
        shown += [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=o.default, annotation=types[key])
            for key, o in options.items()
            if key not in names
        ]
        names |= set(options)

        @wraps(function)
        def call(*arguments: Any, **values: Any) -> Any:
            for value in values:
                if value not in names:
                    nearest = difflib.get_close_matches(value, names - {"self"}, n=1)
                    hint = f"did you mean {nearest[0]!r}?" if nearest else f"help({name}) lists them"
                    raise TypeError(f"{name}() has no option {value!r}: {hint}")
            return function(*arguments, **values)

        signature = declaration.replace(parameters=shown)
        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in shown} | {"return": signature.return_annotation}
        lines = [
            f"    {o.name}: {o.option.help}" + (f" Default: {o.option.default}." if o.option.default else "")
            for o in options.values()
        ]
        documentation = f"{inspect.getdoc(target) or ''}\n\nOptions:\n" + "\n".join(lines)
        if isinstance(target, type):
            setattr(target, DECLARATION, declaration)
            target.__init__ = call  # type: ignore[misc]
            target.__doc__ = documentation
            return target
        setattr(call, DECLARATION, declaration)
        call.__doc__ = documentation if lines else target.__doc__
        return call  # type: ignore[return-value]

    return decorate


def documented(target: T) -> T:
    """List the options in signature and docstring, as `takes` does, where none are taken over; a decorator."""
    return takes()(target)
