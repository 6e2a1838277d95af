"""A local corpus as evidence, in every format that a card can be trained on: the entry point `corpus` of evidence."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import kcard
from kcard.answer import Source
from kcard.config import settings
from kcard.errors import CorpusError
from kcard.training.corpora.compressed import opened
from kcard.training.corpora.document import Document
from kcard.training.corpora.files import files_of
from kcard.training.corpora.formats import format_of, known
from kcard.training.corpora.triples import TEMPLATE_FILE
from kcard.training.passages import passages

if TYPE_CHECKING:
    from kcard.selectors.evidence.local_corpus import LocalCorpus

__all__ = ["CorpusFiles", "open_corpus"]

READING = 3  # another number where files are read otherwise


@dataclass(frozen=True)
class CorpusFiles:
    """The files of a corpus as training reads them, in passages."""

    root: Path

    @property
    def version(self) -> str:
        return f"{kcard.__version__} {READING}"

    def list(self) -> tuple[Sequence[tuple[Path, str]], Sequence[tuple[str, str]]]:
        """See Files. Raises CorpusError."""
        listed, skipped = files_of(self.root)
        return listed, skipped

    def beside(self, file: Path) -> Sequence[Path]:
        """The templates by which a file of triples becomes sentences."""
        templates = file.with_name(TEMPLATE_FILE)
        return [templates] if file.suffix.lower() == ".tsv" and templates.is_file() else []

    def read(self, file: Path, name: str) -> Iterator[Source]:
        """See Files; names of columns are found as in training."""
        if kind := format_of(file, named=file == self.root):
            with opened(file) as plain:
                yield from passages(kind.read(Document(plain, name)), name)


def open_corpus(path: str) -> "LocalCorpus":
    """The file or folder as evidence; its index lies in evidence/ under the kcard home.

    Raises CorpusError where it is missing, empty or can't be read.
    """
    from kcard.selectors.evidence.local_corpus import LocalCorpus

    root = Path(path).expanduser().absolute()
    if not root.exists():
        raise CorpusError(f"evidence {path} does not exist: name a file or folder of {known()}")
    name = root.name or "corpus"
    place = hashlib.sha256(str(root.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return LocalCorpus.open(
        CorpusFiles(root), settings().home / "evidence" / f"{slug or 'corpus'}-{place}", name
    )
