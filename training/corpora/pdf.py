"""PDF: the text of its pages, without what stands at the edge of every page. Scans have none."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from kcard.answer import Source
from kcard.errors import CorpusError
from kcard.training.corpora.document import Document
from kcard.training.corpora.plain import SENTENCE_END
from kcard.training.corpora.silence import silent

__all__ = ["read"]

EDGE = 2  # lines at the top and at the bottom of a page that may be its header and footer
HYPHEN = re.compile(r"(?<=\w)[-\u00ad]$")
LIGATURES = re.compile("[\ufb00-\ufb06]")
ENCRYPTED = "is encrypted: save it without a password"

Lines = list[str]


def read(document: Document) -> Iterator[Source]:
    """Paragraphs with their pages, 1-based. One that goes on over a page's end belongs to the page it begins on."""
    pages = _without_edges(_pages(document), document)
    if not any(pages):
        raise CorpusError(
            f"{document.path} holds no text on its {len(pages)} pages: if it is a scan, run text recognition on it"
        )
    open_page, open_text = 0, ""
    for number, lines in enumerate(pages, 1):
        for paragraph in _paragraphs(lines):
            if open_text and paragraph[:1].islower():
                open_text = _joined([open_text, paragraph])
            else:
                if open_text:
                    yield document.source(open_text, open_page)
                open_page, open_text = number, paragraph
            if SENTENCE_END.search(open_text):
                yield document.source(open_text, open_page)
                open_text = ""
    if open_text:
        yield document.source(open_text, open_page)


def _pages(document: Document) -> list[Lines]:
    from pypdf import PdfReader

    try:
        with silent("pypdf"), PdfReader(document.path) as reader:
            if reader.is_encrypted and not reader.decrypt(""):
                raise CorpusError(f"{document.path} {ENCRYPTED}")
            return [_lines(page.extract_text()) for page in reader.pages]
    except CorpusError:
        raise
    except Exception as error:  # pypdf lets through whatever a broken file provokes
        if type(error).__name__ == "DependencyError":
            raise CorpusError(f"{document.path} {ENCRYPTED}") from error
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CorpusError(f"{document.path} can't be read as PDF ({reason}): is it damaged?") from error


def _lines(text: str) -> Lines:
    text = LIGATURES.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    return [" ".join(line.split()) for line in unicodedata.normalize("NFC", text).splitlines()]


def _without_edges(pages: list[Lines], document: Document) -> list[Lines]:
    """The pages without headers and footers: lines at the edge that, but for their numbers, come back on at least
    three pages and a third of them."""
    pages = [_trimmed(lines) for lines in pages]
    shapes = Counter(shape for lines in pages for shape in {_shape(lines[at]) for at in _edges(lines)})
    common = {shape for shape, count in shapes.items() if count >= max(3, len(pages) / 3)}
    kept = []
    for lines in pages:
        dropped = {at for at in _edges(lines) if _shape(lines[at]) in common}
        document.losses.dropped["headers and footers"] += len(dropped)
        kept.append([line for at, line in enumerate(lines) if at not in dropped])
    return kept


def _trimmed(lines: Lines) -> Lines:
    """Without empty lines at both ends."""
    filled = [at for at, line in enumerate(lines) if line]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _edges(lines: Sequence[str]) -> list[int]:
    filled = [at for at, line in enumerate(lines) if line]
    return sorted({*filled[:EDGE], *filled[-EDGE:]})


def _shape(line: str) -> str:
    return re.sub(r"\d+", "#", line.casefold())


def _paragraphs(lines: Lines) -> Iterator[str]:
    """Runs of lines: a line that is clearly shorter than the others ends one, if the next begins anew."""
    lengths = sorted(len(line) for line in lines if line)
    full = lengths[len(lengths) * 9 // 10] if lengths else 0
    gathered: Lines = []
    for line, following in zip(lines, chain(lines[1:], [""]), strict=True):
        if line:
            gathered.append(line)
        short = len(line) < 0.7 * full and not following[:1].islower()
        if gathered and (not following or short):
            yield _joined(gathered)
            gathered = []


def _joined(lines: Sequence[str]) -> str:
    """One text; a word that was divided at a line's end is whole again."""
    text = ""
    for line in lines:
        divided = HYPHEN.search(text) and line[:1].islower()
        text = text[:-1] + line if divided else f"{text} {line}"
    return text.strip()
