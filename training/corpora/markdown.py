"""Markdown: headings, paragraphs, list items, definitions, code and table rows, parsed by markdown-it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Literal

from kcard.training.corpora.document import Block, Document
from kcard.training.corpora.lines import lines

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["blocks", "is_title", "plain", "read", "row_text"]

PART = 200_000  # characters that are parsed at a time, from one heading to another
MOST = 1_000_000  # where no heading comes
TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|body|br|center|cite|code|dd|del|details|dfn|div|dl|dt|em|figcaption|figure|font|h[1-6]"
    r"|head|hr|html|i|img|input|ins|kbd|label|li|mark|nobr|ol|p|picture|pre|q|s|samp|small|source|span|strike|strong"
    r"|style|sub|summary|sup|table|tbody|td|tfoot|th|thead|time|tr|tt|u|ul|var|video|wbr)(?=[\s/>])[^<>]{0,2000}>",
    re.IGNORECASE,
)
COMMENT = re.compile(r"<!--.{0,20000}?-->", re.DOTALL)
FENCE = re.compile(r"\s*(```|~~~)")
HEADING = re.compile(r"#{1,6}\s")
CHECKBOX = re.compile(r"\[[ xX]\]\s+")
SENTENCE = re.compile(r"[.!?;,]$")
WORDS = 12  # of a title at most
QUESTION = re.compile(r".*\?|\(?(?:Q|\d+)[.:)]\s.*[^.;,]", re.DOTALL)  # of a list of questions
LONGEST = 30  # words of one
BOLD = 6  # level of a title in bold
TITLE = re.compile(r"^title:\s*[\"']?(.+?)[\"']?\s*$", re.MULTILINE)


def read(document: Document) -> Iterator[Block]:
    yield from blocks(lines(document.path))


def blocks(numbered: Iterable[tuple[int, str]]) -> Iterator[Block]:
    """The blocks of numbered lines. Names in angle brackets that are not HTML tags stay."""
    for first, text in _parts(numbered):
        yield from _Walk(first).blocks(_parser().parse(text))


def _parts(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """(number of its first line, text) of parts that begin at headings, so that a large file is not held whole."""
    gathered: list[str] = []
    first, size, fenced = 1, 0, False
    for number, line in numbered:
        fenced ^= bool(FENCE.match(line))
        if (size > PART and not fenced and HEADING.match(line)) or size > MOST:
            yield first, "\n".join(gathered)
            gathered, size = [], 0
        if not gathered:
            first = number
        gathered.append(line)
        size += len(line)
    if gathered:
        yield first, "\n".join(gathered)


@cache
def _parser() -> Any:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.deflist import deflist_plugin
    from mdit_py_plugins.front_matter import front_matter_plugin

    return MarkdownIt("commonmark").enable("table").use(front_matter_plugin).use(deflist_plugin)


class _Walk:
    """From tokens to blocks. It remembers which lists, definitions and tables are open."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._open: list[Token] = []
        self._marks: list[str] = []  # of the open list items, until their first text has taken them
        self._counts: list[int | None] = []  # of each open list the next number; None where it has bullets
        self._header: list[str] = []
        self._row: list[str] = []

    def blocks(self, tokens: "Sequence[Token]") -> Iterator[Block]:
        line = self._first
        for token in tokens:
            if token.map:
                line = self._first + token.map[0]
            if token.nesting == 1:
                self._open.append(token)
                self._begin(token)
            elif token.nesting == -1:
                self._open.pop()
                yield from self._end(token.type, line)
            elif token.type == "inline":
                yield from self._inline(token.children or [], line)
            elif token.type in ("fence", "code_block"):
                fenced = token.type == "fence"
                yield from self._of(
                    "code", token.content.rstrip(), line + fenced, _begun(token.content, line + fenced)
                )
            elif token.type == "html_block":
                yield from self._html(token.content, line)
            elif token.type == "front_matter" and (title := TITLE.search(token.content)):
                yield Block("heading", title[1], line, 1)

    def _html(self, content: str, line: int) -> Iterator[Block]:
        """The paragraphs of a block of HTML; what is left out of it keeps its ends of lines, so that lines count."""
        for text in TAG.sub(_emptied, COMMENT.sub(_emptied, content)).split("\n\n"):
            begun = _begun(text, line)
            yield from self._of("text", " ".join(text.split()), begun[0][1] if begun else line, begun)
            line += text.count("\n") + 2

    def _begin(self, token: "Token") -> None:
        if token.type == "ordered_list_open":
            self._counts.append(int(token.attrs.get("start", 1)))
        elif token.type == "bullet_list_open":
            self._counts.append(None)
        elif token.type == "list_item_open":
            number = self._counts[-1]
            self._marks.append("- " if number is None else f"{number}. ")
            if number is not None:
                self._counts[-1] = number + 1

    def _end(self, kind: str, line: int) -> Iterator[Block]:
        if kind in ("ordered_list_close", "bullet_list_close"):
            self._counts.pop()
        elif kind == "list_item_close":
            self._marks.pop()
        elif kind == "thead_close":
            self._header = self._row
            self._row = []
        elif kind == "tr_close" and self._open and self._open[-1].type == "tbody_open":
            yield from self._of("item", row_text(self._header, self._row), line)
            self._row = []
        elif kind == "dl_close":
            yield Block("term", "", line, self._depth)

    @property
    def _depth(self) -> int:
        """How many lists of definitions are open."""
        return 1 + sum(token.type == "dl_open" for token in self._open)

    def _inline(self, tokens: "Sequence[Token]", line: int) -> Iterator[Block]:
        within, text = self._open[-1], plain(tokens)
        if within.type == "heading_open":
            yield Block("heading", text, line, int(within.tag[1]))
        elif within.type in ("th_open", "td_open"):
            self._row.append(text)
        elif within.type == "dt_open":
            yield Block("term", text, line, self._depth - 1)
        elif is_title(_bold(tokens), text):
            yield Block("heading", text.rstrip(" :"), line, BOLD)
        else:
            yield from self._of("item" if self._marks else "text", text, line, _broken(tokens, line))

    def _of(
        self,
        kind: Literal["text", "item", "code"],
        text: str,
        line: int,
        lines: Sequence[tuple[int, int]] = (),
    ) -> Iterator[Block]:
        """The block, with the mark of the list item that it begins. `lines`: see Block; the first may be among them."""
        if not text.strip():
            return
        before = len(text.split())
        if self._marks and self._marks[-1]:
            text = self._marks[-1] + CHECKBOX.sub("", text)
            self._marks[-1] = ""
        more = len(text.split()) - before
        yield Block(kind, text, line, lines=tuple((words + more, number) for words, number in lines if words))


