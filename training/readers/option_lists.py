"""Lists of options and commands, as `--help` prints them: on the left, with explanations in a column on the right or
below.

-o, --output=FILE         write result to FILE
    --port INTEGER        Port to listen on.
                          [default: 8000]
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

MAX_TERM_WORDS = 8
MAX_SHIFT = 2  # columns by which an explanation may begin beside the others
OPTION = re.compile(r"[\[(]?--?(?:[^\W\d_](?:[\w.+?-]*\w)?|\d(?!\.\d))(?![\w'-])|-[?#:@](?![^\s,])")
# Options with their values, at the beginning of a line in which no gap follows them.
LONG_TERM = re.compile(
    rf"(?:{OPTION.pattern})(?:, ?(?:{OPTION.pattern}))*"
    r"(?:[ =][A-Z][A-Z\d_:]*(?!\S)|(?:[ =]?(?:<[^>]*>|\[[^\]]*\]\S*|\{[^}]*\}\S*))*) (?=\S+ \S)"
)
# What separates options from the explanation beside them: blanks, but not those after a comma.
GAP = re.compile(r"(?<![,\s])(?: {2,}|\t+)(?=\S)")
# Words of a term: options, values such as FILE, <file>, [WHEN] or {a,b}, and what stands between them.
VALUE = re.compile(r"--?\S*|[<\[{(\"'].*|.*[>\])}\"']|[A-Z][A-Z\d_:.,=|#*/-]*|\.\.\.|[/|,]|or|and", re.DOTALL)
MAX_PLAIN_WORDS = 2  # other words, such as "num"
# "clone     Clone a repository", "update - Retrieve lists"; several of them one below the other.
COMMAND = re.compile(
    r"(?P<term>[a-z][\w:+-]*(?:, [a-z][\w:+-]*)*(?: (?:[\[<{][^\]>}]*[\]>}]\S*|[A-Z][^a-z\s]*))*)"
    r"(?P<gap> {2,}| - )(?P<text>[^\W\d_]+ .*[^;{}\s])"
)
MIN_COMMANDS = 3


@dataclass(frozen=True)
class IndentedLine:
    number: int
    indent: int
    text: str


@dataclass(frozen=True)
class ExplainedOption:
    """Options with the lines of their explanation; `line`: the number of their first line."""

    term: str
    line: int
    explanation: Sequence[IndentedLine]


@dataclass(frozen=True)
class OptionList:
    """A list in a paragraph: lines `start` to `end` - 1, counted from 0; `indent`: that of its leftmost options."""

    start: int
    end: int
    indent: int
    options: Sequence[ExplainedOption]


def find_option_lists(paragraph: Sequence[IndentedLine]) -> list[OptionList]:
    """Find the lists of options in the lines of a paragraph."""
    column = _column_of(paragraph)
    lists = []
    at = 0
    while at < len(paragraph):
        end, indent, options = at, paragraph[at].indent, list[ExplainedOption]()
        option, after = _option_at(paragraph, end, column)
        while option is not None:
            options.append(option)
            indent = min(indent, paragraph[end].indent)
            end = after
            option, after = _option_at(paragraph, end, column)
        if not options:
            options, end = _commands_at(paragraph, at)
        if options:
            lists.append(OptionList(at, end, indent, options))
        at = max(end, after, at + 1)
    return lists


def _column_of(paragraph: Sequence[IndentedLine]) -> int | None:
    """Return the column in which most explanations begin; None if none stands beside its options."""
    columns = Counter[int]()
    for line in paragraph:
        gap = GAP.search(line.text) if OPTION.match(line.text) else None
        if gap and _is_term(line.text[: gap.start()]):
            columns[line.indent + gap.end()] += 1
    if not columns:
        return None
    return columns.most_common(1)[0][0]


def _option_at(
    paragraph: Sequence[IndentedLine], at: int, column: int | None
) -> tuple[ExplainedOption | None, int]:
    """Return the options that a line begins with, explained beside or below, and the number of the line after them;
    None if they have no explanation."""
    terms = []
    end = at
    # Several lines of options may share an explanation.
    while end < len(paragraph) and _begins_option(paragraph[end], column):
        term, beside = _split(paragraph[end], column)
        below = _lines_below(paragraph[end], paragraph[end + 1 :], column, bool(beside))
        terms.append(term.rstrip(","))
        end += 1 + len(below)
        if beside or below:
            return ExplainedOption(", ".join(terms), paragraph[at].number, [*beside, *below]), end
    return None, end


def _commands_at(paragraph: Sequence[IndentedLine], at: int) -> tuple[list[ExplainedOption], int]:
    """Return the commands explained beside them that begin with a line, and the number of the line after them."""
    commands: list[ExplainedOption] = []
    end, column = at, 0
    while end < len(paragraph):
        line = paragraph[end]
        match = COMMAND.fullmatch(line.text)
        if not match or line.indent != paragraph[at].indent or not line.indent:
            break
        begun = line.indent + match.end("gap")
        if match["gap"].isspace() and commands and begun != column:
            break
        column = begun
        below = _lines_below(line, paragraph[end + 1 :], column, is_beside=True)
        beside = IndentedLine(line.number, column, _tidy(match["text"]))
        commands.append(ExplainedOption(match["term"], line.number, [beside, *below]))
        end += 1 + len(below)
    if len(commands) < MIN_COMMANDS:
        return [], at
    return commands, end


def _lines_below(
    option: IndentedLine, lines: Sequence[IndentedLine], column: int | None, is_beside: bool
) -> list[IndentedLine]:
    """Return the lines that go on with the explanation of options; `is_beside`: whether this begins beside them."""
    below = []
    for line in lines:
        if is_beside and column is not None:
            is_explanation = line.indent >= column - MAX_SHIFT
        else:
            is_explanation = line.indent > option.indent and not _begins_option(line, column)
        if not is_explanation:
            break
        below.append(replace(line, text=_tidy(line.text)))
    return below


def _begins_option(line: IndentedLine, column: int | None) -> bool:
    if not OPTION.match(line.text) or (column is not None and line.indent >= column - MAX_SHIFT):
        return False
    return _is_term(_split(line, column)[0])


def _split(line: IndentedLine, column: int | None) -> tuple[str, list[IndentedLine]]:
    """Return the options of a line, and the explanation beside them, if any."""
    for gap in GAP.finditer(line.text):
        if _is_term(line.text[: gap.start()]):
            return _parts(line, gap.end())
    # Options that reach the column, or beyond it, have but one blank behind them.
    if column is not None:
        cut = column - line.indent
        if 0 < cut < len(line.text) and line.text[cut - 1] == " " and line.text[cut] not in " <[{":
            return _parts(line, cut)
        long = LONG_TERM.match(line.text)
        if long and long.end() > cut:
            return _parts(line, long.end())
    return _tidy(line.text), []


def _parts(line: IndentedLine, cut: int) -> tuple[str, list[IndentedLine]]:
    return _tidy(line.text[:cut]), [IndentedLine(line.number, line.indent + cut, _tidy(line.text[cut:]))]


def _tidy(text: str) -> str:
    return " ".join(text.split())


def _is_term(text: str) -> bool:
    """Return whether a text is options with their values, and no sentence."""
    words = text.split()
    plain = sum(not VALUE.fullmatch(word) for word in words)
    is_short = len(words) <= MAX_TERM_WORDS and plain <= MAX_PLAIN_WORDS
    return bool(OPTION.match(text)) and is_short and text[-1] not in ".;"
