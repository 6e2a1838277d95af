"""Markdown, by markdown-it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

from kcard.training.readers import layout
from kcard.training.readers.files import Block, Document, SkipReport
from kcard.training.readers.text import lines
from kcard.training.readers.web_tables import row_text

if TYPE_CHECKING:
    from markdown_it.token import Token

PART_CHARACTERS = 200_000  # characters that are parsed at a time, from one heading to another
MAX_PART_CHARACTERS = 1_000_000  # maximum if there is no heading
TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|body|br|center|cite|code|dd|del|details|dfn|div|dl|dt|em|figcaption|figure|font|h[1-6]"
    r"|head|hr|html|i|img|input|ins|kbd|label|li|mark|nobr|ol|p|picture|pre|q|s|samp|small|source|span|strike|strong"
    r"|style|sub|summary|sup|table|tbody|td|tfoot|th|thead|time|tr|tt|u|ul|var|video|wbr)(?=[\s/>])[^<>]{0,2000}>",
    re.IGNORECASE,
)
FENCE = re.compile(r"\s*(```|~~~)")
HEADING = re.compile(r"#{1,6}\s")
SENTENCE = re.compile(r"[.!?;,]$")
MAX_TITLE_WORDS = 12  # of a title at most
QUESTION = re.compile(r".*\?|\(?(?:Q|\d+)[.:)]\s.*[^.;,]", re.DOTALL)  # of a list of questions
MAX_QUESTION_WORDS = 30  # words of one
BOLD = 6  # level of a title in bold
# Fields of front matter, in the words in which they are read.
FRONT_FIELDS = {
    "author": "Author",
    "authors": "Authors",
    "publisher": "Publisher",
    "date": "Date",
    "created": "Created",
    "updated": "Updated",
    "lastmod": "Last modified",
    "version": "Version",
    "status": "Status",
    "tags": "Tags",
    "keywords": "Keywords",
    "categories": "Categories",
    "description": "Description",
    "summary": "Summary",
}
MAX_FRONT_CHARACTERS = 20_000  # of front matter that is parsed
MAX_FIELD_CHARACTERS = 500  # of a field


def read_markdown(document: Document) -> Iterator[Block]:
    yield from markdown_blocks(lines(document.path), document.skips)


def markdown_blocks(numbered: Iterable[tuple[int, str]], skips: SkipReport) -> Iterator[Block]:
    """Yield the blocks of numbered lines. Names in angle brackets that are not HTML tags are kept; words that are
    struck through or hidden are left out, and counted."""
    for first, text in split_at_headings(numbered):
        yield from _Walk(first, skips).blocks(_parser().parse(text))


def split_at_headings(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Split lines into parts at headings, (number of the first line, text), so that a large file is not held whole."""
    gathered: list[str] = []
    first, size, fenced = 1, 0, False
    for number, line in numbered:
        fenced ^= bool(FENCE.match(line))
        if (size > PART_CHARACTERS and not fenced and HEADING.match(line)) or size > MAX_PART_CHARACTERS:
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

    return (
        MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .use(front_matter_plugin)
        .use(deflist_plugin)
    )


