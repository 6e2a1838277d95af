"""kcard.json, the manifest of a card, and the counts in a card's files.

The manifest is written last and atomically, so a folder with a kcard.json is a complete card; its own sha256
identifies the version. The hub and the cards both read manifests with this module, which imports neither.
"""

import hashlib
import json
import re
import unicodedata
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

from kcard.errors import CardError, DamagedCard
from kcard.io import build, canonical, parse, replacing

MANIFEST = "kcard.json"
DRAFT = "draft:"  # before the name of a card that is not published
FORMAT = 1
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,95}")
SHA256 = re.compile(r"[0-9a-f]{64}")
# LLMs of cards of kind llm that run on this machine; self: the one that answers.
LOCAL_LLMS = ("self", "embedded", "hf")
MODEL, BOTH = "model", "both"  # kinds with a model of their own: alone, or with an index of the passages
LOOKED_UP = ("retrieval", "graph", "search")
# How the weights of a model of its own are stored; manifests of older versions have these words as their kind.
METHODS = ("full", "lora")
# Cards of older versions: trained keys and values before every prompt. Their manifests are read, but nothing runs them.
PREFIX = "prefix"
NO_PREFIX_CARDS = "this kcard has no prefix cards: train it again with --method lora"
DOMAIN = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")


@dataclass(frozen=True)
class Base:
    """The model that a card was made from. A card from scratch is its own base: name "", hash of nothing."""

    name: str = ""
    revision: str | None = None
    sha256: str | None = None


ANSWER_ENDING = "Answer:"  # end of a template after which a model generates an answer, not a passage


@dataclass(frozen=True)
class Prompt:
    """How a question becomes the model's input.

    tokens          the template, with {question} filled in, is tokenised
    encoder-prefix  the sentence encoder embeds the question; a linear layer makes `vectors` prefix
                    embeddings of it, stored in projection.safetensors; no question token is used. With `words`, the
                    layer also reads that many dimensions of the question's words (kcard.cards.models.question_words)
    """

    style: Literal["tokens", "encoder-prefix"] = "tokens"
    template: str = "{question}\n"
    vectors: int = 0
    encoder: str | None = None
    encoder_sha256: str | None = None
    words: int = 0

    def document(self, question: str, text: str) -> str:
        """Return the model's text as a document. If the template asks for an answer alone, the question comes first:
        "Ann." by itself does not say what it is about."""
        bare = text and self.template.rstrip().endswith(ANSWER_ENDING)
        return f"{question.strip()} {text}" if bare else text


