"""Words, stems, sentences, numbers and the language of a text."""

import functools
import hashlib
import importlib.util
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

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

# In languages that write compounds as one word, pieces of long words are indexed too, so that their parts are found.
COMPOUNDING_LANGUAGES = frozenset(
    {"danish", "dutch", "estonian", "finnish", "german", "hungarian", "norwegian", "swedish"}
)
WORD_PIECE = 5  # letters

# Vowel signs and accents that are characters of their own; Python's \w leaves them out.
MARKS = "\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
WORD = re.compile(rf"(?:[^\W_]|[{MARKS}])+")
# Characters of scripts without spaces between words: each counts as a word.
UNSPACED_SCRIPT = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)


# An option of a command: "-R", "-r" and "--durations" differ from each other and from the letter.
OPTION = re.compile(r"(?<![\w.-])(?:-[A-Za-z]\b|--?[A-Za-z][\w-]+\b)")
EITHER_PREFIX, NEGATED_OPTION = "--[no-]", re.compile(r"--no-[\w-]+")  # "--[no-]check" stands for two options


def command_options(text: str) -> list[str]:
    """Return the options of commands in a text: ["-R", "--mkpath"]; for "--[no-]check" both forms."""
    if EITHER_PREFIX in text:
        negated = NEGATED_OPTION.findall(text.replace(EITHER_PREFIX, "--no-"))
        text = " ".join([text.replace(EITHER_PREFIX, "--"), *negated])
    return OPTION.findall(text) if "-" in text else []


def words(text: str) -> list[str]:
    """Return all words and numbers ("7th" is one) in any script, in lower case, without stemming."""
    plain = unicodedata.normalize("NFKC", text).lower()
    return WORD.findall(UNSPACED_SCRIPT.sub(r" \1 ", plain))


def spaced_words(text: str) -> str:
    """Return the words of a text with a blank before and after each, so that whole words can be searched in it."""
    return f" {' '.join(words(text))} "


STOPWORDS = {
    "da": "DANISH", "de": "GERMAN", "en": "EN_PLUS", "es": "SPANISH", "fr": "FRENCH", "it": "ITALIAN", "nl": "DUTCH",
    "no": "NORWEGIAN", "pt": "PORTUGUESE", "ru": "RUSSIAN", "sv": "SWEDISH", "tr": "TURKISH",
}  # fmt: skip


@functools.cache
def small_words(language: str) -> frozenset[str]:
    """Return the stop words of a language, in lower case, from bm25s; none for an unknown language."""
    name = STOPWORDS.get(language.partition("-")[0].lower())
    return frozenset(getattr(_stopwords(), f"STOPWORDS_{name}")) if name else frozenset()


@functools.cache
def _stopwords() -> ModuleType:
    """Import bm25s.stopwords without bm25s itself, which imports scipy."""
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
    """Return whether a language code, such as "en" or "en-GB", means English."""
    return language.partition("-")[0].lower() == "en"


def stemmer_of(language: str) -> str | None:
    """Return the name of Snowball's stemmer for a language code such as "en" or "pt-BR"; None if there is none."""
    return STEMMERS.get(language.partition("-")[0].lower())


