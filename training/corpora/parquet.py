"""Parquet: columns of a table, a few thousand rows at a time."""

from collections.abc import Iterator
from typing import Any

from kcard.errors import CorpusError
from kcard.training.corpora.columns import Row, texts
from kcard.training.corpora.document import Block, Document

__all__ = ["read"]

ROWS = 1024


def read(document: Document) -> Iterator[Block]:
    return texts(_rows(document), document)


def _rows(document: Document) -> Iterator[tuple[int, Row]]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(document.path) as file:
            columns = [field.name for field in file.schema_arrow if not _is_opaque(field.type)]
            for batch in file.iter_batches(batch_size=ROWS, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (ArrowException, OSError) as error:
        raise CorpusError(
            f"{document.path} can't be read as Parquet ({' '.join(str(error).split())}): is it damaged?"
        ) from error


def _is_opaque(kind: Any) -> bool:
    """Bytes, vectors and records: no text, but much to read."""
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind):
        return not (types.is_string(kind.value_type) or types.is_large_string(kind.value_type))
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_nested(kind))
