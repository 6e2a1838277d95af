"""Kills a process before every effect of every hub operation and looks at what is left.

    python -m tests.hub.kills SCRATCH EVERY [OPERATION ...]

Each operation runs once to learn what it changes (tests/effects.py), then once for every change, in a child that is
killed right before it by SIGKILL, and once after the last. After each kill another process opens the hub and checks
it. Only every EVERY-th kill is made, of those operations or of all. Prints one JSON object: the kills by operation and
effect, and everything that was wrong.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from kcard.errors import UnknownCard
from kcard.hub import pools, publications  # noqa: F401 (warm for the children)
from kcard.hub.registry import Hub
from kcard.manifest import Manifest, check_files
from kcard.training.output import check_output, replacing_output
from tests.effects import watch
from tests.hub.stand import in_child, seal_card


def draft(folder: Path, name: str, text: str) -> Path:
    """A sealed card folder; the hub knows no models, so any files will do."""
    return seal_card(folder, name, text, {"extra/notes.txt": b"the same in all"})


@dataclass(frozen=True)
class World:
    """One hub with its drafts; every kill gets a copy of its own, and every child opens the hub itself."""

    root: Path

    @cached_property
    def hub(self) -> Hub:
        return Hub(self.root / "home")

    def copy(self, name: str) -> "World":
        return World(Path(shutil.copytree(self.root, self.root.parent / name)))


def filled(world: World) -> None:
    """Two cards, three versions, an alias, snapshots, a pool; a new draft of one of them, and a trained one."""
    hub = world.hub
    hub.publish(draft(world.root / "old", "oncology", "old"), aliases=["stable"])
    hub.publish(draft(world.root / "older", "oncology", "older"))
    hub.publish(draft(world.root / "hearts", "hearts", "hearts"))
    for version in ("oncology@v1", "oncology@v2", "hearts"):
        hub.folder(version)
    hub.pools.create("clinic", ["oncology@v1", "hearts"])
    draft(world.root / "draft", "oncology", "new")
    draft(world.root / "trained", "oncology", "before")


def littered(world: World) -> None:
    """Filled, and garbage of every kind: what a removal and a publish leave that were killed."""
    filled(world)
    hub = world.hub
    publications.LocalCards(hub.database, hub.blobs).remove([hub.get("oncology@v2")])
    (hub.partial / "killed").mkdir(parents=True)
    (hub.partial / "killed" / "blob").write_bytes(b"half")


def meddled(world: World) -> None:
    filled(world)
    (world.hub.folder("hearts") / "config.json").unlink()


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
    if not (world.root / "pulled" / "kcard.json").exists():
        (world.root / "pulled").mkdir(exist_ok=True)
        world.hub.pull("oncology@v1", world.root / "pulled")


OPERATIONS: dict[str, tuple[Callable[[World], None], Callable[[World], object]]] = {
    "publish a version": (filled, lambda w: w.hub.publish(w.root / "draft", aliases=["stable"])),
    "seal and publish": (filled, lambda w: w.hub.publish(draft(w.root / "draft", "hearts", "again"))),
    "alias": (filled, lambda w: w.hub.alias("oncology@v2", "stable")),
    "remove a version": (filled, lambda w: remove(w, "oncology@v2")),
    "remove a card": (filled, lambda w: remove(w, "oncology")),
    "gc": (littered, lambda w: w.hub.gc()),
    "lay out a changed snapshot": (meddled, lambda w: w.hub.folder("hearts")),
    "pull": (filled, pull),
    "add to a pool": (filled, lambda w: w.hub.pools.add("clinic", ["oncology@v2", "hearts@v1"])),
    "train over a draft": (filled, train),
}


def run(work: Callable[[], object], kill_at: int | None = None, effects: Path | None = None) -> int:
    """Do the work in a child, killed before that effect; its exit code. The effects are noted in a file."""
    count = 0

    def reached(effect: str) -> None:
        nonlocal count
        if effect.endswith(" done"):
            return
        if effects is not None:
            with effects.open("a", encoding="utf-8") as log:
                log.write(effect.replace(" ", "-") + "\n")
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    def watched_work() -> None:
        watch(reached)
        work()
        reached("end")

    return in_child(watched_work)


def state(world: World) -> list[object]:
    """What a user can find: versions, aliases, pools, and files outside the hub."""
    hub = world.hub
    versions = [v for card in hub.list() for v in hub.versions(card.name)]
    return [
        [[v.reference, v.sha256, list(v.aliases)] for v in versions],
        [[p.name, list(p.references)] for p in hub.pools.list()],
        (world.root / "pulled" / "kcard.json").exists(),
    ]


def write_state(world: World, path: Path) -> None:
    path.write_text(json.dumps(state(world)), encoding="utf-8")


def check(world: World, allowed: list[object], operation: Callable[[World], object]) -> None:
    """Everything that must hold after a kill; raises AssertionError for what doesn't."""
    check_whole(world)
    assert state(world) in allowed, f"neither before nor after: {state(world)}"
    check_clean(world)
    operation(world)
    assert state(world) == allowed[-1], f"repeated: {state(world)}"
    check_whole(world)
    check_clean(world)


