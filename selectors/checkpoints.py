"""Models of selectors: which there are, pinned to a revision, and their download.

Weights are read from safetensors. Of a repository that the catalogue knows to hold a pickle alone, at a pinned
commit, the pickle is read with torch's weights_only, which makes tensors and nothing else; any other is refused.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from kcard import system
from kcard.errors import MissingExtra, ModelUnavailable, UsageError, first_line
from kcard.manifest import file_digest
from kcard.selectors.registry import (
    GROUPS,
    PRESETS,
    HubRepository,
    Loading,
    Model,
    Preset,
    SelectorChoice,
    SelectorKind,
    models,
)
from kcard.system import quiet_loading

__all__ = [
    "EXTRA",
    "TOKENIZER",
    "Checkpoint",
    "ListedSelector",
    "Readiness",
    "announce",
    "cached",
    "check_code",
    "check_trust",
    "config_of",
    "digest",
    "is_downloaded",
    "load",
    "loading_errors",
    "missing",
    "move_to_device",
    "presets",
    "selectors",
    "tokenizer",
]


EXTRA = "pip install 'kcard[selectors]'"
LONGEST = 160
ON_THE_HUB = re.compile(r"[\w.-]+(?:/[\w.-]+)?")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


@dataclass(frozen=True)
class Checkpoint:
    """One that can be loaded.

    selector   who asks for it, named in errors
    name       a folder, or a repository on the hub
    companion  where its tokenizer is, if not with the weights
    """

    selector: str
    name: str
    revision: str = "main"
    companion: HubRepository | None = None
    pickled: bool = False
    size: str = ""

    @classmethod
    def parse(cls, selector: str, text: str) -> "Checkpoint":
        """Of MODEL[@revision]; an existing folder is meant as it stands."""
        if (folder := Path(text).expanduser()).is_dir():
            return cls(selector, str(folder))
        name, at, revision = text.rpartition("@") if "@" in text else (text, "", "main")
        if at and not (name and revision):
            raise UsageError(f"{selector} {text!r}: write MODEL, or MODEL@revision")
        if not ON_THE_HUB.fullmatch(name):
            raise UsageError(f"{selector}: {name!r} is neither a folder nor a hub repository (OWNER/NAME)")
        return cls(selector, name, revision)

    @classmethod
    def from_catalogue(cls, model: Model, elsewhere: str | None = None) -> "Checkpoint":
        """Of the catalogue; `elsewhere`: MODEL[@revision] that is read in its place, in the same way.

        What the companion gives is sought in a folder that is named, then in one of the companion's name inside.
        """
        own = model.repository
        selector = f"{model.kind} {model.name!r}"
        published = cls(selector, own.name, own.revision, model.companion, model.pickled, model.size)
        if elsewhere is None:
            return published
        other = cls.parse(selector, elsewhere)
        if not other.is_folder:
            return replace(other, companion=model.companion)
        folder = Path(other.name)
        pickled = model.pickled and not any(folder.glob("*.safetensors"))
        return replace(other, companion=_beside(folder, model.companion), pickled=pickled)

    @property
    def tokenizer_place(self) -> HubRepository:
        return self.companion or HubRepository(self.name, self.revision)

    @property
    def is_folder(self) -> bool:
        return Path(self.name).is_dir()

    def __str__(self) -> str:
        return self.name if self.is_folder else f"{self.name} (revision {self.revision})"


def _beside(folder: Path, companion: HubRepository | None) -> HubRepository | None:
    if companion is None or (folder / "tokenizer_config.json").exists():
        return None
    inside = folder / companion.name.rpartition("/")[2]
    return HubRepository(str(inside)) if inside.is_dir() else companion


def is_downloaded(name: str, revision: str) -> bool:
    """Whether the weights lie in the Hugging Face cache of this machine."""
    return cached(HubRepository(name, revision), WEIGHTS)


def cached(repository: HubRepository, files: Sequence[str]) -> bool:
    """Whether one of the files lies in the Hugging Face cache of this machine."""
    from huggingface_hub import try_to_load_from_cache

    at = repository.revision
    return any(isinstance(try_to_load_from_cache(repository.name, file, revision=at), str) for file in files)


def load(kind: Any, checkpoint: Checkpoint, loading: Loading, native: bool = False, **options: Any) -> Any:
    """The model, in eval mode, on the device. `kind`: a class with from_pretrained, such as an Auto class.

    `native`: `kind` is a class of transformers, so that no code of the repository is run whatever its config says.
    Raises ModelUnavailable where it is not there, is damaged, is a pickle, or lacks weights; UsageError where it
    needs code from its repository and that is not trusted, or the device is not at hand.
    """
    import torch

    if not native:
        check_code(checkpoint, loading)
    announce(checkpoint, loading)
    with loading_errors(checkpoint), quiet_loading():
        model, info = kind.from_pretrained(
            checkpoint.name,
            revision=checkpoint.revision,
            dtype=getattr(torch, loading.dtype),
            use_safetensors=not checkpoint.pickled,
            weights_only=True,
            trust_remote_code=loading.trust_remote_code and not native,
            output_loading_info=True,
            **options,
        )
    if missing := sorted(info["missing_keys"]):
        raise ModelUnavailable(
            f"{checkpoint.selector}: {checkpoint} lacks the weights {', '.join(missing[:3])}: "
            "it was not trained for this; choose another model"
        )
    return move_to_device(model.eval(), loading.device)


def move_to_device(model: Any, device: str) -> Any:
    """The model on the device; UsageError where there is no such device."""
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device {device!r}: {_line(error)}; leave out --device") from error


def tokenizer(checkpoint: Checkpoint, loading: Loading) -> Any:
    """Its fast tokenizer."""
    from transformers import AutoTokenizer

    source = checkpoint.tokenizer_place
    with loading_errors(checkpoint), quiet_loading():
        fast_tokenizer = AutoTokenizer.from_pretrained(
            source.name, revision=source.revision, trust_remote_code=loading.trust_remote_code
        )
    if not fast_tokenizer.is_fast:
        raise ModelUnavailable(
            f"{checkpoint.selector}: {checkpoint} has no fast tokenizer, which is needed to cut texts"
        )
    return fast_tokenizer


def announce(checkpoint: Checkpoint, loading: Loading) -> None:
    """Say that the model will be fetched, where it is not here."""
    if (
        loading.report
        and not checkpoint.is_folder
        and not is_downloaded(checkpoint.name, checkpoint.revision)
    ):
        size = f" ({checkpoint.size})" if checkpoint.size else ""
        loading.report(f"downloading {checkpoint.name}{size} from the Hugging Face Hub")


def digest(checkpoint: Checkpoint, config: Any, *settings: object) -> str:
    """sha256 that names what a model's scores depend on: its weights and how it is used."""
    if checkpoint.is_folder:
        files = sorted(Path(checkpoint.name).glob("*.safetensors")) or sorted(
            Path(checkpoint.name).glob("*.bin")
        )
        weights = [file_digest(path) for path in files]
    else:
        weights = [checkpoint.name, getattr(config, "_commit_hash", None) or checkpoint.revision]
    return hashlib.sha256("\n".join([*weights, *map(repr, settings)]).encode()).hexdigest()


