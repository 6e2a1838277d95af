"""The command line: parse, call the library, print. Errors become exit codes here, and nowhere else."""

import os
import signal
import sys
import textwrap
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from kcard.cli import output
from kcard.cli.output import echo
from kcard.config import debug, let_threads_sleep, settings
from kcard.config_file import TABLES
from kcard.errors import KcardError, UsageError
from kcard.version import __version__

INTERRUPTED_EXIT_CODE = 130  # exit code after Ctrl-C, as shells have it
MAX_ERROR_CHARACTERS = 2_000  # part of an error may come from a hub or a file
# By what they are for: each command or group, the module of kcard.cli that registers it, and the first sentence of its
# own help.
GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Ask": {
        "ask": ("ask", "Ask a question; the gate decides whether cards help."),
        "chat": ("chat", "Chat with your cards."),
        "serve": ("models", "Serve an OpenAI-compatible endpoint; Ctrl-C stops it."),
        "serve-key": ("models", "Add an API key to a file for `kcard serve --keys`."),
        "llm": ("llm", "LLMs on this computer: list, pull, choose, remove."),
        "log": ("log", "List the questions that `ask` and `chat` answered."),
    },
    "Make cards": {
        "train": ("train", "Train a card on a corpus."),
        "train-many": ("train", "Train a card on each of many corpora."),
        "sync": ("train", "Bring a card up to date with its folder."),
        "add": ("models", "Add a model, an adapter or an LLM as a card."),
    },
    "The local hub": {
        "publish": ("publish", "Publish a card as its next version."),
        "show": ("cards", "Show a card's manifest and its versions."),
        "pull": ("cards", "Copy a card to a folder, or fetch it into the local hub."),
        "remove": ("cards", "Remove a card with all its versions, or one version (name@v2)."),
        "verify": ("cards", "Verify every sha256; exit code 1 if a file is damaged."),
        "alias": ("cards", "Give a version an alias, which can move later."),
        "browse": ("browse", "Browse published cards with their measured figures."),
        "cards": ("cards", "List and search published cards."),
        "pool": ("cards", "Named sets of cards."),
        "hub": ("hub", "The hub as a whole: quarantine, clean up."),
    },
    "A shared hub": {
        "login": ("publish", "Log in to a hub with a token."),
        "logout": ("publish", "Remove the stored token of a hub."),
        "whoami": ("publish", "Show the account that you use on a hub."),
    },
    "Measure": {
        "exam": ("exam", "Examine a card on its own corpus."),
        "audit": ("audit", "Audit cards against independent evidence."),
        "check": ("exam", "Check how far evidence supports a claim, and with which words."),
        "eval": ("eval", "Compare settings on the same questions."),
        "runs": ("eval", "List the runs of `kcard eval`; show, export or delete some."),
        "report": ("eval", "Report a run of `kcard eval`."),
        "gate": ("gates", "Gates: does a question need a card at all?"),
        "calibrate": ("gates", "Compare all gates on your own records."),
        "selectors": ("doctor", "List the selectors and the presets of `kcard ask`."),
    },
    "This installation": {
        "doctor": ("doctor", "Check whether a bare `kcard ask` can answer."),
        "config": ("config", "Show every setting."),
    },
}
COMMANDS = {name: command for commands in GROUPS.values() for name, command in commands.items()}

BEGIN = (
    ('kcard ask --corpus FOLDER "..."', "answer from your own texts, with sources"),
    ("kcard chat FOLDER", "chat about the files of a folder"),
    ("kcard llm pull qwen2.5-0.5b", "get an LLM on this computer, for sentences"),
)

# What other tools call it.
OTHER_NAMES = {
    "download": "pull",
    "info": "show",
    "list": "cards list",
    "ls": "cards list",
    "push": "publish",
    "rm": "remove",
    "run": "chat",
    "search": "cards search",
    "start": "serve",
    "upload": "publish",
}


