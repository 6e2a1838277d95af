"""The command line: parse, call the library, print. Only here does an error become an exit code."""

import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kcard import __version__
from kcard.cli import (
    add,
    ask,
    audit,
    browse,
    calibrate,
    cards,
    check,
    config,
    doctor,
    exam,
    gate,
    hub,
    login,
    pool,
    publish,
    selectors,
    streams,
    train,
)
from kcard.cli.defaults import default_map
from kcard.config import debug, let_threads_sleep, settings
from kcard.config_file import TABLES
from kcard.errors import KcardError, UsageError

__all__ = ["app", "run"]


class _Commands(TyperGroup):
    """The commands, which say so when they are interrupted; typer would end in silence."""

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
for part in (
    train,
    exam,
    audit,
    check,
    publish,
    cards,
    pool,
    hub,
    login,
    add,
    ask,
    gate,
    calibrate,
    browse,
    selectors,
    config,
    doctor,
):
    part.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kcard {__version__}")
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
    if ctx.invoked_subcommand in TABLES:
        ctx.default_map = default_map(app, settings())


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
    typer.echo(f"kcard: {' '.join(message.split())}", err=True)
    return code


def _named(error: Exception) -> str:
    """The error, and where in our code it came up."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "kcard" in frame.filename]
    where = f" at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__}{where} ({str(error)[:200]})"
