"""Runs kcard commands one after the other in one process, which saves importing torch for each.

    python hub_session.py < STEPS > RESULTS

STEPS is a JSON list: a list of words is a kcard command; a text is a card to write about a question, greedily;
{"from": PATH, "to": PATH} moves a file or folder, for what changes on the Hub meanwhile.
"""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def command(words: list[str]) -> dict[str, Any]:
    from kcard.cli.main import run

    out, err, code = stream(), stream(), 0
    sys.argv = ["kcard", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run()
        except SystemExit as error:
            code = int(error.code or 0)
    return {"code": code, "out": text(out), "err": text(err)}


def stream() -> io.TextIOWrapper:
    """Like a standard stream, with an encoding."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def text(written: io.TextIOWrapper) -> str:
    written.seek(0)
    return written.read()


def write(card: str) -> dict[str, Any]:
    from kcard.cards.card import Card
    from kcard.cards.pool import CardPool
    from kcard.errors import KcardError
    from kcard.hub.registry import Hub
    from kcard.types import Sampling

    try:
        pool = CardPool([Card.open(Hub().folder(card))])
        name = pool.cards[0].name
        written = pool.generate(
            ["Where does the Rhine end?"], [[name]], 1, Sampling(temperature=0, tokens=12)
        )
    except KcardError as error:
        return {"code": 1, "out": "", "err": str(error)}
    return {"code": 0, "out": written[0][0].text, "err": ""}


def do(step: Any) -> dict[str, Any]:
    if isinstance(step, dict):
        Path(step["from"]).replace(step["to"])
        return {"code": 0, "out": "", "err": ""}
    return command(step) if isinstance(step, list) else write(step)


json.dump([do(step) for step in json.load(sys.stdin)], sys.stdout)
