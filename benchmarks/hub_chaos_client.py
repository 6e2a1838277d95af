"""Clients of benchmarks/hub_chaos.py: commit, tag, publish, pull and search by the real client, and write down what was
acknowledged.

    python hub_chaos_client.py URL SECONDS FIRST LAST LEDGER CARD < tokens

One process with a thread for each client. Every commit holds a round's number in both of its files, so that a mix
of two rounds would be seen. Each client also publishes a card of its own, made of the one in the folder CARD. A line of
LEDGER is one acknowledged commit, tag or publication, or one thing that must not be.
"""

import hashlib
import json
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import (
    EntryNotFoundError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

__all__: list[str] = []

LOST = (RepositoryNotFoundError, RevisionNotFoundError, EntryNotFoundError)
HANG_SECONDS = 120
LARGE = "model.safetensors"
SMALL = "round.json"
MANIFEST = "kcard.json"
CARD = "moons"  # the repository of a client's published card


@dataclass(frozen=True)
class Acknowledged:
    """A commit that the hub said it has; `files`: sha256 by path."""

    repository: str
    sha: str
    round: int
    files: dict[str, str]


@dataclass
class Ledger:
    """What the clients of this process were told, kept on the disk line by line."""

    path: Path
    lock: threading.Lock = field(default_factory=threading.Lock)
    commits: list[Acknowledged] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def acknowledge(self, made: Acknowledged) -> None:
        with self.lock:
            self.commits.append(made)
            self._write({"acknowledged": asdict(made)})

    def tagged(self, repository: str, tag: str, sha: str, published: bool) -> None:
        with self.lock:
            row = {"repository": repository, "tag": tag, "sha": sha}
            self._write({"published" if published else "tagged": row})

    def fault(self, what: str) -> None:
        with self.lock:
            self._write({"fault": what})

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def any(self, chance: random.Random) -> Acknowledged | None:
        with self.lock:
            return chance.choice(self.commits) if self.commits else None

    def close(self) -> None:
        with self.lock:
            self._write({"counts": self.counts})

    def _write(self, line: object) -> None:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def safetensors(number: int, chance: random.Random) -> bytes:
    """A valid file of some 100 KB whose header names the round."""
    data = chance.randbytes(chance.randrange(50_000, 200_000) & ~3)
    tensor = {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [0, len(data)]}
    header = json.dumps({"__metadata__": {"round": str(number)}, "weight": tensor}).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data


def commit(api: HfApi, repository: str, number: int, ledger: Ledger, chance: random.Random) -> None:
    api.create_repo(repository, exist_ok=True)
    contents = {LARGE: safetensors(number, chance), SMALL: json.dumps({"round": number}).encode()}
    operations = [CommitOperationAdd(path, content) for path, content in contents.items()]
    done = api.create_commit(repository, operations, commit_message=f"round {number}")
    files = {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}
    ledger.acknowledge(Acknowledged(repository, done.oid, number, files))
    if chance.random() < 0.3:
        api.create_tag(repository, tag=f"round-{number}", revision=done.oid)
        ledger.tagged(repository, f"round-{number}", done.oid, published=False)


def publish_card(api: HfApi, user: str, card: Path, ledger: Ledger) -> None:
    """Publish a card that differs from those of the other clients; what an earlier attempt did is not done again."""
    repository = f"{user}/{CARD}"
    api.create_repo(repository, exist_ok=True)
    manifest = json.loads((card / MANIFEST).read_bytes()) | {"description": f"Moons, the card of {user}"}
    contents = {path: (card / path).read_bytes() for path in manifest["files"]}
    contents[MANIFEST] = json.dumps(manifest, indent=2).encode()
    operations = [CommitOperationAdd(path, content) for path, content in contents.items()]
    done = api.create_commit(repository, operations, commit_message="the card")
    api.create_tag(repository, tag="v1", revision=done.oid, exist_ok=True)
    tag = next(ref for ref in api.list_repo_refs(repository).tags if ref.name == "v1")
    ledger.tagged(repository, "v1", tag.target_commit, published=True)


def search(api: HfApi, wanted: Acknowledged, ledger: Ledger) -> None:
    """Search for the repository of an acknowledged commit by its name."""
    found = [model.id for model in api.list_models(search=wanted.repository, limit=100)]
    if wanted.repository not in found:
        ledger.fault(f"a search for {wanted.repository} found {found}")


def pull(api: HfApi, wanted: Acknowledged, ledger: Ledger, latest: bool) -> None:
    """Pull an acknowledged commit, or main, which must be one commit and no older."""
    with tempfile.TemporaryDirectory() as folder:
        revision = "main" if latest else wanted.sha
        api.snapshot_download(wanted.repository, revision=revision, local_dir=folder, max_workers=1)
        digests = {
            path: hashlib.sha256((Path(folder) / path).read_bytes()).hexdigest() for path in wanted.files
        }
        if not latest and digests != wanted.files:
            ledger.fault(f"{wanted.repository}@{wanted.sha}: {digests}, not {wanted.files}")
        small = json.loads((Path(folder) / SMALL).read_bytes())["round"]
        large = rounds(Path(folder) / LARGE)
        if small != large or small < wanted.round:
            ledger.fault(
                f"{wanted.repository}@{revision}: rounds {small} and {large}, {wanted.round} is older"
            )


def rounds(path: Path) -> int:
    with path.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return int(header["__metadata__"]["round"])


def client(number: int, token: str, url: str, deadline: float, ledger: Ledger, card: Path) -> None:
    """Commit, and pull or search, in turn until the time is over, and publish one card, at a turn of its own.

    Errors are expected; what was acknowledged is not to be lost.
    """
    api, chance, turn = HfApi(endpoint=url, token=token), random.Random(number), 0
    user, published = f"client{number}", False
    while time.monotonic() < deadline:
        turn += 1
        wanted = ledger.any(chance) if turn % 2 == 0 else None
        if not published and turn > number % 8:
            published = attempt("publish", lambda: publish_card(api, user, card, ledger), ledger)
        elif wanted is None:
            repository = f"{user}/card{chance.randrange(3)}"
            attempt("commit", lambda: commit(api, repository, turn, ledger, chance), ledger)  # noqa: B023
        elif chance.random() < 0.3:
            attempt("search", lambda: search(api, wanted, ledger), ledger)  # noqa: B023
        else:
            latest = chance.random() < 0.5
            attempt("pull", lambda: pull(api, wanted, ledger, latest), ledger, wanted)  # noqa: B023


def attempt(what: str, deed: Callable[[], None], ledger: Ledger, wanted: Acknowledged | None = None) -> bool:
    """Whether it succeeded."""
    try:
        deed()
        ledger.count(f"{what} done")
        return True
    except LocalEntryNotFoundError:  # which says that the hub did not answer
        ledger.count(f"{what} failed")
    except LOST as error:
        if wanted is not None:
            ledger.fault(f"{wanted.repository}@{wanted.sha} was acknowledged and is not there: {error}")
        ledger.count(f"{what} failed")
    except Exception as error:  # noqa: BLE001 (whatever a killed server makes the client raise)
        status = getattr(getattr(error, "response", None), "status_code", "")
        ledger.count(f"{what} failed")
        ledger.count(f"{what} failed: {type(error).__name__} {status}".strip())
        time.sleep(0.2)
    return False


def main() -> None:
    url, seconds, first, last, path, card = sys.argv[1:]
    tokens = sys.stdin.read().split()
    ledger, deadline = Ledger(Path(path)), time.monotonic() + float(seconds)
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    threads = [
        threading.Thread(target=client, args=(number, token, url, deadline, ledger, Path(card)), daemon=True)
        for number, token in zip(range(int(first), int(last)), tokens, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline + HANG_SECONDS - time.monotonic()))
    for thread in threads:
        if thread.is_alive():
            frame = sys._current_frames().get(thread.ident or 0)
            where = "".join(traceback.format_stack(frame)[-40:]) if frame else "nowhere"
            ledger.fault(f"a client hung for {HANG_SECONDS} s after the end: {where}")
    ledger.close()
    sys.stdout.flush()
    os._exit(0)  # threads that hang must not keep it


if __name__ == "__main__":
    main()
