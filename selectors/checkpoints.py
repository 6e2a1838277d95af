"""Checkpoints of selector models, pinned to a revision, and their download.

Weights are read from safetensors. A pickle is read only from a repository that the catalogue lists as having no
safetensors, at a pinned commit, and with torch's weights_only, which makes nothing but tensors.
"""

import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from kcard import system
from kcard.errors import MissingExtra, ModelUnavailable, UsageError, first_line
from kcard.events import note
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

EXTRA = "pip install 'kcard[selectors]'"
MAX_MESSAGE_CHARACTERS = 160
REPOSITORY_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


@dataclass(frozen=True)
class Checkpoint:
    """A model that can be loaded.

    selector   the selector that needs it, for errors
    name       a folder, or a repository on the hub
    companion  the repository of its tokenizer, if not that of the weights
    """

    selector: str
    name: str
    revision: str = "main"
    companion: HubRepository | None = None
    pickled: bool = False
    size: str = ""

    @classmethod
    def parse(cls, selector: str, text: str) -> "Checkpoint":
        """Parse MODEL[@revision]; an existing folder takes precedence."""
        folder = Path(text).expanduser()
        if folder.is_dir():
            return cls(selector, str(folder))
        name, at, revision = text.rpartition("@")
        if not at:
            name, revision = text, "main"
        if not name or not revision:
            raise UsageError(f"{selector} {text!r}: write MODEL, or MODEL@revision")
        if not REPOSITORY_NAME.fullmatch(name):
            raise UsageError(f"{selector}: {name!r} is neither a folder nor a hub repository (OWNER/NAME)")
        return cls(selector, name, revision)

    @classmethod
    def from_catalogue(cls, model: Model, elsewhere: str | None = None) -> "Checkpoint":
        """Make the checkpoint of a model of the catalogue; `elsewhere`: MODEL[@revision] that replaces it.

        If that is a folder, the companion's files are looked for in it, then in a subfolder with the companion's name.
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
        companion = model.companion
        if companion is not None:
            subfolder = folder / companion.name.rpartition("/")[2]
            if (folder / "tokenizer_config.json").exists():
                companion = None
            elif subfolder.is_dir():
                companion = HubRepository(str(subfolder))
        return replace(other, companion=companion, pickled=pickled)

    @property
    def tokenizer_place(self) -> HubRepository:
        return self.companion or HubRepository(self.name, self.revision)

    @property
    def is_folder(self) -> bool:
        return Path(self.name).is_dir()

    def __str__(self) -> str:
        return self.name if self.is_folder else f"{self.name} (revision {self.revision})"


def is_downloaded(name: str, revision: str) -> bool:
    """Return whether the weights are in the local Hugging Face cache."""
    return cached(HubRepository(name, revision), WEIGHT_FILES)


def cached(repository: HubRepository, files: Sequence[str]) -> bool:
    """Return whether one of the files is in the local Hugging Face cache."""
    from huggingface_hub import try_to_load_from_cache

    for file in files:
        path = try_to_load_from_cache(repository.name, file, revision=repository.revision)
        if isinstance(path, str):
            return True
    return False


def load(kind: Any, checkpoint: Checkpoint, loading: Loading, native: bool = False, **options: Any) -> Any:
    """Load the model on the device, in eval mode. `kind`: a class with from_pretrained, such as an Auto class.

    `native`: `kind` is a class of transformers, so that no code of the repository is run whatever its config says.
    Raises ModelUnavailable if the model is missing, damaged, a pickle, or lacks weights; UsageError if it needs code
    from its repository that is not trusted, or if there is no such device.
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
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelUnavailable(
            f"{checkpoint.selector}: {checkpoint} lacks the weights {', '.join(missing[:3])}: "
            "it was not trained for this; choose another model"
        )
    return move_to_device(model.eval(), loading.device)


def move_to_device(model: Any, device: str) -> Any:
    """Move the model to the device. Raises UsageError if there is no such device."""
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device {device!r}: {_line(error)}; leave out --device") from error


def tokenizer(checkpoint: Checkpoint, loading: Loading) -> Any:
    """Load the checkpoint's fast tokenizer."""
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
    """Report that the model will be downloaded, unless it is on this machine."""
    if not checkpoint.is_folder and not is_downloaded(checkpoint.name, checkpoint.revision):
        size = f" ({checkpoint.size})" if checkpoint.size else ""
        loading.on_event(note(f"downloading {checkpoint.name}{size} from the Hugging Face Hub"))


