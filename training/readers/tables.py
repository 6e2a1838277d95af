"""Tables: CSV, TSV, JSONL and Parquet."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from kcard.cards.passages import lines_of
from kcard.errors import CorpusError
from kcard.io import parse
from kcard.training.readers.files import Block, Document
from kcard.training.readers.text import MAX_LINE_BYTES, lines

# The text columns of a table: the one that the user names, else those chosen by name or content.

Row = Mapping[str, Any]

NAMES = (
    "text", "passage", "content", "fact", "sentence", "statement", "body", "abstract", "paragraph", "document",
)  # fmt: skip
HEADINGS = ("section", "title")
QUESTIONS = ("question", "q", "prompt", "query")
ANSWERS = ("answer", "a", "response", "reply", "completion")
REPEATED_NAME = re.compile(r" \(\d+\)$")  # see distinct_names
MAX_LISTED_COLUMNS, MAX_NAME_CHARACTERS = 30, 60  # in a message
SAMPLE_ROWS = 200  # by which the text columns are chosen
MIN_SENTENCE_WORDS = 5  # mean of a column, for it to be chosen among several
MIN_PHRASE_WORDS = 3  # mean of a column, for its texts to be read without its name
TEXT_END = re.compile(r"[.:;,!?…。！？؟][\"'”’»)\]]*$")


class Template:
    """A column by its name, or a sentence with {columns} in it, such as "The capital of {country} is {city}."."""

    def __init__(self, spec: str) -> None:
        names = re.findall(r"\{([^{}]+)\}", spec)
        self.columns: tuple[str, ...] = tuple(dict.fromkeys(names)) or (spec,)
        self._sentence = spec
        if not names:
            self._sentence = f"{{{spec}}}"

    def fill(self, row: Row) -> str | None:
        """Return the row's text, or None if one of its columns is empty."""
        cells = {column: _cell(row.get(column)) for column in self.columns}
        if not all(cells.values()):
            return None
        return re.sub(r"\{([^{}]+)\}", lambda match: cells[match[1]], self._sentence)


class TextColumns:
    """The columns that hold the text of a row: phrases in the order of the columns, then other values with the names of
    their columns, such as "The pump leaks. Supplier: Ardo & Sons"."""

    def __init__(self, phrases: Sequence[str], named: Sequence[str] = ()) -> None:
        self._phrases, self._named = phrases, named

    def fill(self, row: Row) -> str | None:
        """Return the row's text, or None if all of its phrases are empty."""
        text = ""
        for column in self._phrases:
            text = joined(text, join_broken_lines(_cell(row.get(column))))
        if not text:
            return None
        for column in self._named:
            cell = join_broken_lines(_cell(row.get(column)))
            if not cell:
                continue
            if not TEXT_END.search(text):
                text += "."
            text += f" {column}: {cell}"
        return text


def joined(text: str, more: str) -> str:
    """Join two texts; the second one explains a first one that ends no sentence."""
    if not text or not more:
        return text or more
    return f"{text} {more}" if TEXT_END.search(text) else f"{text}: {more}"


def join_broken_lines(text: str) -> str:
    """Return a cell's text with its lines, of which those that go on in lower case or end no sentence are one."""
    lines: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        if lines and words[:1].islower() and lines[-1] and not TEXT_END.search(lines[-1]):
            lines[-1] += f" {words}"
        else:
            lines.append(words)
    return "\n".join(line for line in lines if line)


def texts(rows: Iterable[tuple[int, Row]], document: Document) -> Iterator[Block]:
    """Yield the text of every row, with its number. Rows without text are counted. Raises CorpusError, with a list of
    the columns, where none is named and none can be chosen."""
    rows = iter(rows)
    first = list(islice(rows, SAMPLE_ROWS))
    if not first:
        return
    columns = [*first[0][1]]
    template: Template | TextColumns
    if document.column is not None:
        chosen = Template(document.column)
        for column in chosen.columns:
            if column not in columns:
                raise CorpusError(f"{document.name} has no column {column!r}: it has {listed(columns)}")
        template = chosen
    else:
        template = find_text_columns(columns, [row for _, row in first], document)
    for number, row in chain(first, rows):
        text = template.fill(row)
        if text is None:
            document.skips.dropped["rows without text"] += 1
            continue
        section = None
        if document.column is None:
            section = heading(row)
        yield Block("statement", join_broken_lines(text), number, section=section)


def heading(row: Row) -> str | None:
    """Return the heading of a row's text: its column "section" or "title"."""
    for name in HEADINGS:
        title = row.get(name)
        if isinstance(title, str):
            return " ".join(title.split()) or None
    return None


