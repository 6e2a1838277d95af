"""Tables: CSV, TSV, JSONL, Parquet, and data sets of the Hugging Face Hub."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from kcard.cards.passages import lines_of
from kcard.config import settings
from kcard.errors import CorpusError, one_line
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
LISTED_COLUMNS, LISTED_CHARACTERS = 30, 60  # in a message
LOOKED_AT = 200
SENTENCE = 5  # minimum mean number of words of a column, for it to be chosen among several
PHRASE = 3  # mean number of words of a column from which its texts are read without its name
CLOSED = re.compile(r"[.:;,!?…。！？؟][\"'”’»)\]]*$")


class Template:
    """A column by its name, or a sentence with {columns} in it, such as "The capital of {country} is {city}."."""

    def __init__(self, spec: str) -> None:
        names = re.findall(r"\{([^{}]+)\}", spec)
        self.columns: tuple[str, ...] = tuple(dict.fromkeys(names)) or (spec,)
        self._sentence = spec if names else f"{{{spec}}}"

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
            if cell := join_broken_lines(_cell(row.get(column))):
                text = f"{text if CLOSED.search(text) else f'{text}.'} {column}: {cell}"
        return text


def joined(text: str, more: str) -> str:
    """Join two texts; the second one explains a first one that ends no sentence."""
    if not text or not more:
        return text or more
    return f"{text} {more}" if CLOSED.search(text) else f"{text}: {more}"


def join_broken_lines(text: str) -> str:
    """Return a cell's text with its lines, of which those that go on in lower case or end no sentence are one."""
    lines: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        if lines and words[:1].islower() and lines[-1] and not CLOSED.search(lines[-1]):
            lines[-1] += f" {words}"
        else:
            lines.append(words)
    return "\n".join(line for line in lines if line)


def texts(rows: Iterable[tuple[int, Row]], document: Document) -> Iterator[Block]:
    """Yield the text of every row, with its number. Rows without text are counted. Raises CorpusError, with a list of
    the columns, where none is named and none can be chosen."""
    rows = iter(rows)
    first = list(islice(rows, LOOKED_AT))
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
        else:
            section = heading(row) if document.column is None else None
            yield Block("statement", join_broken_lines(text), number, section=section)


def heading(row: Row) -> str | None:
    """Return the heading of a row's text: its column "section" or "title"."""
    title = next((row[name] for name in HEADINGS if isinstance(row.get(name), str)), "")
    return " ".join(title.split()) or None


def find_text_columns(columns: Sequence[str], rows: Sequence[Row], document: Document) -> TextColumns:
    """Choose the text columns: by name, with others of that name; question and answer; else all with letters, if those
    of the longest texts are sentences. Raises CorpusError if there is none."""
    by_name: dict[str, list[str]] = {}
    for column in columns:
        by_name.setdefault(REPEATED_NAME.sub("", column.strip().lower()), []).append(column)
    for name in NAMES:
        if name in by_name:
            return TextColumns(by_name[name])
    questions, answers = (
        next((by_name[n] for n in names if n in by_name), []) for names in (QUESTIONS, ANSWERS)
    )
    if questions and answers:
        return TextColumns([*questions, *answers])
    words = {column: mean for column in columns if (mean := _mean_words(row.get(column) for row in rows))}
    if words:
        longest = max(words.values())
        if len(words) == 1 or longest >= SENTENCE:
            read = [column for column in words if column.lower() not in HEADINGS or len(words) == 1]
            phrases = [column for column in read if words[column] >= PHRASE] or read
            if len(columns) > 1:
                which = "columns" if len(read) > 1 else "column"
                document.skips.notes.append(
                    f"{document.name}: the text is taken from its {which} {quoted(read)}"
                )
            return TextColumns(phrases, [column for column in read if column not in phrases])
    several = len(columns) > 1
    first, last = listed(columns[:1]), listed(columns[-1:])
    sentence = f", or a sentence of them, such as --field '{{{first}}} ... {{{last}}}.'" if several else ""
    raise CorpusError(
        f"{document.name} has no text column; it has {listed(columns)}: name one with --field{sentence}"
    )


def quoted(columns: Sequence[str]) -> str:
    """List the names of columns in quotation marks."""
    return ", ".join(repr(listed([column])) for column in columns[:LISTED_COLUMNS])


def listed(columns: Sequence[str]) -> str:
    """List the names of columns for a message: the first ones, and of a long name the beginning."""
    names = [f"{name[:LISTED_CHARACTERS]}…" if len(name) > LISTED_CHARACTERS else name for name in columns]
    more = [f"{len(names) - LISTED_COLUMNS} more"] if len(names) > LISTED_COLUMNS else []
    return ", ".join([*names[:LISTED_COLUMNS], *more])


def _mean_words(cells: Iterable[Any]) -> float:
    """Return the mean number of words in the cells; 0 if one is not text, or all are numbers or empty."""
    filled = [cell for cell in cells if cell not in (None, "")]
    if not filled or not all(isinstance(cell, str) for cell in filled):
        return 0.0
    if not any(character.isalpha() for cell in filled for character in cell):
        return 0.0
    # Scripts without blanks: five characters count as a word.
    words: float = sum(max(cell.count(" ") + 1, 0 if cell.isascii() else len(cell) / 5) for cell in filled)
    return words / len(filled)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "\n".join(_cell(part) for part in value)
    return str(value).strip()


