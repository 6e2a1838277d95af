"""Plain text: a statement a line, or a document whose structure is shown by blank lines and indentation (layout.py)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise

from kcard.training.corpora import layout
from kcard.training.corpora.document import Block, Document
from kcard.training.corpora.lines import lines

__all__ = ["SENTENCE_END", "blocks", "read"]

SENTENCE_END = re.compile(r"[.!?:;。！？…।॥؟۔][\"'”’»)\]]*$")
HELP = re.compile(r"\*\S+\.txt\*\s")
TAG = re.compile(r"\*([^\s*|]+)\*")
TAGS = re.compile(r"(?:(?:^|\s+)\*[^\s*|]+\*)+$")
EXAMPLE, ENDED = re.compile(r"(?:^|\s)>$"), re.compile(r"^<(?=\s|$)")
LOOKED_AT = 400  # lines
FEW = 0.1


def read(document: Document) -> Iterator[Block]:
    return blocks(lines(document.path))


def blocks(numbered: Iterable[tuple[int, str]]) -> Iterator[Block]:
    """Each line, where the first lines look like a list of statements; else the blocks that the layout shows."""
    numbered = iter(numbered)
    head = list(islice(numbered, LOOKED_AT))
    if head and HELP.match(head[0][1]):
        literal: set[int] = set()
        yield from layout.blocks(_help(chain(head[1:], numbered), literal), literal)
    elif is_laid_out([line for _, line in head]):
        yield from layout.blocks(chain(head, numbered))
    else:
        for number, line in chain(head, numbered):
            if line.strip():
                yield Block("statement", line.strip(), number)


def _help(numbered: Iterable[tuple[int, str]], literal: set[int]) -> Iterator[tuple[int, str]]:
    """The lines of a page of Vim's help: what has a tag at its right is a heading, unless a definition follows, as are
    tags alone over prose. Examples stand between ">" and "<"; the numbers of their lines are added to `literal`."""
    code, ruled = False, False
    for (number, line), (_, after) in pairwise(chain(numbered, [(0, "")])):
        if code and line.strip() and line[0] not in " \t":
            code = False
            yield number, ""
        if code:
            if line.strip():
                literal.add(number)
            yield number, line
            continue
        line = ENDED.sub(" ", line)
        line = line.removesuffix(" ~") if line[:1] in (" ", "\t") else line  # shown, no heading
        words = TAGS.sub("", line).strip()
        if EXAMPLE.search(line):
            code = True
            yield number, EXAMPLE.sub("", line)
            yield number, ""
        elif ruled and words:
            yield number, words
            yield number, ""
        elif words != line.strip() and after[:1] not in (" ", "\t"):
            if words or after:
                yield number, ""
                yield number, f"{words or ', '.join(TAG.findall(line))} ~"
                yield number, ""
        else:
            yield number, line
        ruled = bool(layout.RULE.fullmatch(line))


def is_laid_out(sample: Sequence[str]) -> bool:
    """Whether lines are wrapped, indented or underlined, so that a line alone says little."""
    filled = [line for line in sample if line.strip()]
    indented = sum(line[0] in " \t" for line in filled)
    wrapped = sum(
        not SENTENCE_END.search(before.rstrip()) and after[:1].islower()
        for before, after in pairwise(sample)
        if before.strip()
    )
    underlined = any(layout.UNDERLINE.fullmatch(line) for line in filled[1:])
    return underlined or wrapped > FEW * len(filled) / 4 or indented > FEW * len(filled)
