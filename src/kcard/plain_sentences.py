"""English sentences whose borders leave no doubt, at a fraction of the time that pysbd takes.

A border is certain after a lower-case word of four letters or more that is no abbreviation, outside quotation marks and
brackets, before a capitalised word; a part without another full stop in it is one sentence. Everything else is
pysbd's to decide: initials, abbreviations, numbered lists, ellipses.
"""

import functools
import re

__all__ = ["certain", "is_one"]

BORDER = re.compile(r"(?<=[a-z]{4}[.?!])\s+(?=[A-Z][a-z])")
LAST = re.compile(r"[A-Za-z]+(?=[.?!]$)")
LISTED = re.compile(r"(?:^|\s)\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]+)[.)]\s|[•⁃]")
STRANGE = re.compile(r"[<>*…{}«»]|(?:^|\s)['‘]|\.\.|[^\x00-\x7f‘’“”–—£€éáíóúüöäñçèàâêîôû]")
ONE = re.compile(r"[A-Za-z](?:[^.!?]|(?<=\d)\.(?=\d))*[.!?]?")
PAIRS = (("(", ")"), ("[", "]"), ("“", "”"))


def certain(text: str) -> list[str]:
    """The parts between certain borders, in order, without white space around them; the whole text where there are
    none."""
    if STRANGE.search(text) or LISTED.search(text):
        return [text]
    found, begun = [], 0
    for border in BORDER.finditer(text):
        part = text[begun : border.start()]
        last = LAST.search(part)
        if last and last[0].lower() not in _abbreviations() and _closed(part):
            found.append(part)
            begun = border.end()
    return [*found, text[begun:]]


def is_one(part: str) -> bool:
    """Whether a part is certainly one sentence."""
    return bool(ONE.fullmatch(part)) and not STRANGE.search(part)


def _closed(part: str) -> bool:
    """Whether no quotation mark and no bracket is open at its end."""
    pairs = all(part.count(opening) == part.count(closing) for opening, closing in PAIRS)
    return pairs and part.count('"') % 2 == 0


@functools.cache
def _abbreviations() -> frozenset[str]:
    from pysbd.lang.english import English

    return frozenset(map(str.lower, English.Abbreviation.ABBREVIATIONS))