class _Commands(TyperGroup):
    """The commands, each imported when it is looked up, so that a command imports only what it uses.

    An interrupted command prints that it was interrupted; Typer would print nothing.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"commands": dict.fromkeys(COMMANDS)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            part = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
            import_module(f"kcard.cli.{COMMANDS[cmd_name][0]}").register(part)
            self.commands.update(get_group(part).commands)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in OTHER_NAMES:
            raise UsageError(f"no command {args[0]!r}: it is `kcard {OTHER_NAMES[args[0]]}`")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write how to begin, the commands in groups, without importing them, and the options."""
        with formatter.section("Begin"):
            formatter.write_dl(BEGIN, col_max=max(len(command) + 2 for command, _ in BEGIN))
        room = formatter.width - 6 - max(map(len, COMMANDS))
        for heading, names in GROUPS.items():
            rows = []
            for name in names:
                command = TyperCommand(name, help=COMMANDS[name][1])
                rows.append((name, command.get_short_help_str(room)))
            with formatter.section(heading):
                formatter.write_dl(rows)
        records = [param.get_help_record(ctx) for param in self.get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl(list(filter(None, records)))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # pydantic's words
            raise
        except KeyboardInterrupt:
            sys.exit(_print_error("interrupted", INTERRUPTED_EXIT_CODE))
        except Exception as error:
            # Of an unknown option: the names like it, of which the parser would sort the nearest anywhere.
            similar = getattr(error, "possibilities", None)
            if similar:
                error.message = f"{error.message} (did you mean {' or '.join(similar)}?)"  # type: ignore[attr-defined]
                error.possibilities = None  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    name="kcard",
    cls=_Commands,
    help="Knowledge cards: small, domain-specific language models that supply knowledge to any LLM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        echo(f"kcard {__version__}")
        raise typer.Exit


def _print_everything(ctx: typer.Context, is_requested: bool) -> None:
    if is_requested and not ctx.resilient_parsing:
        echo(_tree(ctx))
        raise typer.Exit


MAX_SENTENCE_CHARACTERS = 1_000  # of what a command does
FLAG_COLUMNS = 26  # of a list of options, beside what they mean


def _tree(ctx: typer.Context) -> str:
    """Return the help of a group's commands: each with its first sentence, and its options in a line each."""
    group: Any = ctx.command
    formatter = ctx.make_formatter()
    # As much of an option's help as fits beside its name.
    room = formatter.width - FLAG_COLUMNS - 4
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        is_group = hasattr(command, "commands")
        own = typer.Context(command, parent=ctx, info_name=name)
        heading = f"{ctx.command_path} {name}"
        if not is_group:
            heading += f" {' '.join(command.collect_usage_pieces(own))}"
        rows = []
        for param in command.get_params(own):
            record = param.get_help_record(own)
            if record is not None:
                sentence = " ".join(record[1].split())
                shown = textwrap.shorten(sentence, room, placeholder=" …", break_on_hyphens=False)
                rows.append((record[0], shown))
        with formatter.section(heading):
            formatter.write_text(command.get_short_help_str(MAX_SENTENCE_CHARACTERS))
            if rows:
                formatter.write_dl(rows, col_max=FLAG_COLUMNS)
        if is_group:
            formatter.write(_tree(own))
    return str(formatter.getvalue())


@app.callback()
def _main(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    help_all: Annotated[
        bool,
        typer.Option(
            "--help-all",
            callback=_print_everything,
            is_eager=True,
            help="Show every command with its options.",
        ),
    ] = False,
) -> None:
    """Data goes to stdout; progress, notes and errors go to stderr. Exit codes: 0, 1 error, 2 usage."""
    del version, help_all
    if ctx.invoked_subcommand in {*TABLES, "serve", "train-many"}:
        from kcard.cli.options import default_map

        ctx.default_map = default_map(settings())


def run() -> None:
    """Run the command in sys.argv and exit with its code: the entry point of `kcard`."""
    output.prepare()
    let_threads_sleep()
    code = exit_code()
    # Python now waits for threads; Ctrl-C while it does would print a traceback, so it ends the process instead.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED_EXIT_CODE))
    sys.exit(code)


def exit_code() -> int | str | None:
    """Run the command in sys.argv; return its exit code."""
    try:
        try:
            app()
        except SystemExit as done:
            return done.code
        finally:
            output.flush()
    except UsageError as error:
        return _print_error(str(error), 2)
    except KcardError as error:
        return _print_error(str(error))
    except KeyboardInterrupt:
        return _print_error("interrupted", INTERRUPTED_EXIT_CODE)
    except BrokenPipeError:
        return 1  # whatever read our stdout (head, less) has ended
    except OSError as error:
        return _print_error(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except MemoryError:
        return _print_error("out of memory: use a smaller corpus, model or batch")
    except Exception as error:
        if debug():
            raise
        from kcard.system import missing_package

        missing = missing_package(error)
        if missing is not None:
            return _print_error(missing)
        # An unforeseen error is a bug of ours: still one line, with its place in our code and the way to its traceback.
        where = ""
        for frame in traceback.extract_tb(error.__traceback__):
            if "kcard" in frame.filename:
                where = f" at {Path(frame.filename).name}:{frame.lineno}"
        return _print_error(
            f"a bug in kcard, {type(error).__name__}{where} ({str(error)[:200]}): please report it with the traceback "
            "that KCARD_DEBUG=1 shows"
        )
    return 0


def _print_error(message: str, code: int = 1) -> int:
    line = " ".join(message.split())
    if len(line) > MAX_ERROR_CHARACTERS:
        line = line[:MAX_ERROR_CHARACTERS] + "…"
    if code == INTERRUPTED_EXIT_CODE:
        output.note_interruption(f"kcard: {line}")
    else:
        output.note(f"kcard: {line}")
    return code