@functools.cache
def analyzer(stemmer: str | None) -> Analyzer:
    """Return an analyzer: `words`, reduced to stems so that "retries" equals "retried"; None: without stemming.

    In COMPOUNDING_LANGUAGES languages the stem of a long word is followed by its pieces of WORD_PIECE letters.

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
    if stemmer in COMPOUNDING_LANGUAGES:

        def stems_and_pieces(text: str) -> list[str]:
            terms = []
            for word in words(text):
                terms.append(stem(word))
                if len(word) > WORD_PIECE:
                    terms += [word[at : at + WORD_PIECE] for at in range(len(word) - WORD_PIECE + 1)]
            return terms

        return stems_and_pieces
    return lambda text: [stem(word) for word in words(text)]


def index_terms(stemmer: str | None = None) -> Analyzer:
    """Return an analyzer for the terms of an index: words or their stems, and options of commands."""
    analyze = analyzer(stemmer)
    return lambda text: [*analyze(text), *command_options(text)]


def passage_digest(text: str) -> str:
    """Return the sha256, hexadecimal, of the text in NFC and lower case with single spaces."""
    plain = " ".join(unicodedata.normalize("NFC", text).casefold().split())
    return hashlib.sha256(plain.encode()).hexdigest()


# Certain boundaries of English sentences, found in a fraction of the time of pysbd.
#
# A boundary is certain after a lower-case word of at least four letters that is not an abbreviation, outside quotation
# marks and brackets, before a capitalised word; a part without another full stop is one sentence. pysbd decides about
# everything else: initials, abbreviations, numbered lists, ellipses.

BORDER = re.compile(r"(?<=[a-z]{4}[.?!])\s+(?=[A-Z][a-z])")
LAST = re.compile(r"[A-Za-z]+(?=[.?!]$)")
LIST_ITEM = re.compile(r"(?:^|\s)\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]+)[.)]\s|[•⁃]")
STRANGE = re.compile(r"[<>*…{}«»]|(?:^|\s)['‘]|\.\.|[^\x00-\x7f‘’“”–—£€éáíóúüöäñçèàâêîôû]")
ONE = re.compile(r"[A-Za-z](?:[^.!?]|(?<=\d)\.(?=\d))*[.!?]?")
PAIRS = (("(", ")"), ("[", "]"), ("“", "”"))


def certain(text: str) -> list[str]:
    """Return the parts between certain boundaries, in order and stripped; the whole text if there are none."""
    if STRANGE.search(text) or LIST_ITEM.search(text):
        return [text]
    parts, start = [], 0
    for border in BORDER.finditer(text):
        part = text[start : border.start()]
        last = LAST.search(part)
        if not last or last[0].lower() in _abbreviations():
            continue
        # No quotation mark and no bracket may be open at its end.
        balanced = all(part.count(opening) == part.count(closing) for opening, closing in PAIRS)
        if balanced and part.count('"') % 2 == 0:
            parts.append(part)
            start = border.end()
    return [*parts, text[start:]]


def is_one(part: str) -> bool:
    """Return whether a part is certainly a single sentence."""
    return bool(ONE.fullmatch(part)) and not STRANGE.search(part)


@functools.cache
def _abbreviations() -> frozenset[str]:
    from pysbd.lang.english import English

    return frozenset(map(str.lower, English.Abbreviation.ABBREVIATIONS))


# Sentences by pysbd's rules, in which initials, titles and abbreviations end none ("J. D. Vance", "U.S. Senate").
#
# The rules are for English; other scripts are split at their own full stops, as far as the rules know them.

# pysbd's time grows with the square of the length: 8 kB take 0.08 s, 230 kB more than a minute.
SENTENCE_PIECE = 1000
# It also grows with the number of full stops; a long piece with more than one per 20 characters is not prose.
FULL_STOP, MAX_STOP_SHARE, MIN_DENSE_CHARACTERS = re.compile(r"[.!?。！？]"), 0.05, 400
PLAIN_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")
BOUNDARY = re.compile(r"(?<=\w\w[.!?])\s+")
# An abbreviation, or a folder: "cd ..".
UNFINISHED_SENTENCE = re.compile(r"(?:^|\s)(?:(?:approx|ca|c|cf|fl|b|d|r)\.|\.\.)$", re.IGNORECASE)
# A full stop that begins a name, if no white space follows: "~/.config", ".NET", "./configure".
LEADING_DOT = re.compile(r"(?:^|[^\w)\]\"'”’»%!?…])\.$")
# What begins no sentence, if no white space precedes it: "opts().name", "#!/bin/sh", "a?b=1".
INNER = re.compile(r"[a-z/\\=&_]")
LIST_MARK = re.compile(r"^(?:[-*•]|\(?\d{1,3}[.)])\s+")  # before an item of a list
END = re.compile(r"[.!?…。！？؟।][\"'”’»)\]]*$")


@functools.cache
def segmenter() -> Any:
    """Load pysbd, which knows abbreviations: no sentence ends after "U.S." or "Dr."."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its source has escapes that Python warns of when it compiles them
        import pysbd
    return pysbd.Segmenter(language="en", clean=False)


def file_title(file: str) -> str:
    """Return the name of a file as a title: without folders, suffix and hyphens."""
    return re.sub(r"[-_]+", " ", PurePath(file.removesuffix(".gz")).stem)


