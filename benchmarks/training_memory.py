"""The estimate of a training's memory against what it takes: peak resident memory, on a GPU what torch allocated.

    python -m benchmarks.training_memory                  # about 3 minutes on two cores
    python -m benchmarks.training_memory --device cuda

A random OPT of 54M parameters (--layers, --width) on made-up text, each case in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "full": {"method": "full"},
    "full, micro-batch 2": {"method": "full", "micro_batch": 2},
    "full, checkpointing": {"method": "full", "checkpointing": True},
    "full, bfloat16, micro-batch 2": {"method": "full", "dtype": "bfloat16", "micro_batch": 2},
    "lora": {"method": "lora"},
}
STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--base", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(measured(given.base, given.device, CASES[given.case])))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_base(Path(folder), given.layers, given.width)
        for case in CASES:
            command = [sys.executable, "-m", "benchmarks.training_memory", "--base", folder]
            done = subprocess.run(
                [*command, "--case", case, "--device", given.device], check=True, stdout=subprocess.PIPE
            )
            print(json.dumps({"case": case, **json.loads(done.stdout)}), flush=True)


def make_base(folder: Path, layers: int, width: int) -> None:
    from transformers import OPTConfig, OPTForCausalLM

    from kcard.training.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(texts(50), 400)
    config = OPTConfig(
        vocab_size=50272,
        hidden_size=width,
        word_embed_proj_dim=width,
        ffn_dim=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        max_position_embeddings=512,
    )
    OPTForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def texts(count: int) -> list[str]:
    words = [f"word{number}" for number in range(400)]
    return [" ".join(words[(7 * text + 3 * place) % 400] for place in range(200)) for text in range(count)]


def measured(base: str, device: str, case: dict[str, Any]) -> dict[str, Any]:
    """In GB: the estimate, and the growth of the peak over what the libraries take."""
    import torch

    from kcard.training.base_model import Origin
    from kcard.training.execution import Execution
    from kcard.training.finetune import Options, prepare
    from kcard.training.loop import step
    from kcard.training.memory import estimate_memory

    how = Execution(device, case.get("micro_batch"), case.get("checkpointing", False))
    options = Options(
        base, case["method"], "clm", batch_size=8, block=256, dtype=case.get("dtype", "float32"), epochs=50
    )
    needed = estimate_memory(options, how, Origin(), device)
    torch.ones(64, 64).matmul(torch.ones(64, 64))
    before = peak(device, reset=True)
    job = prepare(texts(60), options, execution=how).job
    job.modules["model"].train()
    batches = job.epoch(0)
    for number in range(STEPS):
        step(job, batches[number % len(batches)], number)
    taken = peak(device) - before
    return {
        "estimate GB": round(needed.total / 1e9, 3),
        "taken GB": round(taken / 1e9, 3),
        "ratio": round(needed.total / taken, 2),
    }


def peak(device: str, *, reset: bool = False) -> int:
    """Bytes: the peak so far or, with `reset`, what is in use as the peak is forgotten."""
    import torch

    if device != "cpu":
        if reset:
            torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.max_memory_allocated(device)
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


if __name__ == "__main__":
    main()
