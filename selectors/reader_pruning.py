"""Pruning by the embedded reader: of a document the sentences that an answer rests on (Knowledge Card, section 2.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.sentences import spans

if TYPE_CHECKING:
    from kcard.reader.reading import Sentence

__all__ = ["ReaderPruner"]


@dataclass(frozen=True)
class ReaderPruner:
    """Keeps the sentences that fall behind the best one by at most `near` log-odds; it copies and never rewrites.

    A text of up to `short` sentences is returned as it is.
    """

    near: float = 2.5
    short: int = 2

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Each text condensed; its sentences stay in their order."""
        from kcard.reader.reading import read

        long = [text for text in texts if len(spans(text)) > self.short]
        readings = dict(zip(long, read(question, long), strict=True))
        return [
            self._condensed(text, readings[text].sentences) if text in readings else text for text in texts
        ]

    def _condensed(self, text: str, sentences: "Sequence[Sentence]") -> str:
        if not sentences:
            return text
        least = max(sentence.evidence for sentence in sentences) - self.near
        return "\n".join(" ".join(text[s.start : s.end].split()) for s in sentences if s.evidence >= least)
