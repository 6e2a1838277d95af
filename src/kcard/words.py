"""Text as indexes and hashes see it: its words, and the hash that names a passage where its text may not travel."""

import hashlib
import re
import unicodedata

__all__ = ["passage_digest", "words"]

# Vowel signs and accents that are characters of their own; Python's \w leaves them out.
MARKS = "\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
WORD = re.compile(rf"(?:[^\W_]|[{MARKS}])+")
# Characters of scripts that put no space between words: each is a word of its own.
UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)


def words(text: str) -> list[str]:
    """Lower-case words and figures ("7th" is one), in any script. None is dropped, nothing is stemmed."""
    plain = unicodedata.normalize("NFKC", text).lower()
    return WORD.findall(UNSPACED.sub(r" \1 ", plain))


def passage_digest(text: str) -> str:
    """sha256, hexadecimal, of the text in NFC and lower case with single spaces."""
    plain = " ".join(unicodedata.normalize("NFC", text).casefold().split())
    return hashlib.sha256(plain.encode()).hexdigest()
