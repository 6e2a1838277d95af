"""Web pages: the main text, without navigation, by trafilatura."""

from collections.abc import Iterator

from kcard.answer import Source
from kcard.errors import CorpusError
from kcard.training.corpora.document import Document
from kcard.training.corpora.silence import silent

__all__ = ["read"]


def read(document: Document) -> Iterator[Source]:
    """Paragraphs of the main text, numbered from 1. Words outside it are counted."""
    import trafilatura

    try:
        page = document.path.read_bytes()
    except OSError as error:
        raise CorpusError(
            f"{document.path} can't be read ({error.strerror}): check its permissions"
        ) from error
    with silent("trafilatura"):
        tree = trafilatura.load_html(page)
        if tree is None:
            raise CorpusError(f"{document.path} is no web page: no HTML is found in it")
        everything = trafilatura.html2txt(page)
        text = trafilatura.extract(page, include_comments=False, include_tables=True) or ""
    outside = len(everything.split()) - len(text.split())
    if outside > 0:
        document.losses.dropped["words of web pages outside their main text"] += outside
    for number, paragraph in enumerate(text.splitlines(), 1):
        yield document.source(_plain(paragraph), number)


def _plain(paragraph: str) -> str:
    """A list item without its mark; a table's row with commas."""
    if paragraph.startswith("|"):
        return ", ".join(cell.strip() for cell in paragraph.strip("|").split("|") if cell.strip(" -"))
    return paragraph.removeprefix("- ")
