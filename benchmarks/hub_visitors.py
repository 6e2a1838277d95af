"""What one request of an anonymous visitor costs a hub: processor time, memory and bytes of the worker.

    python -m benchmarks.hub_visitors --cards 3000 --json

A hub is filled (benchmarks/hub_seeding.py) and gets the extremes that it accepts, or accepted once: repositories of
10,000 files, long descriptions, metadata and lists of tags, READMEs that are hard to render, 100 commits, 1,000 tags.
`kcard hub serve --workers 1` is started on it, and every request is sent three times without a token. Columns:
milliseconds of processor time of the first request and of the dearest of the others, MB by which the worker's peak
memory grew during all three, kB of the response. The last lines flood the worker with eight clients at once, and show
the whole peak. Linux only.
"""

import argparse
import functools
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from sqlalchemy import select, update

from benchmarks.hub_scale import served
from benchmarks.hub_seeding import seed
from kcard.hub.accounts.identity import Identity
from kcard.hub.records.repository_tables import repositories, versions
from kcard.hub.repositories.file_entries import git_oid
from kcard.hub.repositories.values import Add, Commit, Entry, Repository
from kcard.hub.shared import SharedHub
from kcard.hub.store.disk import partial_folder

FILES, WIDE = 9990, 60  # files of a wide repository, and how many there are
COMMITS, TAGS = 100, 1000
RESTART_SECONDS = 15
SLOW_MS = 2000  # a request that took longer is not repeated
TICKS = os.sysconf("SC_CLK_TCK")
MB = 1e6
READMES = {
    "pictures": "![" * 50_000,
    "brackets": "[" * 100_000,
    "links": "[a](" * 25_000,
    "emphasis": "*a _b " * 17_000,
    "quotes": "> " * 50_000,
    "tables": "|" * 3000 + "\n" + "|-" * 3000 + "\n" + "|a\n" * 20_000,
    "html": "<b><p>" * 1400,
    "long": "A line of *text* with a [link](https://example.org).\n\n" * 70_000,
    "entities": "&amp;" * 20_000,
    "ticks": "".join("`" * n + " " for n in range(1, 400)),
}
FRONTS = {
    "numbers": "a: [" + "1," * 250_000 + "]",
    "keys": "\n".join(f"k{n}: 1" for n in range(45_000)),
    "dates": "a: [" + "2024-01-02," * 45_000 + "]",
    "nested": "a: [" + ("[" * 20 + "]" * 20 + ",") * 12_000 + "]",
    "one string": "a: " + "x" * 500_000,
}


@dataclass(frozen=True)
class Cost:
    """What a request cost: milliseconds of processor time, MB of memory, kB of the response."""

    what: str
    status: int
    first_ms: float
    next_ms: float
    memory_mb: float
    response_kb: float


@dataclass(frozen=True)
class Worker:
    """The worker process of a server, as the kernel counts it."""

    process: int

    def milliseconds(self) -> float:
        """Of processor time since its start."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / TICKS

    def reset_peak(self) -> None:
        Path(f"/proc/{self.process}/clear_refs").write_text("5")

    def memory(self, field: str) -> float:
        """VmRSS now or VmHWM at the peak, in MB."""
        status = Path(f"/proc/{self.process}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024 / MB


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cards", type=int, default=3000)
    parser.add_argument("--only", default="", help="requests whose name contains this")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hub = SharedHub.open(Path(folder))
        _note("the hub is filled")
        seed(hub.database, hub.blobs, given.cards)
        make_extremes(hub)
        hub.database.close()
        with served(Path(folder), None, 1) as url:
            _note(f"worker at the start: {find_worker().memory('VmRSS'):.0f} MB")
            for cost in costs(url, given.only):
                shown = json.dumps(asdict(cost)) if given.json else line(cost)
                print(shown, flush=True)


def line(cost: Cost) -> str:
    """A row of the table."""
    numbers = f"{cost.first_ms:9.0f}{cost.next_ms:9.0f}{cost.memory_mb:9.1f}{cost.response_kb:10.1f}"
    return f"{cost.what:<40}{cost.status:5}{numbers}"


def costs(url: str, only: str) -> Iterator[Cost]:
    """The cost of each request, then that of floods."""
    requests = {**reads(), **posts()}
    with httpx.Client(base_url=url, timeout=300) as client:
        client.get("/docs")
        for what, ask in requests.items():
            if only in what:
                yield _survived(what, functools.partial(measured, what, functools.partial(ask, client)))
        for what, path in FLOODS.items():
            if only in what:
                yield _survived(what, functools.partial(flooded, what, functools.partial(client.get, path)))


def _survived(what: str, cost: Callable[[], Cost]) -> Cost:
    """The cost, or a status of 0 if the worker was killed because it no longer answered its supervisor."""
    try:
        return cost()
    except (httpx.TransportError, OSError):
        time.sleep(RESTART_SECONDS)
        return Cost(what, 0, 0, 0, 0, 0)


def measured(what: str, ask: Callable[[], httpx.Response]) -> Cost:
    """The cost of up to three equal requests."""
    worker = find_worker()
    worker.reset_peak()
    before = worker.memory("VmRSS")
    times: list[float] = []
    while len(times) < 3 and sum(times) < SLOW_MS:
        began = worker.milliseconds()
        answer = ask()
        times.append(worker.milliseconds() - began)
    grown = worker.memory("VmHWM") - before
    return Cost(
        what,
        answer.status_code,
        times[0],
        max(times[1:] or times),
        round(grown, 1),
        len(answer.content) / 1e3,
    )


def flooded(what: str, ask: Callable[[], httpx.Response]) -> Cost:
    """40 requests of eight clients at once; the memory is the worker's whole peak."""
    worker = find_worker()
    worker.reset_peak()
    began = worker.milliseconds()
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda _: ask(), range(40))]
    each = (worker.milliseconds() - began) / len(answers)
    peak, last = worker.memory("VmHWM"), answers[-1]
    return Cost(f"flood: {what}", last.status_code, each, each, round(peak, 1), len(last.content) / 1e3)


