"""Kills a process before every effect of every hub operation and looks at what is left.

    python -m tests.hub.kills SCRATCH EVERY [OPERATION ...]

Each operation runs once to learn what it changes (tests/effects.py), then once for every change, in a child that is
killed right before it by SIGKILL, and once after the last. After each kill another process opens the hub and checks
it. Then the same while three other processes publish, remove and clean up in the same hub. Only every EVERY-th kill
is made, of those operations or of all. Prints one JSON object: the kills by operation and effect, and everything that
was wrong.
"""

import functools
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

from kcard.errors import UnknownCard
from kcard.hub import (
    audits,
    pools,  # noqa: F401 (warm for the children)
    publications,
)
from kcard.hub.db import session  # noqa: F401
from kcard.hub.db.models import StoredResult
from kcard.hub.registry import Hub
from kcard.manifest import Manifest, check_files, seal
from kcard.training.output import check_output, replacing_output
from tests.effects import watch

FILES = ("config.json", "extra/notes.txt")
EFFECTS = 40  # that the killed publisher of a crowd has at least


def draft(folder: Path, name: str, text: str) -> Path:
    """A sealed card folder; the hub knows no models, so any files will do."""
    for path in FILES:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"{path} {text}" if path == FILES[0] else path, encoding="utf-8")
    seal(folder, Manifest(name=name, description="Tumours"))
    return folder


def finding(record: str, factuality: float) -> audits.AuditFinding:
    """An audit, as far as the hub reads it."""
    return audits.AuditFinding(
        "minilm", None, "atlas", "ab" * 32, "own corpus", "cd" * 32, 0, 1.0, factuality, record
    )


