"""reStructuredText, Sphinx's too: laid-out text, without the marks of directives and roles."""

import re
from collections.abc import Iterable, Iterator

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
DIRECTIVE = re.compile(r"\s*\.\. [\w:+-]+::\s*")
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


def _plain(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    directive = False
    for number, line in numbered:
        if SILENT.match(line):
            directive = True
            line = ""
        elif mark := DIRECTIVE.match(line):
            directive = True
            line = line[: len(line) - len(line.lstrip())] + line[mark.end() :]
        elif directive and OPTION.match(line):
            line = ""
        elif line.strip():
            directive = False
        line = ROLE.sub(r"\1", LINK.sub(r"\1", line))
        line = LITERAL.sub(lambda found: next(filter(None, found.groups())), line)
        yield number, re.sub(r"::$", ":", line) if line.strip() != "::" else ""
