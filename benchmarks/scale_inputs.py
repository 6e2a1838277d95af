"""What the simulation of a fleet needs and no other benchmark measures: loads of cards, and choice among many.

    python -m benchmarks.scale_inputs [--runs 5] [--json]

load    seconds until the weights of a card can be used, from files in the page cache and from the disk: a LoRA adapter
        (rank 8, queries and values) on OPT-125m, an embedded card, and a whole OPT-125m in bf16; all random
choice  seconds to find the 20 nearest of so many descriptions to 1 and to 16 questions, given their embeddings (384
        numbers each), by one product and a partial sort

The lowest of the runs, since other work on the machine only adds; one thread. The disk's figures mean something only
where the folder for temporary files is on a disk.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.engine_full import make_cards
from benchmarks.engine_rivals import make_adapters, make_base
from kcard.cards.format.folder import Card
from kcard.cards.lm import weights
from kcard.cards.lm.engine import lora, trees
from kcard.cards.lm.loader import Loader
from kcard.manifest import Manifest

CARDS = (1_000, 10_000, 100_000, 1_000_000)
WIDTH = 384
NEAREST = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        found = {"load": loads(Path(scratch), args.runs), "choice": choices(args.runs)}
    if args.json:
        print(json.dumps(found))
    else:
        show(found)


def loads(folder: Path, runs: int) -> dict[str, dict[str, float]]:
    make_base(folder / "base", "125m", torch.bfloat16)
    (adapter,) = make_adapters(folder / "base", folder / "adapters", 1)
    (embedded,) = make_cards(folder / "embedded", 1)
    whole = Card(folder / "base", Manifest(name="whole", description="Random"))
    readers: dict[str, tuple[Path, Callable[[], Any]]] = {
        "adapter": (adapter, lambda: lora.read(adapter, torch.bfloat16)),
        "embedded": (embedded.folder, lambda: weights.read(embedded, Loader()).decoder),
        "whole": (whole.folder, lambda: weights.read(whole, Loader()).decoder),
    }
    found = {}
    for name, (where, read) in readers.items():
        files = [*where.glob("*.safetensors")]
        read()
        times = [(loaded(files, read, cold=False), loaded(files, read, cold=True)) for _ in range(runs)]
        cached, disk = (min(column) for column in zip(*times, strict=True))
        size = sum(path.stat().st_size for path in files)
        found[name] = {"bytes": size, "cached_s": cached, "disk_s": disk}
    return found


def loaded(files: list[Path], read: Callable[[], Any], cold: bool) -> float:
    """Seconds until the weights are read and every page of them is in memory."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            if cold:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    started = time.perf_counter()
    made = read()
    for tensor in trees.tensors(made):
        tensor.sum()
    return time.perf_counter() - started


def choices(runs: int) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(0)
    found = {}
    for count in CARDS:
        descriptions = rng.standard_normal((count, WIDTH), dtype=np.float32)
        row = {}
        for batch in (1, 16):
            questions = rng.standard_normal((batch, WIDTH), dtype=np.float32)
            times = []
            for _ in range(runs):
                started = time.perf_counter()
                np.argpartition(-(questions @ descriptions.T), NEAREST, axis=1)[:, :NEAREST]
                times.append(time.perf_counter() - started)
            row[f"batch_{batch}_s"] = min(times)
        found[str(count)] = row
    return found


def show(found: dict[str, dict[str, dict[str, float]]]) -> None:
    print("| card | MB | load, page cache, ms | load, disk, ms |\n|---|---|---|---|")
    for name, row in found["load"].items():
        cells = f"{row['bytes'] / 1e6:.1f} | {1000 * row['cached_s']:.1f} | {1000 * row['disk_s']:.1f}"
        print(f"| {name} | {cells} |")
    print("\n| cards | choice, one question, ms | of 16, ms |\n|---|---|---|")
    for count, row in found["choice"].items():
        print(f"| {int(count):,} | {1000 * row['batch_1_s']:.2f} | {1000 * row['batch_16_s']:.2f} |")


if __name__ == "__main__":
    main()
