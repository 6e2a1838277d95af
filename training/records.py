"""Blocks and passages as bytes, for a Spool."""

import json
from dataclasses import replace

from kcard.answer import Source
from kcard.training.corpora.document import Block

__all__ = ["block_bytes", "block_of", "source_bytes", "source_of"]


def block_bytes(name: str, block: Block) -> bytes:
    """A block of the document of that name."""
    row = (name, block.kind, block.text, block.line, block.level, block.file, block.section, block.lines)
    return json.dumps(row, ensure_ascii=False).encode()


def block_of(record: bytes) -> tuple[str, Block]:
    name, *values, lines = json.loads(record)
    return name, replace(Block(*values), lines=_pairs(lines))


def source_bytes(source: Source) -> bytes:
    row = (source.text, source.file, source.line, source.score, source.section, source.lines)
    return json.dumps(row, ensure_ascii=False).encode()


def source_of(record: bytes) -> Source:
    *values, lines = json.loads(record)
    return replace(Source(*values), lines=_pairs(lines))


def _pairs(lines: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((words, line) for words, line in lines)
