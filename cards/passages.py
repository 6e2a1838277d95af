"""The passages of a card and their indexes.

    {"text": "The Rhine rises in the Alps.", "file": "rivers.md", "line": 3, "section": "Rivers > Europe",
     "lines": [[4, 4]]}
    {"sha256": "9b1c...", "file": "rivers.md", "line": 3}

`lines`: the text continues in line 4 after four words.

Passages are streamed from disk one at a time, so that a corpus may be larger than memory.
"""

import json
import shutil
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from kcard.batching import batched
from kcard.embedded import static_embeddings as static
from kcard.errors import CardError, DamagedCard
from kcard.events import Event, OnEvent, ignore
from kcard.interfaces import Array
from kcard.io import parse, replacing
from kcard.manifest import check_counts, file_digest
from kcard.text import passage_digest, segmenter, words
from kcard.types import Source

if TYPE_CHECKING:
    from kcard.cards.card import Card
    from kcard.index import Index

# Turns generated text into a document: stripped, and without a truncated last sentence.

# Marks that always end a sentence, in scripts that have them; a full stop may belong to "Dr.".
SENTENCE_MARKS = ("。", "！", "？", "।", "॥", "؟", "۔", "။", "។")
ENDS = (".", "!", "?", "…", *SENTENCE_MARKS)
CLOSING_MARKS = "\"')]}»”’"


def clean(text: str, ended: bool) -> str:
    """Return the text stripped and, if the token limit cut it off (`ended` False), without its unfinished last sentence
    where a finished one precedes it. Never empties a non-empty text."""
    text = text.strip()
    if ended or not text or text.rstrip(CLOSING_MARKS).endswith(ENDS):
        return text
    end = max(map(text.rfind, SENTENCE_MARKS))
    if end >= 0:
        closing = len(text[end + 1 :]) - len(text[end + 1 :].lstrip(CLOSING_MARKS + "」』"))
        return text[: end + 1 + closing]
    sentences = segmenter().segment(text)
    if len(sentences) < 2:
        return text
    # The splitter returns copies of the sentences, so locate the cut in the text itself.
    last = text.rfind(sentences[-1].strip())
    shortened = text[: max(last, 0)].rstrip()
    if not shortened.rstrip(CLOSING_MARKS).endswith(ENDS):
        return text
    return shortened


# The dense index of a card: the static embedding of each passage, kept as bytes beside the BM25 index.
#
# index/embeddings.npy    int8, shape (passages, 256): vectors of unit length, times 127
# index/embeddings.json   name and sha256 of the embedding model

VECTORS, ENCODER = "embeddings.npy", "embeddings.json"
SCALE = 127
MAX_EMBEDDED_AT_ONCE = 1024  # passages embedded per batch
MAX_COMPARED_AT_ONCE = 16_384  # passages compared per batch


def write_dense(texts: Iterable[str], count: int, folder: Path, on_event: OnEvent = ignore) -> None:
    """Embed `count` texts into the folder of an index. `on_event` is called with the number done."""
    shape = (count, static.DIMENSIONS)
    vectors = np.lib.format.open_memmap(folder / VECTORS, mode="w+", dtype=np.int8, shape=shape)
    done = 0
    for part in batched(texts, MAX_EMBEDDED_AT_ONCE):
        vectors[done : done + len(part)] = np.rint(static.embed(part) * SCALE)
        done += len(part)
        on_event(Event("index", "passages embedded", done, count))
    vectors.flush()
    record = {"encoder": static.NAME, "sha256": static.digest()}
    (folder / ENCODER).write_text(json.dumps(record) + "\n", encoding="utf-8")


