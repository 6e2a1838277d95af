"""kcard chat: a conversation, with the cards and models loaded once."""

import contextlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from kcard.cli.ask import announce, answering_from, print_stream, show
from kcard.cli.options import LongCommand, command_for
from kcard.cli.output import (
    aside,
    echo,
    note,
    note_interruption,
    notice,
    show_note,
    waiting,
)
from kcard.config import settings
from kcard.conversation import unexplained_pronoun
from kcard.display import headline, nearest_quotation, quotations, summary
from kcard.errors import KcardError, UsageError, one_line, printable
from kcard.integrators.options import AskOptions, Mode, PresetOption
from kcard.io import counted, write_text
from kcard.llms.local_models import READER, chosen_spec, pulled
from kcard.question_log import log_answer
from kcard.types import Answer, Question

if TYPE_CHECKING:
    from kcard.integrators.pipeline import Pipeline

PROMPT = "? "
MAX_HISTORY_LINES = 1000
QUIT_COMMANDS = {"/quit", "/exit", "quit", "exit"}
MAX_NAMED_CARDS = 5  # at the start
MAX_LISTED_CARDS = 50
HELP = """\
/model [LLM]              show the LLM, or choose a pulled one, reader, ollama:MODEL ...
/new                      begin a new conversation
/cards [NAME,... | all]   show the cards, or use only these
/mode [MODE]              show the mode, or choose direct, top-down, bottom-up or hybrid
/trace                    show every passage of the last answer in full
/save FILE                write the conversation as Markdown, with its sources
/help                     this list
/quit                     leave, as Ctrl-D does; Ctrl-C stops an answer"""


@dataclass(frozen=True)
class ChatTurn:
    """A question as it was typed, its answer, and what stands for the LLM after --llm."""

    typed: str
    answer: Answer
    llm: str


class Conversation:
    """Answers lines: questions, and commands that begin with a slash."""

    def __init__(self, options: AskOptions) -> None:
        self.options = options
        self._turns: list[ChatTurn] = []
        self._pipeline: Pipeline | None = None
        self._explained: set[str] = set()  # what is said once in a conversation
        self._saved: set[Path] = set()
        self._commands: dict[str, Callable[[str], None]] = {
            "model": self._choose_model,
            "new": self._begin,
            "cards": self._choose_cards,
            "mode": self._choose_mode,
            "trace": self._show_trace,
            "save": self._save,
            "help": lambda _: echo(HELP),
        }

    @property
    def pipeline(self) -> "Pipeline":
        """The pipeline of the current LLM, cards and mode."""
        if self._pipeline is None:
            from kcard.integrators.pipeline import Pipeline

            self._pipeline = Pipeline(self.options, on_event=show_note)
        return self._pipeline

    @property
    def _llm_spec(self) -> str:
        """What stands for the LLM after --llm."""
        if isinstance(self.options.llm, str):
            return self.options.llm
        return settings().llm

    def answer(self, line: str) -> bool:
        """Answer a line; return whether the conversation goes on. An error is printed, and ends nothing."""
        line = line.strip()
        if line in QUIT_COMMANDS:
            return False
        if line == "help":
            line = "/help"
        try:
            if line.startswith("/"):
                name, _, argument = line[1:].partition(" ")
                if name not in self._commands:
                    raise UsageError(f"unknown command /{name}: /help lists them")
                self._commands[name](argument.strip())
            elif line:
                self._ask(line)
        except KcardError as error:
            note(f"kcard: {one_line(error)}")
        except KeyboardInterrupt:
            note_interruption("stopped")
        return True

    def _ask(self, line: str) -> None:
        """Answer a question, which the LLM rewrites first if something was said before."""
        question = self._standalone(line)
        answer, seconds = print_stream(self.pipeline, question, waiting("answering"))
        for text in answer.notes:
            notice(text)
        show(answer, streamed=True)
        if seconds is not None:
            aside(f"first word after {seconds:.2f} s")
        turn = ChatTurn(line, answer, self._llm_spec)
        self._turns.append(turn)
        problem = log_answer(answer, turn.llm, "chat", typed=line)
        if problem:
            self._explain("log", problem)

    def _standalone(self, line: str) -> Question:
        spoken = []
        for turn in self._turns:
            spoken += [("user", turn.answer.question), ("assistant", headline(turn.answer))]
        with waiting("reading the conversation"):
            question = self.pipeline.standalone(line, spoken)
        if question.text != line:
            aside(f"asked as: {question.text}")
            return question
        pronoun = unexplained_pronoun(line)
        if pronoun is not None:
            why = "each question is answered by itself"
            if spoken and not self.pipeline.llm.can_rewrite:
                why = "the embedded reader can't read a conversation (an LLM can: /model)"
            self._explain("pronoun", f'{why}: name what "{pronoun}" stands for')
        return question

    def _explain(self, subject: str, text: str) -> None:
        """Print a note, unless one on the same subject was printed in this conversation."""
        if subject not in self._explained:
            self._explained.add(subject)
            notice(text)

    # The commands.

    def _choose_model(self, name: str) -> None:
        if name:
            # The LLM before gives up its memory first.
            self._change(replace(self.options, llm=chosen_spec(name)), keep=False)
        echo(self.pipeline.llm.announcement or f"LLM: {self._llm_spec}")
        if not name:
            names = [READER]
            for model in pulled():
                names.append(model.name)
            echo(f"on this computer: {', '.join(names)} (/model NAME)")

    def _begin(self, _: str) -> None:
        self._turns, self._explained = [], self._explained & {"log"}
        echo("a new conversation")

    def _choose_cards(self, names: str) -> None:
        if names == "all":
            self._change(replace(self.options, cards=None))
        elif names:
            self._change(replace(self.options, cards=names.replace(" ", ",")))
        cards = self.pipeline.cards
        for card in cards[:MAX_LISTED_CARDS]:
            if card.description == card.name:
                echo(card.name)
            else:
                echo(f"{card.name}  {card.description}")
        if len(cards) > MAX_LISTED_CARDS:
            echo(f"and {len(cards) - MAX_LISTED_CARDS} more: `kcard cards list` shows all")
        if not cards:
            echo("no cards are used")

    def _choose_mode(self, mode: str) -> None:
        if mode and mode not in get_args(Mode):
            raise UsageError(f"unknown mode {mode!r}: choose one of {', '.join(get_args(Mode))}")
        if mode:
            self._change(replace(self.options, mode=mode))  # type: ignore[arg-type] # checked above
        echo(f"mode: {self.options.mode}")

    def _change(self, options: AskOptions, keep: bool = True) -> None:
        """Use other options; those that can't be used leave everything as it was.

        keep  whether the pipeline so far stays loaded meanwhile; otherwise it is loaded again if the new one fails
        """
        before = self.options, self._pipeline if keep else None
        self.options, self._pipeline = options, None
        try:
            with waiting("loading"):
                _ = self.pipeline
        except BaseException:  # Ctrl-C, too
            self.options, self._pipeline = before
            raise

    def _show_trace(self, _: str) -> None:
        if not self._turns:
            raise UsageError("there is no answer yet: ask a question first")
        show(self._turns[-1].answer, trace=True, streamed=True)

    def _save(self, name: str) -> None:
        if not name:
            raise UsageError("name a file: /save chat.md")
        if not self._turns:
            raise UsageError("there is no answer yet: ask a question first")
        path = Path(name).expanduser().absolute()
        if path.exists() and path not in self._saved:
            raise UsageError(f"{path} exists: name another file")
        try:
            write_text(path, as_markdown(self._turns))
        except OSError as error:
            raise UsageError(f"{path} can't be written: {error.strerror or error}") from error
        self._saved.add(path)
        echo(f"{counted(len(self._turns), 'answer')} in {path}")


