"""Rich Text Format (.rtf): converted into HTML, for its tables and lists to be read as those of web pages.

Hidden, struck-through and deleted text, pictures, comments, headers and tables of contents are left out.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape

from kcard.errors import CorpusError
from kcard.training.readers.files import Block, Document
from kcard.training.readers.markup import HIDDEN_WORDS, STRUCK_WORDS, front_fields
from kcard.training.readers.web import converted_blocks

TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
SIGNS = {
    "tab": " ", "line": "<br/>", "emdash": "—", "endash": "–", "lquote": "‘", "rquote": "’", "ldblquote": "“",
    "rdblquote": "”", "bullet": "•", "emspace": " ", "enspace": " ", "qmspace": " ", "~": " ", "_": "-",
    "{": "{", "}": "}", "\\": "\\", "nestcell": "; ", "nestrow": "; ",
}  # fmt: skip
PARAGRAPH_ENDS = ("par", "sect", "page", "\n", "\r")
# Destinations whose text is not shown in the text of the document; those that begin with \* are not, either.
UNREAD = {
    *(
        "colortbl",
        "pict",
        "object",
        "objdata",
        "header",
        "headerl",
        "headerr",
        "headerf",
        "footer",
        "footerl",
    ),
    *("footerr", "footerf", "fldinst", "xe", "tc", "annotation", "atnid", "atnauthor", "revtbl", "listtable"),
    *(
        "listoverridetable",
        "rsidtbl",
        "generator",
        "themedata",
        "datastore",
        "nonshppict",
        "bkmkstart",
        "bkmkend",
    ),
    *("filetbl", "xmlnstbl", "ftnsep", "ftnsepc", "operator", "company", "version", "category", "comment"),
}
INFO = {"title": "title", "author": "author", "keywords": "keywords", "doccomm": "description"}
MARKS = ("listtext", "pntext")  # bullets and numbers of lists
CHARSETS = {
    77: "mac_roman", 128: "cp932", 129: "cp949", 134: "gb18030", 136: "big5", 161: "cp1253", 162: "cp1254",
    163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250",
}  # fmt: skip
HEADING_NAME = re.compile(r"heading (\d)$", re.IGNORECASE)


@dataclass(frozen=True)
class State:
    """What holds within a group: whose text it is, and how it is shown.

    destination  "" for the document
    fallback     characters that follow a character in Unicode for programs that don't know it
    """

    destination: str = ""
    is_hidden: bool = False
    is_struck: bool = False
    fallback: int = 1
    encoding: str = "cp1252"


def read_rtf(document: Document) -> Iterator[Block]:
    """Read paragraphs, headings, list items and table rows, numbered from 1."""
    data = document.content()
    if not data.lstrip().startswith(b"{\\rtf"):
        raise CorpusError(f"{document.path} is not a document in Rich Text Format (.rtf), or a damaged one")
    reader = RtfReader(document)
    page = reader.convert(data)
    fields: dict[str, str] = {}
    for name, text in reader.fields.items():
        if text.strip():
            fields[name] = text.strip()
    yield from front_fields(fields, 1)
    yield from converted_blocks(page, document)


class RtfReader:
    """Converts tokens into HTML; `fields` are those of front matter."""

    def __init__(self, document: Document) -> None:
        self.fields: dict[str, str] = {}
        self._skips = document.skips
        self._state = State()
        self._groups: list[State] = []
        self._encodings: dict[int, str] = {}  # of fonts
        self._font = 0
        self._encoding = "cp1252"
        self._style, self._style_name = 0, ""  # in the table of styles
        self._levels: dict[int, int] = {}  # of headings, by style; -1: a line of a table of contents
        self._html: list[str] = []
        self._notes: list[str] = []
        self._text: list[str] = []  # of the paragraph so far
        self._bytes = bytearray()  # of characters so far
        self._skipped = 0  # characters that are left out after one in Unicode
        self._level = 0  # of the paragraph, if it is a heading
        self._is_item = False
        self._is_in_table = False
        self._cell: list[str] = []
        self._row: list[str] = []
        self._above: list[str] = []  # the row before
        self._merged: list[str] = []  # how each cell of the row is merged with another
        self._merge = ""
        self._is_table_open = False

    def convert(self, data: bytes) -> str:
        at = 0
        while True:
            token = TOKEN.match(data, at)
            if token is None:
                break
            at = token.end()
            word, value, code, sign, bracket, text = token.groups()
            if code:
                self.characters(bytes.fromhex(code.decode("ascii")))
                continue
            if text:
                self.characters(text)
                continue
            self.flush()
            if bracket == b"{":
                self._groups.append(self._state)
            elif bracket == b"}":
                self.leave()
            elif word:
                number = int(value) if value is not None else None
                if word == b"bin":
                    at += max(0, number or 0)
                else:
                    self.control(word.decode("ascii"), number)
            elif sign:
                self.control(sign.decode("latin-1"), None)
        self.flush()
        self.end_paragraph()
        self.close_table()
        page = "".join([*self._html, *self._notes])
        # A character beyond 16 bits is written as two.
        return page.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def characters(self, data: bytes) -> None:
        skipped = min(self._skipped, len(data))
        self._skipped -= skipped
        self._bytes += data[skipped:]

    def flush(self) -> None:
        """Add the characters so far to the text."""
        if not self._bytes:
            return
        text = bytes(self._bytes).decode(self._state.encoding, "replace")
        self._bytes.clear()
        self.add(text)

    def add(self, text: str, is_markup: bool = False) -> None:
        state = self._state
        if state.destination == "stylesheet":
            self._style_name += text
        elif state.destination in INFO:
            name = INFO[state.destination]
            self.fields[name] = self.fields.get(name, "") + text
        elif state.destination == "footnote":
            self._notes.append(text if is_markup else escape(text))
        elif state.destination:
            return
        elif state.is_hidden or state.is_struck:
            kind = HIDDEN_WORDS if state.is_hidden else STRUCK_WORDS
            self._skips.dropped[kind] += 0 if is_markup else len(text.split())
        else:
            self._text.append(text if is_markup else escape(text))

    def leave(self) -> None:
        """End a group."""
        state = self._state
        if state.destination == "stylesheet" and ";" in self._style_name:
            name = self._style_name.partition(";")[0].strip()
            if heading := HEADING_NAME.match(name):
                self._levels[self._style] = int(heading[1]) + 1
            elif name.lower() == "title":
                self._levels[self._style] = 1
            elif name.lower().startswith("toc "):
                self._levels[self._style] = -1
            self._style_name = ""
        if self._groups:
            self._state = self._groups.pop()
        if state.destination == "footnote" != self._state.destination:
            self._notes.append("</p>")

    def control(self, word: str, number: int | None) -> None:
        state = self._state
        on = number != 0
        if word == "u" and number is not None:
            self.add(chr(number % 65536))
            self._skipped = state.fallback
        elif word == "*":
            self._state = replace(state, destination=state.destination or "*")
        elif word == "stylesheet" or word == "fonttbl" or word in INFO or word in MARKS or word in UNREAD:
            if word in MARKS and not state.destination:
                self._is_item = True
            self._state = replace(state, destination=word)
        elif word == "footnote" and not state.destination:
            self._state = replace(state, destination=word)
            self._notes.append("<p>")
        elif word == "f":
            self._font = number or 0
            self._state = replace(state, encoding=self._encodings.get(self._font, self._encoding))
        elif word == "fcharset" and state.destination == "fonttbl":
            self._encodings[self._font] = CHARSETS.get(number or 0, self._encoding)
        elif word == "ansicpg":
            self.use_encoding(f"cp{number}")
        elif word == "uc":
            self._state = replace(state, fallback=max(0, number or 0))
        elif word == "plain":
            self._state = replace(state, is_hidden=False, is_struck=False)
        elif word == "v":
            self._state = replace(state, is_hidden=on)
        elif word in ("strike", "striked", "deleted"):
            self._state = replace(state, is_struck=on)
        elif word in SIGNS:
            self.add(SIGNS[word], is_markup=SIGNS[word].startswith("<"))
        elif state.destination == "stylesheet":
            if word == "s":
                self._style = number or 0
            elif word == "outlinelevel":
                self._levels[self._style] = (number or 0) + 2
        elif not state.destination:
            self.paragraph_control(word, number)

    def use_encoding(self, name: str) -> None:
        try:
            codecs.lookup(name)
        except LookupError:
            return
        self._encoding = name
        self._state = replace(self._state, encoding=name)

    def paragraph_control(self, word: str, number: int | None) -> None:
        """Take a control word of paragraphs and tables."""
        if word == "pard":
            self._level, self._is_in_table = 0, False
        elif word == "s":
            self._level = self._levels.get(number or 0, 0)
        elif word == "outlinelevel" and (number or 0) < 9:
            self._level = (number or 0) + 2
        elif word == "intbl":
            self._is_in_table = True
        elif word in PARAGRAPH_ENDS:
            self.end_paragraph()
        elif word == "trowd":
            self._merged, self._merge = [], ""
        elif word in ("clvmrg", "clmrg"):
            self._merge = word
        elif word == "cellx":
            self._merged.append(self._merge)
            self._merge = ""
        elif word == "cell":
            self._is_in_table = True
            self.end_paragraph()
            self._row.append("".join(self._cell))
            self._cell = []
        elif word == "row":
            self.end_row()

    def end_paragraph(self) -> None:
        text = "".join(self._text)
        self._text = []
        is_item, self._is_item = self._is_item, False
        if not self._is_in_table:
            self.close_table()
        if self._level < 0 or not text.strip():
            return
        if self._is_in_table:
            self._cell.append(f"<p>{text}</p>")
        elif is_item:
            self._html.append(f"<ul><li>{text}</li></ul>")
        else:
            tag = "p"
            if self._level:
                tag = f"h{min(self._level, 6)}"
            self._html.append(f"<{tag}>{text}</{tag}>")

    def end_row(self) -> None:
        for at, merge in enumerate(self._merged[: len(self._row)]):
            if merge == "clvmrg" and at < len(self._above):
                self._row[at] = self._above[at]
            elif merge == "clmrg" and at:
                self._row[at] = self._row[at - 1]
        if not self._is_table_open:
            self._html.append("<table>")
            self._is_table_open = True
        self._html += ["<tr>", *(f"<td>{cell}</td>" for cell in self._row), "</tr>"]
        self._above, self._row = self._row, []

    def close_table(self) -> None:
        if self._is_table_open:
            self._html.append("</table>")
        self._is_table_open, self._above = False, []
