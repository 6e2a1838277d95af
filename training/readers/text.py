"""Plain text, reStructuredText, Info and man pages."""

import codecs
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, groupby, islice, pairwise
from pathlib import Path, PurePath
from typing import BinaryIO

from kcard.errors import CorpusError
from kcard.training.duplicates import is_mark
from kcard.training.readers import layout
from kcard.training.readers.encodings import GUESSED_BYTES, guess_encoding, marked_encoding
from kcard.training.readers.files import CONTINUED, Block, Document, reading
from kcard.training.readers.rst_tables import with_tables_as_items

# Lines of a UTF-8 file, streamed: neither the file nor an endless line is ever held whole.

CHUNK = 1 << 18
MAX_LINE_BYTES = 1 << 26
BOM_BYTES = 4


def lines(
    path: Path, *, whole: bool = False, nul: bool = False, encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    """Yield (number, line), 1-based, without the line end: \\n, \\r\\n or \\r. A byte order mark is left out; that of
    UTF-16 or UTF-32 decides the encoding.

    A line above 256 kB comes in parts under the same number, cut after white space; with `whole`, lines up to 64 MB
    come complete. Raises CorpusError, naming file and line, for bytes that are not UTF-8, for NUL (unless `nul`
    allows it) and for longer lines. `encoding`: UTF-8, or one with a byte for each character.
    """
    with reading(path), path.open("rb") as stream, ExitStack() as stack:
        source: BinaryIO = stream
        marked = marked_encoding(stream.read(BOM_BYTES))
        stream.seek(0)
        if marked is not None and marked != "utf-8-sig":
            source = stack.enter_context(tempfile.TemporaryFile())
            to_utf8(stream, source, marked, path)
        yield from _lines(source, path, MAX_LINE_BYTES if whole else CHUNK, whole, nul, encoding)


def to_utf8(stream: BinaryIO, target: BinaryIO, encoding: str, path: Path) -> None:
    """Write a text in UTF-16 or UTF-32 as UTF-8, and return to its beginning. Raises CorpusError for other bytes."""
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        while chunk := stream.read(CHUNK):
            target.write(decoder.decode(chunk).encode("utf-8"))
        target.write(decoder.decode(b"", final=True).encode("utf-8"))
    except UnicodeError as error:
        raise CorpusError(
            f"{path} begins as {encoding.upper()} text, but is none ({error}): convert the file to UTF-8 or remove it "
            "from the corpus"
        ) from None
    target.seek(0)


def _lines(
    stream: BinaryIO, path: Path, longest: int, whole: bool, nul: bool, encoding: str
) -> Iterator[tuple[int, str]]:
    number, rest = 1, b""
    while chunk := rest + stream.readline(longest - len(rest)):
        rest = b""
        ended = chunk.endswith(b"\n") or len(chunk) < longest
        if not ended and whole:
            raise CorpusError(f"{path}:{number} is a line of more than {longest >> 20} MB: split it")
        if not ended:
            # Cut after the last blank or else between two characters; the rest is short.
            at = chunk.rfind(b" ", len(chunk) // 2) + 1
            if not at:
                at = len(chunk) - 1
                while at > len(chunk) - 4 and 0x80 <= chunk[at] < 0xC0:
                    at -= 1
            chunk, rest = chunk[:at], chunk[at:]
        text = decode(chunk, path, number, nul, encoding)
        if number == 1:
            text = text.removeprefix("\ufeff")
        *before, last = text.rstrip("\n").removesuffix("\r").split("\r")
        for line in before:
            yield number, line
            number += 1
        yield number, last
        number += ended


def decode(chunk: bytes, path: Path, number: int, nul: bool, encoding: str) -> str:
    try:
        text = chunk.decode(encoding)
    except UnicodeDecodeError as error:
        line = number + chunk[: error.start].count(b"\r")
        raise CorpusError(
            f"{path}:{line} is not UTF-8 text (byte 0x{chunk[error.start]:02x}): {_remedy(path)}"
        ) from None
    if "\0" in text and not nul:
        raise CorpusError(f"{path}:{number} is not UTF-8 text (a NUL byte): {_remedy(path)}")
    return text


def _remedy(path: Path) -> str:
    """Return what to do with a file that is not UTF-8: how to convert it, if it looks like a text."""
    with path.open("rb") as stream:
        encoding = guess_encoding(stream.read(GUESSED_BYTES))
    if encoding is None:
        return "remove it from the corpus, or convert it if it is text"
    return f"it looks like {encoding.upper()}; convert it: iconv -f {encoding.upper()} -t UTF-8"


# Plain text: a list of facts, one per line; notes, whose neighbouring lines belong together; or a document with a
# layout of blank lines and indentation (layout.py).

SENTENCE_END = re.compile(r"[.!?:;。！？…।॥؟۔][\"'”’»)\]]*$")
# Thai and Lao have no full stop.
FACT_END = re.compile(r"(?:[.!?。！？…।॥؟۔\u104b\u17d4][\"'”’»)\]]*|[\u0e00-\u0eff])$")
LOOKED_AT = 400  # lines
MAX_STATEMENT_LINES = 12
FEW = 0.1


def read_plain(document: Document) -> Iterator[Block]:
    """Yield each line if the first ones look like a list of facts, and else paragraphs or the blocks of the layout."""
    numbered = lines(document.path)
    head = list(islice(numbered, LOOKED_AT))
    if is_laid_out([line for _, line in head]):
        yield from layout.blocks(chain(head, numbered))
    elif is_list_of_facts([line for _, line in head]):
        yield from statements_of(chain(head, numbered))
    else:
        yield from notes_of(chain(head, numbered))


def is_list_of_facts(sample: Sequence[str]) -> bool:
    """Return whether nearly every line is a sentence, and blank lines do not join them to paragraphs."""
    paragraphs = [
        [*group] for filled, group in groupby(sample, key=lambda line: bool(line.strip())) if filled
    ]
    # A line without letters says nothing alone in either.
    lines = [line for paragraph in paragraphs for line in paragraph if any(map(str.isalpha, line))]
    facts = sum(bool(FACT_END.search(line.rstrip())) for line in lines)
    several = sum(len(paragraph) > 1 for paragraph in paragraphs)
    is_grouped = len(paragraphs) > 1 and several > len(paragraphs) / 2
    return len(lines) - facts <= FEW * len(lines) and not is_grouped


def notes_of(numbered: Iterable[tuple[int, str]]) -> Iterator[Block]:
    """Yield the lines of notes; those of a paragraph stay together: "Severity 1", "responds within 15 minutes"."""
    is_first = True
    for number, line in numbered:
        if line.strip():
            yield Block("text", line.strip(), number, level=0 if is_first else CONTINUED)
        is_first = not line.strip()


def statements_of(numbered: Iterable[tuple[int, str]]) -> Iterator[Block]:
    """Yield each line as a statement. A line without letters says nothing alone, so it goes on with the line before it,
    and so does a line after one that ends in a colon: "Workshop:", "555 0102"."""
    text, first, begun = "", 0, list[tuple[int, int]]()
    # Of the statement so far: whether it is in this paragraph, and the number of its lines.
    is_near, count = False, 0
    for number, raw in numbered:
        line = raw.strip()
        if not line:
            is_near = False
            continue
        is_introduced = text.endswith(":")
        is_bare = not any(map(str.isalpha, line)) and not all(map(is_mark, line))
        is_open = not SENTENCE_END.search(text) and (is_near or count == 1)
        continues = (is_introduced and (is_near or is_bare)) or (is_bare and is_open)
        if text and continues and count < MAX_STATEMENT_LINES:
            begun.append((len(text.split()), number))
            text += f" {line}"
            count += 1
        else:
            if text:
                yield Block("statement", text, first, lines=tuple(begun))
            text, first, begun, count = line, number, [], 1
        is_near = True
    if text:
        yield Block("statement", text, first, lines=tuple(begun))


def is_laid_out(sample: Sequence[str]) -> bool:
    """Return whether lines are wrapped, indented or underlined, so that a single line says little."""
    filled = [line for line in sample if line.strip()]
    indented = sum(line[0] in " \t" for line in filled)
    wrapped = sum(
        not SENTENCE_END.search(before.rstrip()) and after[:1].islower()
        for before, after in pairwise(sample)
        if before.strip()
    )
    underlined = any(layout.UNDERLINE.fullmatch(line) for line in filled[1:])
    return underlined or wrapped > FEW * len(filled) / 4 or indented > FEW * len(filled)


# Directives that name or show something, whose line contains no text.
SILENT = re.compile(
    r"\s*\.\. (?:[_[|]|(?:index|toctree|image|figure|include|highlight|contents|meta|code|code-block|sourcecode"
    r"|literalinclude|parsed-literal|only|tab|tabs|rubric)::|(?![\w:+-]+::))"
)
CODE = re.compile(r"\s*\.\. (?:code|code-block|sourcecode|parsed-literal)::")
DIRECTIVE = re.compile(r"\s*\.\. ([\w:+-]+)::\s*")
VERSIONS = {
    "deprecated": "Deprecated since version",
    "versionadded": "New in version",
    "versionchanged": "Changed in version",
    "versionremoved": "Removed in version",
}
VERSION = re.compile(r"v?\d")
OPTION = re.compile(r"\s+:[\w-]+:(\s|$)")
ROLE = re.compile(r":[\w:+-]{1,60}:`~?!?([^`<]+)(<[^`>]*>)?`")
RST_LINK = re.compile(r"`([^`<]+)(<[^`>]*>)`__?")
LITERAL = re.compile(r"``([^`]+)``|`([^`]+)`_{0,2}|\*\*([^*\s][^*]*)\*\*|(?<!\w)\*([^*\s][^*]*)\*(?!\w)")


def read_rst(document: Document) -> Iterator[Block]:
    source = [*lines(document.path)]
    rows = [*with_tables_as_items(source, literal_lines(source))]
    yield from layout.blocks(plain_lines(rows), literal_lines(rows))


def literal_lines(numbered: Iterable[tuple[int, str]]) -> set[int]:
    """Return the numbers of lines in literal blocks: those indented deeper than the `::` or directive before them."""
    literal: set[int] = set()
    begun: int | None = None  # indentation of what introduced the block
    for number, line in numbered:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if begun is not None and indent > begun:
            literal.add(number)
            continue
        introduces = CODE.match(line) or (line.rstrip().endswith("::") and not line.lstrip().startswith(".."))
        begun = indent if introduces else None
    return literal


def plain_lines(numbered: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    # Replace links and roles by their words, which may continue in the next line.
    unwrapped: list[tuple[int, str]] = []
    for filled, group in groupby(numbered, lambda line: bool(line[1].strip())):
        lines = [*group]
        if filled:
            text = "\n".join(line for _, line in lines)
            text = ROLE.sub(_inner_words, RST_LINK.sub(_inner_words, text))
            lines = [*zip((number for number, _ in lines), text.split("\n"), strict=True)]
        unwrapped += lines
    directive = False
    for number, line in unwrapped:
        if SILENT.match(line):
            directive = True
            line = ""
        elif mark := DIRECTIVE.match(line):
            directive = True
            text = line[mark.end() :]
            if mark[1] in VERSIONS and VERSION.match(text):
                text = f"{VERSIONS[mark[1]]} {text}"
            line = line[: len(line) - len(line.lstrip())] + text
        elif directive and OPTION.match(line):
            line = ""
        elif line.strip():
            directive = False
        line = LITERAL.sub(lambda found: next(filter(None, found.groups())), line)
        yield number, re.sub(r"::$", ":", line) if line.strip() != "::" else ""


def _inner_words(mark: re.Match[str]) -> str:
    """Return the first group, with as many line ends as the whole match has. Group 2 is the target of a link."""
    words = mark[1].rstrip() if mark[2] else mark[1]
    return words + "\n" * (mark[0].count("\n") - words.count("\n"))


# Info files, GNU's manuals: nodes of laid-out text, without menus and indices.

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
    header, menu, skipped = True, False, False
    for number, line in numbered:
        if line.startswith("\x1f"):
            header, menu, skipped = True, False, False
            yield number, ""
        elif header:
            header = False
            skipped = not NODE.match(line)  # a table of the file, or its preamble
        elif skipped or line.startswith(TABLES):
            continue
        elif MENU.match(line):
            menu = True
        elif menu and ENTRY.match(line):
            document.skips.dropped["lines of menus"] += bool(line.strip())
            yield number, ""
        elif "\0" not in line:  # a mark of an index
            menu = False
            yield number, REFERENCE.sub(r"\1", line)


# Man pages: rendered by mandoc or groff, whichever is installed, and parsed by their layout.
#
# A page is a program that can read files of this machine and run for ever. The renderer gets it on stdin, in an empty
# folder, with an empty environment. groff loads its macros before the page and then forgets its requests for files, so
# that neither the page nor a macro can use them under any name. (mandoc has only .so, for files of its folder alone.)

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
    if include := INCLUDES.search(source):
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
    programs = [(name, program) for name in RENDERERS if (program := shutil.which(name))]
    if not programs:
        raise CorpusError(f"{document.path} is a man page: install mandoc or groff to render it")
    name, program = programs[0]
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
        raise CorpusError(f"{document.path} can't be rendered by {name}{f' ({message})' if message else ''}")
    return text
