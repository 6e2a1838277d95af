"""Asks a question of the processes that answer, from a worker of the server."""

import asyncio
import json
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from kcard.errors import KcardError, Unavailable, one_line
from kcard.hub.refusals import Busy, Invalid
from kcard.hub.repositories.versions import Version
from kcard.hub.server.asking.child import LONGEST_LINE
from kcard.hub.server.asking.relay import BUSY, FAILED, GO

__all__ = ["Unanswered", "ask"]

RETRY_SECONDS = 10.0
LONGEST_MESSAGE = 500
FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^\s/]+/)+")  # before the name of a file


class Unanswered(Invalid):
    """The cards could not answer. `card`: the one that was opened last, by name@v2; None: none was."""

    def __init__(self, message: str, *, card: str | None) -> None:
        super().__init__(message)
        self.card = card


async def ask(
    socket: str,
    client: str,
    question: str,
    cards: Sequence[Version],
    folder: Callable[[str], Path],
    *,
    gate: str | None = None,
) -> Mapping[str, Any]:
    """The answer, as Answer.to_json has it. Cancelling gives up the question.

    socket  of `ask_workers`
    client  who asks: one client's questions can't fill the queue
    cards   versions whose manifests have distinct names, which the passages of the answer have
    folder  where the files of a card are, by name@v2; it is called in a thread
    gate    whether the cards are needed; None: as in `kcard ask`
    Raises Busy if too many questions wait, Unanswered if the cards can't answer, Unavailable without processes.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(socket, limit=LONGEST_LINE)
    except OSError as error:
        raise Unavailable(f"no process answers questions: {error}") from error
    try:
        await _send(writer, client)
        reply = await reader.readline()
        if reply == BUSY:
            raise Busy(
                "too many questions are waiting: try again in a moment, or ask with `kcard ask` on your machine",
                seconds=RETRY_SECONDS,
            )
        if reply != GO:
            raise Unavailable("no process answers questions")
        manifests = [(card.number, card.sha256, card.manifest.to_json()) for card in cards]
        await _send(writer, {"question": question, "cards": manifests, "gate": gate})
        return await _answer(reader, writer, partial(_laid_out, folder, {card.reference for card in cards}))
    except (ConnectionError, ValueError) as error:
        raise Unavailable(f"the process that answers questions failed: {error}") from error
    finally:
        writer.close()


async def _answer(
    reader: StreamReader, writer: StreamWriter, folder: Callable[[str], Mapping[str, str]]
) -> Mapping[str, Any]:
    """The answer, after the folders that the process asks for."""
    while True:
        line = await reader.readline()
        if not line:
            raise Unavailable("the process that answers questions ended")
        message = json.loads(line)
        if (reference := message.get("folder")) is not None:
            await _send(writer, await to_thread.run_sync(folder, str(reference)))
            continue
        done = message.get("done", {})
        why = message.get(FAILED) or done.get("error")
        if why is not None:
            card = done.get("card")
            raise Unanswered(
                f"the question could not be answered: {_public(str(why))}",
                card=card if isinstance(card, str) else None,
            )
        answer = done.get("answer")
        if not isinstance(answer, dict):
            raise ValueError("its answer can't be read")
        return answer


def _laid_out(folder: Callable[[str], Path], known: set[str], reference: str) -> Mapping[str, str]:
    """The reply about the folder of a card."""
    if reference not in known:
        return {"error": f"unknown card {reference[:200]}"}
    try:
        return {"folder": str(folder(reference))}
    except KcardError as error:
        return {"error": one_line(error)}


def _public(text: str) -> str:
    """A message without the folders of this machine."""
    return FOLDERS.sub("", text)[:LONGEST_MESSAGE]


async def _send(writer: StreamWriter, message: object) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    await writer.drain()
