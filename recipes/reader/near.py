"""Texts that are like a question and do not answer it: the wrong ones that a search would find."""

from collections.abc import Callable, Sequence

from kcard.index import Index


class Near:
    """(section, text) pairs, found by BM25 over stems."""

    def __init__(self, texts: Sequence[tuple[str, str]]) -> None:
        self._texts = texts
        self._index = Index.build((f"{section}: {text}" for section, text in texts), "english")

    def of(self, question: str, count: int, answers: Callable[[str], bool]) -> tuple[tuple[str, str], ...]:
        """The likest `count` that do not answer."""
        texts = [self._texts[row] for row, _ in self._index.search(question, 2 * count + 4)]
        return tuple(pair for pair in texts if not answers(pair[1]))[:count]