FLOODS = {
    "list, full, widest": "/api/models?full=1&author=wide&limit=100",
    "info, 10,000 files": "/api/models/wide/w0?blobs=1",
    "list, cardData, largest": "/api/models?cardData=1&limit=1000&sort=createdAt&direction=1",
    "README of pictures": "/odd/pictures",
}


def reads() -> dict[str, Callable[[httpx.Client], httpx.Response]]:
    big, old = "/api/models/wide/w0", "/api/models/odd/numbers"
    words = "+".join(f"{a}{b}" for a in "abcd" for b in "aeiou")
    paths = {
        "probe": "/healthz",
        "probe, deep": "/healthz?deep=1",
        "openapi.json": "/openapi.json",
        "page of the API": "/docs",
        "list, 1000": "/api/models?limit=1000",
        "list, 1000, long descriptions": "/api/models?limit=1000&sort=createdAt&direction=1",
        "list, 1000, cardData, largest": "/api/models?limit=1000&cardData=1&sort=createdAt&direction=1",
        "list, 1000, search of 20 words": f"/api/models?limit=1000&search={words}",
        "list, 1000, search of a letter": "/api/models?limit=1000&search=a",
        "list, 1000, search of 3 letters": "/api/models?limit=1000&search=a+b+c",
        "list, 1000, two tags": "/api/models?limit=1000&filter=license:mit&filter=en",
        "list, 1000, gated": "/api/models?limit=1000&gated=1",
        "list, full": "/api/models?full=1&limit=100&sort=createdAt&direction=-1",
        "list, full, widest": "/api/models?full=1&author=wide&limit=100",
        "list, config, widest": "/api/models?config=1&author=wide&limit=100",
        "list, expand siblings, widest": "/api/models?expand=siblings&author=wide&limit=100",
        "page: list": "/",
        "page: list, long descriptions": "/?author=lab2&sort=createdAt",
        "page: list, search": "/?q=a",
        "info": "/api/models/odd/long",
        "info, 10,000 files": big,
        "info, 10,000 files, blobs": f"{big}?blobs=1&securityStatus=1",
        "info, revision of many numbers": f"{old}/revision/before",
        "tree, 10,000 files, recursive": f"{big}/tree/main?recursive=1",
        "tree, 10,000 files, last page": f"{big}/tree/main?recursive=1&cursor=9500",
        "tree, 10,000 files, expand": f"{big}/tree/main?recursive=1&expand=1",
        "tree, one folder": f"{big}/tree/main/f1",
        "refs, 1000 tags": "/api/models/odd/tagged/refs",
        "commits": f"{big}/commits/main?limit=1000",
        "commits, page 1,000,000": f"{big}/commits/main?p=1000000",
        "revision, abbreviated": f"{big}/revision/0000000",
        "download, 10,000 files": "/wide/w0/resolve/main/f1/g1/h1/file-1.txt",
        "page: 10,000 files": "/wide/w0",
        "page: 1000 tags": "/odd/tagged",
        **{f"page: README, {name}": f"/odd/{name}" for name in READMES},
        "no such repository": "/api/models/a/b",
        "no such page": "/a/b/c/d/e",
    }
    return {what: functools.partial(_get, path=path) for what, path in paths.items()}


