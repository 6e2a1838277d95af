"""The clauses of a plain English sentence: subject, verb and what follows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kcard.training.spans import ENTITY as NAME
from kcard.training.spans import bare
from kcard.training.study.rules.inflection import is_finite, lemma
from kcard.training.study.rules.word_classes import ADVERBS, AUXILIARIES, INSIDE, NO_SUBJECT

__all__ = ["Clause", "clauses", "clipped"]

LEAST, LONGEST = 4, 8  # words of a clause, at least, and of its subject, at most
LEAD = re.compile(
    r"(?:[A-Z][a-z]+ly|However|Therefore|Thus|Also|Today|Later|Furthermore|Moreover|First|Then|For example), "
)
TIME = re.compile(r"((?:In|On|Since|By|During|Until|After|Before) [^,]{0,30}\d{3,4}s?), ")
INTRODUCTION = re.compile(
    r"(?:In|On|Since|By|During|Until|After|Before|At|For|From|With|Under|Despite|Among|Although|While|When|Because|As)\b"
    r"[^,]{3,100}, "
)
AND = re.compile(r",? and |, but |; ")
RELATIVE = re.compile(rf"({NAME.pattern}), (?:who|which) ([^,.;:]+)")
STRANGE = re.compile(r"[\"“”{}|=<>\\]")  # quotations and formulas
ASIDE = re.compile(r" ?\([^()]*\)| ?\[[^\[\]]*\]")
ENDS = re.compile(
    r"[,;:](?= )|[–—]| (?:and|but|which|that|who|whom|whose|where|when|while|because|since|so|although|though|as|or|if|"
    r"after|before|until|including|such) "
)
TRAILING = re.compile(r"(?: (?:such|like|and|or|as|the|a|an|of|in|to|by|with|for|from|on|at))+$")


@dataclass(frozen=True)
class Clause:
    """`verb` as it stands, `lemma` its base form, None of an auxiliary; `rest` up to the end of the sentence; `time`:
    what was said before the subject, such as "in 1993"."""

    subject: str
    verb: str
    lemma: str | None
    rest: str
    time: str = ""

    @property
    def tail(self) -> str:
        """The time, to be put behind the clause."""
        return f" {self.time}" if self.time else ""

    @property
    def sentence(self) -> str:
        """The clause as a statement, up to where another clause may begin."""
        return f"{self.subject} {self.verb} {clipped(self.rest)}{self.tail}."

    @property
    def helper(self) -> str:
        """What a question puts before the subject: the auxiliary, or do."""
        if self.lemma is None:
            return self.verb
        return "does" if self.verb.endswith("s") and not self.verb.endswith("ss") else "did"

    @property
    def inner_subject(self) -> str:
        """The subject within a sentence: its article in lower case."""
        first, blank, others = self.subject.partition(" ")
        return f"{first.lower()}{blank}{others}" if first in ("The", "A", "An") else self.subject


def clauses(sentence: str) -> list[Clause]:
    """The main clause of a sentence, others with the same subject, and those about a name, behind "who" or "which";
    none of which it is not sure."""
    text = LEAD.sub("", ASIDE.sub("", " ".join(sentence.split())), count=1).rstrip(".!")
    if STRANGE.search(text) or text.endswith(("?", ":")):
        return []
    relative = [made for found in RELATIVE.finditer(text) if (made := _clause(found[1], found[2].split(" ")))]
    main = _main_clause(text)
    if main is None:
        return relative
    others = (part.split(" ") for part in AND.split(main.rest)[1:])
    joined = [made for words in others if (made := _clause(main.subject, words, main.time))]
    return [main, *joined, *relative]


def _main_clause(text: str) -> Clause | None:
    time = ""
    if found := TIME.match(text):
        time = f"{found[1][0].lower()}{found[1][1:]}"
    text = INTRODUCTION.sub("", text, count=1)
    words = text.split(" ")
    if len(words) < LEAST or bare(words[0]).lower() in NO_SUBJECT or words[0].endswith("ing"):
        return None
    for at in range(1, min(LONGEST + 1, len(words) - 1)):
        if any(mark in words[at - 1] for mark in ",;:") or bare(words[at]).lower() in INSIDE:
            return None
        if is_finite(words[at], words[at + 1]):
            adverb = at > 1 and (words[at - 1] in ADVERBS or words[at - 1].endswith("ly"))
            subject = " ".join(words[: at - adverb])
            return _clause(f"{subject[0].upper()}{subject[1:]}", words[at:], time)
    return None


def _clause(subject: str, words: Sequence[str], time: str = "") -> Clause | None:
    """What begins with a verb; None where it does not."""
    if len(words) < LEAST - 1 or not is_finite(words[0], words[1]):
        return None
    base = None if words[0] in AUXILIARIES else lemma(words[0])
    return Clause(subject, words[0], base, " ".join(words[1:]), time)


def clipped(text: str) -> str:
    """A text up to where another clause may begin."""
    found = ENDS.search(f"{text} ")
    return TRAILING.sub("", (text[: found.start()] if found else text).strip(" ."))