def split_sentences(text: str) -> list[str]:
    """Return all sentences of a text in order, stripped; a line break ends a sentence."""
    sentences: list[str] = []
    for piece in pieces(text):
        sentences += _sentences(piece)
    return sentences


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the span (start, end) of each sentence of a text, in order, without white space around it."""
    return list(_spans(text))


@functools.lru_cache(maxsize=4096)
def _spans(text: str) -> tuple[tuple[int, int], ...]:
    spans: list[tuple[int, int]] = []
    at = 0
    for sentence in split_sentences(text):
        span = _span_of(sentence.split(), text, at)
        if span:
            spans.append(span)
            at = span[1]
    return tuple(spans)


def _span_of(sentence: Sequence[str], text: str, at: int) -> tuple[int, int] | None:
    """Return the span, from `at` on, of words with white space between them; None if there is none. No pattern is
    compiled for each sentence: they would drive those of pysbd out of the cache of `re`."""
    start = text.find(sentence[0], at)
    while start >= 0:
        end = start + len(sentence[0])
        for word in sentence[1:]:
            begin = end
            while text[begin : begin + 1].isspace():
                begin += 1
            if begin == end or not text.startswith(word, begin):
                break
            end = begin + len(word)
        else:
            return start, end
        start = text.find(sentence[0], start + 1)
    return None


def pieces(text: str) -> list[str]:
    """Split the text into consecutive pieces of at most about 1000 characters, at ends of lines or sentences."""
    parts = []
    for line in text.splitlines():
        line = line.strip()
        start = 0
        # Cut after words that end in a full stop, else after a word.
        while len(line) - start > SENTENCE_PIECE:
            end = start + SENTENCE_PIECE
            cuts = [match.end() for match in BOUNDARY.finditer(line, start, end)]
            cut = cuts[-1] if cuts else line.rfind(" ", start, end) + 1 or end
            parts.append(line[start:cut])
            start = cut
        if start < len(line):
            parts.append(line[start:])
    return parts


def whole(text: str) -> list[str]:
    """Return the sentences, without the last one if it was cut off: if it alone has no end mark."""
    sentences = split_sentences(text)
    *others, last = sentences or [""]
    if others and not END.search(last) and all(map(END.search, others)):
        return others
    return sentences


@functools.lru_cache(maxsize=4096)
def _sentences(text: str) -> tuple[str, ...]:
    if len(text) > MIN_DENSE_CHARACTERS and len(FULL_STOP.findall(text)) > MAX_STOP_SHARE * len(text):
        parts = [f"{part} " for part in PLAIN_END.split(text)]
    else:
        parts = []
        for part in certain(text):
            parts += [part] if is_one(part) else segmenter().segment(part)
    sentences: list[str] = []
    is_spaced = True  # whether white space precedes the part
    for part in parts:
        sentence = part.strip()
        is_joined = sentences and not is_spaced and not part[:1].isspace()
        if is_joined and (INNER.match(sentence) or LEADING_DOT.search(sentences[-1])):
            sentences[-1] += sentence
        elif sentences and UNFINISHED_SENTENCE.search(sentences[-1]):
            sentences[-1] += f" {sentence}"
        elif sentence:
            sentences.append(sentence)
        is_spaced = part[-1:].isspace()
    return tuple(sentences)


# Numbers and years, which small encoders hardly distinguish: 4th and 5th, 2020 and 2022.

NUMBER = re.compile(r"\d[\d.,]*(?:st|nd|rd|th)?")
YEAR = re.compile(r"[12]\d{3}")
ORDINALS = {
    "first": "1st", "second": "2nd", "third": "3rd", "fourth": "4th", "fifth": "5th", "sixth": "6th", "seventh": "7th",
    "eighth": "8th", "ninth": "9th", "tenth": "10th", "eleventh": "11th", "twelfth": "12th",
}  # fmt: skip
IN_WORDS = {figure: word for word, figure in ORDINALS.items()}
ORDINAL = re.compile(rf"(?<!per )\b(?:\d+(?:st|nd|rd|th)|{'|'.join(ORDINALS)})\b", re.IGNORECASE)
OTHER_NUMBER_COST = 0.5
NO_NUMBER_COST = 0.1


def numbers(text: str) -> set[str]:
    """Return the numbers and ordinals of a text, in figures: {"2022", "5th", "1,200"}."""
    return {number.rstrip(".,") for number in NUMBER.findall(text.lower())}


def agreement(question: str, text: str) -> float:
    """Score how far the text agrees with the question's numbers, in [0.5, 1]; 1 if the question has none.

    A number that the text lacks costs its share of OTHER_NUMBER_COST if the text has another of the same form (another
    year, another ordinal), else its share of NO_NUMBER_COST. Both were chosen by measurement (docs/selectors.md).
    """
    needed, stated = numbers(question), numbers(text)
    if not needed:
        return 1.0
    forms = set(map(_form, stated))
    lacking = needed - stated
    other = sum(_form(number) in forms for number in lacking)
    lost = OTHER_NUMBER_COST * other + NO_NUMBER_COST * (len(lacking) - other)
    return 1 - lost / len(needed)


def ordinals_as_in(texts: Sequence[str], question: str) -> str:
    """Return the question with its ordinals spelt as in the texts: "eighth" becomes "8th" if they have ordinals in
    figures, and "8th" becomes "eighth" if they contain that word. Ordinals that they contain stay unchanged."""
    ordinals: set[str] = set()
    for text in texts:
        ordinals.update(ORDINAL.findall(text.lower()))
    in_figures = any(ordinal[0].isdigit() for ordinal in ordinals)

    def rewrite(match: re.Match[str]) -> str:
        ordinal = match[0].lower()
        if ordinal in ordinals:
            return match[0]
        if ordinal in ORDINALS and in_figures:
            return ORDINALS[ordinal]
        if IN_WORDS.get(ordinal) in ordinals:
            return IN_WORDS[ordinal]
        return match[0]

    return ORDINAL.sub(rewrite, question)


def _form(number: str) -> str:
    if YEAR.fullmatch(number):
        return "year"
    return "ordinal" if number[-1].isalpha() else "count"


# The language of a text or a corpus: py3langid knows 97, and plain English is recognised without its model.

# Common in English, and rare in other languages with Latin letters.
_ENGLISH_WORDS = "the and that with this which from are you what does its these their when where who how"
_SMALL_WORDS = "of in is was to a an for it as at on by be has have been or not if can"
ENGLISH_WORDS = frozenset(_ENGLISH_WORDS.split())
SMALL_WORDS = ENGLISH_WORDS | frozenset(_SMALL_WORDS.split())
MIN_SMALL_WORD_SHARE = 0.2  # of the words of a text that must be small ones
MIN_ENGLISH_WORDS = 2  # of the words of ENGLISH_WORDS that it must have
SAMPLE = 100  # texts, spread over a corpus
LETTERS = 40  # minimum number in a text whose language is identified
LEAD = 2  # by which a question must have more small words of a language than of English, or vice versa
LATIN = "\u0250"  # the first character behind the Latin letters
NAMES = {
    "da": "Danish", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "it": "Italian", "nl": "Dutch",
    "no": "Norwegian", "pt": "Portuguese", "ru": "Russian", "sv": "Swedish", "tr": "Turkish",
    "ar": "Arabic", "cs": "Czech", "el": "Greek", "fi": "Finnish", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian",
    "ja": "Japanese", "ko": "Korean", "pl": "Polish", "uk": "Ukrainian", "zh": "Chinese",
}  # fmt: skip
MAJORITY = 0.5  # share of the sample that must be in one language
SMALL_SHARE = 0.03  # of its words that must be small ones of the language, where these are known
LOWER_SHARE = 0.33  # of a text's words that begin in lower case, in sentences


@lru_cache(maxsize=256)
def identify(text: str) -> str:
    """Return the ISO 639-1 code of the most likely language of a text.

    Plain English is recognised without the model of py3langid, which takes 0.3 s to load, a quarter of a cold question.
    """
    if is_plain_english(text):
        return "en"
    import py3langid

    return str(py3langid.classify(text)[0])


def is_plain_english(text: str) -> bool:
    """Return whether at least a fifth of a text's words are small English words, two of them unmistakable."""
    tokens = words(text)
    small = sum(token in SMALL_WORDS for token in tokens)
    english = ENGLISH_WORDS.intersection(tokens)
    return len(english) >= MIN_ENGLISH_WORDS and small >= MIN_SMALL_WORD_SHARE * len(tokens)


