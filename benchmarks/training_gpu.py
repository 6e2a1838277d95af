"""Fine-tuning on a GPU: memory and seconds a step of a base of the shape of OPT-1.3B, beside kcard's own estimates.

    python -m benchmarks.training_gpu [--steps 20] [--shape 1.3b] [--device cuda] [--json]

Random weights, random words; the paper's batch of 32 rows, objective `clm` with blocks of 128 tokens. For each set of
options:

GB, estimated    what `kcard train` prints before it begins
GB, taken        the most that torch allocated
s, foretold      a step, as `kcard train --estimate` measures it
s, taken         a step of the run that follows
"""

import argparse
import gc
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch

from benchmarks.engine_rivals import SHAPES, machine, make_base
from benchmarks.recall import rows
from kcard.training.base_model import WeightSource
from kcard.training.embedded.recipe import train_tokenizer
from kcard.training.estimates import estimate_memory
from kcard.training.execution import Execution
from kcard.training.finetune import Options, prepare

ROWS, BLOCK = 32, 128
WARM, FORETOLD = 2, 8  # steps before those that a forecast measures, and these
COLUMNS = ("options", "GB, estimated", "GB, taken", "ratio", "s, foretold", "s, taken", "tokens a second")
# Options of each run, and how it is executed.
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full": ({"method": "full"}, {}),
    "full, checkpointing": ({"method": "full"}, {"checkpointing": True}),
    "full, bfloat16, checkpointing": ({"method": "full", "dtype": "bfloat16"}, {"checkpointing": True}),
    "lora": ({"method": "lora"}, {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--shape", choices=SHAPES, default="1.3b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.device != "cpu" and not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU: torch finds none")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        words = ["".join(Random(seed).choices("abcdefghiklmnoprstuvw", k=6)) for seed in range(500)]
        make_base(folder / "base", args.shape, torch.float32)
        train_tokenizer(words, 2000).save_pretrained(folder / "base")
        rng = Random(0)
        # More tokens than the run reads, at one or more a word.
        texts = [" ".join(rng.choices(words, k=BLOCK + 12)) + "." for _ in range(ROWS * args.steps)]
        measured = [run(name, folder, texts, args.device, args.steps) for name in RUNS]
    if args.json:
        print(json.dumps({**machine(args.device), "shape": args.shape, "runs": measured}, indent=2))
    else:
        print(rows(COLUMNS, measured))


def run(name: str, folder: Path, texts: list[str], device: str, steps: int) -> dict[str, Any]:
    """Estimate one run, then take its steps."""
    changes, how = RUNS[name]
    options = Options(
        str(folder / "base"), objective="clm", block=BLOCK, batch_size=ROWS, epochs=1, **changes
    )
    execution = Execution(device, **how)
    needed = estimate_memory(options, execution, WeightSource(), device).total
    on_gpu = device != "cpu"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    prepared = prepare(texts, options, origin=WeightSource(), execution=execution)
    tuning = prepared.job
    blocks = len(tuning.epochs(0))
    assert blocks >= ROWS * steps, f"{blocks} blocks are too few for {steps} steps"
    foretold = tuning.seconds_a_step(WARM, FORETOLD)
    tuning.steps = steps
    tuning.setup = replace(tuning.setup, steps=steps, examples=steps * tuning.setup.batch)
    outcome = tuning.run(folder / "checkpoint")
    taken = torch.cuda.max_memory_allocated() if on_gpu else 0
    print(f"{name}: {outcome.seconds:.1f} s", file=sys.stderr)
    figures = {
        "options": name,
        "GB, estimated": round(needed / 1e9, 2),
        "GB, taken": round(taken / 1e9, 2),
        "ratio": round(needed / taken, 2) if taken else None,
        "s, foretold": round(foretold, 3),
        "s, taken": round(outcome.seconds / steps, 3),
        "tokens a second": round(outcome.tokens / outcome.seconds),
    }
    tuning.model.to("meta")
    del prepared, tuning
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
    return figures


if __name__ == "__main__":
    main()
