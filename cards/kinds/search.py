"""Search cards: what a search engine finds for the question, word for word (Knowledge Card's search card; KC-13).

The card holds no text, only search.json: the registered evidence that is searched, such as wikipedia:de. The
question is sent there, so such a card is used only where it is named (kcard.hub.selection).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kcard import plugins
from kcard.answer import Passage, Source
from kcard.cards.format.folder import Card
from kcard.cards.format.kinds import SEARCH
from kcard.cards.kinds.generator import padded
from kcard.errors import CardError
from kcard.json_values import build, parse
from kcard.lookup import find_all
from kcard.sampling import Sampling
from kcard.words import is_english

if TYPE_CHECKING:
    from kcard.cards.lm.loader import Loader
    from kcard.protocols import NamedEvidence

__all__ = ["SEARCH", "Search", "SearchCard", "load"]

GROUP = "kcard.evidence"
# What reads files of the machine it is on: a card that came from elsewhere must not choose which.
LOCAL = "corpus"
# Texts that the encoder reads, to rank them.
CANDIDATES = 10


@dataclass(frozen=True)
class Search:
    """`evidence`: a name that is registered under kcard.evidence, with its argument: name or name:argument."""

    evidence: str

    def __post_init__(self) -> None:
        name = self.evidence.partition(":")[0]
        if name == LOCAL or name not in plugins.names(GROUP):
            known = ", ".join(other for other in plugins.names(GROUP) if other != LOCAL)
            raise CardError(f"a search card can't search {self.evidence!r}: name one of {known}")

    @classmethod
    def read(cls, folder: Path) -> "Search":
        """Raises CardError for a folder without a readable search.json."""
        try:
            return build(cls, parse((folder / SEARCH).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise CardError(f"{folder / SEARCH} does not say what is searched: {error!r}") from error

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    def open(self) -> "NamedEvidence":
        """What is searched. Raises what it raises for its argument."""
        name, _, argument = self.evidence.partition(":")
        found: NamedEvidence = plugins.load(GROUP, name)(argument)
        return found


def load(card: Card, models: "Loader") -> "SearchCard":
    """The writer of what the card's search finds. Nothing is asked yet. Raises CardError."""
    del models
    return SearchCard(card, Search.read(card.folder).open())


class SearchCard:
    """Writes what is found: document 1 is the best for the question, document 2 the next, and so on."""

    def __init__(self, card: Card, evidence: "NamedEvidence") -> None:
        self._name = card.name
        self._english = is_english(card.manifest.language)
        self._evidence = evidence

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """See CardGenerator; nothing is drawn, so the seed plays no part. What is found may change with time.

        Documents beyond what was found are empty. `Passage.source` holds the text and where it stands. Raises what
        the search raises where it can't be asked.
        """
        del sampling
        found = find_all(self._evidence, questions, max(CANDIDATES, documents))
        return [
            padded(self._name, self._ranked(question, sources), documents)
            for question, sources in zip(questions, found, strict=True)
        ]

    def _ranked(self, question: str, found: list[Source]) -> list[Source]:
        """Best first: by the search's own order, for English by the mean of its score and the encoder's cosine."""
        if not self._english or not found:
            return found
        from kcard import encoder

        vectors = encoder.embed([question, *(source.text for source in found)])
        most = max(source.score for source in found) or 1.0
        # Rounded, since the last bits of an embedding depend on who shares its batch.
        scores = [
            round(source.score / most + float(cosine), 5)
            for source, cosine in zip(found, vectors[1:] @ vectors[0], strict=True)
        ]
        return [found[i] for i in sorted(range(len(found)), key=lambda i: -scores[i])]