class _Walk:
    """Turns tokens into blocks, keeping track of open lists, definitions and tables."""

    def __init__(self, first: int, skips: SkipReport) -> None:
        self._first = first
        self._skips = skips
        self._open: list[Token] = []
        self._marks: list[str] = []  # of the open list items, until their first text has taken them
        self._counts: list[int | None] = []  # of each open list the next number; None if it has bullets
        self._header: list[str] = []
        self._row: list[str] = []

    def blocks(self, tokens: "Sequence[Token]") -> Iterator[Block]:
        line = self._first
        for token in tokens:
            if token.map:
                line = self._first + token.map[0]
            if token.nesting == 1:
                self._open.append(token)
                if token.type == "ordered_list_open":
                    self._counts.append(int(token.attrs.get("start", 1)))
                elif token.type == "bullet_list_open":
                    self._counts.append(None)
                elif token.type == "list_item_open":
                    number = self._counts[-1]
                    self._marks.append("- " if number is None else f"{number}. ")
                    if number is not None:
                        self._counts[-1] = number + 1
            elif token.nesting == -1:
                self._open.pop()
                yield from self.close(token.type, line)
            elif token.type == "inline":
                yield from self.inline(token.children or [], line)
            elif token.type in ("fence", "code_block"):
                first = line + (token.type == "fence")
                numbered = list(enumerate(token.content.splitlines(), first))
                if not self._open and layout.is_help(numbered):
                    # Its headings are none of the document.
                    for block in layout.blocks(numbered):
                        yield replace(block, kind="text", level=0) if block.kind == "heading" else block
                else:
                    yield from self.block(
                        "code", token.content.rstrip(), first, _line_starts(token.content, first)
                    )
            elif token.type == "html_block":
                # Its paragraphs; removed markup keeps its line ends, so that line numbers stay right.
                first = line
                shown = without_hidden_elements(without_comments(token.content), self._skips)
                for text in TAG.sub(_line_ends, shown).split("\n\n"):
                    begun = _line_starts(text, first)
                    if begun:
                        yield from self.block("text", " ".join(text.split()), begun[0][1], begun)
                    first += text.count("\n") + 2
            elif token.type == "front_matter":
                yield from front_matter(token.content, line)

    def close(self, kind: str, line: int) -> Iterator[Block]:
        if kind in ("ordered_list_close", "bullet_list_close"):
            self._counts.pop()
        elif kind == "list_item_close":
            self._marks.pop()
        elif kind == "thead_close":
            self._header = self._row
            self._row = []
        elif kind == "tr_close" and self._open and self._open[-1].type == "tbody_open":
            yield from self.block("item", row_text(self._header, self._row), line)
            self._row = []
        elif kind == "dl_close":
            yield Block("term", "", line, self.depth)

    @property
    def depth(self) -> int:
        """The number of open definition lists."""
        return 1 + sum(token.type == "dl_open" for token in self._open)

    def inline(self, tokens: "Sequence[Token]", line: int) -> Iterator[Block]:
        tokens = without_struck(tokens, self._skips)
        within, text = self._open[-1], plain(tokens)
        if within.type == "heading_open":
            yield Block("heading", text, line, int(within.tag[1]))
        elif within.type in ("th_open", "td_open"):
            self._row.append(text)
        elif within.type == "dt_open":
            yield Block("term", text, line, self.depth - 1)
        elif is_title(title_words(leading_bold(tokens)), title_words(text)):
            yield Block("heading", text.rstrip(" :"), line, BOLD)
        else:
            # Where the lines of the tokens begin.
            places: list[tuple[int, int]] = []
            words = start = 0
            for at, token in enumerate(tokens):
                if token.type in ("softbreak", "hardbreak"):
                    words += len(plain(tokens[start:at]).split())
                    places.append((words, line + len(places) + 1))
                    start = at
            yield from self.block("item" if self._marks else "text", text, line, places)

    def block(
        self,
        kind: Literal["text", "item", "code"],
        text: str,
        line: int,
        lines: Sequence[tuple[int, int]] = (),
    ) -> Iterator[Block]:
        """Yield the block, with the mark of the list item that it begins. `lines`: see Block."""
        if not text.strip():
            return
        mark = ""
        if self._marks:
            mark, self._marks[-1] = self._marks[-1], ""
        mark_words = len((mark + text).split()) - len(text.split())
        places = [(words + mark_words, number) for words, number in lines if words]
        yield Block(kind, mark + text, line, lines=tuple(places))


