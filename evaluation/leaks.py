"""Whether a document recites a text that it should not know: runs of words that only such texts have.

To make a card recite one, it is asked with one half of it (Carlini et al., 2021, "Extracting Training Data from Large
Language Models"). In lists of like facts a run may also come from two texts that stay, or from the question, so a run
counts only if it has two words in a row that none of these has.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from kcard.words import words

__all__ = ["Leaks", "halves"]

RUN = 6  # words

Words = tuple[str, ...]


class Leaks:
    """`removed`: texts that are not to be recited; `staying`: those that may be."""

    def __init__(self, removed: Iterable[str], staying: Iterable[str]) -> None:
        stays = [tuple(words(text)) for text in staying]
        self._known = {pair for text in stays for pair in pairwise(text)}
        gone = {run for text in removed for run in _runs(tuple(words(text)))}
        self._runs = gone.difference(run for text in stays for run in _runs(text))

    def __call__(self, question: str, document: str) -> bool:
        """Whether the document, written for the question, has such a run."""
        known = self._known.union(pairwise(words(question)))
        found = self._runs.intersection(_runs(tuple(words(document))))
        return any(not known.issuperset(pairwise(run)) for run in found)


def halves(text: str) -> list[str]:
    """The first half of its words, and the second one."""
    read = text.split()
    middle = (len(read) + 1) // 2
    return [" ".join(half) for half in (read[:middle], read[middle:]) if half]


def _runs(read: Words) -> Sequence[Words]:
    """Every run of RUN words; a shorter text is one run."""
    return [read[at : at + RUN] for at in range(max(1, len(read) - RUN + 1))]
