"""The command line: parse, call the library, print. Only here does an error become an exit code."""

import errno
import os
import sys
from typing import Annotated

import typer

from kcard import __version__
from kcard.cli import ask, browse, cards, train
from kcard.errors import KcardError, UsageError

__all__ = ["app", "run"]

app = typer.Typer(
    name="kcard",
    help="Knowledge cards: small language models that lend what they know to any large one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for part in (train, cards, ask, browse):
    part.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kcard {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Data goes to stdout; progress, notes and errors go to stderr. Exit codes: 0, 1 error, 2 usage."""
    del version


def run() -> None:
    """Entry point of the `kcard` command."""
    try:
        app()
    except UsageError as error:
        _fail(str(error), 2)
    except KcardError as error:
        _fail(str(error), 1)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader of our stdout (head, less) has gone: nothing is left to say, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENOSPC and error.filename is None:
            raise
        _fail(f"{error.filename or 'writing'}: {error.strerror}", 1)


def _fail(message: str, code: int) -> None:
    typer.echo(f"kcard: {' '.join(message.split())}", err=True)
    sys.exit(code)
