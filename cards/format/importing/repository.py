"""A model repository of the Hugging Face Hub, looked at and fetched at one commit. Nothing of it is run.

Only the files named here are ever fetched: weights, configuration and tokenizer; no code and, unless a
conversion asks for them, no pickles.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import CardError, ModelUnavailable, UsageError, first_line
from kcard.manifest import file_digest, weights_digest

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

__all__ = ["PICKLE_INDEX", "PREFIX", "Repository", "adapter_base", "fetch", "look"]

PREFIX = "hf:"
ADAPTER = "adapter_config.json"
INDEX = "model.safetensors.index.json"
PICKLE_INDEX = "pytorch_model.bin.index.json"
SAFE = re.compile(r"(model(-\d{5}-of-\d{5})?|adapter_model)\.safetensors")
PICKLED = re.compile(r"(pytorch_model(-\d{5}-of-\d{5})?|adapter_model)\.bin")
# What a model and its tokenizer may consist of besides their weights.
COMPANIONS = frozenset(
    {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "spiece.model",
        "sentencepiece.bpe.model",
        "chat_template.jinja",
        ADAPTER,
    }
)


@dataclass(frozen=True)
class Repository:
    """What a repository holds at one commit.

    `revision` is the full commit sha; `files` has the sha256 of every file, where the Hub tells it, and
    `sizes` its bytes. `licence` and `language` are what its model card says.
    """

    name: str
    revision: str
    files: Mapping[str, str | None]
    sizes: Mapping[str, int]
    licence: str | None = None
    language: str | None = None

    @property
    def adapter(self) -> bool:
        """Whether it is a LoRA adapter rather than a whole model."""
        return ADAPTER in self.files

    @property
    def companions(self) -> tuple[str, ...]:
        """Configuration and tokenizer files."""
        return tuple(sorted(COMPANIONS & set(self.files)))

    @property
    def weights(self) -> tuple[str, ...]:
        """Files of weights that can be loaded safely."""
        return self._weights(SAFE)

    @property
    def pickles(self) -> tuple[str, ...]:
        """Files of weights that are pickles."""
        return self._weights(PICKLED)

    def _weights(self, pattern: re.Pattern[str]) -> tuple[str, ...]:
        found = (path for path in self.files if pattern.fullmatch(path))
        return tuple(sorted(path for path in found if path.startswith("adapter") == self.adapter))

    @property
    def needed(self) -> tuple[str, ...]:
        """What is fetched to load it."""
        index = (INDEX,) if INDEX in self.files and not self.adapter else ()
        return (*self.companions, *self.weights, *index)

    @property
    def digest(self) -> str | None:
        """sha256 of the weights as manifests record a base's; None where the Hub does not tell."""
        known = {path: self.files[path] for path in self.weights or self.pickles}
        digests = {path: sha256 for path, sha256 in known.items() if sha256 is not None}
        if not digests or len(digests) < len(known):
            return None
        return weights_digest(digests)


def look(source: str) -> Repository:
    """The repository `owner/name` or `owner/name@revision`, pinned to the commit that this means now.

    Raises UsageError where there is no such repository or revision, ModelUnavailable where the Hub can't be
    asked.
    """
    name, _, revision = source.partition("@")
    info = _asked(name, revision or None)
    if info.sha is None:
        raise ModelUnavailable(f"the Hub names no commit of {source!r}: try again later")
    siblings = info.siblings or []
    card: Any = info.card_data or {}
    return Repository(
        name=name,
        revision=info.sha,
        files={s.rfilename: s.lfs.sha256 if s.lfs is not None else None for s in siblings},
        sizes={s.rfilename: s.size or 0 for s in siblings},
        licence=_word(card.get("license")),
        language=_word(card.get("language")),
    )


def _asked(name: str, revision: str | None) -> "ModelInfo":
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return HfApi().model_info(name, revision=revision, files_metadata=True)
    except HFValidationError:
        raise UsageError(
            f"{name!r} is no repository name: use hf:owner/name or hf:owner/name@revision"
        ) from None
    except RevisionNotFoundError:
        raise UsageError(
            f"{name} has no revision {revision!r}: name a branch, a tag or a commit of it"
        ) from None
    except RepositoryNotFoundError:
        raise UsageError(
            f"no repository {name!r} on the Hugging Face Hub, or it is private or gated: check the name, or log "
            "in with `hf auth login`"
        ) from None
    except OfflineModeIsEnabled:
        raise ModelUnavailable(
            f"{name}: the Hugging Face Hub must be asked which commit is meant, but HF_HUB_OFFLINE is set: unset "
            "it once"
        ) from None
    except _network_errors() as error:
        raise ModelUnavailable(
            f"the Hugging Face Hub can't be asked about {name}: {first_line(error)}"
        ) from error


def adapter_base(repository: Repository) -> str:
    """The model that an adapter names as its own, as owner/name or owner/name@revision.

    Raises CardError where it names none.
    """
    folder = fetch(repository.name, repository.revision, {ADAPTER: repository.files[ADAPTER]})
    try:
        config = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))
        name, revision = config["base_model_name_or_path"], config.get("revision")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CardError(f"{repository.name}: its {ADAPTER} names no base model: {error!r}") from error
    return f"{name}@{revision}" if revision else str(name)


def _word(value: Any) -> str | None:
    first = value[0] if isinstance(value, list) and value else value
    return " ".join(first.split()) or None if isinstance(first, str) else None


def fetch(name: str, revision: str, files: Mapping[str, str | None]) -> Path:
    """The folder with these files of a commit, from the cache where they are there, else from the Hub.

    Every sha256 that is given is checked. Raises ModelUnavailable where they can't be had or differ.
    """
    folder = _cached(name, revision, tuple(files)) or _downloaded(name, revision, tuple(files))
    for path, expected in files.items():
        if expected is not None and (found := file_digest(folder / path)) != expected:
            raise ModelUnavailable(
                f"{name}: {folder / path} is damaged: sha256 {found[:12]}…, not {expected[:12]}…: delete it and "
                "try again"
            )
    return folder


def _cached(name: str, revision: str, files: Sequence[str]) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = [try_to_load_from_cache(name, path, revision=revision) for path in files]
    if not all(isinstance(path, str) for path in found):
        return None
    return Path(str(found[0])).parent


def _downloaded(name: str, revision: str, files: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except _network_errors() as error:
        raise ModelUnavailable(
            f"{name} at {revision[:12]} is not in the cache and can't be fetched: {first_line(error)}"
        ) from error


def _network_errors() -> tuple[type[Exception], ...]:
    from huggingface_hub.errors import HfHubHTTPError

    # The errors of the HTTP library that huggingface_hub uses, whichever that is in its version.
    return (*HfHubHTTPError.__bases__, OSError)
