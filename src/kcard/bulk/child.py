"""The child process that does one piece: `python -m kcard.bulk.child FILE`, started by kcard.bulk.children.

It reads the piece, one line of JSON, from stdin, writes the outcome into FILE, and ends when stdin does, so that no
child outlives the process that started it.
"""

import json
import os
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from kcard.bulk.piece import Piece, perform
from kcard.config import let_threads_sleep
from kcard.files import write_text

__all__ = ["MODULE", "main"]

MODULE = "kcard.bulk.child"


def main() -> None:
    """Do the piece."""
    piece = Piece(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    let_threads_sleep()
    outcome = perform(piece)
    write_text(Path(sys.argv[1]), json.dumps(asdict(outcome)))


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
