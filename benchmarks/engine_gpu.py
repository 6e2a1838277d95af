"""The card engine on a GPU: 25 LoRA cards on a base of the shape of OPT-1.3B, compared with the memory bandwidth.

    python -m benchmarks.engine_gpu [--cards 25] [--documents 3] [--tokens 64] [--repeats 5] [--whole 4] [--json]

Before timing, the engine must write what peft writes, greedily in fp32, token for token. Random weights in bf16. Each
decoding step must read all weights, the adapters, and the keys and values so far; the limit is the time for these bytes
at the bandwidth of copying large tensors. share_of_limit compares it with the time of the decoding steps: the engine's
time for all tokens minus its time for the first token.

stacked_over_base     engine / the bare base with the same rows under transformers' generate
mixed_over_stacked    peft's mixed batch / engine
sequential_over_stacked   peft, one adapter after another / engine
whole_over_stacked    whole models of that shape, one after another in the engine / in one batch (--whole)
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.engine_rivals import (
    SHAPES,
    TOP_K,
    Rivals,
    Work,
    greedy_equal,
    machine,
    make_adapters,
    make_base,
    synchronised,
)
from kcard.cards.models.batched import decoder, whole_models
from kcard.cards.models.batched.decoder import Decoder
from kcard.cards.models.batched.generate import DecodingBatch, decode
from kcard.token_sampling import Sampler

GIB = 2**30
SLOW = 10.0  # seconds


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
    parser.add_argument("--whole", type=int, default=4, help="whole models to compare; 0: none")
    parser.add_argument("--shape", choices=SHAPES, default="1.3b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU: torch finds none")
    work = Work(args.cards, args.documents, args.tokens, args.prompt)
    with tempfile.TemporaryDirectory() as temporary:
        rows = measured(Path(temporary), args.shape, work, args.repeats, args.device, args.whole)
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    for name, value in rows.items():
        if isinstance(value, float):
            print(f"{name:26} {value:.2f}")


def measured(
    folder: Path, shape: str, work: Work, repeats: int, device: str, whole: int
) -> dict[str, object]:
    base = make_base(folder / "base", shape, torch.bfloat16)
    folders = make_adapters(folder / "base", folder, work.cards)
    if not greedy_equal(folder / "base", folders[:2], device=device):
        sys.exit("the engine and peft write different documents: no figure would mean anything")
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
    if whole:
        models = [_another(rivals.plain, seed) for seed in range(whole)]
        several = replace(work, cards=whole)
        together = whole_models.joined(models, [len(model.embed.table) for model in models])
        runs["whole_stacked"] = partial(write, [together], several, rivals.prompt)
        runs["whole_sequential"] = partial(write, models, replace(several, cards=1), rivals.prompt)
    # The first call of each is not counted, unless it is so slow that it is measured once.
    seconds: dict[str, list[float]] = {}
    for name, run in runs.items():
        first_call = synchronised(run, device)
        seconds[name] = [first_call] if first_call > SLOW else []
    for _ in range(repeats):
        for name, run in runs.items():
            if seconds[name][:1] and seconds[name][0] > SLOW:
                continue
            seconds[name].append(synchronised(run, device))
            print(f"{name} {seconds[name][-1]:.3f} s", file=sys.stderr)
    took = {name: statistics.median(times) for name, times in seconds.items()}
    speed = bandwidth(device)
    steps = took["stacked"] - took["first_token"]
    limit = (work.tokens - 1) * step_bytes(rivals, work) / speed
    ratios = {"whole_over_stacked": took["whole_sequential"] / took["whole_stacked"]} if whole else {}
    return {
        **machine(device),
        "shape": shape,
        "cards": work.cards,
        "documents": work.documents,
        "tokens": work.tokens,
        "stacked_over_base": took["stacked"] / took["base"],
        "mixed_over_stacked": took["mixed"] / took["stacked"],
        "sequential_over_stacked": took["sequential"] / took["stacked"],
        **ratios,
        "tokens_per_second": work.rows * work.tokens / took["stacked"],
        "bandwidth_gb_per_second": speed / 1e9,
        "share_of_limit": limit / steps,
        "seconds": took,
        "rounds": seconds,
    }


def _another(model: Decoder, seed: int) -> Decoder:
    """A model of the same shape with other weights."""
    torch.manual_seed(seed)
    return decoder.mapped(model, lambda weight: weight + 0.001 * torch.randn_like(weight))


def write(models: Sequence[Decoder], work: Work, prompt: torch.Tensor) -> None:
    """Generate with each decoder, which holds as many cards as the work has."""
    for model in models:
        batch = DecodingBatch(prompt.expand(work.cards, -1), None, work.documents)
        sampler = Sampler(torch.arange(work.rows, device=prompt.device), 1.0, TOP_K)
        decode(model, batch, sampler, work.tokens, ())


if __name__ == "__main__":
    main()