def posts() -> dict[str, Callable[[httpx.Client], httpx.Response]]:
    every = [f"f{n % 10}/g{n % 100}/h{n % 1000}/file-{n}.txt" for n in range(1000)]
    objects = [{"oid": hashlib.sha256(b"%d" % n).hexdigest(), "size": n} for n in range(1000)]
    bodies: dict[str, tuple[str, object]] = {
        "paths-info, 1000": ("/api/models/wide/w0/paths-info/main", {"paths": every}),
        "paths-info, 1000, expand": (
            "/api/models/wide/w0/paths-info/main",
            {"paths": every, "expand": True},
        ),
        "lfs batch, 1000": (
            "/wide/w0.git/info/lfs/objects/batch",
            {"operation": "download", "objects": objects},
        ),
        "body: many lists": ("/wide/w0.git/info/lfs/objects/batch", [[]] * 1_000_000),
        **{
            f"validate-yaml: {name}": ("/api/validate-yaml", {"content": f"---\n{front}\n---\n"})
            for name, front in FRONTS.items()
        },
        "validate-yaml: 9 kB": ("/api/validate-yaml", {"content": "---\na: [" + "1," * 4400 + "]\n---\n"}),
    }
    return {
        what: functools.partial(_post, path=path, body=json.dumps(body, separators=(",", ":")).encode())
        for what, (path, body) in bodies.items()
    }


def _get(client: httpx.Client, path: str) -> httpx.Response:
    return client.get(path)


def _post(client: httpx.Client, path: str, body: bytes) -> httpx.Response:
    return client.post(path, content=body, headers={"Content-Type": "application/json"})


def make_extremes(hub: SharedHub) -> None:
    """The namespaces wide and odd, and rows as older versions of the hub accepted them."""
    for name in ("wide", "odd"):
        hub.accounts.add_user(name)
    _widen(hub, _by(hub, "wide"))
    by = _by(hub, "odd")
    for name, text in READMES.items():
        _commit(hub, _create(hub, by, name), {"README.md": text.encode()}, by)
    tagged = _create(hub, by, "tagged")
    sha = _commit(hub, tagged, {"README.md": b"# Tagged\n"}, by).sha
    for number in range(TAGS):
        hub.refs.create_tag(tagged, f"t{number}", sha)
    numbers = _create(hub, by, "numbers")
    front = "a: [" + "1," * 8000 + "]"
    sha = _commit(hub, numbers, {"README.md": f"---\n{front}\n---\n".encode()}, by).sha
    hub.refs.create_branch(numbers, "before", sha)
    _commit(hub, numbers, {"README.md": b"# Short\n"}, by)
    _lengthen(hub)


def _widen(hub: SharedHub, by: Identity) -> None:
    paths = [f"f{n % 10}/g{n % 100}/h{n % 1000}/file-{n}.txt" for n in range(FILES)]
    for number in range(WIDE):
        repository = _create(hub, by, f"w{number}")
        _commit(hub, repository, dict.fromkeys(paths, b"x\n"), by)
    for number in range(COMMITS):
        _commit(hub, hub.repositories.get("model", "wide/w0"), {"README.md": b"%d\n" % number}, by)


def _lengthen(hub: SharedHub) -> None:
    """Descriptions of 20 kB and tags of 50 kB in 1000 cards, metadata of 400 kB in 200."""
    tags = json.dumps([f"{n:>0100}" for n in range(500)])
    card = json.dumps({"results": [{"n": n} for n in range(40_000)]})
    with hub.database.write() as connection:
        oldest = list(
            connection.scalars(select(repositories.c.id).order_by(repositories.c.created).limit(1000))
        )
        connection.execute(
            update(versions).where(versions.c.repository_id.in_(oldest)).values(description="long " * 4000)
        )
        connection.execute(update(repositories).where(repositories.c.id.in_(oldest)).values(tags=tags))
        connection.execute(update(repositories).where(repositories.c.id.in_(oldest[:200])).values(card=card))


def _by(hub: SharedHub, name: str) -> Identity:
    identity = hub.tokens.identify(hub.tokens.create(name))
    assert identity is not None
    return identity


def _create(hub: SharedHub, by: Identity, name: str) -> Repository:
    return hub.repositories.create("model", by.account_id, f"{by.name}/{name}", by=by)


def _commit(hub: SharedHub, repository: Repository, files: Mapping[str, bytes], by: Identity) -> Commit:
    contents = {hashlib.sha256(content).hexdigest(): content for content in set(files.values())}
    with partial_folder(hub.blobs.partial) as scratch:
        for sha256, content in contents.items():
            (scratch / sha256).write_bytes(content)
        hub.uploads.store_all(by.account_id, [(scratch / s, s, len(c)) for s, c in contents.items()])
    added = [
        Add(Entry(path, git_oid(content), hashlib.sha256(content).hexdigest(), len(content), lfs=False))
        for path, content in files.items()
    ]
    return hub.commits.add(repository, "main", added, parent=None, title="Files", message="", identity=by)


def find_worker() -> Worker:
    """The largest of the server's processes that is not its supervisor."""
    mine = os.getpid()
    server = next(pid for pid in _children(mine) if _children(pid))
    return max((Worker(pid) for pid in _children(server)), key=lambda worker: worker.memory("VmRSS"))


def _children(process: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def _note(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