def config_of(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """What its config.json says, read without running anything."""
    from transformers import PretrainedConfig

    with loading_errors(checkpoint), quiet_loading():
        config, _ = PretrainedConfig.get_config_dict(checkpoint.name, revision=checkpoint.revision)
    return dict(config)


def check_code(checkpoint: Checkpoint, loading: Loading) -> None:
    """UsageError where transformers does not know the architecture and would have to run the repository's code."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = config_of(checkpoint)
    if config.get("auto_map") and config.get("model_type") not in CONFIG_MAPPING:
        check_trust(checkpoint, loading)


def check_trust(checkpoint: Checkpoint, loading: Loading) -> None:
    """UsageError where the repository's code is not trusted."""
    if not loading.trust_remote_code:
        raise UsageError(
            f"{checkpoint.selector}: {checkpoint} runs code from its repository: "
            "read that code, then give --trust-remote-code"
        )


@contextmanager
def loading_errors(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn what loading raises into one sentence that names selector and model, and how to get it."""
    from safetensors import SafetensorError

    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"{checkpoint.selector}: {checkpoint} lacks a package: {_line(error)}") from error
    except (
        OSError,
        ValueError,
        KeyError,
        RuntimeError,
        TypeError,
        SafetensorError,
        UnpicklingError,
    ) as error:
        if "sentencepiece" in str(error) or "tiktoken" in str(error):
            raise MissingExtra(
                f"{checkpoint.selector}: the tokenizer of {checkpoint} needs sentencepiece; {EXTRA}"
            ) from error
        raise ModelUnavailable(
            f"{checkpoint.selector}: {checkpoint} can't be loaded ({_line(error)}); {_remedy(checkpoint)}"
        ) from error


def _remedy(checkpoint: Checkpoint) -> str:
    if checkpoint.is_folder:
        return "give a folder with config.json, a tokenizer and model.safetensors"
    also = f" and `hf download {checkpoint.companion.name}`" if checkpoint.companion else ""
    return (
        f"with a network it is downloaded on first use; otherwise run `hf download {checkpoint.name} "
        f"--revision {checkpoint.revision}`{also}, or give a folder that contains it"
    )


def _line(error: BaseException) -> str:
    line = first_line(error)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


# Which selectors and presets there are, what they read, and whether it is on this machine. Nothing is loaded.


@dataclass(frozen=True)
class ListedSelector:
    """A registered selector, or one of the models that it reads.

    model     empty where the catalogue does not know it: one of a user's own, or one that is named a model
    needs     what must be given for it: a flag, a model
    here      whether its weights are on this machine; None where that is not known
    """

    kind: SelectorKind
    name: str
    model: str = ""
    revision: str = ""
    licence: str = ""
    size: str = ""
    needs: str = ""
    here: bool | None = None


@dataclass(frozen=True)
class Readiness:
    """A preset, and the repositories that are not on this machine."""

    preset: Preset
    missing: tuple[str, ...]


def selectors() -> list[ListedSelector]:
    """Every registered selector, by kind and name; one entry for each model that it reads."""
    return [
        entry
        for kind, group in GROUPS.items()
        for name in system.names(group)
        for entry in _entries(kind, name)
    ]


def presets() -> list[Readiness]:
    """Every preset, with what would have to be fetched for it."""
    return [Readiness(preset, missing(SelectorChoice(name))) for name, preset in PRESETS.items()]


def missing(choice: SelectorChoice) -> tuple[str, ...]:
    """The repositories of the catalogue that the chosen selectors read and that are not on this machine."""
    read = [model for kind in GROUPS for model in models(kind, choice.spec(kind))]
    return tuple(dict.fromkeys(model.repository.name for model in read if not _here(model)))


def _entries(kind: SelectorKind, name: str) -> Iterator[ListedSelector]:
    catalogued = models(kind, name)
    if not catalogued:
        yield ListedSelector(kind, name, needs="MODEL" if _wants_model(kind, name) else "")
    for model in catalogued:
        yield ListedSelector(
            kind,
            name,
            model.repository.name,
            model.repository.revision,
            model.licence,
            model.size,
            "--trust-remote-code" if model.remote_code else "",
            _here(model),
        )


def _here(model: Model) -> bool:
    """Whether its weights, and the tokenizer where that lies elsewhere, are in the cache."""
    if model.embedded:
        return True
    weights = is_downloaded(model.repository.name, model.repository.revision)
    return weights and (model.companion is None or cached(model.companion, TOKENIZER))


def _wants_model(kind: SelectorKind, name: str) -> bool:
    import inspect

    parameter = inspect.signature(system.load(GROUPS[kind], name)).parameters.get("model")
    return parameter is not None and parameter.default is inspect.Parameter.empty
