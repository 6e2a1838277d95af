"""Models of the Hugging Face Hub as cards.

Only the files named here are ever fetched: weights, configuration and tokenizer; no code, and no pickles unless a
conversion asks for them.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.connections import network_errors
from kcard.errors import CardError, ModelUnavailable, UsageError, first_line
from kcard.manifest import file_digest, weights_digest
from kcard.system import quiet_loading

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

# Rejects cards and models that need custom code, before transformers or peft sees them.
#
# By default transformers offers to run such code ("[y/N]"); kcard never does.

CONFIGS = (
    "config.json",
    "tokenizer_config.json",
    "adapter_config.json",
    "generation_config.json",
    "processor_config.json",
    "preprocessor_config.json",
)
MAX_CONFIG_BYTES = 10_000_000
# Keys that name code, in this repository or another.
CODE = ("auto_map", "custom_pipelines")
# Keys whose value names an implementation; one with a slash is a repository with compiled code.
KERNELS = ("attn_implementation", "_attn_implementation", "experts_implementation")
SOURCES = (".py", ".pyc", ".so", ".pyd")


def refuse_code(folder: Path, name: str, files: Iterable[str] = ()) -> None:
    """Raise CardError, naming the file, if a config in the folder names code or one of `files` is code.

    name   of the card or repository, for the message
    files  paths in the folder that are checked by name
    """
    for path in files:
        if path.lower().endswith(SOURCES):
            raise _code_error(name, path)
    for path in CONFIGS:
        if not (folder / path).is_file():
            continue
        if (folder / path).stat().st_size > MAX_CONFIG_BYTES:
            raise CardError(f"{name}: its {path} has more than {MAX_CONFIG_BYTES} bytes: refused")
        try:
            config = json.loads((folder / path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise CardError(f"{name}: its {path} is not JSON: {error}") from error
        # Walk the keys and values of all nested objects.
        waiting: list[Any] = [config]
        while waiting:
            item = waiting.pop()
            if isinstance(item, dict):
                for key, value in item.items():
                    names_code = key in CODE and isinstance(value, dict | list | str) and value
                    if names_code or (key in KERNELS and "/" in str(value)):
                        raise _code_error(name, f"{key} in {path}")
                waiting += item.values()
            elif isinstance(item, list):
                waiting += item


def _code_error(name: str, what: str) -> CardError:
    return CardError(
        f"{name} needs custom code ({what}), which kcard never executes: choose another model, or remove the code "
        "and seal the card again"
    )


# The 26 cards that were published with the Knowledge Card paper (Feng et al., ICLR 2024): OPT-1.3B models.
#
# Descriptions come from the README table of BunsenFeng/Knowledge_Card, as the paper's LLM saw them; domains are
# ours. The cards are prompted as they were trained, with the question alone.

OWNER = "bunsenfeng"
POOL = "published"
TEMPLATE = "{question}"


@dataclass(frozen=True)
class PublishedCard:
    """A published card. `suffix` ends the repository's name, knowledge-card-SUFFIX."""

    suffix: str
    domain: str
    description: str

    @property
    def repository(self) -> str:
        return f"{OWNER}/knowledge-card-{self.suffix}"