def find_text_columns(columns: Sequence[str], rows: Sequence[Row], document: Document) -> TextColumns:
    """Choose the text columns: by name, with others of that name; question and answer; else all with letters, if those
    of the longest texts are sentences. Raises CorpusError if there is none."""
    by_name: dict[str, list[str]] = {}
    for column in columns:
        by_name.setdefault(REPEATED_NAME.sub("", column.strip().lower()), []).append(column)
    for name in NAMES:
        if name in by_name:
            return TextColumns(by_name[name])
    questions, answers = _first_named(by_name, QUESTIONS), _first_named(by_name, ANSWERS)
    if questions and answers:
        return TextColumns([*questions, *answers])
    words: dict[str, float] = {}
    for column in columns:
        mean = _mean_words([row.get(column) for row in rows])
        if mean:
            words[column] = mean
    if len(words) == 1 or max(words.values(), default=0) >= MIN_SENTENCE_WORDS:
        read = list(words)
        if len(words) > 1:
            read = [column for column in words if column.lower() not in HEADINGS]
        phrases = [column for column in read if words[column] >= MIN_PHRASE_WORDS] or read
        if len(columns) > 1:
            which = "columns" if len(read) > 1 else "column"
            document.skips.notes.append(f"{document.name}: the text is taken from its {which} {quoted(read)}")
        return TextColumns(phrases, [column for column in read if column not in phrases])
    sentence = ""
    if len(columns) > 1:
        first, last = listed(columns[:1]), listed(columns[-1:])
        sentence = f", or a sentence of them, such as --field '{{{first}}} ... {{{last}}}.'"
    raise CorpusError(
        f"{document.name} has no text column; it has {listed(columns)}: name one with --field{sentence}"
    )


def _first_named(by_name: Mapping[str, list[str]], names: Sequence[str]) -> list[str]:
    """Return the columns of the first name that there is."""
    for name in names:
        if name in by_name:
            return by_name[name]
    return []


def quoted(columns: Sequence[str]) -> str:
    """List the names of columns in quotation marks."""
    return ", ".join(repr(listed([column])) for column in columns[:MAX_LISTED_COLUMNS])


def listed(columns: Sequence[str]) -> str:
    """List the names of columns for a message: the first ones, and of a long name the beginning."""
    names = []
    for name in columns[:MAX_LISTED_COLUMNS]:
        if len(name) > MAX_NAME_CHARACTERS:
            name = f"{name[:MAX_NAME_CHARACTERS]}…"
        names.append(name)
    if len(columns) > MAX_LISTED_COLUMNS:
        names.append(f"{len(columns) - MAX_LISTED_COLUMNS} more")
    return ", ".join(names)


def _mean_words(cells: Iterable[Any]) -> float:
    """Return the mean number of words in the cells; 0 if one is not text, or all are numbers or empty."""
    words, count = 0.0, 0
    has_letters = False
    for cell in cells:
        if cell in (None, ""):
            continue
        if not isinstance(cell, str):
            return 0.0
        count += 1
        blanks = cell.count(" ") + 1
        if cell.isascii():
            words += blanks
        else:  # scripts without blanks: five characters count as a word
            words += max(blanks, len(cell) / 5)
        has_letters = has_letters or any(map(str.isalpha, cell))
    return words / count if has_letters else 0.0


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "\n".join(_cell(part) for part in value)
    return str(value).strip()


# Tables in text files: .csv with commas, semicolons or tabs, and .tsv that has no triples.

DELIMITERS = ",;\t|"
NO_DELIMITER = "\x1f"  # a delimiter that no text contains, for a table of one column


def read_delimited(document: Document) -> Iterator[Block]:
    for _, header in islice(lines(document.path, whole=True), 1):
        yield from texts(delimited_rows(document, delimiter_of(header)), document)


def delimiter_of(header: str) -> str:
    """Return the delimiter that cuts a header into most columns; NO_DELIMITER if it has none."""
    best, width = "", -1
    for mark in DELIMITERS:
        columns = len(next(csv.reader([header], delimiter=mark), []))
        if columns > width:
            best, width = mark, columns
    return best if best in header else NO_DELIMITER


