"""Questions on a hub's pages: the cards that may answer, and the processes that run them.

For each question, a worker of the server opens a connection, sends the client's name as a line of JSON, and reads
`busy` or `go`. The lines that it sends next are passed to a child process, and the child's lines are passed back. A
child answers one question at a time. It is killed and replaced if it takes too long, or if it goes on with a question
for more than a moment after the worker has closed the connection.
"""

import asyncio
import json
import logging
import re
import shutil
import tempfile
import threading
from asyncio import FIRST_COMPLETED, StreamReader, StreamWriter
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from kcard.errors import HubError, KcardError, Unavailable, UnknownCard, one_line
from kcard.hub import versions as card_versions
from kcard.hub.accounts import Identity
from kcard.hub.audits import is_measurable
from kcard.hub.db.models import Repository
from kcard.hub.errors import Busy, Invalid, NotFound
from kcard.hub.permissions import may_download
from kcard.hub.search import SearchQuery
from kcard.hub.search_index import normalise_words
from kcard.hub.server.dependencies import get_repository, has_access, require_download
from kcard.hub.server.responses import parse_reference
from kcard.hub.services import HubServices
from kcard.hub.values import QuarantineReason
from kcard.hub.versions import Version

# The cards that may answer a visitor's question: the named one, or all that the visitor may download.

MOST_CARDS = 200
MOST_BYTES = 4_000_000  # of their manifests
MOST_WORDS, FOR_WORD = 12, 50
SHORTEST_WORD = 3
TAG = "kcard"  # of every repository with a card


@dataclass(frozen=True)
class AskableCard:
    """A version of a card that may be asked, under a name that no other candidate has."""

    name: str
    repository: Repository
    version: Version

    @property
    def renamed_version(self) -> Version:
        """The version, renamed."""
        return replace(self.version, name=self.name, manifest=replace(self.version.manifest, name=self.name))


@dataclass(frozen=True)
class Candidates:
    """The cards that are asked.

    total        cards of the hub that the visitor may read
    quarantined  names of repositories that are excluded because their card is quarantined
    unusable     names of those whose card could not be opened
    quarantine   why the named card is quarantined; None if it is not, or if no card was named
    """

    cards: Sequence[AskableCard]
    total: int = 1
    quarantined: Sequence[str] = ()
    unusable: Sequence[str] = ()
    quarantine: QuarantineReason | None = None

    def without(self, unusable: AskableCard) -> "Candidates":
        """Return the candidates without one that can't be opened."""
        others = [card for card in self.cards if card != unusable]
        return replace(self, cards=others, unusable=(*self.unusable, unusable.repository.name))

    def __iter__(self) -> Iterator[AskableCard]:
        return iter(self.cards)


def find_one_card(hub: HubServices, reference: str, identity: Identity | None) -> Candidates:
    """Return the version that `namespace/name` (the newest) or `namespace/name@v2` names, quarantined or not.

    Raises Invalid, also if its model is not on this hub, NotFound, Gated.
    """
    name, number = parse_reference(reference)
    repository = get_repository(hub, "model", name, identity)
    require_download(hub, identity, repository)
    try:
        version = hub.registry.get(repository.name + ("" if number is None else f"@v{number}"))
    except UnknownCard:
        raise NotFound(
            "revision", f"{reference[:200]} is not a published version of a card: see its page"
        ) from None
    if not is_measurable(version.manifest):
        raise Invalid(
            f"{repository.name} can't be asked here: it is of kind {version.manifest.kind[:50]}, whose model is not "
            "among its files; use `kcard ask`"
        )
    reasons = hub.registry.quarantine.find_reasons([version])
    return Candidates(
        [AskableCard(version.manifest.name, repository, version)], quarantine=reasons.get(version.reference)
    )


def find_all_cards(hub: HubServices, question: str, identity: Identity | None) -> Candidates:
    """Return the newest version of every card that the visitor may download, without quarantined ones.

    If there are more than MOST_CARDS, prefer those that match words of the question, weighted by rarity, then those
    with most downloads. Raises Invalid if there are none.
    """
    repositories, total = _find_likely(hub, question, identity)
    allowed = [each for each in repositories if may_download(identity, each, has_access(hub, identity, each))]
    versions = card_versions.find_newest_versions(hub.database, allowed)
    reasons = hub.registry.quarantine.find_reasons([*versions.values()])
    askable, quarantined = [], []
    for repository in allowed:
        version = versions.get(repository.name)
        if version is not None and version.reference in reasons:
            quarantined.append(repository.name)
        elif version is not None and is_measurable(version.manifest):
            askable.append((repository, version))
    if not askable:
        raise Invalid("no card can be asked" + (": all are quarantined" if quarantined else ""))
    # Take cards until their manifests exceed MOST_BYTES; number the cards that share a name.
    cards: list[AskableCard] = []
    names: set[str] = set()
    room = MOST_BYTES
    for repository, version in askable:
        name, number = version.manifest.name, 1
        while name in names:
            number += 1
            name = f"{version.manifest.name[:80]}--{number}"
        names.add(name)
        room -= len(version.manifest.to_json())
        if room < 0:
            break
        cards.append(AskableCard(name, repository, version))
    return Candidates(cards, total, quarantined)


