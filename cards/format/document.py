"""What a card wrote, made into a document: trimmed, and without a last sentence that was cut off."""

import functools
from typing import Any

__all__ = ["clean"]

# Marks that end a sentence wherever they stand, in scripts that have them; a full stop may belong to "Dr.".
ALWAYS = ("。", "！", "？", "।", "॥", "؟", "۔", "။", "។")
ENDS = (".", "!", "?", "…", *ALWAYS)
CLOSING = "\"')]}»”’"


def clean(text: str, ended: bool) -> str:
    """The text stripped. Where the token limit cut it off (`ended` False) and a finished sentence precedes
    the unfinished one, without the latter. Never empty for a text that is not."""
    text = text.strip()
    if ended or not text or text.rstrip(CLOSING).endswith(ENDS):
        return text
    if (end := max(text.rfind(mark) for mark in ALWAYS)) >= 0:
        closing = len(text[end + 1 :]) - len(text[end + 1 :].lstrip(CLOSING + "」』"))
        return text[: end + 1 + closing]
    sentences = [sentence.strip() for sentence in _splitter().segment(text)]
    # The splitter gives back its own copies: the cut is found in the text itself.
    last = text.rfind(sentences[-1]) if len(sentences) > 1 else 0
    kept = text[: max(last, 0)].rstrip()
    return kept if kept.rstrip(CLOSING).endswith(ENDS) else text


@functools.cache
def _splitter() -> Any:
    import pysbd

    # It knows abbreviations: a document must not be cut after "U.S." or "Dr.".
    return pysbd.Segmenter(language="en", clean=False)
