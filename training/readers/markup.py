"""Markdown and web pages."""

import html
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kcard.errors import CorpusError
from kcard.training.readers.encodings import decode_page
from kcard.training.readers.files import Block, Document, SkipReport
from kcard.training.readers.text import lines
from kcard.training.readers.web_tables import row_text, simplify_tables

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag
    from markdown_it.token import Token

PART = 200_000  # characters that are parsed at a time, from one heading to another
MOST = 1_000_000  # maximum if there is no heading
TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|body|br|center|cite|code|dd|del|details|dfn|div|dl|dt|em|figcaption|figure|font|h[1-6]"
    r"|head|hr|html|i|img|input|ins|kbd|label|li|mark|nobr|ol|p|picture|pre|q|s|samp|small|source|span|strike|strong"
    r"|style|sub|summary|sup|table|tbody|td|tfoot|th|thead|time|tr|tt|u|ul|var|video|wbr)(?=[\s/>])[^<>]{0,2000}>",
    re.IGNORECASE,
)
FENCE = re.compile(r"\s*(```|~~~)")
HEADING = re.compile(r"#{1,6}\s")
SENTENCE = re.compile(r"[.!?;,]$")
WORDS = 12  # of a title at most
QUESTION = re.compile(r".*\?|\(?(?:Q|\d+)[.:)]\s.*[^.;,]", re.DOTALL)  # of a list of questions
LONGEST = 30  # words of one
BOLD = 6  # level of a title in bold
# Fields of front matter, in the words in which they are read.
FRONT_FIELDS = {
    "author": "Author",
    "authors": "Authors",
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
                fenced = token.type == "fence"
                yield from self.block(
                    "code", token.content.rstrip(), line + fenced, _line_starts(token.content, line + fenced)
                )
            elif token.type == "html_block":
                # Its paragraphs; removed markup keeps its line ends, so that line numbers stay right.
                first = line
                shown = without_hidden_elements(without_comments(token.content), self._skips)
                for text in TAG.sub(_line_ends, shown).split("\n\n"):
                    begun = _line_starts(text, first)
                    yield from self.block(
                        "text", " ".join(text.split()), begun[0][1] if begun else first, begun
                    )
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
            ends = [at for at, token in enumerate(tokens) if token.type in ("softbreak", "hardbreak")]
            rows = [tokens[start:end] for start, end in pairwise([0, *ends])]
            begun = accumulate(len(plain(row).split()) for row in rows)
            places = [(words, number) for number, words in enumerate(begun, line + 1)]
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
        before = len(text.split())
        if self._marks and self._marks[-1]:
            text = self._marks[-1] + text
            self._marks[-1] = ""
        more = len(text.split()) - before
        yield Block(kind, text, line, lines=tuple((words + more, number) for words, number in lines if words))


def front_matter(content: str, line: int) -> Iterator[Block]:
    """Yield the title of a document's front matter as a heading, and the fields that readers ask for as lines, such as
    "Author: Ann Lind". What is no YAML is skipped."""
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
    values = {str(name).lower(): words for name, value in fields.items() if (words := front_words(value))}
    if title := values.get("title"):
        yield Block("heading", title, line, 1)
    for name, label in FRONT_FIELDS.items():
        if name in values:
            yield Block("text", f"{label}: {values[name]}", line)


def front_words(value: object) -> str:
    """Return a value of front matter as words: a text, or a list of texts or of objects with a name. Nothing deeper is
    read, since YAML can refer to one list many times."""
    words: list[str] = []
    for item in value if isinstance(value, list) else [value]:
        text = item.get("name") if isinstance(item, dict) else item
        if isinstance(text, str) and text.strip() and sum(map(len, words)) < MAX_FIELD_CHARACTERS:
            words.append(" ".join(text.split())[:MAX_FIELD_CHARACTERS])
    return ", ".join(words)


def _line_starts(text: str, line: int) -> list[tuple[int, int]]:
    """Return where the lines of a text that have words begin: (words before it, its number), from number `line` on."""
    rows = [len(row.split()) for row in text.split("\n")]
    before = accumulate(rows, initial=0)
    return [
        (words, number) for number, (words, row) in enumerate(zip(before, rows, strict=False), line) if row
    ]


def _line_ends(markup: re.Match[str]) -> str:
    return " " + "\n" * markup[0].count("\n")


def without_comments(text: str) -> str:
    """Replace each comment of HTML by a blank and its line ends. One that is never closed is text."""
    parts, at = [], 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        parts.append(text[at:start] + " " + "\n" * text.count("\n", start, end))
        at = end + 3
    return "".join(parts) + text[at:]


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
    last = {mark: at for at, token in enumerate(tokens) if (mark := _closed_mark(token))}
    end = 0  # of what is struck through
    for at, token in enumerate(tokens):
        if at >= end:
            end = _end_of_struck(tokens, at, last)
        if at < end and token.type not in ("softbreak", "hardbreak"):
            struck.append(token)
            continue
        if token.type == "text" and "%%" in token.content:
            skips.dropped[HIDDEN_WORDS] += sum(
                len(note.split()) for note in NOTE_TO_SELF.findall(token.content)
            )
            token = token.copy(content=NOTE_TO_SELF.sub(" ", token.content))
        shown.append(token)
    skips.dropped[STRUCK_WORDS] += len(plain(struck).split())
    return shown


def _closed_mark(token: "Token") -> str:
    """Return the mark that a token closes: ~~, or the name of a tag; "" for others."""
    if token.type == "s_close":
        return "~~"
    closing = CLOSING_TAG.match(token.content) if token.type == "html_inline" else None
    return closing[1].lower() if closing else ""


def _end_of_struck(tokens: "Sequence[Token]", start: int, last: Mapping[str, int]) -> int:
    """Return the place after the end of what is struck through from a token on; the token's own place for others, such
    as a tag that is never closed. `last`: the last place where each mark is closed."""
    token = tokens[start]
    mark = "~~" if token.type == "s_open" else ""
    if token.type == "html_inline" and (tag := ELEMENT.match(token.content)) and tag[1].lower() in STRUCK:
        mark = tag[1].lower()
    if last.get(mark, 0) <= start:
        return start
    return next(at for at in range(start + 1, len(tokens)) if _closed_mark(tokens[at]) == mark) + 1


def without_hidden_elements(text: str, skips: SkipReport) -> str:
    """Replace each element of HTML that is struck through or hidden by its line ends. One that is never closed
    stays."""
    lower = text.lower()
    last: dict[str, int] = {}  # the last place where each element is closed
    parts, at = [], 0
    for tag in ELEMENT.finditer(text):
        name = tag[1].lower()
        kind = STRUCK_WORDS if name in STRUCK else HIDDEN_WORDS
        if tag.start() < at or (name not in STRUCK and not HIDDEN_ATTRIBUTES.search(tag[2])):
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
    text = bold
    if text != paragraph or not any(map(str.isalpha, text)):
        return False
    if QUESTION.fullmatch(text):
        return text.count(" ") < LONGEST
    return text.count(" ") < WORDS and not SENTENCE.search(text)


def leading_bold(tokens: "Sequence[Token]") -> str:
    """Return the bold text at the beginning of inline tokens."""
    shown = [token for token in tokens if token.type != "text" or token.content.strip()]
    if not shown or shown[0].type != "strong_open":
        return ""
    end = next(at for at, token in enumerate(shown) if token.type == "strong_close")
    return plain(shown[:end])


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


# Web pages: without navigation, converted into Markdown by markdownify.

UNSHOWN = {"script", "style", "template", "noscript", "svg", "iframe", "object", "canvas"}
AROUND = {"nav", "footer", "form", "button", "select"}
AROUND_ROLES = {"navigation", "search", "contentinfo"}
AROUND_CLASSES = {"navheader", "navfooter", "sphinxsidebar", "related", "header-panel"}
MARKUP = ["a", "b", "strong", "em", "i", "u", "del", "s", "sub", "sup", "span", "font", "cite", "var", "abbr"]
LISTS = ["ul", "ol", "dl", "table", "p", "div"]
LINKS, SHARE = 3, 0.8  # minimum number of links, and their share of the text, in a list of links
# A comment or script that is never closed lasts until the end, so that the rest is not searched for each of many.
HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*+>|\Z)|<[^<>]*>", re.DOTALL | re.IGNORECASE
)
INVISIBLE = re.compile(r"(?:^|[;\s])(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
STRUCK_STYLE = re.compile(r"(?:^|[;\s])text-decoration(?:-line)?\s*:[^;]*\bline-through", re.IGNORECASE)
FORMULA_MARKS = {
    "mfrac": "/",
    "msup": "^",
    "msub": "_",
    "mtr": ", ",
    "mtable": "; ",
}  # between the parts of MathML
FORMULA = "[formula]"  # in place of one without words
SIGNS = re.compile(r"[\W_]+")
ROW, TELLING, NEAR = 6, 20, 400  # words; letters; letters
BETWEEN = re.compile(r"[\s|·•,>»«/.:-]+|\d+")


def read_web(document: Document) -> Iterator[Block]:
    yield from web_blocks(document.content(), document.path, document.skips)


def web_blocks(page: bytes | str, path: Path, skips: SkipReport) -> Iterator[Block]:
    """Yield blocks by the lines of the page. Menus, forms, footers and lists of links are left out, and counted."""
    from bs4 import BeautifulSoup, XMLParsedAsHTMLWarning

    text = page if isinstance(page, str) else decode_page(page)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)  # XHTML is read as well
        # As bytes, since lxml would decode them again by what the page declares.
        tree = BeautifulSoup(
            text.encode("utf-8", "replace"), "lxml", from_encoding="utf-8", element_classes=_element_classes()
        )
    if tree.body is None or not tree.find(True):
        raise CorpusError(f"{path} is not a web page: it contains no HTML")
    drop_navigation(tree, skips)
    simplify_tables(tree)
    markdown = to_markdown(tree)
    places = _Places(text)
    title = " ".join(tree.title.get_text().split()) if tree.title and not tree.find("h1") else ""
    if title:
        yield Block("heading", title, 1, 1)
    for block in markdown_blocks(enumerate(markdown.splitlines(), 1), skips):
        yield places.place(block)


