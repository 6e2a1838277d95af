"""kcard log: the questions that were asked on this computer, with their answers and sources."""

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from kcard.cli.config import store
from kcard.cli.output import Json, aside, console, echo, note, print_json, print_whole, table
from kcard.config import settings, user_file
from kcard.errors import UsageError
from kcard.io import counted
from kcard.question_log import LoggedAnswer, QuestionLog

DEFAULT_LIMIT = 20  # questions
MAX_CELL_CHARACTERS = 100  # of a question and of an answer in a list that no terminal shortens
EXCERPT_LEAD_CHARACTERS = 30  # of an answer before the word that was searched

Limit = Annotated[int, typer.Option(help="How many questions to list, the newest first.", min=1)]

commands = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="log")


@commands.callback()
def list_(ctx: typer.Context, limit: Limit = DEFAULT_LIMIT, json_: Json = False) -> None:
    """List the questions that `ask` and `chat` answered. The log is a file in KCARD_HOME, for you alone."""
    if ctx.invoked_subcommand is not None:
        return
    answers = QuestionLog().last(limit)
    if json_:
        print_json([answer.to_json() for answer in answers])
    elif answers:
        _print(answers)
    elif settings().log:
        note("the log is empty: it gets what `kcard ask` and `kcard chat` answer")
    else:
        note("the log is empty and off: `kcard log on` switches it on")


@commands.command()
def show(
    number: Annotated[int, typer.Argument(help="A number of `kcard log`.", min=1)], json_: Json = False
) -> None:
    """Show a question with its answer and sources."""
    answer = QuestionLog().find(number)
    if answer is None:
        raise UsageError(f"the log has no question {number}: `kcard log` lists them")
    if json_:
        print_json(answer.to_json())
        return
    out = console()
    time = datetime.fromisoformat(answer.time).astimezone().strftime("%Y-%m-%d %H:%M")
    out.print(f"{time} · kcard {answer.command} · {answer.llm}", style="dim", markup=False, soft_wrap=True)
    out.print(answer.question, style="bold", markup=False, soft_wrap=True)
    if answer.typed:
        out.print(f"typed as: {answer.typed}", style="dim", markup=False, soft_wrap=True)
    echo()
    echo(answer.answer)
    for source in answer.sources:
        if source.line:
            echo(source.line)
    out.print(answer.summary, style="dim", markup=False, soft_wrap=True)


@commands.command()
def search(
    words: Annotated[list[str], typer.Argument(help="Words, or parts of words, that all occur.")],
    limit: Limit = DEFAULT_LIMIT,
    json_: Json = False,
) -> None:
    """Search questions and answers; the newest come first."""
    answers = QuestionLog().search(words, limit)
    if json_:
        print_json([answer.to_json() for answer in answers])
    elif answers:
        _print(answers, words)
    else:
        note("no question and no answer contains these words")


@commands.command()
def off() -> None:
    """Log no further questions. KCARD_LOG=off does so for one command."""
    store("log", "false", user_file())
    count = len(QuestionLog())
    if count:
        note(f"the log keeps {counted(count, 'question')}: `kcard log clear` deletes them")


@commands.command()
def on() -> None:
    """Log questions again."""
    store("log", "true", user_file())


@commands.command()
def clear(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete the log with all its questions."""
    log = QuestionLog()
    if not log.path.exists():
        note("there is no log")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("kcard log clear deletes every question in the log: add --yes")
        typer.confirm(f"Delete all questions in {log.path}?", abort=True, err=True)
    log.clear()
    note(f"deleted {log.path}")


def _print(answers: Sequence[LoggedAnswer], words: Sequence[str] = ()) -> None:
    """Print a line for each answer, which a terminal shortens; of one that was searched, the part with the words."""
    from rich.markup import escape

    rows = table("", "when", "question", "answer", "LLM", right={""}, no_wrap=True)
    for column in rows.columns[2:4]:
        column.ratio, column.overflow = 1, "ellipsis"
    is_terminal = sys.stdout.isatty()
    for answer in answers:
        question, text = " ".join(answer.question.split()), _excerpt(answer.answer, words)
        if not is_terminal:
            question, text = question[:MAX_CELL_CHARACTERS], text[:MAX_CELL_CHARACTERS]
        # The model's own name in gguf:/models/x.gguf, hf:owner/x or local:x.
        name = (answer.llm.partition(":")[2] or answer.llm).rpartition("/")[2].removesuffix(".gguf")
        rows.add_row(*map(escape, (str(answer.number), _when(answer.time), question, text, name)))
    rows.expand = is_terminal
    print_whole(rows)
    if is_terminal:
        aside("kcard log show N shows an answer with its sources")


def _excerpt(text: str, words: Sequence[str]) -> str:
    """Return the text on one line, from shortly before the first of the words that it contains."""
    line = " ".join(text.split())
    starts = []
    for word in words:
        start = line.lower().find(word.lower())
        if start >= 0:
            starts.append(start)
    begin = min(starts, default=0) - EXCERPT_LEAD_CHARACTERS
    if begin <= 0:
        return line
    return f"… {line[begin:].partition(' ')[2]}"


def _when(time: str) -> str:
    """Return the local time of today, else the day."""
    local = datetime.fromisoformat(time).astimezone()
    is_today = local.date() == datetime.now().astimezone().date()
    return f"{local:%H:%M}" if is_today else f"{local:%Y-%m-%d}"
