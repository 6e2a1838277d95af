"""Manuals: Info files, GNU's, and man pages.

A man page is rendered by mandoc or groff, whichever is installed, and parsed by its layout. It is a program that can
read files of this machine and run for ever. The renderer gets it on stdin, in an empty folder, with an empty
environment. groff loads its macros before the page and then forgets its requests for files, so that neither the page
nor a macro can use them under any name. (mandoc has only .so, for files of its folder alone.)
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePath

from kcard.errors import CorpusError
from kcard.training.readers import layout
from kcard.training.readers.files import Block, Document
from kcard.training.readers.text import lines, read_plain

NODE = re.compile(r"File: .*?,\s+Node: (.*?),")
MENU = re.compile(r"\* Menu:\s*$")
ENTRY = re.compile(r"\* [^:]+:[:.]?|\s{10,}\S|\s*$")
TABLES = ("Tag Table:", "Indirect:", "Local Variables:", "END-INFO-DIR-ENTRY", "START-INFO-DIR-ENTRY")
REFERENCE = re.compile(r"\*[Nn]ote\s++([^:]{1,300}+)(?:::|:\s++[^.,]{1,300}+(?=[.,]))")


def read_info(document: Document) -> Iterator[Block]:
    """Read the nodes of an Info file. Manuals from before UTF-8 are in Latin-1."""
    try:
        for _ in lines(document.path, nul=True):
            pass
        encoding = "utf-8"
    except CorpusError as error:
        if not isinstance(error.__context__, UnicodeDecodeError):
            raise
        encoding = "latin-1"
    numbered = lines(document.path, nul=True, encoding=encoding)
    yield from layout.blocks(node_lines(numbered, document))


def node_lines(numbered: Iterable[tuple[int, str]], document: Document) -> Iterator[tuple[int, str]]:
    """Yield the lines without navigation between nodes; a node begins after a blank line."""
    is_header, is_menu, is_skipped = True, False, False
    for number, line in numbered:
        if line.startswith("\x1f"):
            is_header, is_menu, is_skipped = True, False, False
            yield number, ""
        elif is_header:
            is_header = False
            is_skipped = not NODE.match(line)  # a table of the file, or its preamble
        elif is_skipped or line.startswith(TABLES):
            continue
        elif MENU.match(line):
            is_menu = True
        elif is_menu and ENTRY.match(line):
            document.skips.dropped["lines of menus"] += bool(line.strip())
            yield number, ""
        elif "\0" not in line:  # a mark of an index
            is_menu = False
            yield number, REFERENCE.sub(r"\1", line)


RENDERERS = {
    "mandoc": ["-T", "utf8", "-O", "width=1000"],
    "groff": ["-S", "-K", "utf8", "-T", "utf8", "-rLL=1000n", "-P-cbou", "-P-h"],
}
MAN_MACROS = b".do mso an-old.tmac\n.if !d TH .do mso an.tmac\n"
MDOC_MACROS = b".do mso doc.tmac\n"
FORGET = (
    b".rm so soquiet mso msoquiet cf trf nx rd psbb hpf hpfa hpfcode open opena opennoclose write writec writem pso pi "
    b"sy device\n"
)
INCLUDES = re.compile(rb"^[.'][ \t]*(?:do[ \t]+)?(so|soquiet|cf|trf|nx|psbb|pso)[ \t]+\S", re.MULTILINE)
MDOC = re.compile(rb"^[.'][ \t]*Dd\b", re.MULTILINE)
RENDER_SECONDS = 20.0
MAX_MESSAGE_BYTES = 200
GAP = re.compile(r" {3,}")  # between the parts of the header and the footer
MACROS = re.compile(rb"^[.'](?:TH|Dd|SH|Sh|so) ", re.MULTILINE)
MAN_LINK = re.compile(rb"\s*\.so \S+\s*")


def read_man(document: Document) -> Iterator[Block]:
    """Read a man page; lines are those of the rendered page. Raises CorpusError if neither program is installed."""
    source = document.content()
    if MAN_LINK.fullmatch(source):
        return  # another name of another page
    if not MACROS.search(source):  # plain text that ends in a version number, such as LICENSE-2.1
        yield from read_plain(document)
        return
    include = INCLUDES.search(source)
    if include is not None:
        raise CorpusError(
            f"{document.path} reads another file (.{include[1].decode()}), which kcard does not: put its text into "
            "the page"
        )
    text = render(document, source)
    yield Block("heading", PurePath(document.name.removesuffix(".gz")).stem, 1, 1)
    lines = text.rstrip().splitlines()
    footer = len(lines) - bool(GAP.search(lines[-1]))
    yield from layout.blocks(islice(enumerate(lines, 1), 1, footer))


def render(document: Document, source: bytes) -> str:
    """Render a man page as text. Raises CorpusError if no program is installed, or it fails or takes too long."""
    for name in RENDERERS:
        program = shutil.which(name)
        if program is not None:
            break
    else:
        raise CorpusError(f"{document.path} is a man page: install mandoc or groff to render it")
    command = [program, *RENDERERS[name]]
    if name == "groff":
        source = (MDOC_MACROS if MDOC.search(source) else MAN_MACROS) + FORGET + source
    with (
        tempfile.TemporaryDirectory(prefix="kcard-") as folder,
        tempfile.TemporaryFile() as page,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        page.write(source)
        page.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=page,
                stdout=output,
                stderr=errors,
                cwd=folder,
                env={"PATH": os.pathsep.join([str(Path(program).parent), os.defpath])},
                start_new_session=True,
            )
        except OSError as error:
            raise CorpusError(f"{document.path} can't be rendered by {name} ({error})") from error
        try:
            process.wait(RENDER_SECONDS)
        except subprocess.TimeoutExpired:
            raise CorpusError(
                f"{document.path} can't be rendered by {name}: it takes more than {RENDER_SECONDS:.0f} s"
            ) from None
        finally:
            # The programs that it started end with it.
            with suppress(OSError):
                process.kill() if sys.platform == "win32" else os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        errors.seek(0)
        text = output.read().decode("utf-8", "replace")
        message = errors.readline(MAX_MESSAGE_BYTES).decode("utf-8", "replace").strip()
    if not text.strip():
        reason = f" ({message})" if message else ""
        raise CorpusError(f"{document.path} can't be rendered by {name}{reason}")
    return text
