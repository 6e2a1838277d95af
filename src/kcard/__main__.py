"""`python -m kcard` is the kcard command."""

from kcard.cli.main import run

if __name__ == "__main__":
    try:
        run()
    finally:
        # Where Ctrl-C has left an exec (of a dataclass that was being imported, say), CPython would end `python -m` by
        # SIGINT instead of with run's exit code, unless something was executed since.
        exec("")
