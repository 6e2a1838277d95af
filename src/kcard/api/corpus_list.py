"""Which cards are made of which corpora: from a folder with a folder for each, or from a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kcard.errors import UsageError
from kcard.rows import read_rows, suffix
from kcard.training.naming import name_from

__all__ = ["CorpusEntry", "read_corpora"]

COLUMNS = ("name", "description", "domain", "licence", "language", "knowledge_date")  # options of training
TABLES = {".csv", ".tsv", ".jsonl"}


@dataclass(frozen=True)
class CorpusEntry:
    """A corpus and the card to be made of it. `options`: those of TrainOptions that the table gives for it."""

    corpus: Path
    name: str
    options: dict[str, str] = field(default_factory=dict)


def read_corpora(path: Path) -> tuple[CorpusEntry, ...]:
    """The corpora of a folder, each in a folder of its own, or of a table with a column `corpus`.

    A table may have the columns in COLUMNS too; its paths start from its folder. Files beside the folders are left
    out. Raises UsageError for anything else, for a corpus that does not exist, and where two cards would have the
    same name.
    """
    found = tuple(_folders(path) if path.is_dir() else _rows(path))
    if not found:
        raise UsageError(f"{path} holds no corpora: expected a folder with a sub-folder for each, or a table")
    _check_names(found)
    return found


def _folders(path: Path) -> Iterator[CorpusEntry]:
    for folder in sorted(path.iterdir()):
        if folder.is_dir() and not folder.name.startswith("."):
            yield CorpusEntry(folder.absolute(), name_from(folder))


def _rows(path: Path) -> Iterator[CorpusEntry]:
    if suffix(path) not in TABLES:
        raise UsageError(
            f"{path}: expected a folder with a sub-folder for each corpus, or a table ({', '.join(sorted(TABLES))}) "
            "with a column 'corpus'"
        )
    for where, row in read_rows(path, "table"):
        if unknown := sorted(set(row) - {"corpus", *COLUMNS}):
            raise UsageError(
                f"{where}: unknown column {unknown[0]!r}: the columns are corpus, {', '.join(COLUMNS)}"
            )
        given = {key: value for key, value in row.items() if value not in (None, "")}
        if strange := [key for key, value in given.items() if not isinstance(value, str)]:
            raise UsageError(f"{where}: {strange[0]} is {given[strange[0]]!r}: expected a text")
        if "corpus" not in given:
            raise UsageError(f"{where}: the column 'corpus' must name a file or folder")
        corpus = path.absolute().parent / Path(given.pop("corpus")).expanduser()
        if not corpus.exists():
            raise UsageError(f"{where}: the corpus {corpus} does not exist")
        yield CorpusEntry(corpus, given.pop("name", None) or name_from(corpus), given)


def _check_names(found: Sequence[CorpusEntry]) -> None:
    first: dict[str, Path] = {}
    for entry in found:
        if entry.name in first:
            raise UsageError(
                f"{first[entry.name]} and {entry.corpus} would both become the card {entry.name!r}: give them names "
                "in a table"
            )
        first[entry.name] = entry.corpus
