"""Output of commands: data on stdout, the rest on stderr.

Much of what is printed was written by others: hubs, cards, models. All of it goes through this module, which escapes
control characters that a terminal would obey (kcard.errors).
"""

import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kcard.errors import TrainingInterrupted, json_escaped, printable
from kcard.events import Event, OnEvent

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from kcard.evaluation.records import Distribution, Mean

# stdin, stdout and stderr may be closed, full, or unable to encode every character.


def prepare() -> None:
    """Make the three streams safe to use.

    A closed one is reopened so that no file takes its number: writing to a closed stdout fails, as in the GNU tools;
    notes to a closed stderr go nowhere. Characters that the locale can't show are escaped.
    """
    streams = (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    for number, (name, mode) in enumerate(streams):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, mode)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Flush stdout. On OSError, redirect it to the null device, so that the exit stays silent, and raise."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

SECONDS_BETWEEN_LINES = 10.0  # of progress, where no bar can be drawn
BAR_WIDTH = 24  # columns


def console(*, err: bool = False) -> "Console":
    """Make a console on stdout, or on stderr with `err`: as wide as the terminal, or else wide enough for tables."""
    from rich.console import Console

    from kcard.cli.escapes import Escaping

    stream = sys.stderr if err else sys.stdout
    out = Console(highlight=False, stderr=err, width=None if stream.isatty() else 160)
    out.push_render_hook(Escaping())
    return out


def print_words(markup: str, indent: int = 0) -> None:
    """Print markup on stdout: on a terminal in lines of whole words, all but the first indented; elsewhere unbroken."""
    from rich.text import Text

    out = console()
    text = Text.from_markup(markup)
    if sys.stdout.isatty():
        lines = text.wrap(out, out.width - indent)
        text = Text("\n" + " " * indent).join(lines)
    out.print(text, soft_wrap=True)


class WordWriter:
    """Prints a text in bold as it arrives; on a terminal, a word that does not fit into the line begins the next one.
    Where there is no terminal, each piece is printed as it is."""

    def __init__(self) -> None:
        self._out = console()
        self._is_wrapped = sys.stdout.isatty()
        self._column = 0
        self._blanks, self._word = "", ""  # what waits for the rest of the word

    def write(self, piece: str) -> None:
        if not self._is_wrapped:
            echo(piece, nl=False)
            sys.stdout.flush()
            return
        *tokens, self._word = re.findall(r"\n|[^\S\n]+|\S+", self._word + piece) or [""]
        if self._word.isspace():
            tokens.append(self._word)
            self._word = ""
        for token in tokens:
            self._print(token)
        self._out.file.flush()

    def end(self) -> None:
        """Print what still waits, and end the line."""
        self._print(self._word)
        echo()

    def _print(self, token: str) -> None:
        if token == "\n":
            self._out.print()
            self._column, self._blanks = 0, ""
        elif token.isspace():
            self._blanks = token
        elif token:
            from rich.cells import cell_len

            width = cell_len(printable(token))
            if self._column and self._column + len(self._blanks) + width > self._out.width:
                self._out.print()
                self._column, self._blanks = 0, ""
            text = self._blanks + token
            self._out.print(text, style="bold", end="", markup=False, soft_wrap=True)
            self._column += len(self._blanks) + width
            self._blanks = ""


def print_whole(rows: "Table") -> None:
    """Print a table on stdout; where there is no terminal, as wide as it needs to be, so that no cell is cut."""
    out = console()
    if not sys.stdout.isatty():
        needed = rows.__rich_measure__(out, out.options.update(max_width=10_000)).maximum
        out.width = max(out.width, needed)
    out.print(rows)


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a text on stdout, or on stderr with `err`; `nl` adds the line end."""
    with without_bars():
        typer.echo(printable(text), nl=nl, err=err)


def table(*headings: str, right: Container[str] = (), **options: Any) -> "Table":
    """Make a table without lines; columns in `right` are aligned to the right."""
    from rich.table import Table

    columns = Table(box=None, pad_edge=False)
    for heading in headings:
        columns.add_column(heading, justify="right" if heading in right else "left", **options)
    return columns


def print_in_parts(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of figures: in several parts, each with the first column, if it is wider than the terminal."""
    from rich.markup import escape

    room = console().width + 1 if sys.stdout.isatty() else math.inf
    # The columns of each part, and its width so far.
    widths = [max(map(len, cells)) + 1 for cells in zip(headings, *rows, strict=True)]
    parts: list[list[int]] = [[0]]
    part_width = widths[0]
    for column in range(1, len(widths)):
        if part_width + widths[column] > room and len(parts[-1]) > 1:
            parts.append([0])
            part_width = widths[0]
        parts[-1].append(column)
        part_width += widths[column]
    for part in parts:
        names = [escape(headings[column]) for column in part]
        columns = table(*names, right=names[1:], no_wrap=True)
        for cells in rows:
            columns.add_row(*(escape(cells[column]) for column in part))
        print_whole(columns)


def cell(value: object, form: str = "") -> str:
    """Format a value, in a form such as .2f, as a cell of a table; "-" for None and an empty text."""
    if value is None or value == "":
        return "-"
    return format(value, form)


def interval(mean: "Mean | None", sign: str = "") -> str:
    """Format a mean and its interval as a cell of a table."""
    if mean is None:
        return "-"
    return f"{mean.mean:{sign}.2f} \\[{mean.low:{sign}.2f}, {mean.high:{sign}.2f}]"


