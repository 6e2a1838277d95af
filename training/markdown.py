"""Markdown, read lightly: paragraphs, list items and table rows as plain text, without headings and code."""

import re
from collections.abc import Iterator

__all__ = ["blocks"]

FENCE = re.compile(r"^\s*(```|~~~)")
HEADING = re.compile(r"^\s{0,3}#{1,6}(\s|$)")
UNDERLINE = re.compile(r"^\s{0,3}(=+|-+)\s*$")
RULE = re.compile(r"^\s{0,3}([-*_]\s*){3,}$")
ITEM = re.compile(r"^\s*([-*+]|\d+[.)])\s+(\[[ xX]\]\s+)?")
TABLE_RULE = re.compile(r"^\s*\|?[\s:|-]+\|[\s:|-]*$")
INLINE = (
    (re.compile(r"<!--.*?-->"), ""),
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), ""),
    (re.compile(r"\[([^\]]+)\](\([^)]*\)|\[[^\]]*\])"), r"\1"),
    (re.compile(r"\[\^[^\]]+\]:?"), ""),
    (re.compile(r"<(https?://[^>]+)>"), r"\1"),
    (re.compile(r"</?[A-Za-z][^>]*>"), ""),
    (re.compile(r"`+([^`]+)`+"), r"\1"),
    (re.compile(r"(\*\*\*|\*\*|\*)(?=\S)(.+?)(?<=\S)\1"), r"\2"),
    (re.compile(r"(?<!\w)(___|__|_)(?=\S)(.+?)(?<=\S)\1(?!\w)"), r"\2"),
)


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every paragraph, list item and table row; line is 1-based, where the block begins."""
    gathered: list[tuple[int, str]] = []
    for number, line in _lines(text):
        if UNDERLINE.match(line) and gathered:
            gathered.clear()  # the lines above were a heading
            continue
        starts = bool(ITEM.match(line)) or line.lstrip().startswith("|")
        if gathered and (not line.strip() or starts or HEADING.match(line) or RULE.match(line)):
            yield _block(gathered)
            gathered = []
        if line.strip() and not (HEADING.match(line) or RULE.match(line) or TABLE_RULE.match(line)):
            gathered.append((number, line))
    if gathered:
        yield _block(gathered)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without YAML front matter and fenced code."""
    lines = text.splitlines()
    first = 0
    if lines and lines[0].strip() == "---" and "---" in [line.strip() for line in lines[1:]]:
        first = [line.strip() for line in lines].index("---", 1) + 1
    fenced = False
    for number, line in enumerate(lines, start=1):
        if FENCE.match(line):
            fenced = not fenced
            yield number, ""
        elif number > first and not fenced:
            yield number, line


def _block(lines: list[tuple[int, str]]) -> tuple[int, str]:
    text = " ".join(_plain(line) for _, line in lines)
    for pattern, plain in INLINE:
        text = pattern.sub(plain, text)
    return lines[0][0], text.strip()


def _plain(line: str) -> str:
    line = ITEM.sub("", line).strip()
    line = line.lstrip("> ").strip()
    if line.startswith("|"):
        line = ", ".join(cell.strip() for cell in line.strip("|").split("|") if cell.strip())
    return line
