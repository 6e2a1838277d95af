"""A pool of ten thousand cards: time to choose among them, memory, and time to the first answer.

    python -m benchmarks.many_cards [--cards 10000] [--runs 5] [--home FOLDER] [--json]

The pool is three retrieval cards of demo/corpora among cards with synthetic descriptions and the files of a small card,
which are published in bulk but otherwise ordinary. Each run is a process of its own:

    few       `kcard ask` with the three cards
    first     `kcard ask --cards pool:all`, before any description is cached
    again     the same, with cached descriptions

`warm` is one process that chooses cards for many questions: it embeds the question and finds the nearest cards.
`--home` stores the hub for the next run.
"""

import argparse
import functools
import hashlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kcard.manifest import MANIFEST, Manifest

DEMO = Path(__file__).resolve().parents[1] / "demo" / "corpora"
REAL = {
    "midterms-2022": "winners of the 2022 U.S. midterm elections: House, Senate and governors",
    "nobel-prizes": "Nobel prizes: who won which prize in which year, and what for",
    "moons": "moons of the solar system: planets, discoverers and years of discovery",
}
QUESTION = "Who discovered the moon Phoebe?"
WHAT = [
    "history",
    "medicine",
    "law",
    "music",
    "cooking",
    "farming",
    "weaving",
    "shipping",
    "mining",
    "chess",
    "botany",
    "geology",
    "poetry",
    "banking",
    "railways",
    "bridges",
    "dialects",
    "festivals",
    "insects",
    "birds",
    "fishing",
    "pottery",
    "newspapers",
    "schools",
    "sports",
]
WHERE = [
    "Peru",
    "Norway",
    "Ghana",
    "Japan",
    "Texas",
    "Wales",
    "Bavaria",
    "Chile",
    "Kenya",
    "Nepal",
    "Cuba",
    "Iran",
    "Quebec",
    "Crete",
    "Fiji",
    "Laos",
    "Malta",
    "Oman",
    "Sicily",
    "Utah",
]
SIDE = [
    "laws and courts of",
    "people in",
    "tools of",
    "prices in",
    "women in",
    "dates in",
    "firsts in",
    "disputes about",
    "teachers of",
    "books on",
    "words of",
    "places of",
    "losses in",
    "machines of",
    "customs of",
    "unions in",
    "maps of",
    "rules of",
    "taxes on",
    "myths of",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cards", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--home", type=Path, help="folder for the hub (default: a temporary one)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = (args.home or Path(scratch)).resolve()
        os.environ |= {"KCARD_HOME": str(home), "HF_HUB_OFFLINE": "1"}
        if not (home / "hub" / "hub.db").exists():
            fill(home, args.cards)
        report = {"cards": args.cards, "few": time_questions(args.runs, ",".join(REAL))}
        shutil.rmtree(home / "cache", ignore_errors=True)
        report |= {"first": time_questions(1, "pool:all"), "again": time_questions(args.runs, "pool:all")}
        report |= {"bottom_up": time_questions(args.runs, "pool:all", "--mode", "bottom-up")}
        report["warm"] = json.loads(
            subprocess.run(
                [sys.executable, "-c", WARM], check=True, capture_output=True, text=True
            ).stdout.splitlines()[-1]
        )
    print(json.dumps(report) if args.json else table(report))


def time_questions(runs: int, cards: str, *options: str) -> dict[str, Any]:
    """Medians of whole processes: seconds until the answer is printed, and the most memory they held."""
    command = [sys.executable, "-m", "kcard", "ask", QUESTION, "--cards", cards, "--gate", "always", "--json"]
    results = [_process([*command, *options]) for _ in range(runs)]
    return {
        "seconds": round(statistics.median(row[0] for row in results), 3),
        "megabytes": round(statistics.median(row[1] for row in results)),
        "wrote": len(results[0][2]["cards"]),
        "answer": results[0][2]["answer"],
        "notes": results[0][2].get("notes", []),
    }


def _process(command: list[str]) -> tuple[float, float, Any]:
    with tempfile.TemporaryFile("w+") as out:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        out.seek(0)
        text = out.read()
    if status:
        raise SystemExit(f"{' '.join(command)} exited with status {os.waitstatus_to_exitcode(status)}")
    return seconds, used.ru_maxrss / 1000, json.loads(text)


# A process of its own, so that the memory is that of choosing alone.
WARM = """
import json, resource, statistics, time
from kcard import cache as embeddings
from kcard.hub.registry import Hub
from kcard.integrators.card_ranking import CardRanker
from kcard.types import Choice
from kcard.selectors.relevance import MiniLMRelevance

def seconds(work):
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found

selecting, chosen = seconds(lambda: Hub().select(["pool:all"]))
manifests = [version.manifest for version in chosen.versions]
cards = [Choice(m.name, m.description, m.knowledge_date) for m in manifests]
nearest = CardRanker(MiniLMRelevance(), cards)
embeddings.embed(["What is it?"])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
preparing, _ = seconds(lambda: nearest("What is it?", 20))
held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
questions = [f"Which {a} was the {b} in {c}?" for a in ("moon", "bird", "bridge", "law", "prize")
             for b in ("first", "largest", "12th", "best") for c in ("Peru", "1874", "Crete", "Texas", "2022")]
rows = []
for question in questions:
    reading, _ = seconds(lambda: embeddings.embed([question]))
    finding, _ = seconds(lambda: nearest(question, 20))
    rows.append((reading, finding))
def told(values):
    values = sorted(values)
    high = values[int(0.95 * len(values))]
    return {"median_ms": round(1000 * statistics.median(values), 3), "p95_ms": round(1000 * high, 3)}
print(json.dumps({"selection_from_hub_s": round(selecting, 3), "preparing_s": round(preparing, 3),
    "megabytes": round(held / 1000), "questions": len(questions),
    "embedding": told([a for a, _ in rows]), "nearest": told([b for _, b in rows])}))
"""


def fill(home: Path, count: int) -> None:
    """The three cards, and others up to `count`, in a pool `all`."""
    import kcard
    from kcard.hub.registry import Hub

    hub = Hub()
    for name, description in REAL.items():
        draft = home / "made" / name
        kcard.train(
            DEMO / name,
            kind="retrieval",
            name=name,
            description=description,
            evidence="passages",
            output=draft,
        )
        kcard.publish(draft)
    (home / "small.txt").write_text("\n".join(f"Nobody knows what stone {n} weighs." for n in range(20)))
    small = kcard.train(home / "small.txt", kind="retrieval", output=home / "made" / "small", description="x")
    hub.publish(small.folder)
    names = [*REAL, *_copy(hub, small.manifest, count - len(REAL))]
    shutil.rmtree(home / "made")
    hub.remove("small")
    _pool(hub, names)


def _copy(hub: Any, manifest: Manifest, count: int) -> Iterator[str]:
    """Publish the card under other names; its files are in the hub already."""
    from kcard.hub.publications import LocalCards
    from kcard.hub.storage import Blob

    sizes, own_cards = dict(hub.blobs.sizes()), LocalCards(hub.database, hub.blobs)
    topics = itertools.islice(itertools.product(WHAT, WHERE, SIDE), count)
    with tempfile.TemporaryDirectory() as scratch:
        for number, (what, where, side) in enumerate(topics):
            copy = replace(manifest, name=f"card-{number}", description=f"{side} {what} in {where}")
            text = copy.to_json()
            path = Path(scratch) / MANIFEST
            path.write_text(text, encoding="utf-8")
            sealed = hub.blobs.put(path, hashlib.sha256(text.encode()).hexdigest())
            blobs = {name: Blob(sha256, sizes[sha256]) for name, sha256 in manifest.files.items()}
            blobs[MANIFEST] = sealed
            own_cards.add(text, blobs, (), functools.partial(_read, hub, blobs), lambda: None)
            yield copy.name


def _read(hub: Any, blobs: Mapping[str, Any], path: str) -> bytes:
    return b"".join(hub.blobs.read(blobs[path].sha256))


def _pool(hub: Any, names: list[str]) -> None:
    """One pool of all of them, in bulk: adding them one by one takes minutes."""
    from sqlalchemy import insert, select

    from kcard.hub.db.models import PoolMember, StoredPool

    hub.pools.create("all", names[:1])
    with hub.database.write() as connection:
        pool = connection.execute(select(StoredPool.id).where(StoredPool.name == "all")).scalar_one()
        rows = [
            {"pool_id": pool, "card": name, "position": place, "reference": name}
            for place, name in enumerate(names[1:], 1)
        ]
        connection.execute(insert(PoolMember), rows)


def table(report: dict[str, Any]) -> str:
    lines = [
        f"{report['cards']} cards",
        "",
        "| `kcard ask`, one process | seconds | MB | cards wrote |",
        "|---|---|---|---|",
    ]
    for name in ("few", "first", "again", "bottom_up"):
        row = report[name]
        lines.append(f"| {name} | {row['seconds']:.2f} | {row['megabytes']} | {row['wrote']} |")
    warm = report["warm"]
    lines += [
        "",
        f"warm, {warm['questions']} questions: embedding one {warm['embedding']['median_ms']} ms, nearest of all cards "
        f"{warm['nearest']['median_ms']} ms (p95 {warm['nearest']['p95_ms']} ms); before the first: the hub's "
        f"rows {warm['selection_from_hub_s']} s, descriptions {warm['preparing_s']} s and {warm['megabytes']} MB",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