def delimited_rows(document: Document, delimiter: str) -> Iterator[tuple[int, Row]]:
    rows = cells(document.path, delimiter)
    _, header = next(rows, (0, []))
    if not header:
        raise CorpusError(f"{document.path} has no header: its first row must name the columns")
    columns = distinct_names([name.strip() or f"column {at}" for at, name in enumerate(header, 1)])
    # The first row is text, not a header, if its only cell is a sentence.
    if len(columns) == 1 and columns[0].lower() not in NAMES and columns[0].count(" ") >= 2:
        rows = enumerate(chain([header], (row for _, row in rows)), 1)
        columns = ["text"]
    for number, row in rows:
        if len(row) == len(columns):
            yield number, dict(zip(columns, row, strict=True))
        elif row:
            count_broken(document, f"row {number} has {len(row)} columns instead of {len(columns)}")
        else:
            count_broken(document, f"row {number} has a stray quotation mark")


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return names of columns of which the second of a name has a number, such as "text (2)"."""
    counts = Counter[str]()
    distinct = []
    for name in names:
        counts[name] += 1
        if counts[name] > 1:
            name = f"{name} ({counts[name]})"
        distinct.append(name)
    return distinct


def count_broken(document: Document, why: str) -> None:
    """Count a broken row; the first one of a document is noted for the user."""
    if not document.skips.dropped["broken rows"]:
        document.skips.notes.append(f"{document.name}: {why}; such rows are skipped")
    document.skips.dropped["broken rows"] += 1


def cells(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (number, cells) of every row. The header is row 0, empty lines are skipped, a row with a stray quote has no
    cells. Quoted cells may contain line ends.

    Raises CorpusError, naming the line, for a quote that is never closed.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    text = (f"{line}\n" for _, line in lines(path, whole=True))
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    number = 0
    while True:
        begins = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            if "expected after" not in str(error):
                raise CorpusError(f"{path}:{begins} opens a quote that is never closed: close it") from None
            yield number, []
            number += 1
            continue
        if row is None:
            return
        if row:
            yield number, row
            number += 1


# JSON lines: one object per line, with its text under one of the usual keys.


def read_jsonl(document: Document) -> Iterator[Block]:
    """Read the text of every object, with its "section" or "title". "file" and "line", if both are given, are kept, so
    that a card's own passages, when read again, can still be traced to their source.
    """
    template = None if document.column is None else Template(document.column)
    for number, line in lines(document.path, whole=True):
        if line.strip():
            where = f"{document.path}:{number}"
            try:
                value = parse(line)
            except ValueError as error:
                raise CorpusError(f"{where} is not JSON ({error}): expected one object per line") from None
            row = value if isinstance(value, dict) else {}
            text = text_of(row, template, where)
            file, at = row.get("file"), row.get("line")
            section = heading(row)
            if isinstance(file, str) and type(at) is int:
                yield Block("statement", text, at, file=file, section=section, lines=lines_of(row))
            else:
                yield Block("statement", join_broken_lines(text), number, section=section)


def text_of(row: dict[str, Any], template: Template | None, where: str) -> str:
    if template is not None:
        missing = [column for column in template.columns if column not in row]
        if missing:
            raise CorpusError(f"{where} has no {missing[0]!r}: its keys are {listed([*row]) or 'none'}")
        return template.fill(row) or ""
    for key in NAMES:
        if isinstance(row.get(key), str):
            return str(row[key])
    raise CorpusError(
        f"{where} has no string under {', '.join(NAMES)}: give it one of them, or name another (--field)"
    )


# Parquet: columns of a table, a few thousand rows at a time.

PARQUET_ROWS = 1024
PARQUET_MIN_ROWS, PARQUET_ROWS_PER_BYTE = 100_000, 100  # more rows than this are no texts


def read_parquet(document: Document) -> Iterator[Block]:
    return texts(parquet_rows(document), document)


def parquet_rows(document: Document) -> Iterator[tuple[int, Row]]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(document.path) as file:
            rows, size = file.metadata.num_rows, document.path.stat().st_size
            if rows > PARQUET_MIN_ROWS + PARQUET_ROWS_PER_BYTE * size:
                raise CorpusError(
                    f"{document.path} holds {rows:,} rows in {size:,} bytes: these can't be texts"
                )
            columns = [field.name for field in file.schema_arrow if not _is_opaque(field.type)]
            for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (ArrowException, OSError) as error:
        raise CorpusError(
            f"{document.path} can't be read as Parquet ({' '.join(str(error).split())}): is it damaged?"
        ) from error


def _is_opaque(kind: Any) -> bool:
    """Return whether a column has no text, but much to read: bytes, vectors and records."""
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind):
        return not (types.is_string(kind.value_type) or types.is_large_string(kind.value_type))
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_nested(kind))
