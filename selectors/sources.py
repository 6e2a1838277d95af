"""Reads the texts that evidence is sought in: paragraphs, statements and JSON lines from a file or folder."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kcard.answer import Source
from kcard.errors import CorpusError

__all__ = ["read_sources"]

SUFFIXES = (".txt", ".md", ".jsonl")
END = re.compile(r"[.!?。！？।][\"'”’)\]]*$")
BULLET = re.compile(r"^(?:[-*•]|\d+[.)])\s+")
HEADING = re.compile(r"^#{1,6}\s")


def read_sources(path: str | Path) -> list[Source]:
    """Every text of a .txt, .md or .jsonl file, or of those in a folder, by file name and line.

    Lines between empty lines are one paragraph, unless each is a sentence or a list item of its own. A
    .jsonl object gives its "text"; a "file" and a "line" in it are kept. Raises CorpusError for a path that is
    missing, of another kind or unreadable.
    """
    root = Path(path)
    return [source for file in _files(root) for source in _read(file, root)]


def _files(root: Path) -> list[Path]:
    if root.is_file():
        if root.suffix not in SUFFIXES:
            raise CorpusError(f"evidence {root}: files of this kind are not read; give .txt, .md or .jsonl")
        return [root]
    if not root.is_dir():
        raise CorpusError(f"evidence {root} does not exist: give a file or folder of .txt, .md or .jsonl")
    return sorted(path for path in root.rglob("*") if path.is_file() and path.suffix in SUFFIXES)


def _read(path: Path, root: Path) -> Iterator[Source]:
    name = path.name if path == root else path.relative_to(root).as_posix()
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"evidence {path} can't be read as UTF-8 text: {error}") from error
    return _objects(lines, path) if path.suffix == ".jsonl" else _paragraphs(lines, name)


def _paragraphs(lines: Sequence[str], name: str) -> Iterator[Source]:
    block: list[tuple[int, str]] = []
    for number, line in enumerate([*lines, ""], start=1):
        text = line.strip()
        if text and not HEADING.match(text):
            block.append((number, text))
        elif block:
            yield from _block(block, name)
            block = []


def _block(block: Sequence[tuple[int, str]], name: str) -> Iterator[Source]:
    if all(BULLET.match(line) or END.search(line) for _, line in block):
        for number, line in block:
            yield Source(BULLET.sub("", line), name, number)
    else:
        yield Source(" ".join(line for _, line in block), name, block[0][0])


def _objects(lines: Sequence[str], path: Path) -> Iterator[Source]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _source(line, path, number)


def _source(line: str, path: Path, number: int) -> Source:
    try:
        data = json.loads(line)
        text, file, at = data["text"], data.get("file", path.name), data.get("line", number)
        if not (isinstance(text, str) and isinstance(file, str) and isinstance(at, int)):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        expected = 'an object with a "text" (and, if given, a "file" name and a "line" number)'
        raise CorpusError(f"evidence {path}, line {number}: expected {expected}") from error
    return Source(text, file, at)
