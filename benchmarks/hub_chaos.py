"""Whether a shared hub keeps what it said it has, while its processes and its database are killed at random.

    python -m benchmarks.hub_chaos --seconds 120 --clients 32 --json

Real clients (huggingface_hub) commit, tag, pull, search and publish
cards at once, on loopback only, each with a quota and a rate limit. Meanwhile workers, job workers and their children
get SIGKILL, PostgreSQL is stopped as by a crash and started again, and `gc` runs over and over. Then the queue of jobs
gets `--grace` seconds to empty.

Afterwards every commit that is there is read whole: no acknowledged one may be missing, none may be half there, every
sha256 must be right, and a backup must restore. Tags and publications must be there, every version must have one job
and one exam, the counters of quotas must equal a recount, the search must find every repository, and no process and no
reservation may be left. Ends with status 1 where anything is wrong.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.hub.postgres import Cluster, running

from benchmarks import hub_chaos_records as records
from benchmarks.hub_chaos_kills import Chaos, left
from benchmarks.serving import Server, serving

__all__: list[str] = []

PROCESSES = 4
CLIENT = Path(__file__).with_name("hub_chaos_client.py")
LARGE, SMALL = "model.safetensors", "round.json"
UPLOADS = {LARGE, SMALL}
CORPUS = Path(__file__).resolve().parents[1] / "demo" / "corpora" / "moons"
QUOTA = "100GB"  # never reached: with one, uploads are reserved
ORPHAN_SECONDS = 60.0  # a check of content whose worker died ends after half a minute


def clean(home: Path, database: str | None, stopped: threading.Event, failed: list[str]) -> None:
    """Run gc over and over beside the clients; that the database is away at times is no fault of it."""
    from kcard.errors import KcardError, Unavailable
    from kcard.hub.registry import Hub

    while not stopped.wait(2):
        try:
            hub = Hub(home, database_url=database)
            hub.gc()
            hub.database.close()
        except Unavailable:
            continue
        except KcardError as error:
            failed.append(f"gc: {error}")


def trained(scratch: Path) -> Path:
    """The folder of a small card of passages, which clients publish."""
    home = scratch / "author"
    command = [sys.executable, "-m", "kcard", "train", "--corpus", str(CORPUS), "--kind", "retrieval"]
    subprocess.run(command, env=os.environ | {"KCARD_HOME": str(home)}, check=True, capture_output=True)
    return home / "drafts" / CORPUS.name


def clients(server: Server, seconds: float, count: int, scratch: Path, card: Path) -> list[dict[str, Any]]:
    """Let the clients work; the lines of their ledgers."""
    started = []
    for part in range(PROCESSES):
        first, last = count * part // PROCESSES, count * (part + 1) // PROCESSES
        tokens = [server.token(f"client{number}") for number in range(first, last)]
        ledger = scratch / f"ledger{part}"
        command = [sys.executable, str(CLIENT), server.url, str(seconds), str(first), str(last), str(ledger)]
        command.append(str(card))
        environment = client_environment(server, scratch / f"hf{part}")
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, env=environment, stdout=sys.stderr, stderr=subprocess.DEVNULL
        )
        assert process.stdin is not None
        process.stdin.write("\n".join(tokens).encode())
        process.stdin.close()
        started.append((process, ledger))
    lines = []
    for process, ledger in started:
        if process.wait(seconds + 180) != 0:
            lines.append({"fault": f"a process of clients ended with {process.returncode}"})
        text = ledger.read_text(encoding="utf-8") if ledger.exists() else ""
        lines += [json.loads(line) for line in text.splitlines()]
    return lines


def client_environment(server: Server, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "KCARD_"))}
    ours = {"HF_HOME": str(home), "HF_ENDPOINT": server.url, "HF_HUB_DISABLE_TELEMETRY": "1"}
    ours |= {
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": "15",
        "HF_HUB_ETAG_TIMEOUT": "15",
    }
    return kept | ours


def names(lines: list[dict[str, Any]]) -> set[str]:
    """The repositories of which anything was acknowledged."""
    kinds = ("acknowledged", "tagged", "published")
    return {line[kind]["repository"] for line in lines for kind in kinds if kind in line}


def verified(server: Server, acknowledged: list[dict[str, Any]], faults: list[str]) -> int:
    """Read every commit of every repository over HTTP, by its owner; how many files were read."""
    import httpx

    expected = {(row["repository"], row["sha"]): row for row in acknowledged}
    found, read = set(), 0
    tokens: dict[str, str] = {}
    with httpx.Client(base_url=server.url, timeout=60) as http:

        def ask(path: str) -> Any:
            return http.get(path).raise_for_status().json()

        for model in ask("/api/models?limit=1000"):
            name = model["id"]
            owner = name.partition("/")[0]
            if owner not in tokens:
                tokens[owner] = server.token(owner)
            http.headers["Authorization"] = f"Bearer {tokens[owner]}"  # each account has a rate limit
            for commit in ask(f"/api/models/{name}/commits/main?limit=1000"):
                sha = commit["id"]
                found.add((name, sha))
                tree = [
                    e for e in ask(f"/api/models/{name}/tree/{sha}?recursive=true") if e["type"] == "file"
                ]
                bodies = {}
                for entry in tree:
                    answer = http.get(f"/{name}/resolve/{sha}/{entry['path']}", follow_redirects=True)
                    if answer.status_code != 200:
                        faults.append(f"{name}@{sha}: {entry['path']} is answered with {answer.status_code}")
                        continue
                    bodies[entry["path"]] = answer.content
                    read += 1
                    oid = entry.get("lfs", {}).get("oid")
                    if oid not in {None, hashlib.sha256(answer.content).hexdigest()}:
                        faults.append(f"{name}@{sha}: {entry['path']} does not have its sha256")
                faults.extend(_wrong(name, sha, bodies, expected.get((name, sha))))
    faults.extend(f"{name}@{sha} was acknowledged and is not there" for name, sha in expected.keys() - found)
    return read


def _wrong(name: str, sha: str, bodies: dict[str, bytes], expected: dict[str, Any] | None) -> Iterator[str]:
    """What is wrong with one commit; every commit but a repository's first has both files, of one round."""
    digests = {path: hashlib.sha256(body).hexdigest() for path, body in bodies.items()}
    if expected is not None:
        for path, sha256 in expected["files"].items():
            if digests.get(path) != sha256:
                yield f"{name}@{sha}: {path} is not what was sent"
    there = UPLOADS & bodies.keys()
    if there and there != UPLOADS:
        yield f"{name}@{sha} is half there: {sorted(bodies)}"
    if there == UPLOADS:
        large = bodies[LARGE]
        header = json.loads(large[8 : 8 + int.from_bytes(large[:8], "little")])
        if int(header["__metadata__"]["round"]) != json.loads(bodies[SMALL])["round"]:
            yield f"{name}@{sha} mixes two rounds"


