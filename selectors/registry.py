"""Selectors and presets of selectors by name.

What a factory's parameters are called says what it is given: `model` the text after the colon (it must be given
where the parameter has no default), `loading` the device and what is trusted. A factory with neither, such as a
class of one's own, is called with nothing.
"""

import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kcard import system
from kcard.errors import MissingExtra, ModelUnavailable, UsageError
from kcard.interfaces import Checker, Pruner, Relevance
from kcard.io import build

__all__ = [
    "DEFAULT",
    "GROUPS",
    "MODELS",
    "PRESETS",
    "HubRepository",
    "Loading",
    "Model",
    "Preset",
    "SelectorChoice",
    "SelectorKind",
    "checker",
    "models",
    "pruner",
    "relevance",
]


# The models that selectors use, in one table (catalogue.toml): where each comes from, its revision, licence, size.

SelectorKind = Literal["relevance", "pruner", "checker"]


@dataclass(frozen=True)
class HubRepository:
    """A repository on the Hugging Face Hub at one revision."""

    name: str
    revision: str = "main"


@dataclass(frozen=True)
class Model:
    """What the selector `name` of `kind` reads.

    size          of the weights that are fetched
    companion     another repository that it takes its tokenizer from
    pickled       the repository has no safetensors: its pickle is read with torch's weights_only
    remote_code   it runs code from its repository, which needs --trust-remote-code
    embedded      comes with kcard
    """

    kind: SelectorKind
    name: str
    repository: HubRepository
    licence: str
    size: str
    companion: HubRepository | None = None
    pickled: bool = False
    remote_code: bool = False
    embedded: bool = False


@dataclass(frozen=True)
class Preset:
    """One selector of each kind, by name."""

    name: str
    relevance: str
    pruner: str
    checker: str
    about: str

    def of(self, kind: SelectorKind) -> str:
        return {"relevance": self.relevance, "pruner": self.pruner, "checker": self.checker}[kind]


_TABLES = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))
PRESETS = {row["name"]: build(Preset, row) for row in _TABLES["presets"]}
MODELS = tuple(build(Model, row) for row in _TABLES["models"])
SEVERAL = {("checker", "paper"): ("vitaminc", "factkb")}  # selectors that read the models of others


def models(kind: SelectorKind, name: str) -> tuple[Model, ...]:
    """What the selector reads; nothing for one that is not in the table: a user's own, or one that is named a model."""
    names = SEVERAL.get((kind, name), (name,))
    return tuple(model for model in MODELS if model.kind == kind and model.name in names)


GROUPS: dict[SelectorKind, str] = {
    "relevance": "kcard.relevance",
    "pruner": "kcard.pruners",
    "checker": "kcard.checkers",
}


@dataclass(frozen=True)
class Loading:
    """Where the models of selectors run, and whether code from their repositories may run with them.

    dtype    of the weights: float32, bfloat16 or float16
    report   called with a sentence before a model is fetched, which can take long
    """

    device: str = "cpu"
    trust_remote_code: bool = False
    dtype: str = "float32"
    report: Callable[[str], None] | None = field(default=None, compare=False)


def relevance(spec: str, loading: Loading = Loading()) -> Relevance:
    """The relevance selector that `spec` names. Raises UsageError, ModelUnavailable, MissingExtra."""
    selector: Relevance = _make("relevance", spec, loading)
    return selector


def pruner(spec: str, loading: Loading = Loading()) -> Pruner:
    """The pruner that `spec` names. Raises UsageError, ModelUnavailable, MissingExtra."""
    selector: Pruner = _make("pruner", spec, loading)
    return selector


def checker(spec: str, loading: Loading = Loading()) -> Checker:
    """The checker that `spec` names. Raises UsageError, ModelUnavailable, MissingExtra."""
    selector: Checker = _make("checker", spec, loading)
    return selector


def _make(kind: SelectorKind, spec: str, loading: Loading) -> Any:
    name, colon, model = spec.partition(":")
    factory = system.load(GROUPS[kind], name)
    parameters = inspect.signature(factory).parameters
    arguments: dict[str, Any] = {"loading": loading} if "loading" in parameters else {}
    if colon and not model:
        raise UsageError(f"{kind} {spec!r} has no model after the colon: write {name}:MODEL")
    if model and "model" not in parameters:
        raise UsageError(f"{kind} {spec!r}: {name} takes no model")
    if model:
        arguments["model"] = model
    elif "model" in parameters and parameters["model"].default is inspect.Parameter.empty:
        raise UsageError(f"{kind} {name!r} needs a model: {name}:MODEL, a folder or a name on the hub")
    return factory(**arguments)


# Presets: one selector of each kind under one name, each of which can be replaced.

DEFAULT = "offline"


@dataclass(frozen=True)
class SelectorChoice:
    """A preset, and the selectors that take the place of its own. Raises UsageError for an unknown preset."""

    preset: str = DEFAULT
    relevance: str | None = None
    pruner: str | None = None
    checker: str | None = None

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise UsageError(f"unknown selectors {self.preset!r}: choose one of {', '.join(PRESETS)}")

    def spec(self, kind: SelectorKind) -> str:
        """The name of the selector of that kind."""
        own = {"relevance": self.relevance, "pruner": self.pruner, "checker": self.checker}[kind]
        return own or PRESETS[self.preset].of(kind)

    def make_relevance(self, loading: Loading) -> Relevance:
        selector: Relevance = self._made("relevance", self.relevance, loading)
        return selector

    def make_pruner(self, loading: Loading) -> Pruner:
        selector: Pruner = self._made("pruner", self.pruner, loading)
        return selector

    def make_checker(self, loading: Loading) -> Checker:
        selector: Checker = self._made("checker", self.checker, loading)
        return selector

    def _made(self, kind: SelectorKind, own: str | None, loading: Loading) -> Any:
        """The selector; where it is the preset's, an error names the preset too."""
        make = {"relevance": relevance, "pruner": pruner, "checker": checker}[kind]
        try:
            return make(self.spec(kind), loading)
        except (MissingExtra, ModelUnavailable) as error:
            if own or self.preset == DEFAULT:
                raise
            raise type(error)(f"--selectors {self.preset}: {error}") from error
