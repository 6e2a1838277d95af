"""What the retrieval baselines search: the source passages of the chosen cards, or a corpus; by words or by vectors.

bm25                    words (kcard.index)
minilm                  vectors of the embedded encoder, offline
contriever[:MODEL]      Contriever's, as in Adaptive Retrieval; the paper's is facebook/contriever-msmarco
hf:MODEL[,pooling=...]  any other encoder of kcard.representations
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from kcard.answer import Source
from kcard.errors import UsageError
from kcard.protocols import Evidence

if TYPE_CHECKING:
    from kcard.cards.format.folder import CardSet

__all__ = ["BM25", "card_passages", "corpus_retriever", "retriever"]

BM25 = "bm25"


def corpus_retriever(corpus: str, kind: str) -> Evidence:
    """A retriever over evidence as `--evidence` names it: a file, a folder, or what finds its texts itself.

    Raises UsageError where vectors are asked of what can't be read through, such as an encyclopedia online.
    """
    from kcard.selectors.evidence.registry import open_evidence

    found = open_evidence(corpus)
    if kind == BM25:
        return found
    if not isinstance(found, Iterable):
        raise UsageError(
            f"retriever {kind} needs the texts of {corpus}, which can only be searched: leave out --retriever"
        )
    return retriever(list(found), kind, found.name)


def retriever(sources: Sequence[Source], kind: str, name: str) -> Evidence:
    """A retriever over these texts. Raises UsageError for an unknown kind, ModelUnavailable."""
    from kcard.selectors.evidence.dense_corpus import DenseCorpus
    from kcard.selectors.evidence.sources import CorpusEvidence

    if kind == BM25:
        return CorpusEvidence(sources, name)
    from kcard.gates.representation import find

    encoder = find(kind)
    return DenseCorpus(sources, encoder.vectors, encoder.digest, name)


def card_passages(cards: "CardSet", report: Callable[[str], None] | None = None) -> list[Source]:
    """The source passages that travel with the cards, card by card; `report` is told of cards without any.

    Raises UsageError where no card has any.
    """
    from kcard.cards.format.passages import passages

    found = {name: passages(card.folder) for name, card in cards.items()}
    without = [name for name, sources in found.items() if not sources]
    if len(without) == len(found):
        raise UsageError(
            f"no source passages travel with {', '.join(without) or 'the chosen cards'}: name what to search with "
            "--corpus"
        )
    if without and report is not None:
        report(f"retrieval searches no passages of {', '.join(without)}: none travel with them")
    return list(chain.from_iterable(found.values()))
