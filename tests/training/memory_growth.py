"""How much memory a large corpus takes while it is read and while a model is fine-tuned on it: run as a process of its
own, python -m tests.training.memory_growth FOLDER MEGABYTES; prints JSON.
"""

import json
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import torch

from kcard.training.corpus import read_corpus
from kcard.training.finetune import Options, prepare
from tests.training.bases import make_base

STEPS = 5


def write_corpus(path: Path, megabytes: float) -> None:
    """Write distinct statements."""
    random, size = Random(0), 0
    with path.open("w", encoding="utf-8") as stream:
        for number in count():
            year, later = random.randint(1500, 2020), random.randint(1, 99)
            size += stream.write(
                f"The mill number {number} of Arlen was built in {year} and rebuilt {later} years later.\n"
            )
            if size > megabytes * 1_000_000:
                return


def resident(key: str) -> float:
    """Return VmRSS (now) or VmHWM (at most, since `forget_peak`) in MB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{key}:"))


def forget_peak() -> float:
    """Reset VmHWM; return VmRSS."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return resident("VmRSS")


def measure(path: Path, base: Path, checkpoint: Path) -> dict[str, float]:
    before = forget_peak()
    corpus = read_corpus(path, whole=True)
    reading = resident("VmHWM") - before
    before = forget_peak()
    assert corpus.documents is not None
    job = prepare(corpus.documents, Options(str(base), "full", "clm", epochs=1, batch_size=8, block=64)).job
    outcome = replace(job, setup=replace(job.setup, steps=STEPS)).run(checkpoint)
    training = resident("VmHWM") - before
    return {
        "passages": len(corpus.passages),
        "steps": outcome.steps,
        "reading": reading,
        "training": training,
    }


def main(folder: Path, megabytes: float) -> None:
    torch.set_num_threads(1)
    base = make_base(folder, "opt")
    write_corpus(folder / "small.txt", 0.5)
    measure(
        folder / "small.txt", base, folder / "first"
    )  # loads the libraries, which are not the corpus' memory
    write_corpus(folder / "large.txt", megabytes)
    sys.stdout.write(json.dumps(measure(folder / "large.txt", base, folder / "second")))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
