"""`python -m kcard` is the kcard command."""

from kcard.cli.main import run

if __name__ == "__main__":
    run()