def front_matter(content: str, line: int) -> Iterator[Block]:
    """Yield the fields of a document's front matter, such as "Author: Ann Lind". What is no YAML is skipped."""
    import yaml

    if len(content) > MAX_FRONT_CHARACTERS:
        return
    try:
        # Every value as it is written: a date stays the text of a date.
        fields = yaml.load(content, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return
    if not isinstance(fields, dict):
        return
    values: dict[str, str] = {}
    for name, value in fields.items():
        words = front_words(value)
        if words:
            values[str(name).lower()] = words
    yield from front_fields(values, line)


def front_fields(values: Mapping[str, str], line: int) -> Iterator[Block]:
    """Yield the title of a document as a heading, and its other fields, by their names in FRONT_FIELDS, as lines."""
    title = values.get("title")
    if title:
        yield Block("heading", title[:MAX_FIELD_CHARACTERS], line, 1)
    for name, label in FRONT_FIELDS.items():
        if name in values:
            yield Block("text", f"{label}: {values[name][:MAX_FIELD_CHARACTERS]}", line)


def front_words(value: object) -> str:
    """Return a value of front matter as words: a text, or a list of texts or of objects with a name. Nothing deeper is
    read, since YAML can refer to one list many times."""
    if not isinstance(value, list):
        value = [value]
    words: list[str] = []
    for item in value:
        if isinstance(item, dict):
            item = item.get("name")
        if isinstance(item, str) and item.strip() and sum(map(len, words)) < MAX_FIELD_CHARACTERS:
            words.append(" ".join(item.split())[:MAX_FIELD_CHARACTERS])
    return ", ".join(words)


def _line_starts(text: str, line: int) -> list[tuple[int, int]]:
    """Return where the lines of a text that have words begin: (words before it, its number), from number `line` on."""
    starts: list[tuple[int, int]] = []
    words = 0
    for number, row in enumerate(text.split("\n"), line):
        if row.strip():
            starts.append((words, number))
        words += len(row.split())
    return starts


def _line_ends(markup: re.Match[str]) -> str:
    return " " + "\n" * markup[0].count("\n")


def without_comments(text: str) -> str:
    """Replace each comment of HTML by a blank and its line ends. One that is never closed is text."""
    parts, at = list[str](), 0
    while True:
        start = text.find("<!--", at)
        end = text.find("-->", start + 4)
        if start < 0 or end < 0:
            return "".join(parts) + text[at:]
        parts.append(text[at:start] + " " + "\n" * text.count("\n", start, end))
        at = end + 3


# Words that a reader of the document does not see as its text: struck through, or hidden.

STRUCK = ("del", "s", "strike")
STRUCK_WORDS, HIDDEN_WORDS = "struck-through words", "hidden words"  # as they are counted
ELEMENT = re.compile(r"<(\w+)\b([^<>]{0,2000})>")
HIDDEN_ATTRIBUTES = re.compile(
    r"(?:^|\s)hidden(?:\s|$|=(?![\"']?until))|\bstyle\s*=[^=]*(?:display\s*:\s*none|visibility\s*:\s*hidden)",
    re.IGNORECASE,
)
CLOSING_TAG = re.compile(r"</(\w+)")
NOTE_TO_SELF = re.compile(r"%%(?=\s)[^%]*(?<=\s)%%(?![\w%])")  # a comment in Obsidian


def without_struck(tokens: "Sequence[Token]", skips: SkipReport) -> "list[Token]":
    """Return inline tokens without those that are struck through (~~ ~~, <del>) or in a comment (%% %%). Breaks of
    lines stay."""
    shown: list[Token] = []
    struck: list[Token] = []
    last: dict[str, int] = {}
    for at, token in enumerate(tokens):
        last[_closed_mark(token)] = at
    last.pop("", None)
    end = 0  # of what is struck through
    for at, token in enumerate(tokens):
        if at >= end:
            end = _end_of_struck(tokens, at, last)
        if at < end and token.type not in ("softbreak", "hardbreak"):
            struck.append(token)
            continue
        if token.type == "text" and "%%" in token.content:
            for note in NOTE_TO_SELF.findall(token.content):
                skips.dropped[HIDDEN_WORDS] += len(note.split())
            token = token.copy(content=NOTE_TO_SELF.sub(" ", token.content))
        shown.append(token)
    skips.dropped[STRUCK_WORDS] += len(plain(struck).split())
    return shown


def _closed_mark(token: "Token") -> str:
    """Return the mark that a token closes: ~~, or the name of a tag; "" for others."""
    if token.type == "s_close":
        return "~~"
    closing = CLOSING_TAG.match(token.content)
    if token.type != "html_inline" or closing is None:
        return ""
    return closing[1].lower()


def _end_of_struck(tokens: "Sequence[Token]", start: int, last: Mapping[str, int]) -> int:
    """Return the place after the end of what is struck through from a token on; the token's own place for others, such
    as a tag that is never closed. `last`: the last place where each mark is closed."""
    token = tokens[start]
    mark = ""
    tag = ELEMENT.match(token.content)
    if token.type == "s_open":
        mark = "~~"
    elif token.type == "html_inline" and tag is not None and tag[1].lower() in STRUCK:
        mark = tag[1].lower()
    if last.get(mark, 0) <= start:
        return start
    end = start + 1
    while _closed_mark(tokens[end]) != mark:
        end += 1
    return end + 1


def without_hidden_elements(text: str, skips: SkipReport) -> str:
    """Replace each element of HTML that is struck through or hidden by its line ends. One that is never closed
    stays."""
    lower = text.lower()
    last: dict[str, int] = {}  # the last place where each element is closed
    parts, at = list[str](), 0
    for tag in ELEMENT.finditer(text):
        name = tag[1].lower()
        kind = STRUCK_WORDS
        if name not in STRUCK:
            if not HIDDEN_ATTRIBUTES.search(tag[2]):
                continue
            kind = HIDDEN_WORDS
        if tag.start() < at:
            continue
        if name not in last:
            last[name] = lower.rfind(f"</{name}")
        if last[name] >= tag.end():
            end = lower.find(f"</{name}", tag.end())
            hidden = text[tag.end() : end]
            skips.dropped[kind] += len(TAG.sub(" ", hidden).split())
            parts.append(text[at : tag.start()] + " " + "\n" * hidden.count("\n"))
            at = end
    return "".join(parts) + text[at:]


def title_words(text: str) -> str:
    """Return a text as titles are compared: with single blanks and without a colon at its end."""
    return " ".join(text.split()).rstrip(" :")


def is_title(bold: str, paragraph: str) -> bool:
    """Return whether a paragraph that is all bold is the title of what follows: a question, or a few words. Both are
    `title_words`."""
    if bold != paragraph or not any(map(str.isalpha, bold)):
        return False
    if QUESTION.fullmatch(bold):
        return bold.count(" ") < MAX_QUESTION_WORDS
    return bold.count(" ") < MAX_TITLE_WORDS and not SENTENCE.search(bold)


def leading_bold(tokens: "Sequence[Token]") -> str:
    """Return the bold text at the beginning of inline tokens."""
    shown = [token for token in tokens if token.type != "text" or token.content.strip()]
    if not shown or shown[0].type != "strong_open":
        return ""
    return plain(list(takewhile(lambda token: token.type != "strong_close", shown)))


def plain(tokens: "Sequence[Token]") -> str:
    """Return the text of inline tokens without markup, with code and the words of links and images. An image parts the
    words on its two sides."""
    text, is_after_image = "", False
    for token in tokens:
        is_image = token.type == "image"
        part = ""
        if is_image or token.type in ("text", "code_inline"):
            part = token.content
        elif token.type in ("softbreak", "hardbreak"):
            part = " "
        elif token.type == "html_inline" and not token.content.startswith("<!--"):
            part = TAG.sub(" ", token.content)
        if (is_image or is_after_image) and text[-1:].isalnum() and part[:1].isalnum():
            text += " "
        text += part
        is_after_image = is_image or (is_after_image and not part)
    return " ".join(text.split())
