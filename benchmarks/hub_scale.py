"""Response times of a served hub with many cards: the huggingface_hub client, over HTTP, on both databases.

    python -m benchmarks.hub_scale --cards 100000 --json

Each database is filled (benchmarks/hub_seeding.py) and served by `kcard hub serve`; one client sends requests one after
the other: list (20 cards, sorted by four criteria in turn), search (20 cards with a common word, or the one with a rare
word, in turn), tags (20 cards with two tags), info (one card). Then it opens pages like a browser: home (the newest),
page search (a common or a rare word, in turn), page facets (two facets, or a word and a facet, in turn; with all
counts), card. PostgreSQL runs in a temporary cluster. Times are wall milliseconds of the client's call. "empty" is a
route with a constant response behind the same middleware (/healthz); the ratios to its median show the cost of a
request beyond HTTP, and are comparable between machines.
"""

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from tests.hub.postgres import running

from benchmarks.hub_seeding import BASES, Seeded, seed
from kcard.hub.registry import Hub

PAGE = 20
SORTS = ("last_modified", "created_at", "downloads", "likes")
WARM_UP = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cards", type=int, default=100_000)
    parser.add_argument("--calls", type=int, default=200, help="of each kind")
    parser.add_argument("--workers", type=int, default=1, help="processes of the server")
    parser.add_argument("--only", choices=("sqlite", "postgresql"), help="measure one of the two")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    os.environ.pop("HF_TOKEN", None)
    figures = {}
    for name in ("sqlite", "postgresql"):
        if args.only in (None, name):
            _note(f"{name}: {args.cards} cards go in")
            figures[name] = measured(name, args.cards, args.calls, args.workers)
    if args.json:
        print(json.dumps(figures))
        return
    for name, times in figures.items():
        print(name)
        for what, milliseconds in times.items():
            print(f"  {what:<16}{milliseconds:9.2f}")


def measured(name: str, count: int, calls: int, workers: int) -> dict[str, float]:
    """Milliseconds of each kind of question, on one database."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with _database_url(name) as url:
            hub = Hub(home, database_url=url)
            seeded = seed(hub.database, hub.blobs, count)
            hub.database.close()
            _note(f"{name}: the server starts")
            with served(home, url, workers) as address:
                return _time_requests(address, seeded, calls)


@contextmanager
def _database_url(name: str) -> Iterator[str | None]:
    if name == "sqlite":
        yield None
        return
    with running() as cluster:
        yield cluster.create()


@contextmanager
def served(home: Path, database_url: str | None, workers: int) -> Iterator[str]:
    """The address of a server on that database, which stops at the end."""
    options = ["--port", "0", "--workers", str(workers)]
    options += ["--database-url", database_url] if database_url else []
    program = [sys.executable, "-m", "kcard", "hub", "serve", *options]
    environment = {**os.environ, "KCARD_HOME": str(home)}
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if line.startswith("serving on "):
                yield line.removeprefix("serving on ").strip()
                return
        raise RuntimeError(f"the server did not start:\n{(home / 'server.log').read_text()[-2000:]}")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        server.stdout.close()


def _time_requests(address: str, seeded: Seeded, calls: int) -> dict[str, float]:
    from huggingface_hub import HfApi
    from huggingface_hub.utils._http import get_session

    api, session = HfApi(endpoint=address, token=False), get_session()
    words = [*itertools.chain(*zip(itertools.cycle(seeded.common), seeded.rare, strict=False))]
    questions: dict[str, tuple[Callable[..., object], Sequence[object]]] = {
        "empty": (lambda path: session.get(f"{address}{path}").raise_for_status(), ("/healthz",)),
        "list": (lambda sort: list(api.list_models(sort=sort, limit=PAGE)), SORTS),
        "search": (lambda word: list(api.list_models(search=word, limit=PAGE)), words),
        "tags": (lambda pair: list(api.list_models(filter=[*pair], limit=PAGE)), seeded.pairs),
        "info": (api.model_info, seeded.names),
    }
    browser = httpx.Client(base_url=address, headers={"Accept": "text/html"}, timeout=60)
    narrowed = [
        *itertools.chain(
            *zip(
                ({"licence": "mit", "language": language} for language in ("en", "de", "fr")),
                ({"q": word, "kind": "both"} for word in seeded.common),
                ({"factuality": "0.7", "base": base} for base in BASES),
                strict=False,
            )
        )
    ]

    def opened(path: str, **query: str) -> None:
        browser.get(path, params=query).raise_for_status()

    questions |= {
        "page home": (lambda page: opened("/", page=str(page)), range(1, 20)),
        "page search": (lambda word: opened("/", q=str(word)), words),
        "page facets": (lambda query: opened("/", **query), narrowed),
        "page card": (lambda name: opened(f"/{name}"), seeded.names),
    }
    seconds: dict[str, float] = {}
    for what, (ask, things) in questions.items():
        times = _times(ask, things, calls)
        what = what.replace(" ", "_")
        seconds[f"{what}_p50_ms"] = round(statistics.median(times), 2)
        seconds[f"{what}_p99_ms"] = round(times[min(len(times) - 1, int(0.99 * len(times)))], 2)
        if what != "empty":
            seconds[f"{what}_to_empty"] = round(seconds[f"{what}_p50_ms"] / seconds["empty_p50_ms"], 2)
    return seconds


def _times(ask: Callable[..., object], things: Sequence[object], calls: int) -> list[float]:
    """Milliseconds of each call, sorted; the first ones, which warm up, are left out."""
    times = []
    for number, thing in zip(range(calls + WARM_UP), itertools.cycle(things), strict=False):
        began = time.perf_counter()
        ask(thing)
        if number >= WARM_UP:
            times.append((time.perf_counter() - began) * 1000)
    return sorted(times)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
