"""Web pages: without navigation, converted into Markdown by markdownify."""

import html
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import CorpusError
from kcard.training.readers.encodings import decode_page
from kcard.training.readers.files import Block, Document, SkipReport
from kcard.training.readers.markup import (
    HIDDEN_WORDS,
    STRUCK,
    STRUCK_WORDS,
    front_fields,
    is_title,
    markdown_blocks,
    title_words,
)
from kcard.training.readers.web_tables import simplify_tables

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

UNSHOWN_TAGS = {"script", "style", "template", "noscript", "svg", "iframe", "object", "canvas"}
NAVIGATION_TAGS = {"nav", "footer", "form", "button", "select"}
NAVIGATION_ROLES = {"navigation", "search", "contentinfo"}
NAVIGATION_CLASSES = {"navheader", "navfooter", "sphinxsidebar", "related", "header-panel", "linenos"}
MARKUP = ["a", "b", "strong", "em", "i", "u", "del", "s", "sub", "sup", "span", "font", "cite", "var", "abbr"]
LISTS = ["ul", "ol", "dl", "table", "p", "div"]
MIN_MENU_LINKS, MIN_MENU_SHARE = 3, 0.8  # links, and their share of the text, in a list of links
# A comment or script that is never closed lasts until the end, so that the rest is not searched for each of many.
HIDDEN_MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*+>|\Z)|<[^<>]*>", re.DOTALL | re.IGNORECASE
)
INVISIBLE_STYLE = re.compile(r"(?:^|[;\s])(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
STRUCK_STYLE = re.compile(r"(?:^|[;\s])text-decoration(?:-line)?\s*:[^;]*\bline-through", re.IGNORECASE)
ICON = re.compile(r"\bicons?\b|\bfa[srb]?\b|\bmaterial-|\banchor\b|\bheaderlink\b")  # classes
# Classes of texts that are only spoken.
_SPOKEN_CLASSES = """
sr-only visually-hidden visuallyhidden screen-reader-text screen-reader-only assistive-text offscreen off-screen
a-offscreen u-visually-hidden is-visually-hidden
"""
SPOKEN_CLASSES = frozenset(_SPOKEN_CLASSES.split())
NEAR_SIBLINGS = 3  # on each side of a text, among which its spoken form is searched
# Between the parts of MathML.
FORMULA_MARKS = {"mfrac": "/", "msup": "^", "msub": "_", "mtr": ", ", "mtable": "; "}
FORMULA = "[formula]"  # in place of one without words
SIGNS = re.compile(r"[\W_]+")
MATCHED_WORDS = 6  # by which a place is found
MIN_UNIQUE_LETTERS = 20  # that are sought in the whole page
MAX_GAP_LETTERS = 400  # between two words of which only two are sought
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
    fields = page_fields(tree)
    drop_navigation(tree, skips)
    simplify_tables(tree)
    markdown = to_markdown(tree)
    places = _Places(text)
    title = " ".join(tree.title.get_text().split()) if tree.title else ""
    if title and (fields or not tree.find("h1")):
        fields["title"] = title
    yield from front_fields(fields, 1)
    for block in markdown_blocks(enumerate(markdown.splitlines(), 1), skips):
        yield places.place(block)


# The names of fields in a page's head, as front matter names them.
FIELD_NAMES = {
    **dict.fromkeys(("author", "dc.creator", "dcterms.creator", "article:author"), "author"),
    **dict.fromkeys(("date", "dc.date", "dcterms.date", "dcterms.created", "article:published_time"), "date"),
    **dict.fromkeys(("last-modified", "dcterms.modified", "article:modified_time"), "lastmod"),
    "description": "description",
}


def page_fields(tree: "BeautifulSoup") -> dict[str, str]:
    """Return the author, the date and the description that the head of a page names."""
    fields: dict[str, str] = {}
    for element in tree.find_all("meta"):
        name = FIELD_NAMES.get(str(element.get("name") or element.get("property") or "").lower())
        value = " ".join(str(element.get("content") or "").split())
        if name and value:
            fields.setdefault(name, value)
    return fields


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
        shown = HIDDEN_MARKUP.sub(lambda markup: "\n" * markup[0].count("\n"), page)
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
        if not places:
            return replace(block, line=self.line(), lines=())
        return replace(block, line=places[0][1], lines=tuple(places[1:]))

    def advance(self, words: Sequence[str]) -> bool:
        """Move to where the next words occur consecutively: nearby, or anywhere if they are many."""
        row, pair = "".join(words[:MATCHED_WORDS]), "".join(words[:2])
        at = self._letters.find(row, self._at)
        if at < 0 and len(row) >= MIN_UNIQUE_LETTERS:
            at = self._letters.find(row)
        if at < 0:
            at = self._letters.find(pair, self._at, self._at + MAX_GAP_LETTERS)
        if at < 0:
            return False
        self._at = at
        return True

    def line(self) -> int:
        return bisect_right(self._starts, min(self._at, len(self._letters) - 1))


def converted_blocks(page: str, document: Document) -> Iterator[Block]:
    """Yield the blocks of a document that was converted into the body of a page, numbered from 1."""
    if page.strip():
        blocks = web_blocks(f"<html><body>{page}</body></html>", document.path, document.skips)
        for number, block in enumerate(blocks, 1):
            yield replace(block, line=number, lines=())


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
            if element.name not in UNSHOWN_TAGS and "headerlink" not in _classes(element):
                kind = HIDDEN_WORDS
                if is_struck(element):
                    kind = STRUCK_WORDS
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
        if links >= MIN_MENU_LINKS and linked >= MIN_MENU_SHARE * letters:
            element.decompose()
    skips.dropped["words of menus and lists of links in web pages"] += words - len(tree.get_text(" ").split())


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
        words = element.get("alttext")
        if not words:
            source = element.find("annotation", encoding="application/x-tex")
            words = source.get_text() if source else formula_text(element)
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

    parts = []
    for child in element.children:
        if not isinstance(child, Tag):
            parts.append(str(child).strip())
        elif not child.name.startswith("annotation"):
            parts.append(formula_text(child))
    text = FORMULA_MARKS.get(element.name, "").join(filter(None, parts))
    if element.name == "msqrt":
        return f"√({text})"
    return text


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
        description = ""
        if node.name == "img":
            description = str(node.get("alt") or "")
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
        element.name in UNSHOWN_TAGS
        or ("hidden" in element.attrs and element.attrs["hidden"] != "until-found")
        or (element.attrs.get("aria-hidden") == "true" and is_replaced(element))
        or is_struck(element)
        or bool(INVISIBLE_STYLE.search(str(element.attrs.get("style", ""))))
        or is_permalink(element)
    )


