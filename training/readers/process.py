"""Read files in child processes, under limits of time, memory and the size of their text.

A file may keep its reader busy for hours, fill the memory or crash a library. Whatever happens in the child, the parent
raises CorpusError with the reason in one line. A child starts with the first file, reads one after another, and ends
with its parent. Readers know nothing of this; what is limited here holds for every format.
"""

import atexit
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kcard.config import without_secrets
from kcard.errors import CorpusError, one_line
from kcard.system import limit_process, memory, missing_package
from kcard.training.duplicates import DigestedBlock, digest_blocks
from kcard.training.readers.files import Block, Document, Format, SkipReport

# The limits, which grow with the size of the file.

SECONDS, SECONDS_PER_MB = 60.0, 20.0
MEMORY, MEMORY_PER_BYTE = 2 << 30, 50  # bytes of address space
MEMORY_SHARE = 0.75  # of the machine's memory at most
CHARACTERS, CHARACTERS_PER_BYTE = 200_000_000, 20
MAX_WRITTEN = 256 << 20  # bytes of a file that a reader, or a program that it starts, writes
MAX_IDLE_MEMORY = 512 << 20  # bytes: a child that holds more ends after the file
BATCH_BLOCKS, BATCH_CHARACTERS = 100, 1 << 18  # that a child sends at a time
MAX_REASON_CHARACTERS = 1000  # why a file can't be read
GRACE = 5  # seconds of processor time, after which a child ends that its parent did not kill


@dataclass(frozen=True)
class ReadingLimits:
    """The limits of reading a file: seconds, bytes of memory, characters of its text."""

    seconds: float
    memory: int
    characters: int

    @classmethod
    def of(cls, size: int) -> "ReadingLimits":
        """Return the limits for a file of `size` bytes."""
        return cls(
            SECONDS + SECONDS_PER_MB * size / 1e6,
            min(MEMORY + MEMORY_PER_BYTE * size, _most_memory()),
            CHARACTERS + CHARACTERS_PER_BYTE * size,
        )


@cache
def _most_memory() -> int:
    total = memory().total
    return int(MEMORY_SHARE * total) if total else sys.maxsize


@dataclass(frozen=True)
class ReadingRequest:
    """A file to read; `digests`: whether its blocks are digested, without boilerplate."""

    path: Path
    name: str
    column: str | None
    kind: Format
    digests: bool
    limits: ReadingLimits


@dataclass(frozen=True)
class ReadingReply:
    """Blocks of a file and, in the last reply, `skips`.

    error  why the file can't be read
    ends   whether the child ends after this file
    """

    blocks: Sequence[Any] = ()
    skips: SkipReport | None = None
    error: str | None = None
    ends: bool = False


# The parent.


def read_blocks(document: Document, kind: Format) -> Iterator[Block]:
    """Yield the blocks of a file. Raises CorpusError, after some of them, if it can't be read within its limits."""
    return _read(document, kind, digests=False)


def read_digested(document: Document, kind: Format) -> Iterator[DigestedBlock]:
    """Yield the digested blocks of a file, see `digest_blocks`. Raises CorpusError as `read_blocks` does."""
    return _read(document, kind, digests=True)


def _read(document: Document, kind: Format, *, digests: bool) -> Iterator[Any]:
    path = document.path.absolute()
    try:
        size = path.stat().st_size
    except OSError as error:
        raise CorpusError(f"{document.path} can't be read ({error.strerror})") from error
    request = ReadingRequest(path, document.name, document.column, kind, digests, ReadingLimits.of(size))
    if _is_child:
        try:
            for block, _ in _blocks(request, document):
                yield block
        except Exception as error:
            raise CorpusError(_explain(error, request).replace(str(path), str(document.path))) from error
        return
    with _borrowed_process() as process:
        for reply in process.read(request):
            yield from reply.blocks
            if reply.skips is not None:
                document.skips.add(reply.skips)
            if reply.error is not None:
                raise CorpusError(reply.error.replace(str(path), str(document.path)))


_is_child = False


def read_in_this_process() -> None:
    """Read files in this process from now on: it is a child with limits of its own, and may start no other."""
    global _is_child
    _is_child = True


_idle: list["ReadingProcess"] = []


@contextmanager
def _borrowed_process() -> Iterator["ReadingProcess"]:
    """Yield an idle process or a new one. It becomes idle again, unless it has ended or did not read to the end."""
    environment = without_secrets() | ONE_THREAD
    try:
        process = _idle.pop()
    except IndexError:
        process = ReadingProcess(environment)
    # One of the process from which this one was forked, or with another PATH, is of no use.
    if process.owner != os.getpid() or process.environment != environment:
        process.kill()
        process = ReadingProcess(environment)
    try:
        yield process
    finally:
        if process.is_ready:
            _idle.append(process)
        else:
            process.kill()


def end_idle_processes(keep: int = 0) -> None:
    """End the processes that read nothing now, all but `keep` of them."""
    while len(_idle) > keep:
        _idle.pop().kill()


CHILD = "from kcard.training.readers.process import serve; serve()"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
MAX_ERROR_BYTES = 2000


