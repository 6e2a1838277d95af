"""Selectors and presets of selectors by name.

A factory gets the parameters that its signature names: `model` is the text after the colon (required if it has no
default), `loading` the device and what is trusted. A factory with neither, such as a third-party class, is called
without arguments.
"""

import inspect
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kcard import system
from kcard.errors import MissingExtra, ModelUnavailable, UsageError
from kcard.events import OnEvent, ignore
from kcard.io import build

# The models of selectors (catalogue.toml): repository, revision, licence and size of each.

SelectorKind = Literal["relevance", "pruner", "checker"]


@dataclass(frozen=True)
class HubRepository:
    """A repository on the Hugging Face Hub at one revision."""

    name: str
    revision: str = "main"


@dataclass(frozen=True)
class Model:
    """A model of the selector `name` of `kind`.

    size          of the weights that are downloaded
    companion     another repository, which has the tokenizer
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
        name: str = getattr(self, kind)
        return name


_TABLES = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))
PRESETS = {row["name"]: build(Preset, row) for row in _TABLES["presets"]}
MODELS = tuple(build(Model, row) for row in _TABLES["models"])
COMPOSED_SELECTORS = {("checker", "paper"): ("vitaminc", "factkb")}  # selectors that use the models of others


def models(kind: SelectorKind, name: str) -> tuple[Model, ...]:
    """Return the models of a selector; none for third-party selectors and for those that take a model."""
    names = COMPOSED_SELECTORS.get((kind, name), (name,))
    return tuple(model for model in MODELS if model.kind == kind and model.name in names)


GROUPS: dict[SelectorKind, str] = {
    "relevance": "kcard.relevance",
    "pruner": "kcard.pruners",
    "checker": "kcard.checkers",
}


@dataclass(frozen=True)
class Loading:
    """Where the models of selectors run, and whether code from their repositories may run.

    dtype    of the weights: float32, bfloat16 or float16
    on_event  called with a note before a model is downloaded, which can take long
    """

    device: str = "cpu"
    trust_remote_code: bool = False
    dtype: str = "float32"
    on_event: OnEvent = field(default=ignore, compare=False)


def make(kind: SelectorKind, spec: str, loading: Loading = Loading()) -> Any:
    """Make the selector of that kind which `spec` names. Raises UsageError, ModelUnavailable, MissingExtra."""
    name, colon, model = spec.partition(":")
    factory = system.load(GROUPS[kind], name)
    parameters = inspect.signature(factory).parameters
    arguments: dict[str, Any] = {}
    if "loading" in parameters:
        arguments["loading"] = loading
    if colon and not model:
        raise UsageError(f"{kind} {spec!r} has no model after the colon: write {name}:MODEL")
    if model and "model" not in parameters:
        raise UsageError(f"{kind} {spec!r}: {name} takes no model")
    if model:
        arguments["model"] = model
    elif "model" in parameters and parameters["model"].default is inspect.Parameter.empty:
        raise UsageError(f"{kind} {name!r} needs a model: {name}:MODEL, a folder or a name on the hub")
    return factory(**arguments)


DEFAULT = "offline"


@dataclass(frozen=True)
class SelectorChoice:
    """A preset, and the selectors that override its own. Raises UsageError for an unknown preset."""

    preset: str = DEFAULT
    relevance: str | None = None
    pruner: str | None = None
    checker: str | None = None

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise UsageError(f"unknown selectors {self.preset!r}: choose one of {', '.join(PRESETS)}")

    def spec(self, kind: SelectorKind) -> str:
        """Return the name of the selector of that kind."""
        return self._own(kind) or PRESETS[self.preset].of(kind)

    def make(self, kind: SelectorKind, loading: Loading) -> Any:
        """Make the selector of that kind; if it is the preset's, errors also name the preset."""
        try:
            return make(kind, self.spec(kind), loading)
        except (MissingExtra, ModelUnavailable) as error:
            if self._own(kind) or self.preset == DEFAULT:
                raise
            raise type(error)(
                f"--selectors {self.preset}: {error}; or use `--selectors {DEFAULT}`, whose models come with kcard"
            ) from error

    def _own(self, kind: SelectorKind) -> str | None:
        own: str | None = getattr(self, kind)
        return own
