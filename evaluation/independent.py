"""Independent evidence: texts from outside a card's corpus, by name and content."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.answer import Source
from kcard.errors import UsageError
from kcard.words import passage_digest

__all__ = ["Independent", "read_independent"]


@dataclass(frozen=True)
class Independent:
    """`shared`: how many of the sources are passages of the card's corpus too, word for word."""

    name: str
    sha256: str
    sources: Sequence[Source]
    shared: int


def read_independent(paths: Sequence[Path | str], own: Iterable[str]) -> Independent | None:
    """The texts of all files and folders as one evidence; None of no paths. `own`: the digests of the corpus.

    Raises CorpusError for a path that can't be read, UsageError where every text is the card's own: that would
    be faithfulness.
    """
    from kcard.selectors.sources import read_sources

    if not paths:
        return None
    sources = [source for path in paths for source in read_sources(path)]
    digests = {passage_digest(source.text) for source in sources}
    shared = len(digests.intersection(own))
    name = ", ".join(Path(path).name for path in paths)
    if digests and shared == len(digests):
        raise UsageError(
            f"evidence {name}: every text in it is a passage of the card's own corpus, which faithfulness is "
            "measured on: give text from elsewhere"
        )
    content = hashlib.sha256("\n".join(source.text for source in sources).encode()).hexdigest()
    return Independent(name, content, sources, shared)
