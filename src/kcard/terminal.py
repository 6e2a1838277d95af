"""Text of others, made safe for a terminal: what it would obey is shown as an escape sequence instead."""

import json
import re

__all__ = ["json_escaped", "printable"]

# Control characters (C0 without tab and line feed, DEL, C1), what reverses the order of text, and surrogates, which
# can't be encoded. Joiners and direction marks stay: scripts need them.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with \x1b in place of an escape character, and likewise for all others that a terminal obeys."""
    return OBEYED.sub(lambda found: _escape(found[0]), text)


def json_escaped(text: str) -> str:
    """Serialized JSON in which such characters are escaped; it stays the same value."""
    return OBEYED.sub(lambda found: json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f", text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