@dataclass(frozen=True)
class World:
    """One hub with its drafts; every kill gets a copy of its own."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def hub(self) -> Hub:
        return opened(self.home)


@functools.cache
def opened(home: Path) -> Hub:
    """One hub for each process and home: what a child checks, it has opened itself."""
    return Hub(home)


def empty(world: World) -> None:
    draft(world.root / "draft", "oncology", "new")


def filled(world: World) -> None:
    """Two cards, three versions, an alias, snapshots, a pool; a new draft of one of them."""
    hub = world.hub
    hub.publish(draft(world.root / "old", "oncology", "old"), aliases=["stable"])
    hub.publish(draft(world.root / "older", "oncology", "older"))
    hub.publish(draft(world.root / "hearts", "hearts", "hearts"))
    for version in ("oncology@v1", "oncology@v2", "hearts"):
        hub.folder(version)
    hub.pools.create("clinic", ["oncology@v1", "hearts"])
    hub.audits.add(hub.get("oncology@v1"), finding("filled", 0.4))
    hub.quarantine.set(0.3)
    draft(world.root / "draft", "oncology", "new")


def littered(world: World) -> None:
    """Filled, and garbage of every kind: what a removal and a publish leave that were killed."""
    filled(world)
    hub = world.hub
    publications.LocalCards(hub.database, hub.blobs).remove([hub.get("oncology@v2")])
    (world.home / "hub" / "partial" / "killed").mkdir(parents=True)
    (world.home / "hub" / "partial" / "killed" / "blob").write_bytes(b"half")


def meddled(world: World) -> None:
    filled(world)
    (world.hub.folder("hearts") / "config.json").unlink()


def trained(world: World) -> None:
    draft(world.root / "trained", "oncology", "before")


def train(world: World) -> None:
    check_output(world.root / "trained", "oncology")
    with replacing_output(world.root / "trained") as folder:
        draft(folder, "oncology", "after")


def remove(world: World, ref: str) -> None:
    try:
        world.hub.remove(ref)
    except UnknownCard:  # the one that was killed had done it
        world.hub.gc()


def pull(world: World) -> None:
    if (world.root / "pulled" / "kcard.json").exists():
        return
    (world.root / "pulled").mkdir(exist_ok=True)
    world.hub.pull("oncology@v1", world.root / "pulled")


def pool(world: World) -> None:
    hub = world.hub
    if "ward" not in [pool.name for pool in hub.pools.list()]:
        hub.pools.create("ward", ["oncology", "hearts"])


def unpool(world: World) -> None:
    hub = world.hub
    if "hearts" in hub.pools.get("clinic").references:
        hub.pools.remove("clinic", ["hearts"])


def audit(world: World) -> None:
    hub = world.hub
    if "new" not in [stored.finding.record for stored in hub.audits.list()]:
        hub.audits.add(hub.get("hearts"), finding("new", 0.2))


def delete_pool(world: World) -> None:
    hub = world.hub
    if hub.pools.list():
        hub.pools.delete("clinic")


Operation = tuple[Callable[[World], None], Callable[[World], object]]


def evaluated(world: World) -> None:
    """Filled, and a run that has no results yet."""
    filled(world)
    world.hub.runs.create("{}", planned=1)


def evaluate(world: World) -> None:
    runs = world.hub.runs
    runs.append(runs.list()[0].number, {0: StoredResult(record="the result")})


OPERATIONS: dict[str, Operation] = {
    "publish the first card": (empty, lambda w: w.hub.publish(w.root / "draft", aliases=["stable", "best"])),
    "publish a version": (filled, lambda w: w.hub.publish(w.root / "draft", aliases=["stable"])),
    "seal and publish": (filled, lambda w: w.hub.publish(draft(w.root / "draft", "hearts", "again"))),
    "alias": (filled, lambda w: w.hub.alias("oncology@v2", "stable")),
    "remove a version": (filled, lambda w: remove(w, "oncology@v2")),
    "remove a card": (filled, lambda w: remove(w, "oncology")),
    "gc": (littered, lambda w: w.hub.gc()),
    "lay out a changed snapshot": (meddled, lambda w: w.hub.folder("hearts")),
    "pull": (filled, pull),
    "pool": (filled, pool),
    "add to a pool": (filled, lambda w: w.hub.pools.add("clinic", ["oncology@v2", "hearts@v1"])),
    "take out of a pool": (filled, unpool),
    "delete a pool": (filled, delete_pool),
    "audit": (filled, audit),
    "results of a run": (evaluated, evaluate),
    "threshold": (filled, lambda w: w.hub.quarantine.set(0.5)),
    "threshold off": (filled, lambda w: w.hub.quarantine.set(None)),
    "train over a draft": (trained, train),
}


def run(work: Callable[[], object], kill_at: int | None = None, passed: Path | None = None) -> int:
    """Do the work in a child; the status that it ended with."""
    return os.waitpid(start(work, kill_at, passed), 0)[1]


def start(work: Callable[[], object], kill_at: int | None = None, passed: Path | None = None) -> int:
    """A child that does the work, killed before that effect; the effects are noted in a file."""
    child = os.fork()
    if child:
        return child
    code, count = 1, 0

    def reached(point: str) -> None:
        nonlocal count
        if point.endswith(" done"):
            return
        if passed is not None:
            with passed.open("a", encoding="utf-8") as log:
                log.write(point.replace(" ", "-") + "\n")
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    try:
        watch(reached)
        work()
        reached("end")
        code = 0
    except BaseException:  # noqa: BLE001 (whatever it is, the parent is told, and the child ends here)
        traceback.print_exc()
    finally:
        os._exit(code)


def state(world: World) -> object:
    """What a user can find: versions, aliases, pools, and files outside the hub."""
    hub = world.hub
    versions = [v for card in hub.list() for v in hub.versions(card.name)]
    return (
        [(v.reference, v.sha256, v.aliases) for v in versions],
        [(p.name, p.references) for p in hub.pools.list()],
        [(a.reference, astuple(a.finding)) for a in hub.audits.list()],
        [(run.number, run.answered) for run in hub.runs.list()],
        hub.quarantine.threshold,
        (world.root / "pulled" / "kcard.json").exists(),
    )


def check(world: World, allowed: list[object], operation: Callable[[World], object]) -> None:
    """Everything that must hold after a kill; raises AssertionError for what doesn't."""
    hub = world.hub
    assert hub.verify() == [], "damaged"
    whole(world)
    assert state(world) in allowed, f"neither before nor after: {state(world)}"
    clean(world)
    operation(world)
    assert state(world) == allowed[-1], f"repeated: {state(world)}"
    assert hub.verify() == [], "damaged once repeated"
    whole(world)
    clean(world)


def whole(world: World) -> None:
    hub = world.hub
    for card in hub.list():
        for version in hub.versions(card.name):
            folder = hub.folder(version.reference)
            check_files(folder, version.manifest)
            assert Manifest.read(folder) == version.manifest
    if (world.root / "pulled" / "kcard.json").exists():
        check_files(world.root / "pulled", Manifest.read(world.root / "pulled"))


def clean(world: World) -> None:
    """After gc nothing is left that no version needs, and nothing that a version needs is gone."""
    hub, root = world.hub, world.home / "hub"
    hub.gc()
    assert hub.gc(dry_run=True) == []
    needed = {sha for card in hub.list() for v in hub.versions(card.name) for sha in v.files.values()}
    assert {path.name for path in root.glob("blobs/*/*")} == needed, "orphaned or missing blobs"
    assert list((root / "partial").glob("*")) == [], "remains"
    remaining = {v.sha256 for card in hub.list() for v in hub.versions(card.name)}
    assert {path.name for path in root.glob("snapshots/*/*")} <= remaining, "orphaned snapshots"
    if (world.root / "trained").exists() or (world.root / ".trained.replaced").exists():
        check_output(world.root / "trained", "oncology")
        check_files(world.root / "trained", Manifest.read(world.root / "trained"))