def _begun(text: str, line: int) -> list[tuple[int, int]]:
    """Where the lines of a text that have words begin: (words before it, its number); `line`: the first one's."""
    rows = [len(row.split()) for row in text.split("\n")]
    before = accumulate(rows, initial=0)
    return [
        (words, number) for number, (words, row) in enumerate(zip(before, rows, strict=False), line) if row
    ]


def _broken(tokens: "Sequence[Token]", line: int) -> list[tuple[int, int]]:
    """The same of inline tokens."""
    ends = [at for at, token in enumerate(tokens) if token.type in ("softbreak", "hardbreak")]
    rows = [tokens[start:end] for start, end in pairwise([0, *ends])]
    begun = accumulate(len(plain(row).split()) for row in rows)
    return [(words, number) for number, words in enumerate(begun, line + 1)]


def _emptied(markup: re.Match[str]) -> str:
    return " " + "\n" * markup[0].count("\n")


def is_title(bold: str, paragraph: str) -> bool:
    """Whether a paragraph that is all in bold is the title of what follows: a question, or a few words."""
    text = " ".join(bold.split()).rstrip(" :")
    whole = " ".join(paragraph.split()).rstrip(" :")
    if text != whole or not any(map(str.isalpha, text)):
        return False
    if QUESTION.fullmatch(text):
        return text.count(" ") < LONGEST
    return text.count(" ") < WORDS and not SENTENCE.search(text)


def _bold(tokens: "Sequence[Token]") -> str:
    """The text in bold with which inline tokens begin."""
    shown = [token for token in tokens if token.type != "text" or token.content.strip()]
    if not shown or shown[0].type != "strong_open":
        return ""
    end = next(at for at, token in enumerate(shown) if token.type == "strong_close")
    return plain(shown[:end])


def plain(tokens: "Sequence[Token]") -> str:
    """The text of inline tokens: without markup, the code of code spans and the words of links and pictures kept."""
    found = []
    for token in tokens:
        if token.type in ("text", "code_inline"):
            found.append(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            found.append(" ")
        elif token.type == "image":
            found.append(token.content)
        elif token.type == "html_inline" and not COMMENT.fullmatch(token.content):
            found.append(TAG.sub(" ", token.content))
    return " ".join("".join(found).split())


def row_text(header: Sequence[str], cells: Sequence[str]) -> str:
    """A row of a table as text: each cell with the name of its column, but for the first, which the row is about."""
    named = [
        f"{name}: {cell}" if at and name else cell
        for at, (name, cell) in enumerate(zip_longest(header, cells, fillvalue=""))
        if cell
    ]
    return "; ".join(named)
