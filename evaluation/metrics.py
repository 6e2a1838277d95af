"""How an answer or a passage compares with the accepted answers.

Texts are normalised as SQuAD's official script does it: lower case, no ASCII punctuation, no articles, single
spaces. Accents are kept, as there: "Beyonce" is not "Beyoncé".
"""

import functools
import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

__all__ = ["Searched", "exact_match", "f1", "normalise", "substring"]

PUNCTUATION = str.maketrans("", "", string.punctuation)
POSSESSIVE = re.compile(r"['’]s\b")
ARTICLES = re.compile(r"\b(a|an|the)\b")


@functools.lru_cache(maxsize=100_000)
def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, words separated by one space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction: str, accepted: Sequence[str]) -> float:
    """1.0 where the prediction equals an accepted answer once both are normalised, else 0.0."""
    return float(normalise(prediction) in {normalise(answer) for answer in accepted})


def f1(prediction: str, accepted: Sequence[str]) -> float:
    """The best harmonic mean of precision and recall over words, in [0, 1], among the accepted answers."""
    return max((_overlap(normalise(prediction).split(), normalise(a).split()) for a in accepted), default=0.0)


def substring(text: str, accepted: Sequence[str]) -> bool:
    """Whether an accepted answer occurs in the text as whole words, both normalised.

    A possessive is a word too: "Saturn" occurs in "Saturn's rings", where SQuAD's script would see "saturns". An
    answer that normalisation empties ("A") is sought as it is.
    """
    return Searched(text).holds(accepted)


class Searched:
    """A text made ready, once, for many searches by `substring`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = f" {normalise(text)} | {normalise(POSSESSIVE.sub('', text))} "

    def holds(self, accepted: Iterable[str]) -> bool:
        return any(
            f" {short} " in self._words if (short := normalise(answer)) else answer in self._text
            for answer in accepted
        )


def _overlap(predicted: list[str], accepted: list[str]) -> float:
    if not predicted or not accepted:
        return float(predicted == accepted)
    common = (Counter(predicted) & Counter(accepted)).total()
    return 2 * common / (len(predicted) + len(accepted))