def mean_cell(scores: "Distribution | None") -> str:
    """Format the mean of scores and its interval as a cell of a table."""
    return interval(scores.mean if scores else None)


def print_facts(facts: Mapping[str, object], width: int) -> None:
    """Print a line for each fact, whose names take `width` columns."""
    for name, value in facts.items():
        echo(f"{name:<{width}} {cell(value)}")


def as_data(value: "DataclassInstance | object | None", *names: str) -> Any:
    """Return a dataclass, or these attributes of any object, as JSON-ready data; times in whole seconds."""
    if value is None:
        return None
    fields = {name: getattr(value, name) for name in names} or asdict(cast("DataclassInstance", value))
    for key, inner in fields.items():
        if isinstance(inner, datetime):
            fields[key] = inner.isoformat(timespec="seconds")
    return fields


def note(text: str) -> None:
    """Print a sentence for the user on stderr. It may hold a command to copy, so that the terminal wraps it."""
    echo(text, err=True)


def notice(text: str) -> None:
    """Print a remark of the library on stderr, marked as a note; on a terminal in lines of whole words."""
    text = printable(f"note: {text}")
    if sys.stderr.isatty():
        from rich.text import Text

        out = console(err=True)
        lines = Text(text).wrap(out, out.width)
        text = "\n".join(line.plain.rstrip() for line in lines)
    note(text)


def aside(text: str) -> None:
    """Print what few need to read on stderr, dimmed on a terminal."""
    with without_bars():
        console(err=True).print(text, style="dim", markup=False, soft_wrap=True)


def show_note(event: Event) -> None:
    """Print an event that is a note, as `notice` does; ignore progress."""
    if event.is_note:
        notice(event.message)


def print_json(data: Any) -> None:
    """Print one line of JSON, escaped where the locale can't show every character."""
    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    with without_bars():
        typer.echo(json_escaped(json.dumps(data, ensure_ascii=not is_unicode)))


def note_interruption(text: str) -> None:
    """Print what Ctrl-C led to, on a line of its own: terminals show ^C wherever the cursor is."""
    if sys.stderr.isatty():
        typer.echo("", err=True)
    note(text)


@contextmanager
def resumable(done: str, output: Path) -> Iterator[None]:
    """On Ctrl-C, say how to resume a run that writes to a file, and exit. `done`: what it writes, such as "answers"."""
    try:
        yield
    except (KeyboardInterrupt, TrainingInterrupted):
        note_interruption(
            f"interrupted: the {done} so far are in {output}; repeat the command with --resume to continue"
        )
        sys.exit(130)


# Progress bars. Other text is printed on lines of its own: the bar is erased before, and drawn again below it.

_drawn: "list[Progress]" = []


@contextmanager
def without_bars() -> Iterator[None]:
    """Erase the progress bars, ours and those of libraries, while something else is printed."""
    with ExitStack() as stack:
        for bar in _drawn:
            bar.stop()
            stack.callback(bar.start)
        tqdm = sys.modules.get("tqdm.std")
        if tqdm is not None and sys.stderr.isatty():
            stack.enter_context(tqdm.tqdm.external_write_mode(file=sys.stderr))
        yield


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on a terminal what takes its time, and how long it has taken so far."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    screen = Console(stderr=True)
    if not sys.stderr.isatty() or screen.is_dumb_terminal:
        yield
        return
    columns = SpinnerColumn("line"), TextColumn("[dim]{task.description}"), TimeElapsedColumn()
    with ExitStack() as stack, Progress(*columns, console=screen, transient=True) as bar:
        _drawn.append(bar)
        stack.callback(_drawn.remove, bar)
        bar.add_task(what, total=None)
        yield


@contextmanager
def progress(note: Callable[[str], None] = note) -> Iterator[OnEvent]:
    """Show the events of a long operation: its notes, and a bar for each kind of progress, or a line now and then."""
    with ExitStack() as stack:
        bars: dict[str, Callable[..., None]] = {}

        def show(event: Event) -> None:
            if event.is_note:
                note(event.message)
                return
            if event.kind not in bars:
                stack.close()
                bars[event.kind] = stack.enter_context(_bar(event.kind, event.total))
            bars[event.kind](event.done, event.message, event.total)
            if event.done == event.total:  # a bar that stays would seem to go on
                stack.close()
                del bars[event.kind]

        yield show


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    from rich.console import Console

    # A terminal that can't erase a line gets lines, as a file does.
    if not sys.stderr.isatty() or Console(stderr=True).is_dumb_terminal:
        last = time.monotonic()

        def print_line(done: int, words: str, steps: int | None = None) -> None:
            nonlocal last
            of = steps or total
            if time.monotonic() - last >= SECONDS_BETWEEN_LINES or done == of:
                last = time.monotonic()
                line = f"{what}: {done} of {of}"
                note(f"{line}, {words}" if words else line)

        yield print_line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    # The bar is so short that it keeps its place and length beside the longest words, on 80 columns too.
    columns = (
        TextColumn("{task.description}"),
        BarColumn(BAR_WIDTH),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}"),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    with ExitStack() as stack, bar:
        _drawn.append(bar)
        stack.callback(_drawn.remove, bar)
        task = bar.add_task(what, total=total, words="")

        def update(done: int, words: str, total: int | None = None) -> None:
            bar.update(task, completed=done, words=words, total=total)

        yield update
