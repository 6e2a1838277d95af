"""Word documents (.docx): turned into HTML by mammoth, by the styles of their paragraphs, and read as that."""

from collections.abc import Iterator
from dataclasses import replace
from zipfile import BadZipFile

from kcard.errors import CorpusError
from kcard.training.corpora import web
from kcard.training.corpora.document import Block, Document

__all__ = ["read"]

STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Heading 1'] => h2:fresh
p[style-name='Heading 2'] => h3:fresh
p[style-name='Heading 3'] => h4:fresh
p[style-name='Heading 4'] => h5:fresh
p[style-name='Heading 5'] => h6:fresh
p[style-name='Subtitle'] => p:fresh
p[style-name='toc 1'] => !
p[style-name='toc 2'] => !
p[style-name='toc 3'] => !
p[style-name='table of figures'] => !
"""


def read(document: Document) -> Iterator[Block]:
    """Paragraphs, headings, list items and rows of tables, numbered from 1; tables of contents are left out."""
    import mammoth

    try:
        with document.path.open("rb") as stream:
            page = mammoth.convert_to_html(stream, style_map=STYLES).value
    except PermissionError as error:
        raise CorpusError(
            f"{document.path} can't be read ({error.strerror}): check its permissions"
        ) from error
    # mammoth lets through what zipfile and its XML parser raise.
    except (BadZipFile, SyntaxError, KeyError, ValueError, OSError, AttributeError, IndexError) as error:
        raise CorpusError(f"{document.path} is not a Word document (.docx), or a damaged one") from error
    if page.strip():
        found = web.blocks(f"<html><body>{page}</body></html>", document.path, document.losses)
        yield from (replace(block, line=number, lines=()) for number, block in enumerate(found, 1))