@cache
def _element_classes() -> Any:
    """Return a class of elements that search a child near the last one, for Beautiful Soup: its own search begins at
    the first child, so that replacing each of many children would take quadratic time."""
    from bs4 import Tag

    class Element(Tag):
        _last = 0
        _decomposed = False  # else it would be searched as the name of an element within

        def index(self, element: Any) -> int:
            before, after = self._last, self._last + 1
            while before >= 0 or after < len(self.contents):
                for place in (before, after):
                    if 0 <= place < len(self.contents) and self.contents[place] is element:
                        self._last = place
                        return place
                before, after = before - 1, after + 1
            raise ValueError("not a child of this element")

    return {Tag: Element}


class _Places:
    """Finds the lines of a page's words in its file, which the parser does not report, by comparing letters and digits
    from block to block."""

    def __init__(self, page: str) -> None:
        shown = HIDDEN.sub(lambda markup: "\n" * markup[0].count("\n"), page)
        rows = [SIGNS.sub("", html.unescape(row)) for row in re.split(r"\r\n|\r|\n", shown)]
        self._letters = "".join(rows)
        self._starts = [*accumulate(map(len, rows), initial=0)]
        self._at = 0

    def place(self, block: Block) -> Block:
        """Return the block with its lines in the file; if no word is found, the line of the words before it."""
        words = [SIGNS.sub("", word) for word in block.text.split()]
        places: list[tuple[int, int]] = []
        sure = False
        for at, word in enumerate(words):
            if not word:
                continue
            if not (sure and self._letters.startswith(word, self._at)):
                sure = self.advance(words[at:])
            if sure:
                line = self.line()
                if not places or places[-1][1] != line:
                    places.append((at, line))
                self._at += len(word)
        line = places[0][1] if places else self.line()
        return replace(block, line=line, lines=tuple(places[1:]))

    def advance(self, words: Sequence[str]) -> bool:
        """Move to where the next words occur consecutively: nearby, or anywhere if they are many."""
        row, pair = "".join(words[:ROW]), "".join(words[:2])
        at = self._letters.find(row, self._at)
        if at < 0 and len(row) >= TELLING:
            at = self._letters.find(row)
        if at < 0:
            at = self._letters.find(pair, self._at, self._at + NEAR)
        self._at = at if at >= 0 else self._at
        return at >= 0

    def line(self) -> int:
        return bisect_right(self._starts, min(self._at, len(self._letters) - 1))


