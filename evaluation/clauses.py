"""A plain English sentence taken apart: subject, verb and the rest, as far as its words tell for sure.

There is no parser here: sentences whose verb could be something else, or whose subject stands for something said before
("it", "this"), are passed over. So a question made of the parts is a question that a person could ask.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from kcard.training.spans import bare

__all__ = ["AUXILIARIES", "Clause", "clause"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


AUXILIARIES = _words(
    """is are was were has have had can could will would may might must should does did do cannot"""
)
# A subject that begins with one of these, or holds one of SUBORDINATE, is not the subject of the whole sentence.
OPENERS = _words(
    """
    in on at by for from with without to of as if when while after before since until because although though unless
    it this these those that they he she we i you there here its their his her our my your some such many most other
    another both either neither each not no nor and but or so then thus hence however therefore also note see use using
    one currently today now nowadays recently initially finally originally later earlier similarly additionally
    furthermore moreover instead indeed first second third given during under over between among per via once where
    which who what how why according
    """
)
SUBORDINATE = _words(
    """that which who whom whose where when if because although while whether to and or but as"""
)
DETERMINERS = _words("""a an the this that these those its his her their all any""")
AFTER_VERB = DETERMINERS | _words(
    """
    some no one two three four five six seven eight nine ten in on at by for from with to into onto of as over under
    between about after before during through until since not only also both many more most several each every
    """
)
SUBJECT = 9  # words
VAGUE = re.compile(
    r"\b(?:these|those|this|that|such|latter|former|first|second|last|other|others|result|example)\b"
)
WHOLE = re.compile(r"[A-Za-z][\w'’-]*$")
STRANGE = re.compile(r"[,;:()\[\]\"“”„]")
TIMED = re.compile(r"^((?:In|On|Since|By|During|Until|After|Before) [^,]{2,30}\d[^,]{0,20}), ")


@dataclass(frozen=True)
class Clause:
    """`verb`: as it stands; `lemma`: of a main verb alone, None of an auxiliary, behind which the main verb is the
    first word of `rest`. `time`: when, said before the subject, such as "In 1993"."""

    subject: str
    verb: str
    lemma: str | None
    rest: str
    time: str = ""

    @property
    def is_past(self) -> bool:
        return self.lemma is not None and not self.verb.endswith("s")


def clause(sentence: str) -> Clause | None:
    """The parts of a sentence; None where they are not certain."""
    text = " ".join(sentence.split()).rstrip(".!")
    time = ""
    if found := TIMED.match(text):
        time, text = found[1], text[found.end() :]
    words = text.split(" ")
    if not WHOLE.match(words[0]) or (words[0].endswith("ing") and words[0][0].isupper()):
        return None
    if not 4 <= len(words) <= 40 or bare(words[0]).lower() in OPENERS or text.endswith(("?", ":")):
        return None
    for at, raw in enumerate(words[: SUBJECT + 1]):
        word = bare(raw).lower()
        if at == 0:
            if word in AUXILIARIES or (_lemma(word) and not words[0][0].isupper()):
                return None
            continue
        if word in SUBORDINATE or STRANGE.search(raw):
            return None
        if word in AUXILIARIES:
            return _made(words, at, None, time)
        following = words[at + 1] if at + 1 < len(words) else ""
        if raw.islower() and (lemma := _lemma(word)) and _follows_verb(word, following):
            return _made(words, at, lemma, time)
    return None


def _made(words: list[str], at: int, lemma: str | None, time: str) -> Clause | None:
    subject, rest = " ".join(words[:at]), " ".join(words[at + 1 :])
    if VAGUE.search(subject):
        return None
    return Clause(subject, words[at], lemma, rest, time) if rest else None


def _follows_verb(word: str, following: str) -> bool:
    """Whether the next word shows that this one is a verb: "stores the", "founded Debian"; not "used by", nor "clips
    from", which may be a noun."""
    if following.lower() == "by" and word.endswith("ed"):
        return False
    if _is_noun(word):
        return bare(following).lower() in DETERMINERS
    return bare(following).lower() in AFTER_VERB or following[:1].isupper() or following[:1].isdigit()


@lru_cache(maxsize=50_000)
def _is_noun(word: str) -> bool:
    import lemminflect

    return "NOUN" in lemminflect.getAllLemmas(word)


@lru_cache(maxsize=50_000)
def _lemma(word: str) -> str | None:
    """The base form of a word that can be a verb in the past or the third person; None for any other."""
    import lemminflect

    if not word.isalpha():
        return None
    for lemma in lemminflect.getAllLemmas(word).get("VERB", ()):
        if lemma == word:
            continue
        if word in (*lemminflect.getInflection(lemma, "VBD"), *lemminflect.getInflection(lemma, "VBZ")):
            return str(lemma)
    return None