def digest(checkpoint: Checkpoint, config: Any, *settings: object) -> str:
    """Return the sha256 of what a model's scores depend on: its weights and settings."""
    if checkpoint.is_folder:
        folder = Path(checkpoint.name)
        files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
        weights = [file_digest(path) for path in files]
    else:
        weights = [checkpoint.name, getattr(config, "_commit_hash", None) or checkpoint.revision]
    return hashlib.sha256("\n".join([*weights, *map(repr, settings)]).encode()).hexdigest()


def config_of(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """Read the checkpoint's config.json, without running any code."""
    from transformers import PretrainedConfig

    with loading_errors(checkpoint), quiet_loading():
        config, _ = PretrainedConfig.get_config_dict(checkpoint.name, revision=checkpoint.revision)
    return dict(config)


def check_code(checkpoint: Checkpoint, loading: Loading) -> None:
    """Raise UsageError if transformers would have to run the repository's code and that is not trusted."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = config_of(checkpoint)
    if config.get("auto_map") and config.get("model_type") not in CONFIG_MAPPING:
        check_trust(checkpoint, loading)


def check_trust(checkpoint: Checkpoint, loading: Loading) -> None:
    """Raise UsageError if the repository's code is not trusted."""
    if not loading.trust_remote_code:
        raise UsageError(
            f"{checkpoint.selector}: {checkpoint} runs code from its repository: "
            "read that code, then give --trust-remote-code"
        )


@contextmanager
def loading_errors(checkpoint: Checkpoint) -> Iterator[None]:
    """Convert errors of loading to one sentence that names selector, model and remedy."""
    from safetensors import SafetensorError

    try:
        yield
    except ImportError as error:
        missing = system.missing_package(error) or f"{checkpoint} lacks a package: {_line(error)}"
        raise MissingExtra(f"{checkpoint.selector}: {missing}") from error
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
        remedy = "give a folder with config.json, a tokenizer and model.safetensors"
        if not checkpoint.is_folder:
            command = f"`hf download {checkpoint.name} --revision {checkpoint.revision}`"
            if checkpoint.companion:
                command += f" and `hf download {checkpoint.companion.name}`"
            remedy = (
                f"with a network it is downloaded on first use; otherwise run {command}, or give a folder that "
                "contains it"
            )
        raise ModelUnavailable(
            f"{checkpoint.selector}: {checkpoint} can't be loaded ({_line(error)}); {remedy}"
        ) from error


def _line(error: BaseException) -> str:
    line = first_line(error)
    if len(line) > MAX_MESSAGE_CHARACTERS:
        return f"{line[:MAX_MESSAGE_CHARACTERS]}…"
    return line


# Listings of selectors and presets, with their models. Nothing is loaded.


@dataclass(frozen=True)
class ListedSelector:
    """A registered selector with one of its models.

    model     empty for selectors that are not in the catalogue: third-party ones, and those that take a model
    needs     what the user must pass: a flag, a model
    here      whether the weights are on this machine; None if unknown
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
    """A preset, and its repositories that are not on this machine."""

    preset: Preset
    missing: tuple[str, ...]


def selectors() -> list[ListedSelector]:
    """List the registered selectors by kind and name, one entry per model."""
    listed: list[ListedSelector] = []
    for kind, group in GROUPS.items():
        for name in system.names(group):
            listed += _list_selector(kind, name)
    return listed


def presets() -> list[Readiness]:
    """List the presets with the repositories that would have to be downloaded."""
    return [Readiness(preset, missing(SelectorChoice(name))) for name, preset in PRESETS.items()]


def missing(choice: SelectorChoice) -> tuple[str, ...]:
    """Return the repositories of the chosen selectors' models that are not on this machine."""
    repositories: dict[str, None] = {}
    for kind in GROUPS:
        for model in models(kind, choice.spec(kind)):
            if not _is_here(model):
                repositories[model.repository.name] = None
    return tuple(repositories)


def _list_selector(kind: SelectorKind, name: str) -> Iterator[ListedSelector]:
    catalogued = models(kind, name)
    if not catalogued:
        parameter = inspect.signature(system.load(GROUPS[kind], name)).parameters.get("model")
        is_required = parameter is not None and parameter.default is inspect.Parameter.empty
        yield ListedSelector(kind, name, needs="MODEL" if is_required else "")
    for model in catalogued:
        yield ListedSelector(
            kind,
            name,
            model.repository.name,
            model.repository.revision,
            model.licence,
            model.size,
            "--trust-remote-code" if model.remote_code else "",
            _is_here(model),
        )


def _is_here(model: Model) -> bool:
    """Return whether the model's weights and its companion's tokenizer are on this machine."""
    if model.embedded:
        return True
    weights = is_downloaded(model.repository.name, model.repository.revision)
    return weights and (model.companion is None or cached(model.companion, TOKENIZER_FILES))