def drop_navigation(tree: "BeautifulSoup", skips: SkipReport) -> None:
    """Remove what is hidden or struck through, navigation and lists of links; the words lost with it are counted."""
    show_formulas(tree)
    for box in tree.find_all("input", type="checkbox"):
        # That of a task; others open menus.
        begins = not str(box.previous_sibling or "").strip()
        if begins and box.parent is not None and box.parent.name in ("li", "p", "td", "label"):
            box.replace_with("[x] " if "checked" in box.attrs else "[ ] ")
    part_words(tree)
    for element in tree.find_all(is_unseen):
        if not element.decomposed:
            if element.name not in UNSHOWN and "headerlink" not in _classes(element):
                kind = STRUCK_WORDS if is_struck(element) else HIDDEN_WORDS
                skips.dropped[kind] += len(element.get_text(" ").split())
            element.decompose()
    words = len(tree.get_text(" ").split())
    for element in tree.find_all(is_navigation):
        if not element.decomposed:
            element.decompose()
    counts = count_links(tree)
    for element in tree.find_all(LISTS):
        if element.decomposed:
            continue
        # Links and hardly anything else, such as a menu or a table of contents.
        letters, links, linked = counts[id(element)]
        if links >= LINKS and linked >= SHARE * letters:
            element.decompose()
    if lost := words - len(tree.get_text(" ").split()):
        skips.dropped["words of menus and lists of links in web pages"] += lost


