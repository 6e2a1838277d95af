"""Which language a corpus is in, as far as its text tells."""

from collections import Counter
from collections.abc import Sequence

from kcard.language import identify

__all__ = ["detect"]

SAMPLE = 100  # passages, spread over the corpus
LETTERS = 40  # that a text must have to tell a language
SHARE = 0.5  # of the sample that must be in one language


def detect(texts: Sequence[str]) -> str | None:
    """The ISO 639-1 code of the language that most passages are in; None where they are too short or too mixed."""
    sample = [
        text for text in texts[:: max(1, len(texts) // SAMPLE)] if sum(map(str.isalpha, text)) >= LETTERS
    ]
    if not sample:
        return None
    found = Counter(identify(text) for text in sample)
    language, count = found.most_common(1)[0]
    return language if count > SHARE * len(sample) else None
