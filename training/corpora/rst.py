"""reStructuredText, Sphinx's too: laid-out text, without the marks of directives and roles."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from kcard.training.corpora import layout
from kcard.training.corpora.document import Block, Document
from kcard.training.corpora.lines import lines

__all__ = ["blocks", "read"]

# What names or shows something: nothing of its line is text.
SILENT = re.compile(
    r"\s*\.\. (?:[_[|]|(?:index|toctree|image|figure|include|highlight|contents|meta|code|code-block|sourcecode"
    r"|literalinclude|parsed-literal|only|tab|tabs|rubric)::|(?![\w:+-]+::))"
)
CODE = re.compile(r"\s*\.\. (?:code|code-block|sourcecode|parsed-literal)::")
DIRECTIVE = re.compile(r"\s*\.\. ([\w:+-]+)::\s*")
VERSIONS = {
    "deprecated": "Deprecated since version",
    "versionadded": "New in version",
    "versionchanged": "Changed in version",
    "versionremoved": "Removed in version",
}
VERSION = re.compile(r"v?\d")
OPTION = re.compile(r"\s+:[\w-]+:(\s|$)")
ROLE = re.compile(r":[\w:+-]+:`~?!?([^`<]+?)(?:\s*<[^`>]*>)?`")
LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?")
LITERAL = re.compile(r"``([^`]+)``|`([^`]+)`_{0,2}|\*\*([^*\s][^*]*)\*\*|(?<!\w)\*([^*\s][^*]*)\*(?!\w)")


def read(document: Document) -> Iterator[Block]:
    return blocks(lines(document.path))


def blocks(numbered: Iterable[tuple[int, str]]) -> Iterator[Block]:
    found = list(numbered)
    yield from layout.blocks(_plain(found), _literal(found))


def _literal(numbered: Iterable[tuple[int, str]]) -> set[int]:
    """The numbers of the lines of literal blocks: what is indented deeper than the `::` or directive before it."""
    found: set[int] = set()
    begun: int | None = None  # indentation of what introduced the block
    for number, line in numbered:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if begun is not None and indent > begun:
            found.add(number)
            continue
        introduces = CODE.match(line) or (line.rstrip().endswith("::") and not line.lstrip().startswith(".."))
        begun = indent if introduces else None
    return found


def _plain(numbered: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    directive = False
    for number, line in _unwrapped(numbered):
        if SILENT.match(line):
            directive = True
            line = ""
        elif mark := DIRECTIVE.match(line):
            directive = True
            text = line[mark.end() :]
            if mark[1] in VERSIONS and VERSION.match(text):
                text = f"{VERSIONS[mark[1]]} {text}"
            line = line[: len(line) - len(line.lstrip())] + text
        elif directive and OPTION.match(line):
            line = ""
        elif line.strip():
            directive = False
        line = LITERAL.sub(lambda found: next(filter(None, found.groups())), line)
        yield number, re.sub(r"::$", ":", line) if line.strip() != "::" else ""


def _unwrapped(numbered: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines with links and roles as their words alone, also where these go on in the next line."""
    for filled, group in groupby(numbered, lambda line: bool(line[1].strip())):
        lines = [*group]
        if not filled:
            yield from lines
            continue
        text = "\n".join(line for _, line in lines)
        text = ROLE.sub(_words, LINK.sub(_words, text))
        yield from zip((number for number, _ in lines), text.split("\n"), strict=True)


def _words(mark: re.Match[str]) -> str:
    """The first group, with as many ends of lines as the whole has."""
    return mark[1] + "\n" * (mark[0].count("\n") - mark[1].count("\n"))
