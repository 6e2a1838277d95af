"""A README as safe HTML: no scripts, styles or forms, and only pictures from the hub.

Some texts take quadratic time, such as many unclosed brackets. Rendering has a time limit, after which the text is
shown unformatted.
"""

import html
import posixpath
import re
import time
from functools import cache
from typing import Any
from urllib.parse import urlsplit

MAX_RENDERED_CHARACTERS = 100_000  # characters; ordinary ones take 0.1 s
MAX_RENDERING_SECONDS = 0.2  # of processor time for the Markdown
DEADLINE = "deadline"
# Cleaning nested HTML takes quadratic time; in a text with more HTML tags than this, they are shown as text.
MAX_HTML_TAGS = 3000
OPENING_TAG = re.compile(r"<[A-Za-z]")
NAMES = (
    "a abbr b blockquote br caption center code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i img ins kbd li "
    "mark ol p pre q s samp small span strong sub summary sup table tbody td tfoot th thead tr u ul var"
)
TAGS = {*NAMES.split()}
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
CONTINUED_NOTICE = '<p><em>The text continues in <a href="README.md">README.md</a>.</em></p>'
UNFORMATTED_NOTICE = "<p><em>This text takes too long to format.</em></p>"


class _TooSlow(Exception):
    """The time limit for the Markdown was exceeded."""


def render_readme(markdown: str, files: str = "", seconds: float = MAX_RENDERING_SECONDS) -> str:
    """Return the HTML of a README without its front matter.

    files    path of the repository's files, such as /ada/moons/resolve/main, for relative pictures and links
    seconds  limit of processor time; a text that takes longer is shown unformatted

    External pictures lose their URL, so that their hosts don't learn who reads a card; external links stay.
    """
    import nh3

    def located(_tag: str, attribute: str, value: str) -> str | None:
        if attribute not in ("src", "href"):
            return value
        own = _path_on_hub(value, files)
        if own is not None:
            return own
        if attribute != "href":
            return None
        try:
            return value if urlsplit(value).scheme.lower() in SCHEMES else None
        except ValueError:
            return None

    text = markdown[:MAX_RENDERED_CHARACTERS]
    parser = _make_parser(len(OPENING_TAG.findall(text)) <= MAX_HTML_TAGS)
    try:
        unsafe: str = parser.render(text, {DEADLINE: time.thread_time() + seconds})
    except _TooSlow:
        unsafe = f"{UNFORMATTED_NOTICE}<pre>{html.escape(text)}</pre>"
    return nh3.clean(
        unsafe + ("" if len(markdown) <= MAX_RENDERED_CHARACTERS else CONTINUED_NOTICE),
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=located,
        url_schemes=SCHEMES,
        link_rel="nofollow noopener noreferrer",
    )


@cache
def _make_parser(tags: bool) -> Any:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": tags}).enable(["table", "strikethrough"])
    # The first rules of a block and of a position in its text: every loop of the parser comes by here.
    parser.block.ruler.before("table", DEADLINE, _check_time, {"alt": ["paragraph", "blockquote", "list"]})
    parser.inline.ruler.before("text", DEADLINE, _check_time)
    return parser


def _check_time(state: Any, *_: object) -> bool:
    if time.thread_time() > state.env[DEADLINE]:
        raise _TooSlow
    return False


def _path_on_hub(address: str, files: str) -> str | None:
    """Return the path on the hub of a URL that is relative to the repository; None for any other."""
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