def _find_likely(
    hub: HubServices, question: str, identity: Identity | None
) -> tuple[Sequence[Repository], int]:
    """Return at most MOST_CARDS repositories with cards, and how many there are in all."""
    usual = SearchQuery(tags=[TAG], sort="downloads", size=MOST_CARDS)
    matches = hub.search.find(usual, identity)
    if matches.total <= MOST_CARDS:
        return matches.repositories, matches.total
    scores: dict[int, float] = {}
    by_id = {each.id: each for each in matches.repositories}
    words = [word for word in dict.fromkeys(normalise_words(question)) if len(word) >= SHORTEST_WORD]
    for word in words[:MOST_WORDS]:
        matching = hub.search.find(
            SearchQuery(text=word, tags=[TAG], sort="relevance", size=FOR_WORD), identity
        )
        for each in matching.repositories:
            by_id[each.id] = each
            scores[each.id] = scores.get(each.id, 0.0) + 1 / matching.total
    order = sorted(by_id.values(), key=lambda each: -scores.get(each.id, 0.0))
    return order[:MOST_CARDS], matches.total


# A child process that answers questions: how it is started, and the lines that it reads and writes.

LONGEST_LINE = 16 << 20  # bytes


@dataclass(frozen=True)
class Program:
    """A program that answers questions, line by line; kcard.api.answer_process describes the lines.

    environment  a function of the child's folder
    """

    command: tuple[str, ...]
    environment: Callable[[Path], Mapping[str, str]]


class Child:
    """A process of the program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, program: Program, folder: Path) -> "Child":
        """Start a process in `folder`, created if needed; its stderr goes to the log of the server."""
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
        """Write a line. If the process has died, reading the next line tells."""
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(line)
            await self._process.stdin.drain()

    async def line(self) -> bytes:
        """Return the next line; empty if the process ended or its line is too long."""
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.readline()
        except ValueError:
            return b""

    async def kill(self) -> None:
        """Kill the process and wait for its end."""
        if self.alive:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()


BUSY, GO, DONE, FAILED = b"busy\n", b"go\n", b'{"done"', "failed"
MOST_WAITING = 8
MOST_OF_CLIENT = 2  # questions of one account or address at a time: one is answered, one waits
WAIT_SECONDS = 30.0  # for a child
SECONDS = 30.0  # for an answer
GRACE_SECONDS = 2.0  # to end a question whose client left, since starting a new child takes several seconds

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
        """Start all children in advance, so that no question has to wait for one. Raises OSError."""
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
                self._of += Counter()  # drops clients without questions

    async def _ask(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Wait for an idle child, let it answer, and replace it if it has not ended the question."""
        # Wait for an idle child, unless the worker leaves, which ends the line without a question.
        question = asyncio.ensure_future(reader.readline())
        place = await self._take(question)
        if place is None:
            if not question.done():
                writer.write(BUSY)
                question.cancel()
            return
        # Pass the question on, and the lines of both until it is answered.
        usable = False
        try:
            if not self._children[place].alive:
                await self._start(place)
            writer.write(GO)
            line = await question
            if not line:  # the worker left
                usable = True
                return
            try:
                async with asyncio.timeout(SECONDS):
                    usable = await _relay_lines(self._children[place], line, reader, writer)
            except TimeoutError:
                _write_failure(writer, f"it took longer than {SECONDS:g} s")
        finally:
            # Replace the child if it may still be busy with the question.
            try:
                if not usable:
                    logger.warning(
                        "process %s is replaced: it did not end a question", self._children[place].pid
                    )
                    await self._children[place].kill()
                    await self._start(place)
            finally:  # if it did not start, the next question starts it
                self._idle.put_nowait(place)

    async def _take(self, left: "asyncio.Future[bytes]") -> int | None:
        """Return the place of an idle child; None if none becomes idle in time, or `left` is done first."""
        idle_place: asyncio.Future[int] = asyncio.ensure_future(self._idle.get())
        self._waiting += 1
        try:
            both: set[asyncio.Future[Any]] = {idle_place, left}
            await asyncio.wait(both, timeout=WAIT_SECONDS, return_when=FIRST_COMPLETED)
        finally:
            self._waiting -= 1
        if idle_place.done():
            return idle_place.result()
        idle_place.cancel()
        return None

    async def _start(self, place: int) -> None:
        folder = self._folder / f"child-{place}"
        # Files of the previous child are not trusted.
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        self._children[place] = await Child.start(self._program, folder)


