"""What commands print: data to stdout, the rest to stderr.

Much of what is printed was written by others: hubs, cards, models. All of it passes here, where control characters that
a terminal would obey are escaped (kcard.errors).
"""

import json
import os
import sys
import time
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.errors import TrainingInterrupted, json_escaped, printable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from rich.console import Console
    from rich.table import Table

    from kcard.evaluation.records import Mean

__all__ = [
    "Json",
    "as_data",
    "console",
    "counter",
    "echo",
    "flush",
    "interval",
    "late_counter",
    "note",
    "prepare",
    "print_json",
    "progress",
    "resumable",
    "table",
    "worded_counter",
]


# stdin, stdout and stderr as they are found: closed, full, or unable to show every character.


def prepare() -> None:
    """Make the three streams safe to use.

    A closed one is opened so that no file takes its number: what is written to a closed stdout fails, as in the
    GNU tools; notes without a stderr go nowhere. A character that the locale has no way to show is escaped.
    """
    ways = (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    for number, (name, way) in enumerate(ways):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, way)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Write out what is still in stdout's buffer; after OSError it is given up, so that exit stays silent."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

PLAIN_EVERY = 10.0  # seconds between progress lines where stderr is not a terminal


def console() -> "Console":
    """A console on stdout: as wide as the terminal; elsewhere wide enough that no table is cut."""

    from rich.console import Console

    from kcard.cli.escaping import Escaping

    made = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    made.push_render_hook(Escaping())
    return made


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """A line on stdout, or on stderr; without a line end unless `nl`."""
    typer.echo(printable(text), nl=nl, err=err)


def table(*headings: str, right: Container[str] = (), **options: Any) -> "Table":
    """A table without lines; the columns in `right` hold numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", **options)
    return made


def interval(mean: "Mean | None", sign: str = "") -> str:
    """A mean and its interval, as a cell of a table."""
    if mean is None:
        return "-"
    return f"{mean.mean:{sign}.2f} \\[{mean.low:{sign}.2f}, {mean.high:{sign}.2f}]"


def as_data(value: "DataclassInstance") -> dict[str, Any]:
    """A value as JSON-ready data, times in whole seconds."""
    return {
        key: inner.isoformat(timespec="seconds") if isinstance(inner, datetime) else inner
        for key, inner in asdict(value).items()
    }


def note(text: str) -> None:
    """A sentence for the user, on stderr."""
    echo(text, err=True)


def print_json(data: Any) -> None:
    """One line of JSON; escaped where the locale can't show every character."""
    typer.echo(json_escaped(json.dumps(data, ensure_ascii=not _shows_all(sys.stdout.encoding))))


def _shows_all(encoding: str | None) -> bool:
    return (encoding or "utf-8").lower().startswith("utf")


@contextmanager
def counter(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress over `total` items: a bar on a terminal, a line now and then elsewhere."""
    with _bar(what, total) as update:
        yield lambda done: update(done, "")


@contextmanager
def worded_counter(what: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """The same, called with how many are done and what is being done."""
    with _bar(what, total) as update:
        yield update


@contextmanager
def late_counter(what: str) -> Iterator[Callable[[int, int], None]]:
    """The same, called with (done, total): how many items there are is not known before the first is done."""
    with ExitStack() as shown:
        bars: list[Callable[[int], None]] = []

        def report(done: int, total: int) -> None:
            if not bars:
                bars.append(shown.enter_context(counter(what, total)))
            bars[0](done)

        yield report


@contextmanager
def resumable(done: str, output: Path) -> Iterator[None]:
    """Where the user interrupts a run from a file to a file, say how to go on. `done`: such as "answers"."""
    try:
        yield
    except (KeyboardInterrupt, TrainingInterrupted):
        note(f"interrupted: the {done} so far are in {output}; repeat the command with --resume to continue")
        sys.exit(130)


@contextmanager
def progress() -> Iterator[Callable[[Any], None]]:
    """Training, exams and audits as they go: their notes, and a bar for each step."""
    from kcard.evaluation.recall import StepProgress as Asked
    from kcard.training.progress import EmbeddingProgress, Note, TeacherProgress

    with ExitStack() as shown:
        bars: dict[str, Callable[..., None]] = {}

        def bar(what: str, total: int | None) -> Callable[..., None]:
            if what not in bars:
                shown.close()
                bars[what] = shown.enter_context(_bar(what, total))
            return bars[what]

        def report(event: Any) -> None:
            if isinstance(event, Note):
                note(event.text)
            elif isinstance(event, Asked):
                bar(event.what, event.total)(event.done, "", event.total)
            elif isinstance(event, EmbeddingProgress):
                bar("index", None)(event.done, "passages embedded", event.passages)
            elif isinstance(event, TeacherProgress):
                bar("teacher", None)(event.done, "questions answered", event.questions)
            else:
                words = f"loss {event.loss:.3f}, {_clock(event.left)} left"
                bar("training", None)(event.step, words, event.steps)

        yield report


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    if not sys.stderr.isatty():
        yield _plain(what, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, words="")

        def update(done: int, words: str, total: int | None = None) -> None:
            bar.update(task, completed=done, words=words, total=total)

        yield update


def _plain(what: str, total: int | None) -> Callable[..., None]:
    last = time.monotonic()

    def update(done: int, words: str, steps: int | None = None) -> None:
        nonlocal last
        of = steps or total
        if time.monotonic() - last >= PLAIN_EVERY or done == of:
            last = time.monotonic()
            note(f"{what}: {done} of {of}" + (f", {words}" if words else ""))

    return update


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
