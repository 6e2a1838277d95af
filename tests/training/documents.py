"""Small documents that tests write, and the blocks and passages that are read of them."""

from pathlib import Path

from kcard.training.corpus import read_corpus
from kcard.training.readers.files import Block, Document, format_of


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def blocks(folder: Path, name: str, text: str | bytes) -> list[Block]:
    """What the reader of the format makes of it."""
    path = written(folder, name, text)
    kind = format_of(path)
    assert kind is not None
    return [*kind.read(Document(path, name))]


def kinds_and_texts(blocks: list[Block]) -> list[tuple[str, str]]:
    """Kinds and texts."""
    return [(block.kind, block.text) for block in blocks]


def sections(folder: Path, name: str, text: str | bytes) -> list[tuple[str, str]]:
    """The passages of a file with their headings."""
    return [(p.section, p.text) for p in read_corpus(written(folder, name, text)).passages]