# Tables in text files: .csv with commas, semicolons or tabs, and .tsv that has no triples.

DELIMITERS = ",;\t|"
NONE = "\x1f"  # a delimiter that no text contains, for a table of one column


def read_delimited(document: Document) -> Iterator[Block]:
    head = [line for _, line in islice(lines(document.path, whole=True), 1)]
    if head:
        # The delimiter that cuts the header into most columns.
        best = max(DELIMITERS, key=lambda mark: len(next(csv.reader([head[0]], delimiter=mark), [])))
        yield from texts(delimited_rows(document, best if best in head[0] else NONE), document)


def delimited_rows(document: Document, delimiter: str) -> Iterator[tuple[int, Row]]:
    rows = cells(document.path, delimiter)
    _, header = next(rows, (0, []))
    if not header:
        raise CorpusError(f"{document.path} has no header: its first row must name the columns")
    columns = distinct_names([name.strip() or f"column {at}" for at, name in enumerate(header, 1)])
    # The first row is text, not a header, if its only cell is a sentence.
    if len(columns) == 1 and columns[0].lower() not in NAMES and columns[0].count(" ") >= 2:
        rows = chain([(1, header)], rows)
        columns = ["text"]
    for number, row in rows:
        if len(row) == len(columns):
            yield number, dict(zip(columns, row, strict=True))
        else:
            flaw = f"{len(row)} columns instead of {len(columns)}" if row else "a stray quotation mark"
            count_broken(document, f"row {number} has {flaw}")


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return names of columns of which the second of a name has a number, such as "text (2)"."""
    counts = Counter[str]()
    distinct = []
    for name in names:
        counts[name] += 1
        distinct.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
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


PREFIX = "hf:"
HUGGINGFACE_ROWS = 1000


def repository(name: str) -> str:
    """Return the repository in a data set's name: "name" of hf:owner/name/config:split."""
    return _parts(name)[0].rpartition("/")[2]


def read_huggingface(document: Document) -> Iterator[Block]:
    """Read the rows of hf:owner/name, hf:owner/name:split or hf:owner/name/config:split.

    The default split is train, or the only one. Rows are streamed; offline the data set must be in datasets'
    cache. Data sets that need custom code are refused.
    """
    name, config, split = _parts(document.name)
    if not name.strip("/"):
        raise CorpusError(f"{document.name} lacks the name of a data set: write {PREFIX}owner/name")
    return texts(enumerate(stream_rows(name, config, split), 1), document)


def is_saved(folder: Path) -> bool:
    """Return whether `save_to_disk` of datasets wrote the folder."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


def read_saved(document: Document) -> Iterator[Block]:
    """Read the rows of a folder that `save_to_disk` wrote, from its train split or its only one."""
    from datasets import load_from_disk

    try:
        dataset = load_from_disk(str(document.path))
    except Exception as error:  # a broken folder can raise anything in datasets
        raise CorpusError(
            f"{document.path} can't be loaded as a saved data set ({one_line(error, 200)})"
        ) from error
    if isinstance(dataset, dict):
        names = ", ".join(f"{document.path}/{split}" for split in dataset)
        dataset = dataset[choose_split(list(dataset), None, str(document.path), f"name one of {names}")]
    return texts(enumerate(_rows(dataset), 1), document)


def _parts(name: str) -> tuple[str, str | None, str | None]:
    """Split a data set's name into (owner/name, config, split)."""
    path, _, split = name.removeprefix(PREFIX).partition(":")
    owner, *rest = path.split("/", 2)
    return "/".join([owner, *rest[:1]]), rest[1] if len(rest) > 1 else None, split or None


def stream_rows(name: str, config: str | None, split: str | None) -> Iterator[Any]:
    """Yield rows as they arrive. Whatever datasets and its backends raise, at any row, becomes one line."""
    from datasets import load_dataset

    offline = settings().offline
    try:
        dataset = load_dataset(name, config, streaming=not offline)
        remedy = f"write {PREFIX}{name}{f'/{config}' if config else ''}:SPLIT"
        chosen = choose_split(list(dataset), split, f"{PREFIX}{name}", remedy)
        yield from dataset[chosen] if not offline else _rows(dataset[chosen])
    except CorpusError:
        raise
    except Exception as error:  # see above
        reason = one_line(error, 200)
        if "script" in reason.lower():
            message = "needs its own code, which kcard does not run: use a Parquet version of it"
        elif offline:
            message = (
                "is not on this machine and HF_HUB_OFFLINE is set: unset it, or download the data set and give its "
                f"folder ({reason})"
            )
        else:
            message = f"can't be loaded: check name, access and network ({reason})"
        raise CorpusError(f"{PREFIX}{name} {message}") from error


def choose_split(splits: list[str], split: str | None, name: str, remedy: str) -> str:
    chosen = split or ("train" if "train" in splits else splits[0] if len(splits) == 1 else None)
    if chosen not in splits:
        problem = f"no split {split!r}" if split else "several splits and no train"
        raise CorpusError(f"{name} has {problem}; it has {', '.join(map(str, splits))}: {remedy}")
    return chosen


def _rows(table: Any) -> Iterator[Row]:
    """Yield the rows of a data set on disk, loaded a thousand at a time."""
    for batch in table.iter(batch_size=HUGGINGFACE_ROWS):
        for cells in zip(*batch.values(), strict=True):
            yield dict(zip(batch, cells, strict=True))