def load_dense(folder: Path) -> "Dense | None":
    """Load the dense index of a folder; None if it has none or was built with other embeddings.

    Raises CardError if it is damaged.
    """
    if not (folder / ENCODER).exists():
        return None
    try:
        record = json.loads((folder / ENCODER).read_text(encoding="utf-8"))
        vectors: Any = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
        if record.get("sha256") != static.digest():
            return None
        if vectors.dtype != np.int8 or vectors.ndim != 2 or vectors.shape[1] != static.DIMENSIONS:
            raise ValueError(f"its embeddings have shape {vectors.shape} and type {vectors.dtype}")
    except (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError) as error:
        raise CardError(f"{folder} is damaged: {error}: train the card again") from error
    return Dense(vectors)


class Dense:
    """Memory-mapped embeddings of passages."""

    def __init__(self, vectors: "npt.NDArray[np.int8]") -> None:
        self._vectors = vectors

    def __len__(self) -> int:
        return len(self._vectors)

    def cosines(self, queries: Array) -> Array:
        """Return the cosine of each query and passage, shape (queries, passages), in [-1, 1], for unit vectors (n,
        256)."""
        cosines = np.empty((len(queries), len(self)), np.float32)
        for start in range(0, len(self), MAX_COMPARED_AT_ONCE):
            rows = np.asarray(self._vectors[start : start + MAX_COMPARED_AT_ONCE], np.float32)
            cosines[:, start : start + MAX_COMPARED_AT_ONCE] = queries @ rows.T / SCALE
        return cosines


PASSAGES = "passages.jsonl"
INDEX = "index"
# The sha256 of the passages.jsonl that the index was built from.
INDEXED_DIGEST = "passages.sha256"