# A conversation as Markdown. What others wrote loads nothing in it: quotations are plain text, and an answer keeps its
# form except for images and HTML.

MARKDOWN_CHARACTER = re.compile(r"([\\`*_{}\[\]<>#|!~])")
HTML_OR_IMAGE = re.compile(r"<(?=[A-Za-z/!?])|!(?=\[)")


def as_markdown(turns: Sequence[ChatTurn]) -> str:
    """Return the questions and answers, each with its sources, LLM and figures."""
    blocks = [f"# kcard chat, {datetime.now().astimezone():%Y-%m-%d %H:%M}"]
    for turn in turns:
        answer = turn.answer
        blocks.append(f"## {_plain(turn.typed)}")
        if answer.question != turn.typed:
            blocks.append(f"Asked as: {_plain(answer.question)}")
        blocks.append(HTML_OR_IMAGE.sub(r"\\\g<0>", printable(headline(answer))))
        lines = []
        for quotation in quotations(answer):
            source = quotation.line.removeprefix("<- ")
            if source:
                lines.append(f"- {_plain(source)}")
        nearest = nearest_quotation(answer)
        if nearest is not None:
            lines.append(f"- {_plain(f'nearest passage: {nearest.line}')}")
        if lines:
            blocks.append("\n".join(lines))
        blocks.append(f"*{_plain(summary(answer))} · LLM: {_plain(turn.llm)}*")
    return "\n\n".join(blocks) + "\n"


def _plain(text: str) -> str:
    """Return the text on one line, as Markdown that shows it unchanged."""
    return MARKDOWN_CHARACTER.sub(r"\\\1", printable(" ".join(text.split())))


def talk(options: AskOptions) -> None:
    """Read questions from the terminal, with a history that outlives the session, until Ctrl-D."""
    conversation = Conversation(options)
    with waiting("loading"):
        pipeline = conversation.pipeline
    announce(pipeline.llm, options)
    note(_overview([card.name for card in pipeline.cards]))
    note("Ask a question, or type /help. Ctrl-C stops an answer, Ctrl-D leaves.")
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


def _overview(names: Sequence[str]) -> str:
    """Return which cards are used, in a line."""
    if not names:
        return "no cards are used"
    line = f"{counted(len(names), 'card')}: {', '.join(names[:MAX_NAMED_CARDS])}"
    if len(names) > MAX_NAMED_CARDS:
        line += f" and {len(names) - MAX_NAMED_CARDS} more (/cards)"
    return line


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
    readline.set_history_length(MAX_HISTORY_LINES)
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
            help="A folder or file to answer from, as `kcard ask --corpus` does.", metavar="FOLDER"
        ),
    ] = None,
) -> None:
    """Chat with your cards. /model, /cards and /mode change what answers. Each line piped in is a question."""
    options = AskOptions(**values)
    options = answering_from(corpus, options)
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
    app.command(cls=LongCommand)(chat)
