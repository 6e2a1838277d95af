"""Word documents (.docx): paragraphs and rows of tables, without headings and tables of contents."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from zipfile import BadZipFile

from kcard.answer import Source
from kcard.errors import CorpusError
from kcard.training.corpora.document import Document

if TYPE_CHECKING:
    from docx.document import Document as Word

__all__ = ["read"]

HEADINGS = ("heading", "title", "subtitle")
CONTENTS = ("toc ", "table of figures")


def read(document: Document) -> Iterator[Source]:
    """Paragraphs, numbered from 1; a table counts as one, and each of its rows is a text."""
    from docx.table import Table

    for number, item in enumerate(_open(document).iter_inner_content(), 1):
        if isinstance(item, Table):
            for row in item.rows:
                cells = dict.fromkeys(cell.text.strip() for cell in row.cells)
                yield document.source(", ".join(cell for cell in cells if cell), number)
            continue
        style = (item.style.name or "").lower() if item.style else ""
        if style.startswith(CONTENTS):
            document.losses.dropped["tables of contents"] += 1
        elif not style.startswith(HEADINGS):
            yield document.source(item.text, number)


def _open(document: Document) -> "Word":
    import docx
    from docx.opc.exceptions import PackageNotFoundError

    try:
        return docx.Document(str(document.path))
    except PermissionError as error:
        raise CorpusError(
            f"{document.path} can't be read ({error.strerror}): check its permissions"
        ) from error
    except (PackageNotFoundError, BadZipFile, SyntaxError, KeyError, ValueError, OSError) as error:
        raise CorpusError(f"{document.path} is no Word document (.docx), or a damaged one") from error