def count_links(tree: "BeautifulSoup") -> dict[int, tuple[int, int, int]]:
    """Return for each element, by its id: the letters of its text, the number of its links, the letters of these.

    Letters are those that are not BETWEEN links. Elements come after what contains them, so in the reverse order each
    is whole before it is added to its parent.
    """
    from bs4 import Tag
    from bs4.element import CData, NavigableString

    counts: dict[int, tuple[int, int, int]] = {}
    for node in reversed([*tree.descendants]):
        letters, links, linked = counts.setdefault(id(node), (0, 0, 0))
        if isinstance(node, Tag):
            if node.name == "a" and "href" in node.attrs:
                links, linked = links + 1, linked + letters
        elif type(node) in (NavigableString, CData):
            letters = len(BETWEEN.sub("", str(node)))
        before = counts.get(id(node.parent), (0, 0, 0))
        counts[id(node.parent)] = before[0] + letters, before[1] + links, before[2] + linked
    return counts


def show_formulas(tree: "BeautifulSoup") -> None:
    """Replace formulas by their text: their TeX source where they have it."""
    from bs4.element import NavigableString

    for element in tree.find_all(["math", "script"]):
        is_script = element.name == "script"
        if element.decomposed or (is_script and not str(element.get("type")).startswith("math/tex")):
            continue
        source = element.find("annotation", encoding="application/x-tex")
        words = element.get("alttext") or (source.get_text() if source else formula_text(element))
        words = " ".join(str(words).split()) or FORMULA
        before, after = element.previous_sibling, element.next_sibling
        if isinstance(before, NavigableString) and before[-1:].isalnum():
            words = f" {words}"
        if isinstance(after, NavigableString) and after[:1].isalnum():
            words += " "
        element.replace_with(words)


def formula_text(element: "Tag") -> str:
    """Return a formula in MathML as one line, such as "a/b" and "x^2"."""
    from bs4 import Tag

    parts = [
        formula_text(child) if isinstance(child, Tag) else str(child).strip()
        for child in element.children
        if not (isinstance(child, Tag) and child.name.startswith("annotation"))
    ]
    parts = [part for part in parts if part]
    if element.name in FORMULA_MARKS:
        return FORMULA_MARKS[element.name].join(parts)
    return f"√({''.join(parts)})" if element.name == "msqrt" else "".join(parts)