PUBLISHED_CARDS = (
    PublishedCard("1btokens", "general", "1B tokens"),
    PublishedCard("acl-papers", "science/nlp", "*ACL papers"),
    PublishedCard("atomic", "commonsense", "commonsense knowledge graph"),
    PublishedCard("bookcorpus", "literature", "BookCorpus"),
    PublishedCard("ConceptNet", "commonsense", "commonsense knowledge graph"),
    PublishedCard("DDB", "biomedical", "biomedical knowledge graph"),
    PublishedCard("gutenberg", "literature", "Gutenberg"),
    PublishedCard("IMDB", "reviews/films", "IMDB movie reviews"),
    PublishedCard("kgap", "politics", "KGAP knowledge graph"),
    PublishedCard("legal-contracts", "law", "legal contracts"),
    PublishedCard("math", "science/mathematics", "math text"),
    PublishedCard("midterm", "politics/elections", "2022 US midterm election news"),
    PublishedCard("opensubtitles", "films", "movie subtitles"),
    PublishedCard("politics", "politics", "political news"),
    PublishedCard("pubmed", "biomedical", "medical literature"),
    PublishedCard("realnews1", "news", "real news, part 1"),
    PublishedCard("realnews2", "news", "real news, part 2"),
    PublishedCard("realnews3", "news", "real news, part 3"),
    PublishedCard("realnews4", "news", "real news, part 4"),
    PublishedCard("reddit", "social-media", "reddit posts"),
    PublishedCard("twitter", "social-media", "tweets"),
    PublishedCard("wikidata", "encyclopedia", "Wikidata knowledge graph"),
    PublishedCard("wikipedia", "encyclopedia", "Wikipedia"),
    PublishedCard("wikipedia2", "encyclopedia", "Wikipedia, cont."),
    PublishedCard("yago", "encyclopedia", "YAGO knowledge graph"),
    PublishedCard("yelp", "reviews", "yelp reviews"),
)


PREFIX = "hf:"
ADAPTER = "adapter_config.json"
INDEX = "model.safetensors.index.json"
PICKLE_INDEX = "pytorch_model.bin.index.json"
SAFE_WEIGHTS = re.compile(r"(model(-\d{5}-of-\d{5})?|adapter_model)\.safetensors")
PICKLED_WEIGHTS = re.compile(r"(pytorch_model(-\d{5}-of-\d{5})?|adapter_model)\.bin")
# Files of a model and its tokenizer other than weights.
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
class ModelRepository:
    """The contents of a repository at one commit.

    `revision` is the full commit sha; `files` maps files to their sha256, where the Hub reports it, and `sizes` to
    bytes. `licence` and `language` come from its model card.
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
        """Weight files that can be loaded safely."""
        return self._weights(SAFE_WEIGHTS)

    @property
    def pickles(self) -> tuple[str, ...]:
        """Pickled weight files."""
        return self._weights(PICKLED_WEIGHTS)

    def _weights(self, pattern: re.Pattern[str]) -> tuple[str, ...]:
        paths = []
        for path in self.files:
            if pattern.fullmatch(path) and path.startswith("adapter") == self.adapter:
                paths.append(path)
        return tuple(sorted(paths))

    @property
    def needed(self) -> tuple[str, ...]:
        """The files needed to load it."""
        index = (INDEX,) if INDEX in self.files and not self.adapter else ()
        return (*self.companions, *self.weights, *index)

    @property
    def digest(self) -> str | None:
        """sha256 of the weights as manifests record a base's; None if the Hub does not report it."""
        digests = {}
        for path in self.weights or self.pickles:
            sha256 = self.files[path]
            if sha256 is None:
                return None
            digests[path] = sha256
        if not digests:
            return None
        return weights_digest(digests)


def find_repository(source: str) -> ModelRepository:
    """Return the repository `owner/name` or `owner/name@revision`, pinned to its current commit.

    Raises UsageError if there is no such repository or revision, ModelUnavailable if the Hub can't be reached.
    """
    name, _, revision = source.partition("@")
    info = _request_info(name, revision or None)
    if info.sha is None:
        raise ModelUnavailable(f"the Hub reports no commit for {source!r}: try again later")
    files: dict[str, str | None] = {}
    sizes = {}
    for file in info.siblings or ():
        files[file.rfilename] = None if file.lfs is None else file.lfs.sha256
        sizes[file.rfilename] = file.size or 0
    card: Any = info.card_data or {}
    return ModelRepository(
        name=name,
        revision=info.sha,
        files=files,
        sizes=sizes,
        licence=_first_word(card.get("license")),
        language=_first_word(card.get("language")),
    )