async def _relay_lines(child: Child, question: bytes, reader: StreamReader, writer: StreamWriter) -> bool:
    """Pass lines on until the child has answered; return whether the child can be used again."""
    await child.send(question)
    from_child: asyncio.Future[bytes] = asyncio.ensure_future(child.line())
    from_client: asyncio.Future[bytes] = asyncio.ensure_future(reader.readline())
    try:
        while True:
            await asyncio.wait({from_child, from_client}, return_when=FIRST_COMPLETED)
            if from_client.done():
                if not (line := from_client.result()):
                    # The client left: the child is kept if it ends the question soon.
                    try:
                        async with asyncio.timeout(GRACE_SECONDS):
                            return (await from_child).startswith(DONE)
                    except TimeoutError:
                        return False
                await child.send(line)
                from_client = asyncio.ensure_future(reader.readline())
            if from_child.done():
                if not (line := from_child.result()):
                    _write_failure(writer, "its process ended: it may need more memory than a question has")
                    return False
                writer.write(line)
                if line.startswith(DONE):
                    return True
                from_child = asyncio.ensure_future(child.line())
    finally:
        from_child.cancel()
        from_client.cancel()


def _write_failure(writer: StreamWriter, why: str) -> None:
    writer.write(json.dumps({FAILED: why}).encode() + b"\n")


# The processes that answer questions, which run beside a server for all of its workers.

START_SECONDS = 30
STOP_SECONDS = 10


@contextmanager
def run_ask_workers(count: int, program: Program | None) -> Iterator[str | None]:
    """Run `count` processes until the block ends; yield the path of their socket, None without processes.

    Only this user may connect.
    """
    if not count or program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="kcard-asking-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "socket"
        ready: Future[Callable[[], object]] = Future()  # gets the function that ends the serving
        relay = Relay(program, count, Path(folder))

        async def serve() -> None:
            ended = asyncio.Event()
            try:
                await relay.start()
                server = await asyncio.start_unix_server(relay.serve, path, limit=LONGEST_LINE)
            except OSError as error:
                await relay.stop()
                ready.set_exception(HubError(f"can't start the processes that answer questions: {error}"))
                return
            ready.set_result(partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set))
            await ended.wait()
            server.close()
            await relay.stop()

        thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
        thread.start()
        stop = ready.result(START_SECONDS)
        try:
            yield str(path)
        finally:
            stop()
            thread.join(STOP_SECONDS)


# The client of these processes, in a worker of the server.

RETRY_SECONDS = 10.0
LONGEST_MESSAGE = 500
FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^\s/]+/)+")  # the folders in a file's path


class Unanswered(Invalid):
    """The cards could not answer. `card`: reference of the last one that was opened; None: none was opened."""

    def __init__(self, message: str, *, card: str | None) -> None:
        super().__init__(message)
        self.card = card


async def ask_question(
    socket: str,
    client: str,
    question: str,
    cards: Sequence[Version],
    folder: Callable[[str], Path],
    *,
    gate: str | None = None,
) -> Mapping[str, Any]:
    """Return the answer in the form of Answer.to_json. Cancelling ends the question.

    socket  of `ask_workers`
    client  the account or address that asks: one client can't fill the queue
    cards   versions whose manifests have distinct names; passages of the answer refer to them
    folder  returns the folder with the files of a card, by name@v2; it is called in a thread
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
        return await _read_answer(reader, writer, folder, {card.reference for card in cards})
    except (ConnectionError, ValueError) as error:
        raise Unavailable(f"the process that answers questions failed: {error}") from error
    finally:
        writer.close()


async def _read_answer(
    reader: StreamReader, writer: StreamWriter, folder: Callable[[str], Path], references: set[str]
) -> Mapping[str, Any]:
    """Return the answer, after sending the folders of cards that the process requests."""
    while True:
        line = await reader.readline()
        if not line:
            raise Unavailable("the process that answers questions ended")
        message = json.loads(line)
        if (requested := message.get("folder")) is not None:
            reference = str(requested)
            if reference not in references:
                reply = {"error": f"unknown card {reference[:200]}"}
            else:
                try:
                    reply = {"folder": str(await to_thread.run_sync(folder, reference))}
                except KcardError as error:
                    reply = {"error": one_line(error)}
            await _send(writer, reply)
            continue
        done = message.get("done", {})
        why = message.get(FAILED) or done.get("error")
        if why is not None:
            card = done.get("card")
            public = FOLDERS.sub("", str(why))[:LONGEST_MESSAGE]  # without the folders of this machine
            raise Unanswered(
                f"the question could not be answered: {public}",
                card=card if isinstance(card, str) else None,
            )
        answer = done.get("answer")
        if not isinstance(answer, dict):
            raise ValueError("its answer can't be read")
        return answer


async def _send(writer: StreamWriter, message: object) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    await writer.drain()