def is_permalink(element: "Tag") -> bool:
    """Return whether a link leads to the place where it stands, as beside headings of Sphinx and terms of Texinfo."""
    return element.name == "a" and ("headerlink" in _classes(element) or element.get_text().strip() == "¶")


def is_replaced(element: "Tag") -> bool:
    """Return whether what screen readers pass over is an ornament or an icon, or has a text beside it that they read in
    its place."""
    words = element.get_text()
    if not any(map(str.isalnum, words)) or ICON.search(" ".join(_classes(element))):
        return True
    parent = element.parent
    # The text may be beside an element that holds only this one.
    while parent is not None and len(parent.contents) == 1 and parent.parent is not None:
        element, parent = parent, parent.parent
    siblings = [
        *element.find_previous_siblings(limit=NEAR_SIBLINGS),
        *element.find_next_siblings(limit=NEAR_SIBLINGS),
    ]
    return any(not SPOKEN_CLASSES.isdisjoint(_classes(sibling)) for sibling in siblings)


def is_struck(element: "Tag") -> bool:
    return element.name in STRUCK or bool(STRUCK_STYLE.search(str(element.attrs.get("style", ""))))


def is_navigation(element: "Tag") -> bool:
    """Return whether the element is a menu, a form or the like. (CSS selectors take three times as long.)"""
    if element.name in NAVIGATION_TAGS or element.attrs.get("role") in NAVIGATION_ROLES:
        return True
    return not NAVIGATION_CLASSES.isdisjoint(_classes(element))


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
    join_terms(tree)
    converter = MarkdownConverter(heading_style="ATX", bullets="-", escape_misc=True)
    return str(converter.convert_soup(tree.body or tree))


def join_terms(tree: "BeautifulSoup") -> None:
    """Make one term of those that share a definition, such as the names of an option: "-x, --nohelp"."""
    from bs4 import Tag

    for definition in tree.find_all("dd"):
        terms = []
        for element in definition.previous_siblings:
            if isinstance(element, Tag) and element.name == "dt":
                terms.append(element)
            elif str(element).strip():
                break
        for term in reversed(terms[:-1]):
            terms[-1].append(", ")
            terms[-1].extend(list(term.contents))
            term.decompose()
