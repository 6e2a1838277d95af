"""Lines that tell nothing: page numbers, tables of contents, copyright lines, buttons of web pages.

Rules are narrow on purpose: a footer that stays costs little, a statement that goes is lost.
"""

import re

__all__ = ["why_boilerplate"]

LONGEST = 160

PAGE = re.compile(
    r"[-–—|\s]*(?:(?:page|p\.|pg\.?|seite|s\.|página|pág\.?|pagina|strona|str\.?|sida|side|стр\.?|страница)\s*"
    r"(?:\d+|[ivxlc]+)(?:\s*(?:of|/|von|de|di|z|av|из)\s*\d+)?|第\s*\d+\s*[页頁])[-–—|.\s]*",
    re.IGNORECASE,
)
LEADERS = re.compile(r".*?(?:(?:\.\s?){5,}|(?:…\s?){2,}|(?:·\s?){5,})(?:\d+|[ivxlc]+)", re.IGNORECASE)
COPYRIGHT = re.compile(
    r"(?:copyright\s*(?:©|\(c\))|©(?:\s*copyright)?)\s*(?:\d{4}|by\b).{0,120}"
    r"|(?:.{0,60}(?:©|\(c\)|copyright|\d{4}).{0,60})?\ball rights reserved\.?",
    re.IGNORECASE,
)
RESERVED = re.compile("©|[Cc]opyright|COPYRIGHT|[Rr]eserved|RESERVED")
BUTTONS = frozenset(
    """
accept all|accept all cookies|accept cookies|back to top|cookie policy|cookie settings|cookie preferences
decline all|jump to content|jump to navigation|jump to search|log in|manage cookies|next page|previous page
privacy policy|reject all|scroll to top|share on facebook|share on twitter|share this page|sign in|sign up
site map|sitemap|skip to content|skip to main content|skip to navigation|subscribe to our newsletter
table of contents|terms and conditions|terms of service|terms of use|toggle navigation
""".strip().replace("\n", "|").split("|")
)  # fmt: skip


def why_boilerplate(text: str) -> str | None:
    """Why a passage is boilerplate, as a plural noun; None for one that is not."""
    if not any(character.isalpha() for character in text):
        return "lines without letters"
    if len(text) > LONGEST:
        return None
    if len(text) <= 40 and PAGE.fullmatch(text):
        return "page numbers"
    if text[-1].isalnum() and LEADERS.fullmatch(text):
        return "lines of tables of contents"
    if RESERVED.search(text) and COPYRIGHT.fullmatch(text):
        return "copyright lines"
    if len(text) <= 40 and text.strip(" .:»›→|").casefold() in BUTTONS:
        return "buttons of web pages"
    return None