def language_of_question(question: str) -> str | None:
    """Return the ISO 639-1 code of the language of a question; None if it is too short or too mixed.

    The model is unreliable for a few words, so a question in Latin letters must also have small words of the language.
    """
    tokens = words(question)
    letters = list(filter(str.isalpha, question))
    if sum(letter >= LATIN for letter in letters) > len(letters) / 2:
        return identify(question)
    counts = {}
    for code in STOPWORDS:
        counts[code] = sum(token in small_words(code) for token in tokens)
    english = counts.pop("en")
    best = max(counts.values())
    if english >= best + LEAD or is_plain_english(question):
        return "en"
    if best < english + LEAD:
        return None
    likely = identify(question)
    if counts.get(likely, 0) >= LEAD:
        return likely
    return max(counts, key=lambda code: counts[code])


def language_name(code: str) -> str | None:
    """Return the English name of a language; None for a language without an entry in NAMES."""
    return NAMES.get(code.partition("-")[0].lower())


def detect(texts: Sequence[str]) -> str | None:
    """Return the language of most texts of a corpus; None if they are too short or too mixed, or names and numbers."""
    spread = texts[:: max(1, len(texts) // SAMPLE)]
    sample = [text for text in spread if sum(map(str.isalpha, text)) >= LETTERS and has_sentences(text)]
    if not sample:
        return None
    if sum(map(is_plain_english, sample)) > MAJORITY * len(sample):
        return "en"
    language, count = Counter(identify(text) for text in sample).most_common(1)[0]
    if count <= MAJORITY * len(sample):
        return None
    small = small_words(language)
    if small:
        tokens = words(" ".join(sample))
        if sum(token in small for token in tokens) < SMALL_SHARE * len(tokens):
            return None
    return language


def has_sentences(text: str) -> bool:
    """Return whether a text has words in lower case as sentences have; lists of names have few. True without
    capitals at all."""
    capitals = small = 0
    for word in text.split():
        first = next(filter(str.isalpha, word), "")
        capitals += first.isupper()
        small += first.islower()
    return small >= LOWER_SHARE * (capitals + small)
