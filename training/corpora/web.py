"""Web pages: their text without navigation, turned into Markdown by markdownify and read as that."""

import re
import warnings
from collections.abc import Iterator, Sequence
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
BETWEEN = re.compile(r"[\s|·•,>»«/.:-]+|\d+")


def read(document: Document) -> Iterator[Block]:
    yield from blocks(document.content(), document.path, document.losses)


def blocks(page: bytes | str, path: Path, losses: Losses) -> Iterator[Block]:
    """Blocks numbered from 1. Words of menus, forms, footers and lists of links are counted, not taken."""
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
    numbered = enumerate(text.splitlines(), 1)
    yield from ([] if tree.find("h1") else _title(tree))
    for number, block in enumerate(markdown.blocks(numbered), 1):
        yield Block(block.kind, block.text, number, block.level)


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
