"""Markdown, read lightly: paragraphs, list items and table rows as plain text, without headings and code."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from kcard.answer import Source
from kcard.training.corpora.document import Document
from kcard.training.corpora.lines import lines

__all__ = ["blocks", "read"]

PARAGRAPH = 500  # lines that a block holds at most
FRONT_MATTER = 500

FENCE = re.compile(r"^\s*(```|~~~)")
HEADING = re.compile(r"^\s{0,3}#{1,6}(\s|$)")
UNDERLINE = re.compile(r"^\s{0,3}(=+|-+)\s*$")
RULE = re.compile(r"^\s{0,3}([-*_]\s*){3,}$")
ITEM = re.compile(r"^\s*([-*+]|\d+[.)])\s+(\[[ xX]\]\s+)?")
TABLE_RULE = re.compile(r"^(?=[\s:-]*\|)[\s:|-]{2,}$")
# What is opened must be closed soon: else a line of nothing but "[" would be searched to its end at each of them.
INLINE = (
    (re.compile(r"<!--.{0,2000}?-->"), ""),
    (re.compile(r"!\[[^\[\]]{0,500}\]\([^)]{0,2000}\)"), ""),
    (re.compile(r"\[([^\[\]]{1,500})\](\([^)]{0,2000}\)|\[[^\[\]]{0,500}\])"), r"\1"),
    (re.compile(r"\[\^[^\[\]]{1,500}\]:?"), ""),
    (re.compile(r"<(https?://[^<>]{1,2000})>"), r"\1"),
    (re.compile(r"</?[A-Za-z][^<>]{0,2000}>"), ""),
    (re.compile(r"(?<!`)`+([^`]+)`+"), r"\1"),
    (re.compile(r"(\*\*\*|\*\*|\*)(?=\S)(.{1,500}?)(?<=\S)\1"), r"\2"),
    (re.compile(r"(?<!\w)(___|__|_)(?=\S)(.{1,500}?)(?<=\S)\1(?!\w)"), r"\2"),
)


def read(document: Document) -> Iterator[Source]:
    for number, block in blocks(lines(document.path)):
        yield document.source(block, number)


def blocks(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """(line, text) of every paragraph, list item and table row; line is 1-based, where the block begins."""
    gathered: list[tuple[int, str]] = []
    for number, line in _content(numbered):
        if UNDERLINE.match(line) and gathered:
            gathered.clear()  # the lines above were a heading
            continue
        starts = bool(ITEM.match(line)) or line.lstrip().startswith("|") or len(gathered) == PARAGRAPH
        if gathered and (not line.strip() or starts or HEADING.match(line) or RULE.match(line)):
            yield _block(gathered)
            gathered = []
        if line.strip() and not (HEADING.match(line) or RULE.match(line) or TABLE_RULE.match(line)):
            gathered.append((number, line))
    if gathered:
        yield _block(gathered)


def _content(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Numbered lines without YAML front matter and fenced code."""
    numbered = iter(numbered)
    fenced = False
    for number, line in chain(_after_front_matter(numbered), numbered):
        if FENCE.match(line):
            fenced = not fenced
            yield number, ""
        elif not fenced:
            yield number, line


def _after_front_matter(numbered: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    """The first lines, read ahead; none of them where they are front matter."""
    ahead: list[tuple[int, str]] = []
    for number, line in numbered:
        ahead.append((number, line))
        if ahead[0][1].strip() != "---" or len(ahead) > FRONT_MATTER:
            return ahead
        if len(ahead) > 1 and line.strip() == "---":
            return []
    return ahead


def _block(gathered: list[tuple[int, str]]) -> tuple[int, str]:
    text = " ".join(_plain(line) for _, line in gathered)
    for pattern, plain in INLINE:
        text = pattern.sub(plain, text)
    return gathered[0][0], text.strip()


def _plain(line: str) -> str:
    line = ITEM.sub("", line).strip()
    line = line.lstrip("> ").strip()
    if line.startswith("|"):
        line = ", ".join(cell.strip() for cell in line.strip("|").split("|") if cell.strip())
    return line
