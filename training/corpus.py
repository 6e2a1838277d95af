"""A corpus: files of text become passages, each with the file and line that it came from.

This file knows no model. A passage is a statement, a sentence or a few of them: what a card recites whole.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from kcard.answer import Source
from kcard.errors import CorpusError
from kcard.training.markdown import blocks as markdown_blocks

__all__ = ["SUFFIXES", "Corpus", "read_corpus"]

SUFFIXES = (".txt", ".md", ".jsonl")
KEYS = ("text", "passage", "content", "fact")
MAX_WORDS = 60
MAX_CHARACTERS = 480
ABOUT = re.compile(r"(readme|licen[cs]e|notice|contributing|changelog)(\.|$)", re.IGNORECASE)
SENTENCE_END = re.compile(r"[.!?:;。！？…][\"'”’)\]]*$")


@dataclass(frozen=True)
class Corpus:
    """Distinct passages in a stable order. `sha256` is over their texts; `skipped`: (file, reason)."""

    path: Path
    passages: tuple[Source, ...]
    sha256: str
    skipped: tuple[tuple[str, str], ...] = ()
    duplicates: int = 0

    @property
    def texts(self) -> list[str]:
        return [source.text for source in self.passages]


def read_corpus(path: str | Path) -> Corpus:
    """Read a .txt, .md or .jsonl file, or every such file under a folder.

    .txt: one statement a line, or prose; .md: paragraphs and list items without markup; .jsonl: objects with
    `text` (or passage, content, fact). Lines above 60 words are cut on sentence borders. In a folder, hidden
    files, files of other kinds, empty ones and those that tell about the folder (README, LICENSE) are
    skipped and listed. Raises CorpusError, naming file and line, for what is missing, empty, not UTF-8 text,
    of another kind or not JSON.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise CorpusError(f"corpus {path} does not exist: name a file or folder of {', '.join(SUFFIXES)}")
    files, skipped = _files(path)
    seen: dict[str, Source] = {}
    read = 0
    for file in files:
        name = file.name if path.is_file() else file.relative_to(path).as_posix()
        found = list(_passages(file, name))
        if not found:
            skipped.append((name, "no text in it"))
        for source in found:
            seen.setdefault(source.text, source)
        read += len(found)
    if not seen:
        raise CorpusError(f"corpus {path} holds no text{_why(skipped)}: give it at least one passage")
    digest = hashlib.sha256("\n".join(seen).encode()).hexdigest()
    return Corpus(path, tuple(seen.values()), digest, tuple(skipped), read - len(seen))


def _files(path: Path) -> tuple[list[Path], list[tuple[str, str]]]:
    kinds = ", ".join(SUFFIXES)
    if path.is_file():
        if path.suffix.lower() not in SUFFIXES:
            raise CorpusError(f"corpus {path} is a {path.suffix or 'nameless'} file: kcard reads {kinds}")
        return [path], []
    files, skipped = [], []
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        name = file.relative_to(path)
        if any(part.startswith(".") for part in name.parts):
            continue
        if file.suffix.lower() not in SUFFIXES:
            skipped.append((name.as_posix(), f"not one of {kinds}"))
        elif ABOUT.match(file.name):
            skipped.append((name.as_posix(), "tells about the folder"))
        else:
            files.append(file)
    return files, skipped


def _why(skipped: list[tuple[str, str]]) -> str:
    if not skipped:
        return ""
    name, reason = skipped[0]
    more = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
    return f" ({name}: {reason}{more})"


def _passages(file: Path, name: str) -> Iterator[Source]:
    text = _read(file)
    kind = file.suffix.lower()
    if kind == ".jsonl":
        found = _json_blocks(text, file)
    else:
        found = markdown_blocks(text) if kind == ".md" else _text_blocks(text)
    for line, block in found:
        for passage in _cut(" ".join(block.split())):
            yield Source(passage, name, line)


def _read(file: Path) -> str:
    """The file's text; a NUL byte or a byte that is not UTF-8 is an error at its line."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise CorpusError(f"{file} can't be read ({error.strerror}): check its permissions") from error
    try:
        text = data.decode("utf-8-sig")
        at = text.find("\0")
    except UnicodeDecodeError as error:
        text, at = "", error.start
    if at >= 0:
        line = data[:at].count(b"\n") + 1
        raise CorpusError(f"{file}:{line} is not UTF-8 text: convert the file or take it out of the corpus")
    return text


def _text_blocks(text: str) -> Iterator[tuple[int, str]]:
    """Each line, or each paragraph where its lines are wrapped: one of them goes on in lower case."""
    paragraph: list[tuple[int, str]] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.strip():
            paragraph.append((number, line.strip()))
            continue
        pairs = pairwise(paragraph)
        if any(after[:1].islower() and not SENTENCE_END.search(before) for (_, before), (_, after) in pairs):
            yield paragraph[0][0], " ".join(line for _, line in paragraph)
        else:
            yield from paragraph
        paragraph = []


def _json_blocks(text: str, file: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise CorpusError(f"{where} is not JSON ({error}): one object a line is expected") from None
        found = [row[key] for key in KEYS if isinstance(row, dict) and isinstance(row.get(key), str)]
        if not found:
            raise CorpusError(f"{where} has no string under {', '.join(KEYS)}: give it one of them")
        for part in found[0].splitlines():
            yield number, part


def _cut(text: str) -> Iterator[str]:
    """Passages of at most 60 words: the text itself, else its sentences, else pieces of a sentence."""
    if not text:
        return
    if _fits(text):
        yield text
        return
    from kcard.selectors.sentences import split

    for sentence in split(text):
        if _fits(sentence):
            yield sentence
        else:
            yield from _pieces(sentence)


def _fits(text: str) -> bool:
    return len(text) <= MAX_CHARACTERS and text.count(" ") < MAX_WORDS


def _pieces(sentence: str) -> Iterator[str]:
    """Cut an overlong sentence at the last clause border that fits, else at a word, else at a character."""
    rest = sentence
    while not _fits(rest):
        words = rest.split(" ")
        head = " ".join(words[:MAX_WORDS])[:MAX_CHARACTERS]
        half = len(head) // 2
        at = max(head.rfind(mark, half) for mark in (", ", "; ", ": ", " – ", " — ", "，", "、"))
        at = at + 1 if at > 0 else head.rfind(" ", half)
        at = at if at > 0 else len(head)
        yield rest[:at].strip()
        rest = rest[at:].strip()
    if rest:
        yield rest
