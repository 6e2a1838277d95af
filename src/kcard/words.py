"""Text as indexes and hashes see it: its words, and the hash that names a passage where its text may not travel."""

import functools
import hashlib
import importlib.util
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

__all__ = [
    "STOPWORDS",
    "Analyzer",
    "analyzer",
    "command_options",
    "index_terms",
    "passage_digest",
    "small_words",
    "stemmer_of",
    "words",
]

Analyzer = Callable[[str], list[str]]

# Snowball's stemmers by the code of the language.
STEMMERS = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish",
    "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian",
    "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch", "no": "norwegian", "nb": "norwegian",
    "nn": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian",
    "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip

# Of languages that write compounds as one word the pieces of long words count too, so that their parts are found.
COMPOUNDING = frozenset(
    {"danish", "dutch", "estonian", "finnish", "german", "hungarian", "norwegian", "swedish"}
)
PIECE = 5  # letters

# Vowel signs and accents that are characters of their own; Python's \w leaves them out.
MARKS = "\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
WORD = re.compile(rf"(?:[^\W_]|[{MARKS}])+")
# Characters of scripts that put no space between words: each is a word of its own.
UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)


# An option of a command: "-R" and "-r" are two, and neither is the letter or "--durations".
OPTION = re.compile(r"(?<![\w.-])(?:-[A-Za-z]\b|--?[A-Za-z][\w-]+\b)")
EITHER, NEGATED = "--[no-]", re.compile(r"--no-[\w-]+")  # "--[no-]check" is two options


def command_options(text: str) -> list[str]:
    """Find the options of commands in a text, as they are written: ["-R", "--mkpath"]; of "--[no-]check" both."""
    if EITHER in text:
        text = f"{text.replace(EITHER, '--')} {' '.join(NEGATED.findall(text.replace(EITHER, '--no-')))}"
    return OPTION.findall(text) if "-" in text else []


def words(text: str) -> list[str]:
    """Lower-case words and figures ("7th" is one), in any script. None is dropped, nothing is stemmed."""
    plain = unicodedata.normalize("NFKC", text).lower()
    return WORD.findall(UNSPACED.sub(r" \1 ", plain))


STOPWORDS = {
    "da": "DANISH", "de": "GERMAN", "en": "EN_PLUS", "es": "SPANISH", "fr": "FRENCH", "it": "ITALIAN", "nl": "DUTCH",
    "no": "NORWEGIAN", "pt": "PORTUGUESE", "ru": "RUSSIAN", "sv": "SWEDISH", "tr": "TURKISH",
}  # fmt: skip


@functools.cache
def small_words(language: str) -> frozenset[str]:
    """Words that say little, in lower case, as bm25s lists them; none for a language that it does not know."""
    name = STOPWORDS.get(language.partition("-")[0].lower())
    return frozenset(getattr(_stopwords(), f"STOPWORDS_{name}")) if name else frozenset()


@functools.cache
def _stopwords() -> ModuleType:
    """bm25s.stopwords, without bm25s itself, which imports scipy."""
    package = importlib.util.find_spec("bm25s")
    if package is None or not package.submodule_search_locations:
        raise ImportError("bm25s is not installed: install kcard again")
    spec = importlib.util.spec_from_file_location(
        "bm25s_stopwords", Path(package.submodule_search_locations[0]) / "stopwords.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_english(language: str) -> bool:
    """Whether a language code such as "en" or "en-GB" is one of English."""
    return language.partition("-")[0].lower() == "en"


def stemmer_of(language: str) -> str | None:
    """The name of Snowball's stemmer for a language code such as "en" or "pt-BR"; None where there is none."""
    return STEMMERS.get(language.partition("-")[0].lower())


@functools.cache
def analyzer(stemmer: str | None) -> Analyzer:
    """`words`, each reduced to its stem: "retries" and "retried" are one. None stems nothing. In COMPOUNDING languages
    every run of PIECE letters of a longer word follows its stem.

    Raises ValueError for a name that Snowball does not know.
    """
    if stemmer is None:
        return words
    import snowballstemmer

    try:
        snowball = snowballstemmer.stemmer(stemmer)
    except KeyError:
        raise ValueError(f"there is no stemmer {stemmer!r}") from None
    stem = functools.lru_cache(maxsize=100_000)(snowball.stemWord)
    if stemmer in COMPOUNDING:
        return lambda text: [part for word in words(text) for part in (stem(word), *_pieces(word))]
    return lambda text: [stem(word) for word in words(text)]


def _pieces(word: str) -> list[str]:
    return [word[at : at + PIECE] for at in range(len(word) - PIECE + 1)] if len(word) > PIECE else []


def index_terms(stemmer: str | None = None) -> Analyzer:
    """What an index holds of a text: its words or their stems, and the options of commands."""
    analyze = analyzer(stemmer)
    return lambda text: [*analyze(text), *command_options(text)]


def passage_digest(text: str) -> str:
    """sha256, hexadecimal, of the text in NFC and lower case with single spaces."""
    plain = " ".join(unicodedata.normalize("NFC", text).casefold().split())
    return hashlib.sha256(plain.encode()).hexdigest()