class ReadingProcess:
    """A child process that reads files.

    owner        the id of the process that started it
    environment  its variables
    is_ready     whether it waits for a file
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.owner = os.getpid()
        self.environment = environment
        self.is_ready = True
        self._is_late = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process is killed
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,  # Ctrl-C does not reach it
        )
        atexit.register(self.kill)

    def read(self, request: ReadingRequest) -> Iterator[ReadingReply]:
        """Yield the replies for a file. Raises CorpusError if the process ends, or is killed for taking too long."""
        self.is_ready = False
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, which is noticed below
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
        seconds = request.limits.seconds
        is_last = False
        while not is_last:
            began = time.monotonic()
            reply = self._receive(seconds)
            seconds = max(0.0, seconds - (time.monotonic() - began))
            if reply is None:
                raise CorpusError(self._explain_end(request))
            is_last = reply.skips is not None
            self.is_ready = is_last and not reply.ends
            yield reply

    def _receive(self, seconds: float) -> ReadingReply | None:
        """Return the next reply; None if the process ends, or is killed after `seconds`."""
        assert self._process.stdout is not None
        timer = threading.Timer(seconds, self._end_late)
        timer.daemon = True
        timer.start()
        try:
            reply: ReadingReply = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            return None
        finally:
            timer.cancel()
        return reply

    def _end_late(self) -> None:
        self._is_late = True
        self._signal()

    def _explain_end(self, request: ReadingRequest) -> str:
        code = self._process.wait()
        limits = request.limits
        if self._is_late or (sys.platform != "win32" and code == -signal.SIGXCPU):
            return f"{request.path} takes more than {limits.seconds:.0f} s to read: split it or leave it out"
        if code < 0:
            return (
                f"{request.path} ends its reader ({signal.Signals(-code).name}): it is damaged, or takes more than "
                f"{limits.memory >> 20} MB of memory"
            )
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - MAX_ERROR_BYTES))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        reason = lines[-1] if lines else f"exit code {code}"
        return f"{request.path} ends its reader ({one_line(ValueError(reason))})"

    def _signal(self) -> None:
        """Kill the process and those of its group."""
        with suppress(OSError):
            if sys.platform == "win32":
                self._process.kill()
            elif self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill the process, if it runs."""
        atexit.unregister(self.kill)
        if self.owner == os.getpid():
            self._signal()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(OSError):
                if stream is not None:
                    stream.close()


# The child.


def serve() -> None:
    """Read the files that the parent names on stdin, and reply on stdout, until stdin ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not reach the parent

    def send(reply: ReadingReply) -> None:
        pickle.dump(reply, replies)
        replies.flush()

    ends = False
    while not ends:
        try:
            request: ReadingRequest = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        ends = answer(request, send)


def answer(request: ReadingRequest, send: Callable[[ReadingReply], None]) -> bool:
    """Read a file, send its blocks and then the outcome. Return whether this process should end."""
    limits = request.limits
    address_space, _ = _memory()
    limit_process(
        memory=address_space + limits.memory,
        seconds=int(time.process_time() + limits.seconds) + GRACE,
        file_size=MAX_WRITTEN,
        adjustable=True,
    )
    document = Document(request.path, request.name, request.column)
    batch: list[Any] = []
    error, is_memory_full = None, False
    try:
        characters = 0
        for block, text in _blocks(request, document):
            batch.append(block)
            characters += text
            if len(batch) == BATCH_BLOCKS or characters > BATCH_CHARACTERS:
                send(ReadingReply(batch))
                batch, characters = [], 0
    except Exception as failure:  # noqa: BLE001 - libraries raise anything for files that they did not expect
        batch = []
        is_memory_full = _is_memory_full(failure)
        error = _explain(failure, request)
    _, resident = _memory()
    ends = is_memory_full or resident > MAX_IDLE_MEMORY
    send(ReadingReply(batch, document.skips, error, ends))
    return ends


def _blocks(request: ReadingRequest, document: Document) -> Iterator[tuple[Any, int]]:
    """Yield the blocks, digested or not, with the number of their characters."""
    blocks = _limit_text(request.kind.read(document), request)
    if not request.digests:
        for block in blocks:
            yield block, len(block.text)
        return
    for digested in digest_blocks(document, blocks, prose=request.kind.prose):
        yield digested, len(digested.block.text)


def _limit_text(blocks: Iterable[Block], request: ReadingRequest) -> Iterator[Block]:
    """Yield blocks. Raises CorpusError if their texts are too long, as those of a bomb are."""
    left = request.limits.characters
    for block in blocks:
        left -= len(block.text) + len(block.section or "")
        if left < 0:
            raise CorpusError(
                f"{request.path} unpacks to more than {request.limits.characters // 10**6} MB of text: split it or "
                "leave it out"
            )
        yield block


def _explain(error: Exception, request: ReadingRequest) -> str:
    """Return in one line why a file can't be read."""
    if _is_memory_full(error):
        return f"{request.path} takes more than {request.limits.memory >> 20} MB of memory: split it or leave it out"
    if isinstance(error, CorpusError):
        return one_line(error, MAX_REASON_CHARACTERS)
    if isinstance(error, RecursionError):
        return f"{request.path} can't be read: its elements are nested too deeply"
    reason = missing_package(error)
    if reason is None:
        reason = f"{type(error).__name__}: {one_line(error, 200)}"
    return f"{request.path} can't be read ({reason}): is it damaged?"


def _is_memory_full(error: BaseException | None) -> bool:
    """Return whether an error is due to a lack of memory."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _memory() -> tuple[int, int]:
    """Return the bytes of address space and of memory that this process has; 0 if unknown, as outside Linux."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except OSError:
        return 0, 0
    size = os.sysconf("SC_PAGE_SIZE")
    return int(pages[0]) * size, int(pages[1]) * size
