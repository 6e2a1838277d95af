"""Answer questions of a hub's pages in a process of its own, with limits.

It reads and writes lines of JSON. Models stay loaded between questions.

    stdin   {"question": text, "cards": [[version, sha256, manifest], …], "gate": name or null}
    stdout  {"folder": reference}           asks for the folder with this card's files
    stdin   {"folder": path} or {"error": text}
    stdout  {"done": {"answer": …}} or {"done": {"error": text, "card": reference or null}}

The names in the manifests must be distinct. Passages are checked against their card's corpus and the EVIDENCE. Cards
are not trusted: before it reads one, the process limits its memory (MEMORY bytes) and files, and forbids itself to
start programs and to open connections. It ends when stdin does. It has no time limit of its own: the hub kills it.
"""

import contextlib
import json
import os
import queue
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from kcard.errors import CardError, KcardError, one_line
from kcard.hub.registry import Selection
from kcard.hub.versions import Version
from kcard.manifest import Manifest

if TYPE_CHECKING:
    from kcard.hub.server.questions import Program
    from kcard.integrators.pipeline import Pipeline

__all__ = ["environment", "limit", "main", "program"]


# The environment and limits of child processes that read cards, which are not trusted.

MOST_WRITTEN = 256 << 20  # bytes of a file
NICE = 10  # requests to the hub come first


def environment(folder: Path) -> dict[str, str]:
    """Return variables that give a child the packages and models on this machine, but no token and no URL.

    folder  the home of the child
    """
    from huggingface_hub.constants import HF_HUB_CACHE

    return {
        "HF_HUB_CACHE": HF_HUB_CACHE,
        "HF_HUB_OFFLINE": "1",
        "HOME": str(folder),
        "KCARD_HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TOKENIZERS_PARALLELISM": "false",
    }


def limit(memory: int, seconds: int | None = None) -> None:
    """Limit this process: address space in bytes, processor time (None: unlimited), the size of files, priority."""
    if sys.platform == "win32":
        return
    import resource

    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.nice(NICE)
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_FSIZE: MOST_WRITTEN,
        resource.RLIMIT_CORE: 0,
    }
    if seconds is not None:
        limits[resource.RLIMIT_CPU] = seconds
    for each, most in limits.items():
        with contextlib.suppress(ValueError, OSError):  # stricter already, or unknown to this system
            resource.setrlimit(each, (most, most))


MODULE = "kcard.api.answer_process"
MEMORY = 8 << 30  # bytes of address space
CARDS_MEMORY = 1 << 30  # bytes for the weights of the cards of a pipeline
PIPELINES = 3  # selections of cards that stay loaded
WARM = ("Who discovered Titan?", "Christiaan Huygens discovered Titan in 1655.")


def program(evidence: Sequence[str] = ()) -> "Program":
    """Return how a hub starts the process. Remote evidence is left out, so that questions stay on this machine."""
    from kcard.hub.server.questions import Program
    from kcard.selectors.evidence import LOCAL, names

    elsewhere = {*names()} - {LOCAL}
    local = [spec for spec in evidence if spec.partition(":")[0] not in elsewhere]
    return Program((sys.executable, "-P", "-m", MODULE, str(MEMORY), *local), environment)


def main() -> None:
    """Answer the questions of stdin until it ends."""
    parent = _Parent()
    import torch

    torch.set_num_threads(1)
    limit(int(sys.argv[1]))
    from kcard.cards.pickle_process import guard

    guard(libraries=True)
    answerer = _Answerer(parent, sys.argv[2:])
    answerer.warm()
    while True:
        request = parent.receive()
        parent.opened = None
        try:
            done: dict[str, Any] = {"answer": answerer.answer(request)}
        except KcardError as error:  # others end the process, and appear in the hub's log
            done = {"error": one_line(error), "card": parent.opened}
        parent.send({"done": done})


class _Parent:
    """Communicates with the parent process in lines. The output of libraries goes to stderr.

    opened  the card whose folder was requested last
    """

    opened: str | None = None

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._out: BinaryIO = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

        def read_lines() -> None:
            for line in sys.stdin.buffer:
                self._lines.put(line)
            os._exit(0)

        threading.Thread(target=read_lines, daemon=True).start()

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._lines.get())
        return message

    def send(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message).encode() + b"\n")
        self._out.flush()

    def folder(self, reference: str) -> Path:
        """Return the folder of a card's files. Raises CardError if the hub can't say."""
        self.opened = reference
        self.send({"folder": reference})
        reply = self.receive()
        if "error" in reply:
            raise CardError(str(reply["error"]))
        return Path(reply["folder"])


@dataclass(frozen=True)
class _RequestedCards:
    """The cards of a request, in the role of a pipeline's hub."""

    versions: tuple[Version, ...]
    parent: _Parent
    read: None = None

    def select(self, _selection: Sequence[str] | None) -> Selection:
        return Selection(self.versions)

    def folder(self, reference: str) -> Path:
        return self.parent.folder(reference)


class _Answerer:
    """Answers with pipelines by their cards, of which the latest are kept."""

    def __init__(self, parent: _Parent, evidence: Sequence[str]) -> None:
        from kcard.offline.llm import EmbeddedLLM

        self._parent, self._llm, self._evidence = parent, EmbeddedLLM(), ("own", *evidence)
        self._pipelines: OrderedDict[tuple[object, ...], Pipeline] = OrderedDict()

    def warm(self) -> None:
        """Load the embedded models."""
        from kcard.offline import minilm
        from kcard.types import Request

        question, passage = WARM
        minilm.embed([question])
        self._llm.reply(Request("need", question))
        self._llm.reply(Request("answer", question, (passage,)))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer as JSON. Raises what a pipeline raises; its cards are loaded again then."""
        from kcard.integrators.pipeline import Pipeline

        key = (request["gate"], *((sha256, text) for _, sha256, text in request["cards"]))
        pipeline = self._pipelines.pop(key, None)
        if pipeline is None:
            now = datetime.now(UTC)
            versions = []
            for number, sha256, text in request["cards"]:
                manifest = Manifest.from_json(text)
                versions.append(Version(manifest.name, number, sha256, manifest, 0, now))
            pipeline = Pipeline(
                hub=_RequestedCards(tuple(versions), self._parent),
                llm=self._llm,
                gate=request["gate"],
                evidence=self._evidence,
                memory=CARDS_MEMORY,
                engine=(),
            )
        answer = pipeline([request["question"]])[0].to_json()
        self._pipelines[key] = pipeline
        while len(self._pipelines) > PIPELINES:
            self._pipelines.popitem(last=False)
        return answer


if __name__ == "__main__":
    main()
