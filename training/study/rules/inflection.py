"""What forms English words have, and which word of a sentence is its finite verb, as far as its neighbours tell."""

from functools import lru_cache

from kcard.training.spans import bare
from kcard.training.study.rules.word_classes import AFTER_VERB, AUXILIARIES, DETERMINERS

__all__ = ["inflections", "is_finite", "lemma", "lemmas"]


def is_finite(word: str, following: str) -> bool:
    """Whether a word, before `following` (empty at the end), is a finite verb: an auxiliary, the past tense or the
    third person. A participle before "by", and a noun that no determiner follows, are not taken for one."""
    word, following = bare(word), bare(following)
    if word in AUXILIARIES:
        return True
    if not word.islower() or lemma(word) is None or (following == "by" and word.endswith("ed")):
        return False
    if inflections(word) & {"NN", "NNS", "JJ"}:
        return following.lower() in DETERMINERS
    return following.lower() in AFTER_VERB or following[:1].isupper() or following[:1].isdigit()


@lru_cache(maxsize=50_000)
def lemma(word: str) -> str | None:
    """The base form of a word that can be the past tense or third person of a verb; None for any other."""
    import lemminflect

    for found in lemminflect.getAllLemmas(word).get("VERB", ()) if word.isalpha() else ():
        forms = lemminflect.getInflection(found, "VBD") + lemminflect.getInflection(found, "VBZ")
        if found != word and word in forms:
            return str(found)
    return None


@lru_cache(maxsize=50_000)
def lemmas(word: str) -> frozenset[str]:
    """The base forms that a word may have."""
    import lemminflect

    return frozenset(found for every in lemminflect.getAllLemmas(word).values() for found in every)


@lru_cache(maxsize=50_000)
def inflections(word: str) -> frozenset[str]:
    """The tags of the Penn Treebank that a word may have, such as NNS and VBZ for "plays"."""
    import lemminflect

    return frozenset(
        tag
        for part, found in lemminflect.getAllLemmas(word).items()
        for base in found
        for tag, forms in lemminflect.getAllInflections(base, part).items()
        if word in forms
    )