def part_words(tree: "BeautifulSoup") -> None:
    """Replace images by their descriptions, and put a blank where an image or icon stands between two words."""
    from bs4 import Tag
    from bs4.element import NavigableString

    icons = find_icons(tree)
    nodes = [node for node in tree.descendants if isinstance(node, NavigableString) or id(node) in icons]
    # The first letter of the text after each icon.
    following: list[str] = []
    letter = ""
    for node in reversed(nodes):
        following.append(letter)
        if isinstance(node, NavigableString):
            letter = str(node)[:1]
    left = ""
    for node, right in zip(nodes, reversed(following), strict=True):
        if not isinstance(node, Tag):
            left = str(node)[-1:]
            continue
        description = str(node.get("alt") or "") if node.name == "img" else ""
        words = description
        if left.isalnum() and (description or right)[:1].isalnum():
            words = f" {words}"
        if description[-1:].isalnum() and right.isalnum():
            words += " "
        node.replace_with(words)
        left = words[-1:]
    tree.smooth()  # adjacent texts become one, in which blanks count


def find_icons(tree: "BeautifulSoup") -> set[int]:
    """Return the ids of images and of empty elements with a class, as icons of fonts are, and empty the images. An
    element is not empty if it contains an image."""
    from bs4 import Tag
    from bs4.element import CData, NavigableString

    inside: set[int] = set()
    for image in tree.find_all(["img", "svg"]):
        if id(image) not in inside:
            inside.update(map(id, image.descendants))
            image.clear()
    icons: set[int] = set()
    filled: set[int] = set()
    for node in reversed([*tree.descendants]):  # an element after all that it contains
        if not isinstance(node, Tag):
            is_filled = type(node) in (NavigableString, CData) and bool(str(node).strip())
        elif node.name in ("img", "svg"):
            icons.add(id(node))
            is_filled = True
        else:
            is_filled = id(node) in filled
            if node.name in ("i", "span") and not is_filled and _classes(node):
                node.clear()
                icons.add(id(node))
        if is_filled:
            filled.add(id(node.parent))
    return icons


def is_unseen(element: "Tag") -> bool:
    """Return whether a browser does not show the element as text, or strikes it through."""
    return (
        element.name in UNSHOWN
        or ("hidden" in element.attrs and element.attrs["hidden"] != "until-found")
        or element.attrs.get("aria-hidden") == "true"
        or is_struck(element)
        or bool(INVISIBLE.search(str(element.attrs.get("style", ""))))
        or (element.name == "a" and "headerlink" in _classes(element))
    )


def is_struck(element: "Tag") -> bool:
    return element.name in STRUCK or bool(STRUCK_STYLE.search(str(element.attrs.get("style", ""))))


def is_navigation(element: "Tag") -> bool:
    """Return whether the element is a menu, a form or the like. (CSS selectors take three times as long.)"""
    if element.name in AROUND or element.attrs.get("role") in AROUND_ROLES:
        return True
    return not AROUND_CLASSES.isdisjoint(_classes(element))


def _classes(element: "Tag") -> Sequence[str]:
    """Return the element's classes in lower case: DocBook's older stylesheets write CLASS="NAVFOOTER"."""
    return [name.lower() for name in element.attrs.get("class") or ()]


def to_markdown(tree: "BeautifulSoup") -> str:
    from markdownify import MarkdownConverter

    wholes: dict[int, str] = {}  # the words of paragraphs, each of which may have many bold parts
    for bold in tree.find_all(["b", "strong"]):
        paragraph = bold.parent
        if not paragraph or paragraph.name != "p":
            continue
        if id(paragraph) not in wholes:
            wholes[id(paragraph)] = title_words(paragraph.get_text())
        if is_title(title_words(bold.get_text()), wholes[id(paragraph)]):
            paragraph.name = "h6"
            paragraph.string = paragraph.get_text().rstrip(" :\n")
    for element in tree.find_all(MARKUP):
        element.unwrap()
    converter = MarkdownConverter(heading_style="ATX", bullets="-", escape_misc=True)
    return str(converter.convert_soup(tree.body or tree))
