"""The command line: parse, call the library, print. Only here does an error become an exit code."""

import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from kcard import __version__
from kcard.cli import streams
from kcard.cli.defaults import default_map
from kcard.cli.output import echo
from kcard.config import debug, let_threads_sleep, settings
from kcard.config_file import TABLES
from kcard.errors import KcardError, UsageError

__all__ = ["app", "run"]

LONGEST = 2_000  # characters of an error, part of which a hub or a file may have written
# In the order of the help: each command or group, and the module of kcard.cli that registers it.
COMMANDS: Mapping[str, str] = {
    "train": "train",
    "train-many": "train_many",
    "study": "study",
    "sync": "sync",
    "exam": "exam",
    "audit": "audit",
    "check": "check",
    "publish": "publish",
    "show": "cards",
    "pull": "cards",
    "remove": "cards",
    "verify": "cards",
    "alias": "cards",
    "login": "login",
    "logout": "login",
    "whoami": "login",
    "add": "add",
    "export": "export",
    "ask": "ask",
    "eval": "eval",
    "runs": "runs",
    "serve": "serve",
    "serve-key": "serve",
    "calibrate": "calibrate",
    "browse": "browse",
    "selectors": "selectors",
    "doctor": "doctor",
    "cards": "cards",
    "pool": "pool",
    "hub": "hub",
    "report": "report",
    "gate": "gate",
    "config": "config",
}


class _Commands(TyperGroup):
    """The commands, each imported when it is looked up, so that a command costs what it uses itself.

    They say so when they are interrupted; typer would end in silence.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given | {"commands": dict.fromkeys(COMMANDS)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            part = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
            import_module(f"kcard.cli.{COMMANDS[cmd_name]}").register(part)
            self.commands.update(get_group(part).commands)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(_failed("interrupted", 130))


app = typer.Typer(
    name="kcard",
    cls=_Commands,
    help="Knowledge cards: small language models that lend what they know to any large one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"kcard {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Data goes to stdout; progress, notes and errors go to stderr. Exit codes: 0, 1 error, 2 usage."""
    del version
    if ctx.invoked_subcommand in {*TABLES, "serve", "train-many"}:
        ctx.default_map = default_map(settings())


def run() -> None:
    """Entry point of the `kcard` command."""
    streams.prepare()
    let_threads_sleep()
    sys.exit(_code())


def _code() -> int | str | None:
    """Run the command that was given; its exit code."""
    try:
        try:
            app()
        except SystemExit as done:
            return done.code
        finally:
            streams.flush()
    except UsageError as error:
        return _failed(str(error), 2)
    except KcardError as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    except BrokenPipeError:
        return 1  # the reader of our stdout (head, less) has gone: nothing is left to say
    except OSError as error:
        return _failed(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except MemoryError:
        return _failed("out of memory: use a smaller corpus, model or batch")
    except Exception as error:
        # Not one that we foresaw, so a bug of ours: one line all the same, and the way to its traceback.
        if debug():
            raise
        return _failed(
            f"a bug in kcard, {_named(error)}: please report it with the traceback that KCARD_DEBUG=1 shows"
        )
    return 0


def _failed(message: str, code: int = 1) -> int:
    line = " ".join(message.split())
    echo(f"kcard: {line if len(line) <= LONGEST else line[:LONGEST] + '…'}", err=True)
    return code


def _named(error: Exception) -> str:
    """The error, and where in our code it came up."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "kcard" in frame.filename]
    where = f" at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__}{where} ({str(error)[:200]})"
