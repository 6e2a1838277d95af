"""The triples that the passages of a graph card tell."""

from collections.abc import Sequence
from pathlib import Path

from kcard.errors import UsageError
from kcard.training.corpora.document import Document
from kcard.training.corpora.files import files_of
from kcard.training.corpora.triples import Triple, label_of, triples
from kcard.training.corpus import Corpus

__all__ = ["triples_of"]


def triples_of(corpus: Corpus) -> Sequence[Triple]:
    """The triple of each passage, in the order of passages.

    Raises UsageError where a passage comes from no triple: a graph card holds nothing else.
    """
    known = _known(corpus.path)
    found = []
    for passage in corpus.passages:
        triple = known.get((passage.file, passage.line))
        if triple is None:
            raise UsageError(
                f"{corpus.path}: {passage.file}, line {passage.line} is not a triple, and kind graph needs "
                "triples: give .tsv files of subject, relation and object, or use kind retrieval"
            )
        subject, relation, value = triple
        found.append((subject, label_of(relation), value))
    return found


def _known(path: Path) -> dict[tuple[str, int], Triple]:
    """Every triple of the corpus, by file and line."""
    listed = files_of(path)[0] if path.exists() else []
    return {
        (name, number): triple
        for file, name in listed
        if file.suffix.lower() == ".tsv"
        for number, triple in triples(Document(file, name))
    }
