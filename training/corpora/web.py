"""Web pages: their text without navigation, turned into Markdown by markdownify and read as that."""

import html
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.errors import CorpusError
from kcard.training.corpora import markdown
from kcard.training.corpora.document import Block, Document, Losses

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

__all__ = ["blocks", "read"]

UNSHOWN = {"script", "style", "template", "noscript", "svg", "math", "iframe", "object", "canvas"}
AROUND = {"nav", "footer", "form", "button", "select"}
AROUND_ROLES = {"navigation", "search", "contentinfo"}
AROUND_CLASSES = {"navheader", "navfooter", "sphinxsidebar", "related", "header-panel"}
MARKUP = ["a", "b", "strong", "em", "i", "u", "del", "s", "sub", "sup", "span", "font", "cite", "var", "abbr"]
LISTS = ["ul", "ol", "dl", "table", "p", "div"]
LINKS, SHARE = 3, 0.8  # so many links that hold so much of the text are a list of links
HIDDEN = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1\s*>|<[^<>]*>", re.DOTALL | re.IGNORECASE)
SIGNS = re.compile(r"[\W_]+")
ROW, TELLING, NEAR = 6, 20, 400  # words; letters; letters
BETWEEN = re.compile(r"[\s|·•,>»«/.:-]+|\d+")


def read(document: Document) -> Iterator[Block]:
    yield from blocks(document.content(), document.path, document.losses)


def blocks(page: bytes | str, path: Path, losses: Losses) -> Iterator[Block]:
    """Blocks by the lines of the page. Words of menus, forms, footers and lists of links are counted, not taken."""
    from bs4 import BeautifulSoup, XMLParsedAsHTMLWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)  # XHTML is read as well
        tree = BeautifulSoup(page, "lxml")
    if tree.body is None or not tree.find(True):
        raise CorpusError(f"{path} is not a web page: it contains no HTML")
    _drop(tree, losses)
    try:
        text = _markdown(tree)
    except RecursionError:
        raise CorpusError(f"{path} can't be read: its elements are nested too deeply") from None
    places = _Places(
        page if isinstance(page, str) else page.decode(tree.original_encoding or "utf-8", "replace")
    )
    yield from ([] if tree.find("h1") else _title(tree))
    for block in markdown.blocks(enumerate(text.splitlines(), 1)):
        yield places.placed(block)


class _Places:
    """Where the words of a page stand in its file, which the parser does not tell. Letters and digits are compared,
    from block to block in their order."""

    def __init__(self, page: str) -> None:
        shown = HIDDEN.sub(lambda markup: "\n" * markup[0].count("\n"), page)
        rows = [SIGNS.sub("", html.unescape(row)) for row in re.split(r"\r\n|\r|\n", shown)]
        self._letters = "".join(rows)
        self._starts = [*accumulate(map(len, rows), initial=0)]
        self._at = 0

    def placed(self, block: Block) -> Block:
        """The block with the lines of the file; where none of its words is found, that of the words before it."""
        words = [SIGNS.sub("", word) for word in block.text.split()]
        places: list[tuple[int, int]] = []
        sure = False
        for at, word in enumerate(words):
            if not word:
                continue
            if not (sure and self._letters.startswith(word, self._at)):
                sure = self._seek(words[at:])
            if sure:
                line = self._line()
                if not places or places[-1][1] != line:
                    places.append((at, line))
                self._at += len(word)
        line = places[0][1] if places else self._line()
        return replace(block, line=line, lines=tuple(places[1:]))

    def _seek(self, words: Sequence[str]) -> bool:
        """Go to where the next words stand in a row: near by, or where they are many anywhere."""
        row, pair = "".join(words[:ROW]), "".join(words[:2])
        at = self._letters.find(row, self._at)
        if at < 0 and len(row) >= TELLING:
            at = self._letters.find(row)
        if at < 0:
            at = self._letters.find(pair, self._at, self._at + NEAR)
        self._at = at if at >= 0 else self._at
        return at >= 0

    def _line(self) -> int:
        return bisect_right(self._starts, min(self._at, len(self._letters) - 1))


def _title(tree: "BeautifulSoup") -> list[Block]:
    title = " ".join(tree.title.get_text().split()) if tree.title else ""
    return [Block("heading", title, 1, 1)] if title else []


def _drop(tree: "BeautifulSoup", losses: Losses) -> None:
    """Take out what is not the page's own text."""
    for element in tree.find_all(_is_unshown):
        element.decompose()
    words = len(tree.get_text(" ").split())
    for element in tree.find_all(_is_around):
        element.decompose()
    for element in tree.find_all(LISTS):
        if not element.decomposed and _is_links(element):
            element.decompose()
    if lost := words - len(tree.get_text(" ").split()):
        losses.dropped["words of menus and lists of links in web pages"] += lost


def _is_unshown(element: "Tag") -> bool:
    """Whether a browser does not show it as text."""
    return (
        element.name in UNSHOWN
        or "hidden" in element.attrs
        or element.attrs.get("aria-hidden") == "true"
        or (element.name == "a" and "headerlink" in _classes(element))
    )


def _is_around(element: "Tag") -> bool:
    """Whether it is a menu, a form or the like. (CSS selectors say the same and take three times as long.)"""
    if element.name in AROUND or element.attrs.get("role") in AROUND_ROLES:
        return True
    return not AROUND_CLASSES.isdisjoint(_classes(element))


def _classes(element: "Tag") -> Sequence[str]:
    return element.attrs.get("class") or ()


def _is_links(element: "Tag") -> bool:
    """Whether it holds links and hardly anything else, such as a menu or a table of contents."""
    links = element.find_all("a", href=True)
    if len(links) < LINKS:
        return False
    linked = sum(len(BETWEEN.sub("", link.get_text())) for link in links)
    return linked >= SHARE * len(BETWEEN.sub("", element.get_text()))


def _markdown(tree: "BeautifulSoup") -> str:
    from markdownify import MarkdownConverter

    for picture in tree.find_all("img"):
        picture.replace_with(str(picture.get("alt") or ""))
    for bold in tree.find_all(["b", "strong"]):
        paragraph = bold.parent
        if paragraph and paragraph.name == "p" and markdown.is_title(bold.get_text(), paragraph.get_text()):
            paragraph.name = "h6"
            paragraph.string = paragraph.get_text().rstrip(" :\n")
    for element in tree.find_all(MARKUP):
        element.unwrap()
    converter = MarkdownConverter(heading_style="ATX", bullets="-", escape_misc=True)
    return str(converter.convert_soup(tree.body or tree))