def _request_info(name: str, revision: str | None) -> "ModelInfo":
    """Request what the Hub knows about a repository; its errors become ours, each with a remedy."""
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
            f"{name!r} is not a repository name: use hf:owner/name or hf:owner/name@revision"
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
            f"{name}: its current commit must be looked up on the Hugging Face Hub, but HF_HUB_OFFLINE is set: "
            "unset it once"
        ) from None
    except network_errors() as error:
        raise ModelUnavailable(
            f"{name} can't be looked up on the Hugging Face Hub: {first_line(error)}"
        ) from error


def adapter_base(repository: ModelRepository) -> str:
    """Return the base model that an adapter names, as owner/name or owner/name@revision.

    Raises CardError if it names none.
    """
    folder = fetch(repository.name, repository.revision, {ADAPTER: repository.files[ADAPTER]})
    try:
        config = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))
        name, revision = config["base_model_name_or_path"], config.get("revision")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CardError(f"{repository.name}: its {ADAPTER} names no base model: {error!r}") from error
    return f"{name}@{revision}" if revision else str(name)


def _first_word(value: Any) -> str | None:
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, str):
        return None
    return " ".join(value.split()) or None


def fetch(name: str, revision: str, files: Mapping[str, str | None]) -> Path:
    """Return the folder with these files of a commit, from the cache if all are there, else from the Hub.

    Checks every given sha256. Raises ModelUnavailable if a file is unavailable or differs.
    """
    from huggingface_hub import try_to_load_from_cache

    cached = [try_to_load_from_cache(name, path, revision=revision) for path in files]
    if all(isinstance(path, str) for path in cached):
        folder = Path(str(cached[0])).parent
    else:
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
        except network_errors() as error:
            raise ModelUnavailable(
                f"{name} at {revision[:12]} is not in the cache and can't be fetched: {first_line(error)}"
            ) from error
    for path, expected in files.items():
        if expected is None:
            continue
        actual = file_digest(folder / path)
        if actual != expected:
            raise ModelUnavailable(
                f"{name}: {folder / path} is damaged: sha256 {actual[:12]}…, not {expected[:12]}…: delete it and "
                "try again"
            )
    return folder


# Pickled weights are converted to safetensors in a child process; this process never opens a pickle.

MAX_CONVERSION_SECONDS = 3600
# Nothing is inherited: no token, no proxy, no path.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def convert(repository: ModelRepository, target: Path) -> None:
    """Fetch a repository with pickled weights and write it into `target` as safetensors.

    Raises ModelUnavailable if it can't be fetched, CardError if a file holds anything but tensors.
    """
    index = [PICKLE_INDEX] if PICKLE_INDEX in repository.files and not repository.adapter else []
    paths = [*repository.companions, *repository.pickles, *index]
    folder = fetch(repository.name, repository.revision, {path: repository.files[path] for path in paths})
    refuse_code(folder, repository.name)
    for path in repository.companions:
        shutil.copyfile(folder / path, target / path)
    # -I: the child ignores PYTHON* variables and its working directory.
    module = [sys.executable, "-I", "-m", "kcard.cards.pickle_process"]
    process = subprocess.run(
        [*module, str(folder), str(target), *repository.pickles],
        env=None if sys.platform == "win32" else ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAX_CONVERSION_SECONDS,
        check=False,
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["out of memory or time"]
        raise CardError(f"{repository.name} was not converted: {lines[-1]}")
    if not repository.adapter:
        _check_weights(repository, target)


def _check_weights(repository: ModelRepository, folder: Path) -> None:
    """Raise CardError for a missing weight, which transformers would only warn of and fill with noise."""
    from transformers import AutoModelForCausalLM

    try:
        with quiet_loading():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                dtype="auto",
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise CardError(
            f"transformers can't load {repository.name} as a causal language model: {first_line(error)}"
        ) from error
    missing = sorted(loaded[1]["missing_keys"])
    if missing:
        raise CardError(
            f"{repository.name} lacks {len(missing)} of its model's weights, such as {missing[0]}"
        )