def check_whole(world: World) -> None:
    hub = world.hub
    assert hub.verify() == [], "damaged"
    for card in hub.list():
        for version in hub.versions(card.name):
            folder = hub.folder(version.reference)
            check_files(folder, version.manifest)
            assert Manifest.read(folder) == version.manifest
    for name in ("pulled", "trained"):
        if name == "trained":
            check_output(world.root / name, "oncology")
        if (world.root / name / "kcard.json").exists():
            check_files(world.root / name, Manifest.read(world.root / name))


def check_clean(world: World) -> None:
    """After gc nothing is left that no version needs, and nothing that a version needs is gone."""
    hub, root = world.hub, world.root / "home" / "hub"
    hub.gc()
    assert hub.gc(dry_run=True) == []
    versions = [version for card in hub.list() for version in hub.versions(card.name)]
    needed = {sha256 for version in versions for sha256 in version.files.values()}
    assert {path.name for path in root.glob("blobs/*/*")} == needed, "orphaned or missing blobs"
    assert list((root / "partial").glob("*")) == [], "remains"
    snapshots = {path.name for path in root.glob("snapshots/*/*")}
    assert snapshots <= {version.sha256 for version in versions}, "orphaned snapshots"


def kill(scratch: Path, every: int, names: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Every kill, and what was wrong after one. This process never opens a hub."""
    kills: list[tuple[str, str]] = []
    wrong: list[str] = []
    for name in names:
        prepare, operation = OPERATIONS[name]
        folder = scratch / name.replace(" ", "-")
        before = World(folder / "before")
        before.root.mkdir(parents=True)
        assert run(partial(prepare, before)) == 0, name
        after = before.copy("after")
        assert run(partial(operation, after), effects=folder / "effects") == 0, name
        effects = (folder / "effects").read_text(encoding="utf-8").split()
        allowed: list[object] = []
        for world in (before.copy("seen"), after):
            assert run(partial(write_state, world, folder / "state")) == 0
            allowed.append(json.loads((folder / "state").read_text(encoding="utf-8")))
        for kill_at in range(every - 1, len(effects), every):
            victim = before.copy("victim")
            if run(partial(operation, victim), kill_at) != -signal.SIGKILL:
                wrong.append(f"{name}, {effects[kill_at]}: was not killed")
            if run(partial(check, victim, allowed, operation)) != 0:
                wrong.append(f"{name}, {effects[kill_at]}: see above")
            kills.append((name, effects[kill_at]))
            shutil.rmtree(victim.root)
    return kills, wrong


if __name__ == "__main__":
    kills, wrong = kill(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or [*OPERATIONS])
    sys.stdout.write(json.dumps({"kills": kills, "wrong": wrong}))
