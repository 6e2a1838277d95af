"""Sentences and clauses in other words: those that are nearest by the sentence encoder's word embeddings, in the same
inflection."""

import re
from dataclasses import replace
from functools import cache, lru_cache

from kcard import encoder
from kcard.protocols import Array
from kcard.training.fillers import english
from kcard.training.spans import SMALL
from kcard.training.study.rules.clauses import Clause
from kcard.training.study.rules.inflection import inflections, lemma, lemmas
from kcard.training.study.rules.word_classes import AUXILIARIES

__all__ = ["in_other_words", "reworded"]

NEAREST = 12  # words that are looked at
# Those of nouns and comparatives are of the same sort, but others: nephew and grandson, smaller and larger.
STABLE = frozenset(("NN", "NNS", "JJR"))
KEPT = frozenset(
    ("said", "same", "established", "special", "rather", "subsequently")
)  # their nearest words say something else
STEM = 4  # letters that words of one family share
WORD = re.compile(r"(?<![\w’'-])[a-z]{4,}(?![\w’'-])")
ARTICLE = re.compile(r"\ban? (?=(\w))")


def reworded(clause: Clause, least: float) -> Clause | None:
    """The clause with the nearest words for its own, of cosine `least` or more; None where there are none. Names, the
    subject and an auxiliary stay."""
    verb = clause.verb if clause.lemma is None else _neighbour(clause.verb, least) or clause.verb
    rest = in_other_words(clause.rest, least)
    if (verb, rest) == (clause.verb, clause.rest):
        return None
    return replace(clause, verb=verb, lemma=lemma(verb) if clause.lemma else None, rest=rest)


def in_other_words(text: str, least: float) -> str:
    """The text, as it is where no word has a neighbour."""
    found = WORD.sub(lambda word: _neighbour(word[0], least) or word[0], text)
    return text if found == text else ARTICLE.sub(lambda a: "an " if a[1] in "aeio" else "a ", found)


@lru_cache(maxsize=50_000)
def _neighbour(word: str, least: float) -> str | None:
    """The nearest word that can stand in the place of a word and is not one of its family."""
    if word in SMALL or word in AUXILIARIES or word in KEPT:
        return None
    tags, family = inflections(word), lemmas(word)
    if tags & STABLE:
        return None
    cosines = _vectors() @ encoder.word_vectors([word])[0]
    for at in cosines.argsort()[::-1][:NEAREST]:
        other = str(english()[at])
        if cosines[at] < least:
            break
        same = other[:STEM] == word[:STEM] or lemmas(other) & family
        if inflections(other) & tags and not same:
            return other
    return None


@cache
def _vectors() -> Array:
    """(words, 384)"""
    return encoder.word_vectors(english())