def restored(home: Path, database: str | None, scratch: Path, faults: list[str]) -> int:
    """Blobs that a backup brings back into a new hub; each one is read."""
    from kcard.hub.registry import Hub
    from kcard.hub.store.blobs import fault

    hub, other = Hub(home, database_url=database), Hub(scratch / "restored")
    other.restore(hub.backup(scratch / "hub.tar"))
    count = 0
    for sha256 in other.blobs:
        count += 1
        if what := fault(other.blobs, sha256):
            faults.append(f"restored blob {sha256} is {what}")
    hub.database.close()
    return count


@contextmanager
def stage(
    kind: str, workers: int, job_workers: int, scratch: Path
) -> Iterator[tuple[Server, Cluster | None, str | None]]:
    """A server, and the PostgreSQL cluster behind it."""
    with ExitStack() as stack:
        cluster = stack.enter_context(running()) if kind == "postgresql" else None
        database = None if cluster is None else cluster.create()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        url = f"http://127.0.0.1:{port}"  # given, rate limits hold on loopback
        options = ("--port", str(port), "--url", url, "--quota", QUOTA, "--log-format", "json")
        server = serving(scratch / "home", database, workers, job_workers, options)
        yield stack.enter_context(server), cluster, database


def consistent(
    home: Path, database: str | None, lines: list[dict[str, Any]], faults: list[str]
) -> dict[str, int]:
    """Check the database; how many jobs are in each state."""
    from kcard.hub.registry import Hub

    hub = Hub(home, database_url=database)
    try:
        for kind in ("tagged", "published"):
            tags = [line[kind] for line in lines if kind in line]
            records.check_tags(hub, tags, kind == "published", faults)
        records.check_usage(hub, faults)
        records.check_search(hub, names(lines), faults)
        return records.check_jobs(hub, faults)
    finally:
        hub.database.close()