def worlds(scratch: Path) -> Iterator[World]:
    number = 0
    while True:
        yield World(scratch / str(number))
        number += 1


def kills(scratch: Path, every: int, names: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Every kill of one process alone, and what was wrong after one."""
    events: list[tuple[str, str]] = []
    wrong: list[str] = []
    fresh_world = worlds(scratch)
    warm(next(fresh_world))
    turn = 0
    for name in names:
        prepare, operation = OPERATIONS[name]
        template = next(fresh_world)
        template.root.mkdir()
        assert run(lambda: prepare(template)) == 0, name  # noqa: B023 (run at once)
        world, points = copy(template, next(fresh_world)), scratch / "points"
        assert run(lambda: operation(world), passed=points) == 0, name  # noqa: B023
        passed = points.read_text(encoding="utf-8").split()
        points.unlink()
        chosen = [place for place in range(len(passed)) if (turn + place + 1) % every == 0]
        turn += len(passed)
        if not chosen:
            continue
        allowed = [outcome(copy(template, next(fresh_world)), scratch), outcome(world, scratch)]
        for kill_at in chosen:
            point = passed[kill_at]
            victim = copy(template, next(fresh_world))
            status = run(lambda: operation(victim), kill_at)  # noqa: B023
            if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
                wrong.append(f"{name}, {point}: was not killed")
            if run(lambda: check(victim, allowed, operation)) != 0:  # noqa: B023
                wrong.append(f"{name}, {point}: see above")
            events.append((name, point))
            shutil.rmtree(victim.root)
    return events, wrong


def crowded(scratch: Path, every: int) -> tuple[list[tuple[str, str]], list[str]]:
    """One publisher is killed while one publishes, one publishes and removes, and one cleans up."""
    events, wrong = [], []
    template = World(scratch / "template")
    template.root.mkdir(parents=True)
    assert run(lambda: filled(template)) == 0
    for kill_at in range(0, EFFECTS, every):
        world = copy(template, World(scratch / str(kill_at)))
        drafts = {
            name: [draft(world.root / f"{name}{i}", name, f"{name}{i}") for i in range(2)] for name in "abc"
        }
        children = [
            start(lambda: publish(world, drafts["a"]), kill_at),  # noqa: B023 (started at once)
            start(lambda: publish(world, drafts["b"])),  # noqa: B023
            start(lambda: come_and_go(world, drafts["c"])),  # noqa: B023
            start(lambda: [world.hub.gc() for _ in range(6)]),  # noqa: B023
        ]
        killed, *others = [os.waitpid(child, 0)[1] for child in children]
        if not os.WIFSIGNALED(killed) or any(others):
            wrong.append(f"a crowd, kill {kill_at}: {killed}, {others}")
        if run(lambda: survived(world, drafts)) != 0:  # noqa: B023
            wrong.append(f"a crowd, kill {kill_at}: see above")
        events.append(("crowd", str(kill_at)))
        shutil.rmtree(world.root)
    return events, wrong


def publish(world: World, drafts: list[Path]) -> None:
    for folder in drafts:
        world.hub.publish(folder)


def come_and_go(world: World, drafts: list[Path]) -> None:
    for folder in drafts:
        world.hub.publish(folder)
        world.hub.remove(folder.name[0])


def survived(world: World, drafts: dict[str, list[Path]]) -> None:
    """Nothing of the others is lost, and what was killed can be done again."""
    hub = world.hub
    assert hub.verify() == []
    assert [v.number for v in hub.versions("b")] == [1, 2]
    assert "c" not in [v.name for v in hub.list()]
    clean(world)
    publish(world, drafts["a"])
    assert len(hub.versions("a")) == 2
    assert hub.verify() == []
    whole(world)
    clean(world)


def warm(world: World) -> None:
    """Import and compile once what every child needs."""
    world.root.mkdir(parents=True)
    filled(world)
    whole(world)
    clean(world)


def copy(template: World, target: World) -> World:
    shutil.copytree(template.root, target.root)
    return target


def outcome(world: World, scratch: Path) -> object:
    """The state as another process sees it, by way of a file, so that this one never opens a hub."""
    seen = scratch / "seen"
    assert run(lambda: seen.write_text(repr(state(world)))) == 0
    return eval(seen.read_text())  # our own repr of tuples, lists and strings


if __name__ == "__main__":
    folder, every = Path(sys.argv[1]), int(sys.argv[2])
    occurred, wrong = kills(folder / "alone", every, sys.argv[3:] or [*OPERATIONS])
    more, also_wrong = crowded(folder / "crowd", every)
    sys.stdout.write(json.dumps({"kills": occurred + more, "wrong": wrong + also_wrong}))
