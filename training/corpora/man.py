"""Man pages: rendered by mandoc or groff, whichever is installed, and read by their layout."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath

from kcard.errors import CorpusError
from kcard.training.corpora import layout, plain
from kcard.training.corpora.document import Block, Document

__all__ = ["read"]

RENDERERS = (
    ("mandoc", ["-T", "utf8", "-O", "width=1000"]),
    ("groff", ["-K", "utf8", "-mandoc", "-T", "utf8", "-rLL=1000n", "-P-cbou", "-P-h"]),
)
SECONDS = 60
GAP = re.compile(r" {3,}")  # between the parts of the header and the footer
MACROS = re.compile(rb"^[.'](?:TH|Dd|SH|Sh|so) ", re.MULTILINE)
LINK = re.compile(rb"\s*\.so \S+\s*")


def read(document: Document) -> Iterator[Block]:
    """Blocks numbered by the lines of the rendered page. Raises CorpusError where neither program is installed."""
    source = document.content()
    if LINK.fullmatch(source):
        return  # another name of another page
    if not MACROS.search(source):  # plain text that ends in a version number, such as LICENSE-2.1
        yield from plain.read(document)
        return
    text = _rendered(document)
    yield Block("heading", PurePath(document.name.removesuffix(".gz")).stem, 1, 1)
    lines = text.rstrip().splitlines()
    footer = len(lines) - bool(GAP.search(lines[-1]))
    yield from layout.blocks(islice(enumerate(lines, 1), 1, footer))


def _rendered(document: Document) -> str:
    found = [(name, program, options) for name, options in RENDERERS if (program := shutil.which(name))]
    if not found:
        raise CorpusError(f"{document.path} is a man page: install mandoc or groff to render it")
    name, program, options = found[0]
    try:
        done = subprocess.run(
            [program, *options, str(document.path.absolute())],
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CorpusError(f"{document.path} can't be rendered by {name} ({error})") from error
    text = done.stdout.decode("utf-8", "replace")
    if not text.strip():
        said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        raise CorpusError(f"{document.path} can't be rendered by {name}{f' ({said})' if said else ''}")
    return text