@dataclass(frozen=True)
class Training:
    """How a card was made. `tokens`: number of training tokens, repetitions included. `left_out`: how much of the
    corpus was left out, by kind."""

    command: str = ""
    objective: str = ""
    method: str = ""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    corpus_sha256: str = ""
    corpus_licence: str = "unknown"
    passages: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    tokens: int = 0
    seconds: float = 0.0
    libraries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """A card's manifest.

    kind            what generates, in the words of `kcard train --kind`: model, retrieval, both, graph, search; llm,
                    reference, or a kind of an installed package (kcard.cards.card). A method as the kind, as older
                    versions wrote it, is a model of that method
    knowledge_date  ISO date up to which the corpus is current
    method          of a model or both: full or lora; "" for other kinds
    evidence        what the card contains of its source passages: their text, or only their hashes
    updates         sha256 of the version that this one continues; None for a first version
    """

    name: str
    description: str
    domain: str = "general"
    kind: str = MODEL
    language: str = "en"
    licence: str = "unknown"
    knowledge_date: str | None = None
    method: str = ""
    evidence: Literal["passages", "hashes"] = "passages"
    updates: str | None = None
    base: Base = field(default_factory=Base)
    prompt: Prompt = field(default_factory=Prompt)
    training: Training = field(default_factory=Training)
    files: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def __post_init__(self) -> None:
        if self.method == PREFIX:  # a kind that this version does not know
            object.__setattr__(self, "kind", PREFIX)
            object.__setattr__(self, "method", "")
        method = self.kind if self.kind in METHODS else self.method or "full"
        if self.kind in METHODS:
            object.__setattr__(self, "kind", MODEL)
        object.__setattr__(self, "method", method if self.kind in (MODEL, BOTH) else "")
        if self.method and self.method not in METHODS:
            raise CardError(
                f"card {self.name!r}: method {self.method[:40]!r} is unknown: use one of {', '.join(METHODS)}"
            )
        if not NAME.fullmatch(self.name):
            raise CardError(
                f"card name {self.name!r}: use lower-case letters, digits, '.', '_' and '-', at most 96"
            )
        if not DOMAIN.fullmatch(self.domain):
            raise CardError(f"domain {self.domain!r}: use a path like biomedical/oncology")
        if not self.description.strip() or not _is_line(self.description):
            raise CardError(f"card {self.name!r}: the description must be one line of text")
        for what in ("kind", "language", "licence", "knowledge_date"):
            if not _is_line(getattr(self, what) or ""):
                raise CardError(
                    f"card {self.name!r}: {what} {getattr(self, what)!r} must be one line of text"
                )
        # A contributed manifest decides which files are read and written, so "../" must be refused here.
        for path, sha256 in self.files.items():
            odd = path == MANIFEST or "\\" in path or ":" in path or not _is_line(path)
            if odd or any(part in {"", ".", ".."} for part in path.split("/")):
                raise CardError(
                    f"card {self.name!r}: file path {path!r} is not a plain path inside the card's folder"
                )
            if not SHA256.fullmatch(sha256):
                raise CardError(
                    f"card {self.name!r}: {path} has no sha256 in the manifest but {sha256!r}: seal it again"
                )

    @property
    def has_model(self) -> bool:
        """Whether the card has a model, which can recite, forget and leak; otherwise it only retrieves."""
        return self.kind not in LOOKED_UP

    @property
    def index(self) -> bool:
        """Whether an index of its passages generates beside its model."""
        return self.kind == BOTH

    @property
    def is_adapter(self) -> bool:
        """Whether its weights adapt a base, which is not part of the card."""
        return self.method == "lora"

    @property
    def asks_elsewhere(self) -> bool:
        """Whether the card sends questions to another machine, apart from the LLM that answers them anyway."""
        local = self.base.name.partition(":")[0] in LOCAL_LLMS
        return self.kind == "search" or (self.kind == "llm" and not local)

    def to_json(self) -> str:
        return canonical(self, indent=2)

    @classmethod
    def from_json(cls, text: str, where: str = MANIFEST) -> "Manifest":
        """Parse a manifest. Raises CardError for another format, and for a path outside the card's folder."""
        try:
            data = parse(text)
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                version = data.get("format") if isinstance(data, dict) else type(data).__name__
                raise CardError(
                    f"{where}: manifest format {version!r} is unknown; this kcard reads format {FORMAT}"
                )
            # Older versions: the method as the kind, and whether the card has an index too.
            has_index = data.pop("index", False)
            if type(has_index) is not bool:
                raise TypeError(f"index is {str(has_index)[:40]!r}, but must be true or false")
            if has_index and data.get("kind", "full") in METHODS:
                data |= {"kind": BOTH, "method": data.get("kind", "full")}
            return build(cls, data)
        except (ValueError, TypeError) as error:
            raise CardError(f"{where} is not a card manifest: {error}") from error

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a card folder. Raises CardError if it is missing or can't be read."""
        path = folder / MANIFEST
        try:
            return cls.from_json(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError:
            raise CardError(
                f"{folder} is not a card: it has no {MANIFEST} (training may not have finished)"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise CardError(f"{path} can't be read: {error}") from error


def _is_line(text: str) -> bool:
    """Return whether the text has no line ends and none of the control characters that terminals obey."""
    if text.isprintable():  # the usual case, checked first since thousands of manifests may be read at once
        return True
    return len(text.splitlines()) < 2 and not any(unicodedata.category(c) == "Cc" for c in text)


def file_digest(path: Path) -> str:
    """Return the sha256 of a file, hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def weights_digest(files: Mapping[str, str]) -> str:
    """Return the sha256 of a model's weights: of the file or, of several shards, of the lines "sha256  name" sorted by
    name. `files`: sha256 by name."""
    if len(files) == 1:
        return next(iter(files.values()))
    lines = "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def card_files(folder: Path) -> Iterator[str]:
    """Yield the relative POSIX paths of a card folder's files, sorted, without the manifest and hidden files."""
    paths = []
    for file in folder.rglob("*"):
        path = file.relative_to(folder).as_posix()
        is_hidden = path.startswith(".") or "/." in path
        if path != MANIFEST and not is_hidden and file.is_file():
            paths.append(path)
    yield from sorted(paths)


def seal(folder: Path, manifest: Manifest) -> Manifest:
    """Hash every file of the folder into the manifest, write it last and atomically, and return it as parsed."""
    files = {path: file_digest(folder / path) for path in card_files(folder)}
    text = replace(manifest, files=files).to_json()
    with replacing(folder / MANIFEST) as stream:
        stream.write(text.encode())
    return Manifest.from_json(text)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Raise DamagedCard unless every file of the manifest exists and has its sha256."""
    for path, expected in manifest.files.items():
        target = folder / path
        try:
            digest = file_digest(target) if target.is_file() else None
        except OSError as error:
            raise DamagedCard(
                f"card {manifest.name!r}: {path} in {folder} can't be read: {error.strerror}"
            ) from error
        if digest is None:
            raise DamagedCard(f"card {manifest.name!r}: {path} is missing from {folder}")
        if digest != expected:
            raise DamagedCard(
                f"card {manifest.name!r}: {path} in {folder} is damaged: sha256 {digest[:12]}…, not {expected[:12]}…"
            )


# The counts in a card's files, compared with the number of its passages.
#
# Readers allocate memory by these counts: a search computes a score for every row that an index claims to have. A card
# may be hostile, so the counts are checked on publication, on pull, and before an index is loaded.

PASSAGES, GRAPH, ROUTING = "passages.jsonl", "graph.tsv", "routing.json"
PARAMS, WORDS = "index/params.index.json", "index/vocab.index.json"
ROWS, STARTS, SCORES = (f"index/{part}.csc.index.npy" for part in ("indices", "indptr", "data"))
EMBEDDINGS = "index/embeddings.npy"
SHAPE = re.compile(rb"\x93NUMPY\x01\x00..\{[^}]*'shape': \((\d{1,15}), ?(?:(\d{1,5}),?)?\)", re.DOTALL)
MAX_JSON_BYTES = 64 << 20
# In routing.json: bytes of a centroid, and the maximum numbers of centroids and of terms, which take 4 bytes each.
CENTROID_BYTES, MAX_CENTROIDS, MAX_TERMS = 384, 32, 2048


def check_counts(card: str, files: Collection[str], opened: Callable[[str], BinaryIO]) -> None:
    """Raise DamagedCard, which names the file, unless the counts in the card's files match its passages.

    files   the paths of the card's files
    opened  opens one of them as a stream
    """
    try:
        indexed = [path for path in (PARAMS, EMBEDDINGS, GRAPH) if path in files]
        count = _lines(PASSAGES, files, opened) if indexed else 0
        if PARAMS in files:
            _require(PARAMS, _json(PARAMS, opened).get("num_docs"), count, "passages")
            words = len(_json(WORDS, opened)) if WORDS in files else 0
            _require(STARTS, _shape(STARTS, files, opened)[0], words + 1, "words and an end")
            entries = _shape(SCORES, files, opened)[0]
            _require(ROWS, _shape(ROWS, files, opened)[0], entries, "scores")
        if EMBEDDINGS in files:
            _require(EMBEDDINGS, _shape(EMBEDDINGS, files, opened)[0], count, "passages")
        if GRAPH in files:
            _require(GRAPH, _lines(GRAPH, files, opened), count, "passages")
        if ROUTING in files:
            check_profile(_json(ROUTING, opened))
    except (ValueError, RecursionError) as error:
        raise DamagedCard(f"card {card!r} is damaged: {error}: train the card again") from error


def check_profile(profile: Mapping[str, Any]) -> None:
    """Raise ValueError for a routing.json with too many centroids or terms."""
    for key, size, most in (("centroids", CENTROID_BYTES, MAX_CENTROIDS), ("terms", 4, MAX_TERMS)):
        text = profile.get(key, "")
        if not isinstance(text, str) or len(b64decode(text)) > size * most:
            raise ValueError(f"{ROUTING} has more than {most} {key}")


def _require(path: str, claimed: object, count: int, what: str) -> None:
    if type(claimed) is not int or claimed != count:
        raise ValueError(f"{path} claims {str(claimed)[:20]} rows, but the card has {count} {what}")


def _lines(path: str, files: Collection[str], opened: Callable[[str], BinaryIO]) -> int:
    """Count the lines that are not blank; 0 without the file."""
    if path not in files:
        return 0
    with opened(path) as stream:
        return sum(not line.isspace() for line in stream)


def _json(path: str, opened: Callable[[str], BinaryIO]) -> dict[str, Any]:
    with opened(path) as stream:
        text = stream.read(MAX_JSON_BYTES + 1)
    if len(text) > MAX_JSON_BYTES:
        raise ValueError(f"{path} has more than {MAX_JSON_BYTES} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {str(error)[:100]}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} is not a JSON object")
    return value


def _shape(path: str, files: Collection[str], opened: Callable[[str], BinaryIO]) -> tuple[int, int]:
    """Read the rows and columns of an array from its header."""
    if path not in files:
        raise ValueError(f"{path} is missing")
    with opened(path) as stream:
        header = SHAPE.match(stream.read(256))
    if header is None:
        raise ValueError(f"{path} is not a numpy array of a card's index")
    return int(header[1]), int(header[2] or 1)
