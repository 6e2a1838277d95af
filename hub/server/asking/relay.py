"""Passes questions from the server's workers to child processes, in a queue of limited length.

A worker connects for each question, sends who asks, as a line of JSON, and reads `busy` or `go`. Then its lines go to a
child and back. A child answers one question at a time. It is killed, and another one started, if it takes too long,
or if the worker closes the connection and it does not end the question at once.
"""

import asyncio
import json
import logging
import shutil
from asyncio import FIRST_COMPLETED, StreamReader, StreamWriter
from collections import Counter
from collections.abc import Awaitable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from kcard.hub.server.asking.child import Child, Program

__all__ = ["BUSY", "FAILED", "GO", "Relay"]

BUSY, GO, DONE, FAILED = b"busy\n", b"go\n", b'{"done"', "failed"
MOST_WAITING = 8
MOST_OF_CLIENT = 2  # questions of one account or address at a time: one is answered, one waits
WAIT_SECONDS = 30.0  # for a child
SECONDS = 30.0  # for an answer
GRACE_SECONDS = 2.0  # to end a question whose client left: a new child needs several

logger = logging.getLogger("kcard.hub.asking")


class Relay:
    """`count` children, in folders below `folder`."""

    def __init__(self, program: Program, count: int, folder: Path) -> None:
        self._program, self._count, self._folder = program, count, folder
        self._children: dict[int, Child] = {}
        self._idle: asyncio.Queue[int] = asyncio.Queue()  # places of children
        self._waiting = 0
        self._of: Counter[str] = Counter()

    async def start(self) -> None:
        """Start the children, so that no question waits for that. Raises OSError."""
        for place in range(self._count):
            await self._start(place)
            self._idle.put_nowait(place)

    async def stop(self) -> None:
        """End the children."""
        for child in self._children.values():
            await child.kill()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve a connection of a worker."""
        with closing(writer), suppress(ConnectionError):
            client = str(json.loads(await reader.readline() or b"null"))
            if self._waiting >= MOST_WAITING or self._of[client] >= MOST_OF_CLIENT:
                writer.write(BUSY)
                return
            self._of[client] += 1
            try:
                await self._ask(reader, writer)
            finally:
                self._of[client] -= 1
                self._of += Counter()  # forgets those that ask nothing

    async def _ask(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Wait for a child, and let it answer."""
        question = asyncio.ensure_future(reader.readline())  # without a line if the worker leaves
        place = await self._take(question)
        if place is None:
            if not question.done():
                writer.write(BUSY)
                question.cancel()
            return
        usable = False
        try:
            if not self._children[place].alive:
                await self._start(place)
            writer.write(GO)
            line = await question
            usable = not line or await self._answered(self._children[place], line, reader, writer)
        finally:
            await self._give_back(place, usable)

    async def _take(self, left: "asyncio.Future[bytes]") -> int | None:
        """The place of a child; None if none is idle in time, or `left` is done before."""
        wanted: asyncio.Future[int] = asyncio.ensure_future(self._idle.get())
        self._waiting += 1
        try:
            both: set[asyncio.Future[Any]] = {wanted, left}
            await asyncio.wait(both, timeout=WAIT_SECONDS, return_when=FIRST_COMPLETED)
        finally:
            self._waiting -= 1
        if wanted.done():
            return wanted.result()
        wanted.cancel()
        return None

    async def _answered(
        self, child: Child, question: bytes, reader: StreamReader, writer: StreamWriter
    ) -> bool:
        """Whether the child ended the question, and may be asked again."""
        try:
            async with asyncio.timeout(SECONDS):
                return await _exchange(child, question, reader, writer)
        except TimeoutError:
            _tell(writer, f"it took longer than {SECONDS:g} s")
            return False

    async def _give_back(self, place: int, usable: bool) -> None:
        try:
            if not usable:
                logger.warning("process %s is replaced: it did not end a question", self._children[place].pid)
                await self._children[place].kill()
                await self._start(place)
        finally:  # one that did not start is started by the next question
            self._idle.put_nowait(place)

    async def _start(self, place: int) -> None:
        folder = self._folder / f"child-{place}"
        await asyncio.to_thread(
            shutil.rmtree, folder, ignore_errors=True
        )  # nothing of the one before is trusted
        self._children[place] = await Child.start(self._program, folder)


async def _exchange(child: Child, question: bytes, reader: StreamReader, writer: StreamWriter) -> bool:
    """Pass lines on until the child has answered; whether it may be asked again."""
    await child.send(question)
    says: asyncio.Future[bytes] = asyncio.ensure_future(child.line())
    told: asyncio.Future[bytes] = asyncio.ensure_future(reader.readline())
    try:
        while True:
            await asyncio.wait({says, told}, return_when=FIRST_COMPLETED)
            if told.done():
                if not (line := told.result()):
                    return await _ends(says)
                await child.send(line)
                told = asyncio.ensure_future(reader.readline())
            if says.done():
                if not (line := says.result()):
                    _tell(writer, "its process ended: it may need more memory than a question has")
                    return False
                writer.write(line)
                if line.startswith(DONE):
                    return True
                says = asyncio.ensure_future(child.line())
    finally:
        says.cancel()
        told.cancel()


async def _ends(says: Awaitable[bytes]) -> bool:
    """Whether the child ends the question of a client who left soon enough to be kept."""
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            return (await says).startswith(DONE)
    except TimeoutError:
        return False


def _tell(writer: StreamWriter, why: str) -> None:
    writer.write(json.dumps({FAILED: why}).encode() + b"\n")
