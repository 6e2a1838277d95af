"""The card engine on a GPU: 25 LoRA cards on a base of the shape of OPT-1.3B, compared with the memory bandwidth.

    python -m benchmarks.engine_gpu [--cards 25] [--documents 3] [--tokens 64] [--repeats 5] [--device cuda] [--json]

Random weights in bf16. Each decoding step must read all weights, the adapters, and the keys and values so far; the
limit is the time for these bytes at the bandwidth of copying large tensors. share_of_limit compares it with the time of
the decoding steps: the engine's time for all tokens minus its time for the first token.

stacked_over_base     engine / the bare base with the same rows under transformers' generate
mixed_over_stacked    peft's mixed batch / engine
sequential_over_stacked   peft, one adapter after another / engine
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks.engine_rivals import SHAPES, Rivals, Work, machine, make_adapters, make_base, synchronised
from kcard.cards.models.batched import decoder

GIB = 2**30


def bandwidth(device: str) -> float:
    """Bytes a second that large copies read and write."""
    source = torch.empty(2 * GIB, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = [synchronised(partial(target.copy_, source), device) for _ in range(10)]
    return 2 * source.numel() / statistics.median(times[2:])


def step_bytes(rivals: Rivals, work: Work) -> float:
    """What one step must read on average: weights, adapters, and the keys and values of half the tokens.

    The table of embeddings is the output layer's weight too, and is read once.
    """
    shape, layers = rivals.plain.shape, len(rivals.plain.layers)
    width = 2 * layers * shape.kv_heads * shape.width * rivals.plain.embed.table.element_size()
    cache = width * (work.cards * work.prompt + work.rows * work.tokens / 2)
    return decoder.size(rivals.decoder) + cache


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cards", type=int, default=25)
    parser.add_argument("--documents", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--shape", choices=SHAPES, default="1.3b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU: torch finds none")
    work = Work(args.cards, args.documents, args.tokens, args.prompt)
    with tempfile.TemporaryDirectory() as temporary:
        rows = measured(Path(temporary), args.shape, work, args.repeats, args.device)
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    for name, value in rows.items():
        if isinstance(value, float):
            print(f"{name:26} {value:.2f}")


def measured(folder: Path, shape: str, work: Work, repeats: int, device: str) -> dict[str, object]:
    base = make_base(folder / "base", shape, torch.bfloat16)
    folders = make_adapters(folder / "base", folder, work.cards)
    rivals = Rivals(folder / "base", base, folders, work, device)
    first = rivals.of(Work(work.cards, work.documents, 1, work.prompt))
    rivals.prepare()
    runs: dict[str, Callable[[], None]] = {
        "stacked": rivals.stacked,
        "first_token": first.stacked,
        "base": partial(rivals.base, "sdpa"),
        "mixed": rivals.mixed,
        "sequential": rivals.sequential,
    }
    for run in runs.values():
        synchronised(run, device)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            seconds[name].append(synchronised(run, device))
            print(f"{name} {seconds[name][-1]:.3f} s", file=sys.stderr)
    took = {name: statistics.median(times) for name, times in seconds.items()}
    speed = bandwidth(device)
    steps = took["stacked"] - took["first_token"]
    limit = (work.tokens - 1) * step_bytes(rivals, work) / speed
    return {
        **machine(device),
        "shape": shape,
        "cards": work.cards,
        "documents": work.documents,
        "tokens": work.tokens,
        "stacked_over_base": took["stacked"] / took["base"],
        "mixed_over_stacked": took["mixed"] / took["stacked"],
        "sequential_over_stacked": took["sequential"] / took["stacked"],
        "tokens_per_second": work.rows * work.tokens / took["stacked"],
        "bandwidth_gb_per_second": speed / 1e9,
        "share_of_limit": limit / steps,
        "seconds": took,
        "rounds": seconds,
    }


if __name__ == "__main__":
    main()
