"""kcard chat: question after question, with the cards and models loaded once."""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from kcard.cli.ask import announce, print_stream, show
from kcard.cli.help import register_long
from kcard.cli.options import command_for
from kcard.cli.output import echo, note, notice, progress, show_note
from kcard.config import settings
from kcard.errors import KcardError, UsageError, one_line
from kcard.integrators.options import AskOptions, Mode, PresetOption
from kcard.questions import checked, unexplained_pronoun

if TYPE_CHECKING:
    from kcard.integrators.pipeline import Pipeline

PROMPT = "? "
HISTORY = 1000  # questions
HELP = """\
/cards [NAME,... | all]   show the cards, or use only these
/mode [MODE]              show the mode, or choose direct, top-down, bottom-up or hybrid
/trace                    show every passage of the last answer in full
/help                     this list
/quit                     leave, as Ctrl-D does; Ctrl-C stops an answer"""


class Conversation:
    """Answers lines: questions, and commands that begin with a slash."""

    def __init__(self, options: AskOptions) -> None:
        self.options = options
        self._last: Any = None  # answer
        self._pipeline: Pipeline | None = None
        self._has_log_problem = False
        self._commands: dict[str, Callable[[str], None]] = {
            "cards": self._choose_cards,
            "mode": self._choose_mode,
            "trace": self._show_trace,
            "help": lambda _: echo(HELP),
        }

    @property
    def pipeline(self) -> "Pipeline":
        """The pipeline of the current cards and mode."""
        if self._pipeline is None:
            from kcard.integrators.pipeline import Pipeline

            self._pipeline = Pipeline(self.options, on_event=show_note)
        return self._pipeline

    def answer(self, line: str) -> bool:
        """Answer a line; return whether the conversation goes on. An error is printed, and ends nothing."""
        line = line.strip()
        if line in {"/quit", "/exit"}:
            return False
        try:
            if line.startswith("/"):
                name, _, argument = line[1:].partition(" ")
                if name not in self._commands:
                    raise UsageError(f"unknown command /{name}: /help lists them")
                self._commands[name](argument.strip())
            elif line:
                if pronoun := unexplained_pronoun(line):
                    notice(f'each question is answered by itself: name what "{pronoun}" stands for')
                self._last = print_stream(self.pipeline, checked(line))
                for text in self._last.notes:
                    notice(text)
                show(self._last, streamed=True)
                self._log()
        except KcardError as error:
            note(f"kcard: {one_line(error)}")
        except KeyboardInterrupt:
            note("stopped")
        return True

    def _log(self) -> None:
        """Log the last answer; say once why that is not possible."""
        from kcard.question_log import log_answer

        problem = log_answer(self._last, self.options.llm, "chat")
        if problem and not self._has_log_problem:
            notice(problem)
        self._has_log_problem = bool(problem)

    def _choose_cards(self, names: str) -> None:
        if not names:
            cards = self.pipeline.cards
            echo("\n".join(f"{card.name}  {card.description}" for card in cards) or "no cards are used")
            return
        self._change(replace(self.options, cards=None if names == "all" else names))

    def _choose_mode(self, mode: str) -> None:
        if mode and mode not in get_args(Mode):
            raise UsageError(f"unknown mode {mode!r}: choose one of {', '.join(get_args(Mode))}")
        if mode:
            self._change(replace(self.options, mode=mode))  # type: ignore[arg-type] # checked above
        echo(f"mode: {self.options.mode}")

    def _change(self, options: AskOptions) -> None:
        """Use other options; those that can't be used leave everything as it was."""
        before = self.options, self._pipeline
        self.options, self._pipeline = options, None
        try:
            _ = self.pipeline
        except KcardError:
            self.options, self._pipeline = before
            raise

    def _show_trace(self, _: str) -> None:
        if self._last is None:
            raise UsageError("there is no answer yet: ask a question first")
        show(self._last, trace=True, streamed=True)


def talk(options: AskOptions) -> None:
    """Read questions from the terminal, with a history that outlives the session, until Ctrl-D."""
    conversation = Conversation(options)
    announce(conversation.pipeline.llm, options)
    count = len(conversation.pipeline.cards)
    note(f"{count} card{'' if count == 1 else 's'}; ask a question, or /help")
    with _history():
        while True:
            try:
                line = input(PROMPT)
            except EOFError:
                echo()
                return
            except KeyboardInterrupt:
                echo()
                note("Ctrl-D leaves")
                continue
            if not conversation.answer(line):
                return


@contextlib.contextmanager
def _history() -> Any:
    """Edit lines with the arrow keys, where Python has readline, and keep the questions for the next session."""
    try:
        import readline
    except ImportError:
        yield
        return
    file = settings().home / "history"
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(HISTORY)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)
            file.chmod(0o600)


@command_for(AskOptions, PresetOption)
def chat(
    values: dict[str, Any],
    corpus: Annotated[
        Path | None,
        typer.Argument(
            help="A folder or file to answer from, as `kcard ask --corpus` does.",
            metavar="FOLDER",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Ask question after question; /cards, /mode and /trace change and explain. Each line of a pipe is one."""
    options = AskOptions(**values)
    if corpus is not None:
        from kcard.api.corpus_card import with_corpus

        with progress(notice) as on_event:
            options = with_corpus(options, corpus, on_event)
    if sys.stdin.isatty():
        talk(options)
        return
    conversation = Conversation(options)
    announce(conversation.pipeline.llm, options)
    for line in sys.stdin:
        if not conversation.answer(line):
            return


def register(app: typer.Typer) -> None:
    """Add the command."""
    register_long(app, chat)
