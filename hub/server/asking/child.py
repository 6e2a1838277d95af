"""A child process that answers questions: how it is started, and the lines that it reads and writes."""

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LONGEST_LINE", "Child", "Program"]

LONGEST_LINE = 16 << 20  # bytes


@dataclass(frozen=True)
class Program:
    """A program that answers questions, line by line; kcard.api.answering describes the lines.

    environment  a function of the child's folder
    """

    command: tuple[str, ...]
    environment: Callable[[Path], Mapping[str, str]]


class Child:
    """A process of the program. `folder` is its home, and the current folder; it need not exist."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, program: Program, folder: Path) -> "Child":
        """Its errors go to the log of the server."""
        folder.mkdir(mode=0o700, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            *program.command,
            cwd=folder,
            env=dict(program.environment(folder)),
            stdin=PIPE,
            stdout=PIPE,
            limit=LONGEST_LINE,
            start_new_session=True,  # a terminal's Ctrl-C does not reach it
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def send(self, line: bytes) -> None:
        """A process that died is noticed at its next line."""
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(line)
            await self._process.stdin.drain()

    async def line(self) -> bytes:
        """The next line; empty if the process ended or writes too much."""
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.readline()
        except ValueError:
            return b""

    async def kill(self) -> None:
        """End it."""
        if self.alive:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
