"""Which language a text or a corpus is in: py3langid knows 97, and plain English is recognised without its model."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from kcard.words import STOPWORDS, small_words, words

__all__ = ["detect", "identify", "is_plain_english", "language_name", "language_of_question"]

# Common in English and in hardly any other language that uses its letters.
_ENGLISH = "the and that with this which from are you what does its these their when where who how"
_SMALL = "of in is was to a an for it as at on by be has have been or not if can"
ENGLISH = frozenset(_ENGLISH.split())
SMALL = ENGLISH | frozenset(_SMALL.split())
SHARE = 0.2  # of the words of a text that must be small ones
DISTINCT = 2  # of the words of ENGLISH that it must have
SAMPLE = 100  # texts, spread over a corpus
LETTERS = 40  # that a text must have to tell a language
LEAD = (
    2  # small words of a language that a question must have more than English ones, and the other way round
)
LATIN = "\u0250"  # the first character behind the Latin letters
NAMES = {
    "da": "Danish", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "it": "Italian", "nl": "Dutch",
    "no": "Norwegian", "pt": "Portuguese", "ru": "Russian", "sv": "Swedish", "tr": "Turkish",
    "ar": "Arabic", "cs": "Czech", "el": "Greek", "fi": "Finnish", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian",
    "ja": "Japanese", "ko": "Korean", "pl": "Polish", "uk": "Ukrainian", "zh": "Chinese",
}  # fmt: skip
MAJORITY = 0.5  # share of the sample that must be in one language


@lru_cache(maxsize=256)
def identify(text: str) -> str:
    """Return the ISO 639-1 code of the language that a text is likeliest in.

    The model of py3langid takes .3 s to load, a quarter of a cold question: so plain English is taken for English
    without it.
    """
    if is_plain_english(text):
        return "en"
    import py3langid

    return str(py3langid.classify(text)[0])


def is_plain_english(text: str) -> bool:
    """Whether a fifth of a text's words are small English ones, two of them unmistakable."""
    tokens = words(text)
    small = sum(token in SMALL for token in tokens)
    return len(ENGLISH.intersection(tokens)) >= DISTINCT and small >= SHARE * len(tokens)


def language_of_question(question: str) -> str | None:
    """Return the ISO 639-1 code of the language that a question is in; None where it is too short or too mixed.

    A model that identifies texts errs on a few words: a Latin one must have small words of its language as well.
    """
    tokens = words(question)
    letters = [character for character in question if character.isalpha()]
    if sum(character >= LATIN for character in letters) > len(letters) / 2:
        return identify(question)
    counts = {code: sum(token in small_words(code) for token in tokens) for code in STOPWORDS}
    english = counts.pop("en")
    best = max(counts.values())
    if english >= best + LEAD or is_plain_english(question):
        return "en"
    if best < english + LEAD:
        return None
    likely = identify(question)
    return likely if counts.get(likely, 0) >= LEAD else max(counts, key=lambda code: counts[code])


def language_name(code: str) -> str | None:
    """Return what English calls a language; None where that is not known here."""
    return NAMES.get(code.partition("-")[0].lower())


def detect(texts: Sequence[str]) -> str | None:
    """Return the language that most texts of a corpus are in; None where they are too short or too mixed."""
    spread = texts[:: max(1, len(texts) // SAMPLE)]
    sample = [text for text in spread if sum(map(str.isalpha, text)) >= LETTERS]
    if not sample:
        return None
    if sum(map(is_plain_english, sample)) > MAJORITY * len(sample):
        return "en"
    language, count = Counter(identify(text) for text in sample).most_common(1)[0]
    return language if count > MAJORITY * len(sample) else None
