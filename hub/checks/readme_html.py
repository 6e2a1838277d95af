"""Renders a README as safe HTML: no scripts, styles or forms, and only pictures from the hub.

Some texts take quadratic time, such as many unclosed brackets: rendering has a time limit, and then the text is shown
as it is.
"""

import html
import posixpath
import re
import time
from functools import cache
from typing import Any
from urllib.parse import urlsplit

__all__ = ["render"]

LONGEST = 100_000  # characters; ordinary ones take 0.1 s
SECONDS = 0.2  # of processor time for the Markdown
DEADLINE = "deadline"
# Cleaning nested HTML takes quadratic time: with more HTML tags than this, they are shown as text.
MOST_TAGS = 3000
OPENED = re.compile(r"<[A-Za-z]")
TAGS = {
    "a",
    "abbr",
    "b",
    "blockquote",
    "br",
    "caption",
    "center",
    "code",
    "dd",
    "del",
    "details",
    "div",
    "dl",
    "dt",
}
TAGS |= {
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "i",
    "img",
    "ins",
    "kbd",
    "li",
    "mark",
    "ol",
    "p",
    "pre",
    "q",
}
TAGS |= {
    "s",
    "samp",
    "small",
    "span",
    "strong",
    "sub",
    "summary",
    "sup",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
}
TAGS |= {"thead", "tr", "u", "ul", "var"}
ATTRIBUTES = {
    "a": {"href", "title"},
    "img": {"src", "alt", "title", "width", "height"},
    "ol": {"start"},
    "td": {"align", "colspan", "rowspan"},
    "th": {"align", "colspan", "rowspan"},
    "p": {"align"},
    "div": {"align"},
}
SCHEMES = {"http", "https", "mailto"}
REST = '<p><em>The text continues in <a href="README.md">README.md</a>.</em></p>'
UNFORMATTED = "<p><em>This text takes too long to format.</em></p>"


class _TooSlow(Exception):
    """The time for the Markdown is over."""


def render(markdown: str, files: str = "", seconds: float = SECONDS) -> str:
    """The HTML of a README without its front matter.

    files    path of the repository's files, such as /ada/moons/resolve/main, for relative pictures and links
    seconds  of processor time; a text that takes longer is shown as it is

    External pictures lose their URL, so that their hosts don't learn who reads a card; external links stay.
    """
    import nh3

    def located(_tag: str, attribute: str, value: str) -> str | None:
        if attribute not in ("src", "href"):
            return value
        if (own := _own(value, files)) is not None:
            return own
        return value if attribute == "href" and _elsewhere(value) else None

    return nh3.clean(
        _formatted(markdown[:LONGEST], seconds) + ("" if len(markdown) <= LONGEST else REST),
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=located,
        url_schemes=SCHEMES,
        link_rel="nofollow noopener noreferrer",
    )


def _formatted(text: str, seconds: float) -> str:
    """HTML that is not yet safe."""
    parser = _parser(len(OPENED.findall(text)) <= MOST_TAGS)
    try:
        formatted: str = parser.render(text, {DEADLINE: time.thread_time() + seconds})
    except _TooSlow:
        return f"{UNFORMATTED}<pre>{html.escape(text)}</pre>"
    return formatted


@cache
def _parser(tags: bool) -> Any:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": tags}).enable(["table", "strikethrough"])
    # The first rules of a block and of a position in its text: every loop of the parser comes by here.
    parser.block.ruler.before("table", DEADLINE, _in_time, {"alt": ["paragraph", "blockquote", "list"]})
    parser.inline.ruler.before("text", DEADLINE, _in_time)
    return parser


def _in_time(state: Any, *_: object) -> bool:
    if time.thread_time() > state.env[DEADLINE]:
        raise _TooSlow
    return False


def _own(address: str, files: str) -> str | None:
    """The path on the hub of a URL that is relative to the repository; None for any other."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    if parts.scheme or parts.netloc or "\\" in address or not files:
        return None
    if not parts.path:
        return address if parts.fragment else None
    # Normalised from the root, so that `..` can't leave the repository.
    path = posixpath.normpath(posixpath.join("/", parts.path.lstrip("/")))
    return files + path + (f"#{parts.fragment}" if parts.fragment else "")


def _elsewhere(address: str) -> bool:
    """Whether it is a URL with an allowed scheme."""
    try:
        return urlsplit(address).scheme.lower() in SCHEMES
    except ValueError:
        return False
