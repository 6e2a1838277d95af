"""The models that selectors use, in one table (catalogue.toml): where each comes from, its revision, licence, size."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kcard.json_values import build

__all__ = ["MODELS", "PRESETS", "Kind", "Model", "Preset", "Repository", "models"]

Kind = Literal["relevance", "pruner", "checker"]


@dataclass(frozen=True)
class Repository:
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

    kind: Kind
    name: str
    repository: Repository
    licence: str
    size: str
    companion: Repository | None = None
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

    def of(self, kind: Kind) -> str:
        return {"relevance": self.relevance, "pruner": self.pruner, "checker": self.checker}[kind]


_TABLES = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))
PRESETS = {row["name"]: build(Preset, row) for row in _TABLES["presets"]}
MODELS = tuple(build(Model, row) for row in _TABLES["models"])
SEVERAL = {("checker", "paper"): ("vitaminc", "factkb")}  # selectors that read the models of others


def models(kind: Kind, name: str) -> tuple[Model, ...]:
    """What the selector reads; nothing for one that is not in the table: a user's own, or one that is named a model."""
    names = SEVERAL.get((kind, name), (name,))
    return tuple(model for model in MODELS if model.kind == kind and model.name in names)