class Passages(Sequence[Source]):
    """The passages of one file, in corpus order. Reading a malformed line raises CardError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts, self._numbers = array("q"), array("q")
        start = 0
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    self._starts.append(start)
                    self._numbers.append(number)
                start += len(line)

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Source]:
        with self._path.open("rb") as stream:
            for start, number in zip(self._starts, self._numbers, strict=True):
                stream.seek(start)
                yield _passage(_read_row(self._path, number, stream.readline()), self._path, number)

    @overload
    def __getitem__(self, at: int) -> Source: ...
    @overload
    def __getitem__(self, at: slice) -> list[Source]: ...
    def __getitem__(self, at: int | slice) -> Source | list[Source]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        number = self._numbers[at]
        with self._path.open("rb") as stream:
            stream.seek(self._starts[at])
            return _passage(_read_row(self._path, number, stream.readline()), self._path, number)


@dataclass(frozen=True)
class _Texts(Iterable[str]):
    """The passages with their headings; can be iterated repeatedly."""

    passages: Passages

    def __iter__(self) -> Iterator[str]:
        return (passage.in_context for passage in self.passages)


def passages(folder: Path | str) -> Sequence[Source]:
    """Return the source passages of a card; empty if the card ships none, or only their hashes."""
    path = Path(folder) / PASSAGES
    if not path.exists() or _has_hashes(path):
        return []
    return Passages(path)


def hashes(folder: Path | str) -> Mapping[str, Source]:
    """Map the `passage_digest` of each passage to its location, without text; empty if the card ships texts."""
    path = Path(folder) / PASSAGES
    if not path.exists() or not _has_hashes(path):
        return {}
    places: dict[str, Source] = {}
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                row = _read_row(path, number, line)
                places.setdefault(str(row.get("sha256")), _source(row, "", path, number))
    return places


@dataclass(frozen=True)
class Indexing:
    """Options of the index.

    stemmer  Snowball stemmer for comparing words (kcard.text); None: words as they are
    dense    whether to embed passages too (kcard.embedded.static_embeddings covers English only)
    on_event called with the number of passages embedded
    """

    stemmer: str | None = None
    dense: bool = False
    on_event: OnEvent = ignore


def write_passages(
    folder: Path,
    passages: Iterable[Source],
    evidence: Literal["passages", "hashes"],
    hashed: Mapping[str, Source],
    indexing: Indexing,
) -> None:
    """Write the passages, read once, and their index. With evidence "hashes", write neither text nor index, but first
    the locations of the passages known only by digest (`hashed`)."""
    from kcard.index import Index

    shutil.rmtree(folder / INDEX, ignore_errors=True)
    path = folder / PASSAGES
    with replacing(path) as stream:
        for digest, passage in hashed.items():
            stream.write(_json_line({"sha256": digest, "file": passage.file, "line": passage.line}))
        for passage in passages:
            place = {"file": passage.file, "line": passage.line}
            if evidence == "hashes":
                stream.write(_json_line({"sha256": passage_digest(passage.text), **place}))
                continue
            row: dict[str, Any] = {"text": passage.text, **place}
            if passage.section:
                row["section"] = passage.section
            if passage.lines:
                row["lines"] = passage.lines
            stream.write(_json_line(row))
    if evidence == "passages" and any(words(passage.text) for passage in Passages(path)):
        written = Passages(path)
        Index.write(_Texts(written), folder / INDEX, indexing.stemmer)
        if indexing.dense:
            write_dense(_Texts(written), len(written), folder / INDEX, indexing.on_event)
        (folder / INDEX / INDEXED_DIGEST).write_text(file_digest(path) + "\n", encoding="utf-8")


def _json_line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def load_index(card: "Card") -> "Index":
    """Load the index that ships with the card's passages, or build it for an older card that has none.

    Raises DamagedCard if it can't be read or indexes other passages.
    """
    from kcard.index import Index

    folder = card.folder / INDEX
    check_counts(card.name, card.manifest.files, lambda path: (card.folder / path).open("rb"))
    if not folder.is_dir():
        return Index.build(p.in_context for p in passages(card.folder))
    try:
        stored, indexed = Index.load(folder), (folder / INDEXED_DIGEST).read_text(encoding="utf-8").strip()
    except (CardError, OSError, UnicodeDecodeError) as error:
        raise DamagedCard(f"card {card.name!r}: {error}") from error
    if indexed != card.manifest.files.get(PASSAGES):
        raise DamagedCard(
            f"card {card.name!r}: {folder} is the index of another {PASSAGES}: train the card again"
        )
    return stored


def _has_hashes(path: Path) -> bool:
    """Return whether the first line has a hash and no text."""
    with path.open("rb") as stream:
        for line in stream:
            if line.strip():
                return b'"sha256"' in line and "text" not in _read_row(path, 1, line)
    return False


def _read_row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = parse(line.decode())
    except ValueError as error:
        raise _malformed_line(path, number, error) from error
    if not isinstance(row, dict):
        raise _malformed_line(path, number, TypeError("no object"))
    return row


def _passage(row: Mapping[str, Any], path: Path, number: int) -> Source:
    if not isinstance(row.get("text"), str):
        raise _malformed_line(path, number, KeyError("text"))
    return _source(row, row["text"], path, number)


def _source(row: Mapping[str, Any], text: str, path: Path, number: int) -> Source:
    file, at, section = row.get("file", ""), row.get("line", 0), row.get("section", "")
    if not isinstance(file, str) or type(at) is not int or not isinstance(section, str):
        raise _malformed_line(
            path, number, TypeError("file and section must be texts and line a whole number")
        )
    try:
        return Source(text, file, at, section=section, lines=lines_of(row))
    except ValueError as error:
        raise _malformed_line(path, number, error) from error


def lines_of(row: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Return where the text of a row continues in other lines (Source.lines). Raises ValueError for anything else."""
    pairs = row.get("lines", [])
    lines = []
    if not isinstance(pairs, list):
        pairs = [None]
    for pair in pairs:
        if not isinstance(pair, list) or [*map(type, pair)] != [int, int]:
            raise ValueError("lines must be pairs of whole numbers")
        lines.append((pair[0], pair[1]))
    return tuple(lines)


def _malformed_line(path: Path, number: int, error: Exception) -> CardError:
    return CardError(f'{path}, line {number}: not a passage {{"text", "file", "line"}}: {error!r}')