def statuses(log: Path) -> Counter[int]:
    """How often the server answered with each status, by its log."""
    found: Counter[int] = Counter()
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("{") and '"status"' in line:
            try:
                found[json.loads(line)["status"]] += 1
            except (ValueError, KeyError):  # a worker was killed while it wrote
                continue
    return found


def measured(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    faults: list[str] = []
    card = trained(scratch)
    with stage(arguments.database, arguments.workers, arguments.job_workers, scratch) as found:
        server, cluster, database = found
        chaos = Chaos(arguments.seconds, server, cluster, random.Random(arguments.seed))
        threads = [
            threading.Thread(target=chaos.run),
            threading.Thread(target=clean, args=(server.home, database, chaos.stopped, faults)),
        ]
        for thread in threads:
            thread.start()
        try:
            lines = clients(server, arguments.seconds, arguments.clients, scratch, card)
        finally:
            chaos.stopped.set()
            for thread in threads:
                thread.join()
        server.wait()
        answers = statuses(server.home.with_name("serve.log"))
        waited = records.settled(server.home, database, arguments.grace)
        faults += [f"orphan {process}" for process in left(scratch, server.process.pid, ORPHAN_SECONDS)]
        faults += [line["fault"] for line in lines if "fault" in line]
        acknowledged = [line["acknowledged"] for line in lines if "acknowledged" in line]
        jobs = consistent(server.home, database, lines, faults)
        read = verified(server, acknowledged, faults)
        blobs = restored(server.home, database, scratch, faults)
    faults += [f"after the end: {process}" for process in left(scratch, None, ORPHAN_SECONDS)]
    counts = sum((Counter(line.get("counts", {})) for line in lines), Counter[str]())
    return {
        "database": arguments.database,
        "clients": arguments.clients,
        "seconds": arguments.seconds,
        "killed": dict(chaos.killed),
        "acknowledged": len(acknowledged),
        "tags": sum("tagged" in line for line in lines),
        "publications": sum("published" in line for line in lines),
        "jobs": jobs,
        "grace": round(waited),
        "files read afterwards": read,
        "blobs restored": blobs,
        "counts": dict(counts),
        "statuses": dict(answers),
        "share of 503": round(answers[503] / max(1, answers.total()), 4),
        "faults": faults,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--job-workers", type=int, default=2)
    parser.add_argument("--grace", type=float, default=300, help="seconds for the queue of jobs to empty")
    parser.add_argument("--database", choices=["postgresql", "sqlite"], default="postgresql")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="a file for the server's log")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kcard-chaos-") as folder:
        try:
            found = measured(arguments, Path(folder))
        finally:
            if arguments.log is not None:
                shutil.copyfile(Path(folder) / "serve.log", arguments.log)
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        for key, value in found.items():
            print(f"{key:<22} {value}")
    return 1 if found["faults"] or not found["acknowledged"] else 0


if __name__ == "__main__":
    sys.exit(main())
