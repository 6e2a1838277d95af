"""Cards of each kind on one corpus, for benchmarks that compare them.

A card of kind `both` is a model and an index; without the index it equals the card that `--kind model` makes, so one
training run suffices for both.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Literal

import kcard
from kcard.hub.registry import Hub

Kind = Literal["retrieval", "both", "model"]
KINDS: tuple[Kind, ...] = ("retrieval", "both", "model")


def hub_with(kind: Kind, corpus: Path, name: str, home: Path) -> Hub:
    """The hub home/KIND/NAME with that card and no other: what is there already, or trained with every option at its
    default."""
    hub = Hub(home / kind / name)
    if not hub.list():
        begun = time.perf_counter()
        draft = home / kind / f"draft-{name}"
        if kind == "model":
            without_index(hub_with("both", corpus, name, home).folder(name), draft)
        else:
            minutes = 600 if kind in ("model", "both") else None
            kcard.train(corpus, kind=kind, name=name, minutes=minutes, output=draft, exam=False)
        hub.publish(draft)
        print(f"{name}, {kind}: made in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return hub


def without_index(both: Path, target: Path) -> None:
    """Copy a card of both; its source passages don't write any more."""
    shutil.copytree(both, target, dirs_exist_ok=True)
    manifest = target / "kcard.json"
    manifest.chmod(0o644)
    card = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps({**card, "index": False}, indent=2) + "\n", encoding="utf-8")
