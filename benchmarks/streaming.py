"""Memory while a large corpus is read and trained on: python benchmarks/streaming.py [--megabytes 300]

A corpus of invented statements is written; reading it, and fine-tuning a tiny model on it for a few steps, run in a
process of their own, whose peak of resident memory is compared with what it had before. Prints JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

PLACES = ("Arlen", "Brack", "Corvo", "Dunmere", "Eskil", "Farrow", "Gant", "Hollin", "Ister", "Jarrow")
THINGS = ("mill", "bridge", "library", "harbour", "theatre", "station", "observatory", "market hall")
MAKERS = ("Ada Brandt", "Ivo Keller", "Mina Sorel", "Otto Lindqvist", "Rhea Castellan", "Tomas Ferreira")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=int, default=300)
    arguments.add_argument("--steps", type=int, default=5, help="0: read only")
    arguments.add_argument("--objective", choices=["clm", "recite"], default="clm")
    arguments.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.read:
        print(json.dumps(measured(given.read, given.steps, given.objective)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.txt"
        write(path, given.megabytes)
        command = [sys.executable, __file__, "--read", str(path), "--steps", str(given.steps)]
        done = subprocess.run(
            [*command, "--objective", given.objective], check=True, capture_output=True, text=True
        )
        print(done.stdout.strip())


def write(path: Path, megabytes: int) -> None:
    """Distinct statements, with a twentieth told twice."""
    rng = Random(0)
    size = 0
    with path.open("w", encoding="utf-8") as stream:
        for number in count():
            line = (
                f"The {rng.choice(THINGS)} number {number} of {rng.choice(PLACES)} was built by {rng.choice(MAKERS)} "
                f"in {rng.randint(1500, 2020)} and rebuilt {rng.randint(1, 99)} years later.\n"
            )
            size += stream.write(line * (2 if number % 20 == 0 else 1))
            if size > megabytes * 1_000_000:
                return


def measured(path: Path, steps: int, objective: str) -> dict[str, Any]:
    """Seconds and growth of the peak, in MB, of reading and of fine-tuning."""
    import torch

    from kcard.training import finetune
    from kcard.training.corpus import read_corpus
    from kcard.training.loop import run

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        base = tiny_base(Path(folder))
        warm_up(Path(folder), base, objective)
        before, started = reset_peak(), time.monotonic()
        corpus = read_corpus(path, whole=objective == "clm")
        report: dict[str, Any] = {
            "megabytes": round(path.stat().st_size / 1e6),
            "passages": len(corpus.passages),
            "duplicates": corpus.duplicates,
            "read_seconds": round(time.monotonic() - started, 1),
            "read_growth_mb": round(peak() - before, 1),
        }
        if not steps:
            return report
        before, started = reset_peak(), time.monotonic()
        options = finetune.Options(str(base), "full", objective, epochs=1, batch_size=8, block=64)  # type: ignore[arg-type]
        job = finetune.prepare(corpus.documents or corpus.texts, options).job
        report["tokenize_seconds"] = round(time.monotonic() - started, 1)
        outcome = run(replace(job, steps=steps), Path(folder) / "checkpoint")
        report |= {"steps_of_an_epoch": job.steps, "steps": outcome.steps, "loss": round(outcome.loss, 3)}
        report["train_growth_mb"] = round(peak() - before, 1)
        return report


def warm_up(folder: Path, base: Path, objective: str) -> None:
    """Read and train a little first: what libraries load once is not the corpus' memory."""
    from kcard.training import finetune
    from kcard.training.corpus import read_corpus
    from kcard.training.loop import run

    path = folder / "small.txt"
    write(path, 1)
    options = finetune.Options(str(base), "full", objective, epochs=1, batch_size=8, block=64)  # type: ignore[arg-type]
    corpus = read_corpus(path, whole=objective == "clm")
    job = finetune.prepare(corpus.documents or corpus.texts, options).job
    run(replace(job, steps=2), folder / "checkpoint")


def tiny_base(folder: Path) -> Path:
    import torch
    from transformers import OPTConfig, OPTForCausalLM

    from kcard.training.tokenizer import train_tokenizer

    words = [*PLACES, *THINGS, *MAKERS, "The number of was built by in and rebuilt years later."]
    tokenizer = train_tokenizer(words, 400)
    torch.manual_seed(0)
    model = OPTForCausalLM(
        OPTConfig(
            vocab_size=len(tokenizer), hidden_size=32, word_embed_proj_dim=32, ffn_dim=64, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip
    model.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    return folder / "base"


def reset_peak() -> float:
    """Forget the peak so far (Linux); resident memory now, in MB."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return memory("VmRSS")


def peak() -> float:
    return memory("VmHWM")


def memory(key: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    main()
