"""LaTeX (.tex): converted into Markdown, each line with its number in the file. Formulas stay as they are written.

Comments, struck-through text, labels and citations are left out; other files (\\input) are not read, and counted.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from kcard.training.readers.files import Block, Document, SkipReport
from kcard.training.readers.markdown_writer import (
    STRUCK,
    STRUCK_END,
    Line,
    escaped,
    markdown_table,
    numbered_blocks,
    paragraph,
    without_struck_words,
)
from kcard.training.readers.markup import front_fields
from kcard.training.readers.text import lines

BREAK = "\ue010"  # a line end that is not one of the file
GAP = "\ue013"  # before a line end in a table, which divides no rows
LITERAL, LITERAL_END = "\ue011", "\ue012"  # around what is Markdown already
COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%.*")
# What is never closed lasts until the end, so that the rest is not searched for each of many.
COMMENT_BLOCK = re.compile(
    r"\\begin\{comment\}.*?(?:\\end\{comment\}|\Z)|\\iffalse\b.*?(?:\\fi\b|\Z)", re.DOTALL
)
VERBATIM = re.compile(
    r"\\begin\{(verbatim\*?|lstlisting|minted|alltt)\}((?:\[[^\]\n]*\]|\{[^}\n]*\})*)(.*?)(?:\\end\{\1\}|\Z)",
    re.DOTALL,
)
TABLE = re.compile(r"\\begin\{(tabular[xy*]?|longtable|tabulary)\}(.*?)(?:\\end\{\1\}|\Z)", re.DOTALL)
FORMULA = re.compile(
    r"\$\$[^$]{1,2000}\$\$|\$[^$]{1,2000}(?<!\\)\$|\\\(.{0,2000}?\\\)|\\\[.{0,2000}?\\\]", re.DOTALL
)
MACRO = re.compile(r"\\(?:re)?newcommand\*?\s*\{?\\([A-Za-z]+)\}?\s*\{")
SPAN = re.compile(r"\s*\\multi(column|row)\s*(?=\{)")
COMMAND = re.compile(r"\\(?:([A-Za-z]+\*?)\s*|(.))", re.DOTALL)
SPECIAL = re.compile(r"[\\$]")
BRACE = re.compile(r"[{}]|\\.", re.DOTALL)
LEVELS = {
    "part": 2, "chapter": 2, "section": 3, "subsection": 4, "subsubsection": 5, "paragraph": 6, "subparagraph": 6
}  # fmt: skip
FIELDS = ("title", "author", "date")
# Commands whose arguments are not text: how many are dropped, before one that may be.
DROPPED_ARGUMENTS = {
    **dict.fromkeys(("label", "ref", "pageref", "eqref", "autoref", "cref", "Cref", "nameref", "index", "glossary"), 1),
    **dict.fromkeys(("cite", "citep", "citet", "citealp", "parencite", "textcite", "autocite", "footcite"), 1),
    **dict.fromkeys(("nocite", "nolinkurl"), 1),
    **dict.fromkeys(("includegraphics", "bibliography", "bibliographystyle", "vspace", "hspace", "pagestyle"), 1),
    **dict.fromkeys(("thispagestyle", "usepackage", "documentclass", "phantom", "hphantom", "vphantom", "thanks"), 1),
    **dict.fromkeys(("color", "textcolor", "href", "hyperref", "colorbox", "fontsize", "cline", "cmidrule"), 1),
    **dict.fromkeys(("setlength", "setcounter", "addtocounter", "rule", "raisebox", "newcommand", "renewcommand"), 2),
}  # fmt: skip
INPUTS = ("input", "include", "subfile")
STRUCK_COMMANDS = ("sout", "st", "xout", "cancel")
SIGNS = {
    "\\": " ", "&": "&", "%": "%", "$": "$", "#": "#", "_": "_", "{": "{", "}": "}", ",": " ", ";": " ", ":": " ",
    " ": " ", "\n": "\n", "/": "", "-": "", "!": "", "@": "", "quad": " ", "qquad": " ", "par": BREAK + BREAK,
    "newline": " ", "linebreak": " ", "ss": "ß", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł", "ae": "æ", "AE": "Æ",
    "oe": "œ", "OE": "Œ", "aa": "å", "AA": "Å", "i": "i", "j": "j", "ldots": "…", "dots": "…", "textellipsis": "…",
    "LaTeX": "LaTeX", "TeX": "TeX", "textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^",
    "euro": "€", "texteuro": "€", "pounds": "£", "textdegree": "°", "degree": "°", "copyright": "©", "S": "§",
    "textendash": "–", "textemdash": "—", "textbar": "|", "textless": "<", "textgreater": ">", "today": "",
    "and": ", ", "percent": "%",
}  # fmt: skip
ACCENTS = {
    "'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "u": "\u0306", "v": "\u030c", "H": "\u030b", "c": "\u0327", "k": "\u0328", "r": "\u030a", "d": "\u0323",
}  # fmt: skip
MAX_MACROS = 100
MAX_EXPANDED_CHARACTERS = 100_000  # more than the source has, of macros
MAX_DEPTH = 50  # of arguments within arguments
MAX_SPAN = 100


def read_latex(document: Document) -> Iterator[Block]:
    """Read the text between the beginning and the end of the document, or all of a file that has neither."""
    source = "\n".join(line for _, line in lines(document.path))
    # Comments go with their text; line ends stay, so that numbers of lines stay right.
    source = COMMENT_BLOCK.sub(lambda part: "\n" * part[0].count("\n"), source)
    verbatim: list[str] = []

    def set_aside(part: re.Match[str]) -> str:
        verbatim.append(part[3].replace("```", "` ` `"))
        return f"{LITERAL}{len(verbatim) - 1}{LITERAL_END}" + "\n" * part[0].count("\n")

    source = COMMENT.sub(r"\1", VERBATIM.sub(set_aside, source))
    preamble, begin, body = source.partition(r"\begin{document}")
    if not begin:
        preamble, body = "", source
    source = "\n" * preamble.count("\n") + body.partition(r"\end{document}")[0]
    converter = LatexConverter(macros_of(preamble), document.skips)
    values: dict[str, str] = {}
    for name in FIELDS:
        text = converter.field(name, preamble + begin + body)
        if text:
            values[name] = text
    yield from front_fields(values, 1)
    rows: list[Line] = []
    for number, line in enumerate(converter.convert(source).split("\n"), 1):
        for text in line.split(BREAK):
            if text != GAP:
                rows += markdown_lines(number, text.removesuffix(GAP), verbatim)
    yield from numbered_blocks(rows, document.skips)


def markdown_lines(number: int, text: str, verbatim: Sequence[str]) -> Iterator[Line]:
    """Yield a line of text, or what stands between the marks of literal text."""
    row = ""
    for at, part in enumerate(re.split(f"{LITERAL}(.*?){LITERAL_END}", text)):
        if at % 2 == 0 and row:
            row += escaped(part)
        elif at % 2 == 0:
            row = paragraph(part)
        elif not part.isdecimal():
            row += part
        else:
            yield number, row
            yield number, "```"
            for more, line in enumerate(verbatim[int(part)].strip("\n").split("\n"), 1):
                yield number + more, line
            yield number, "```"
            row = ""
    yield number, row


def macros_of(preamble: str) -> dict[str, str]:
    """Return the commands without arguments that a document defines, such as the name of a firm."""
    macros: dict[str, str] = {}
    for match in islice(MACRO.finditer(preamble), MAX_MACROS):
        text, _ = argument(preamble, match.end() - 1)
        if "#" not in text:
            macros[match[1]] = text
    return macros


def argument(text: str, at: int) -> tuple[str, int]:
    """Return what stands in the braces at a place, and where they end; the next sign where there are none."""
    if text[at : at + 1] != "{":
        return text[at : at + 1], min(at + 1, len(text))
    depth = 0
    for brace in BRACE.finditer(text, at):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return text[at + 1 : brace.start()], brace.end()
    return text[at + 1 :], len(text)


def option(text: str, at: int) -> tuple[str, int]:
    """Return what stands in the brackets at a place, and where they end; "" where there are none."""
    if text[at : at + 1] != "[":
        return "", at
    end = text.find("]", at)
    if end < 0:
        return "", at
    return text[at + 1 : end], end + 1


def after_options(text: str, at: int) -> int:
    """Return the place after all brackets at a place; one that is never closed is not passed."""
    before = -1
    while at != before:
        before = at
        _, at = option(text, at)
    return at


class LatexConverter:
    """Replaces the commands of a text by their words. As many line ends stay as there were."""

    def __init__(self, macros: dict[str, str], skips: SkipReport) -> None:
        self._macros = macros
        self._skips = skips
        self._depth = 0
        self._is_inline = False  # within a title or a cell, where nothing is Markdown
        self._left = MAX_EXPANDED_CHARACTERS

    def field(self, name: str, source: str) -> str:
        match = re.search(rf"\\{name}\s*(?=\{{)", source)
        if match is None:
            return ""
        text, _ = argument(source, match.end())
        return without_struck_words(self.inline(text).replace(" ,", ","))

    def convert(self, text: str) -> str:
        """Return a text with lists, headings and tables in Markdown, between LITERAL and LITERAL_END."""
        if self._depth > MAX_DEPTH:
            return text
        self._depth += 1
        parts: list[str] = []
        at = 0
        while True:
            special = SPECIAL.search(text, at)
            if special is None:
                parts.append(plain_signs(text[at:]))
                break
            parts.append(plain_signs(text[at : special.start()]))
            at = special.start()
            table, formula, command = TABLE.match(text, at), FORMULA.match(text, at), COMMAND.match(text, at)
            if table is not None:
                parts.append(self.table(table[2]))
                at = table.end()
            elif formula is not None:
                parts.append(formula[0].strip("$"))
                at = formula.end()
            elif command is not None:
                words, end = self.command(command[1] or command[2], text, command.end())
                # Blanks after a command are part of it, but line ends count.
                gap = "\n" * (text.count("\n", at, end) - words.count("\n"))
                parts.append(words + gap)
                at = end
            else:
                at += 1
        self._depth -= 1
        return "".join(parts)

    def inline(self, text: str) -> str:
        """Return a text as one line without Markdown."""
        before, self._is_inline = self._is_inline, True
        words = re.sub(f"{BREAK}|{LITERAL}.*?{LITERAL_END}", " ", self.convert(text))
        self._is_inline = before
        return " ".join(words.split())

    def command(self, name: str, text: str, at: int) -> tuple[str, int]:
        """Return the words of a command, and where it ends with its arguments."""
        plain = name.rstrip("*")
        if plain in self._macros and self._left > 0:
            words = self._macros[plain]
            self._left -= len(words)
            follows = text[at - 1 : at].isspace() and text[at : at + 1] not in ".,;:"
            space = " " if follows and words[-1:].isalnum() else ""
            return self.convert(words) + space, at
        if name in ACCENTS and not (name.isalpha() and text[at : at + 1] != "{" and text[at - 1 : at] != " "):
            letter, end = argument(text, at)
            letters = self.convert(letter).strip()
            return unicodedata.normalize("NFC", letters[:1] + ACCENTS[name] + letters[1:]), end
        if plain in LEVELS:
            _, at = option(text, at)
            title, end = argument(text, at)
            words = self.inline(title)
            if not self._is_inline:
                words = literal(f"{'#' * LEVELS[plain]} {escaped(words)}")
            return words, end
        if plain in FIELDS or plain == "maketitle":
            if text[at : at + 1] == "{":
                _, at = argument(text, at)
            return "", at
        if plain in ("begin", "end"):
            return self.environment(plain, text, at)
        if plain == "item":
            term, end = option(text, at)
            lead = f"{self.inline(term)}: " if term else ""
            if self._is_inline:
                return f"; {lead}", end
            return literal(f"- {escaped(lead)}"), end
        if plain in INPUTS:
            self._skips.dropped["included files"] += 1
            return "", argument(text, at)[1]
        if plain in STRUCK_COMMANDS:
            struck, end = argument(text, at)
            words = " ".join(self.convert(struck).split())
            return f"{STRUCK}{words}{STRUCK_END}", end
        if plain in ("footnote", "footnotetext"):
            note, end = argument(text, at)
            return f" ({self.convert(note).strip()})", end
        if plain == "verb":
            end = text.find(text[at : at + 1], at + 1)
            return text[at + 1 : end], end + 1
        if plain == "caption":
            _, at = option(text, at)
            caption, end = argument(text, at)
            return BREAK + BREAK + self.convert(caption) + BREAK + BREAK, end
        if plain in DROPPED_ARGUMENTS:
            at = after_options(text, at)
            for _ in range(DROPPED_ARGUMENTS[plain]):
                if text[at : at + 1] == "{":
                    _, at = argument(text, at)
            return "", at
        if plain in SIGNS:
            if plain == "\\":
                _, at = option(text, at)
            return SIGNS[plain], at
        # What another command does is unknown; its arguments are text.
        _, end = option(text, at)
        is_before_word = text[end : end + 1].isalnum() and text[at - 1 : at].isspace()
        return " " if is_before_word else "", end

    def environment(self, name: str, text: str, at: int) -> tuple[str, int]:
        """Begin or end an environment: a paragraph of its own."""
        _, end = argument(text, at)
        if name == "begin":
            end = after_options(text, end)
        return BREAK + BREAK, end

    def table(self, content: str) -> str:
        """Return a table in Markdown, without what describes its columns."""
        at = after_options(content, 0)
        while content[at : at + 1] == "{":
            _, at = argument(content, at)
            at = after_options(content, at)
        grid: list[list[str]] = []
        numbers: list[int] = []
        spanning: dict[int, tuple[int, str]] = {}  # by column: rows that are left, and the text
        ruled: list[int] = []  # rows below a line
        line = content.count("\n", 0, at)
        for row in re.split(r"\\\\(?:\[[^\]]*\])?|\\tabularnewline\b", content[at:]):
            bare = re.sub(r"\\(?:hline|toprule|midrule|bottomrule|endhead|endfirsthead|endfoot)\b", "", row)
            if bare != row:
                ruled.append(len(grid))
            bare = re.sub(r"\\c(?:line|midrule)(?:\([^)]*\))?\{[^}]*\}", "", bare)
            lead = len(bare) - len(bare.lstrip())
            if bare.strip():
                numbers.append(line + bare.count("\n", 0, lead))
                grid.append(self.cells(bare, spanning))
            line += row.count("\n")
        has_names = len(grid) > 1 and 1 in ruled and (2 not in ruled or len(grid) == 2 or len(grid[0]) > 2)
        if self._is_inline:
            return "; ".join(chain.from_iterable(grid)) + "\n" * content.count("\n")
        grid = [list(map(escaped, cells)) for cells in grid]
        text, before = "", 0
        for number, row in markdown_table(grid, has_names, numbers):
            if number > before:
                text += f"{GAP}\n" * (number - before)
            else:
                text += BREAK
            if row:
                text += f"{LITERAL}{row}{LITERAL_END}"
            before = max(before, number)
        return text + BREAK + "\n" * (content.count("\n") - before)

    def cells(self, row: str, spanning: dict[int, tuple[int, str]]) -> list[str]:
        cells: list[str] = []
        for cell in re.split(r"(?<!\\)&", row):
            columns = height = 1
            while True:
                many = SPAN.match(cell)
                if many is None:
                    break
                count, at = argument(cell, many.end())
                _, at = argument(cell, at)
                cell, _ = argument(cell, at)
                span = 1
                if count.isdecimal():
                    span = min(int(count), MAX_SPAN)
                if many[1] == "column":
                    columns = span
                else:
                    height = span
            words = self.inline(cell)
            for _ in range(columns):
                place = len(cells)
                left, above = spanning.get(place, (0, ""))
                if height > 1:
                    spanning[place] = (height - 1, words)
                elif left:
                    spanning[place] = (left - 1, above)
                if not words and left:
                    cells.append(above)
                else:
                    cells.append(words)
        return cells


def literal(markdown: str) -> str:
    text = f"{BREAK}{LITERAL}{markdown}{LITERAL_END}"
    if not markdown.startswith("- "):  # whose text follows
        text += BREAK
    return text


def plain_signs(text: str) -> str:
    """Return a text between commands: quotation marks, dashes and blanks as they are printed, without braces."""
    text = text.replace("``", "“").replace("''", "”").replace("---", "—").replace("--", "–").replace("~", " ")
    return text.replace("{", "").replace("}", "")
