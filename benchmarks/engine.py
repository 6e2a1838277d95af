"""All cards in one batch: the card engine against the bare base, peft and the reference procedure.

    python -m benchmarks.engine [--cards 25] [--documents 3] [--tokens 64] [--repeats 5] [--threads N]
                                [--format native|fp32|bf16] [--json]
    python -m benchmarks.engine --growth FILE.svg

Bottom-up generation on a base of the shape of OPT-125m with LoRA cards of rank 8, all random, in a temporary folder.
All procedures use the number format that a card's loader would choose (native): bf16 if the processor multiplies it,
else fp32. Each round runs every procedure once; figures are medians over the rounds. First the engine must generate the
same tokens as peft at temperature 0 in fp32; otherwise there are no figures.

Each ratio is of wall seconds and, as cpu_…, of CPU seconds, which depend less on other load on the machine.

stacked_over_base     engine / the bare base with the same rows under transformers' generate, the best of eager and sdpa
mixed_over_stacked    peft's mixed batch / engine
reference_over_stacked  load each card's whole checkpoint and generate / engine
time_over_floor       engine / the products with the base's packed weights that it needs, and nothing else
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch

from benchmarks.engine_rivals import (
    SHAPES,
    Rivals,
    Work,
    floor,
    greedy_equal,
    machine,
    make_adapters,
    make_base,
    synchronised,
)
from kcard.cards.models.loader import in_single_precision

GROWTH = (1, 2, 4, 8, 16, 32, 64)


def number_format(name: str, shape: str) -> torch.dtype:
    """The format of that name; for native, the one in which a base of that shape would be loaded here."""
    if name == "native":
        width, inner, layers, _ = SHAPES[shape]
        count = layers * (4 * width**2 + 2 * width * inner) + 50272 * width
        name = "fp32" if in_single_precision(count, "cpu") else "bf16"
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[name]


def measured(
    folder: Path, shape: str, work: Work, repeats: int, dtype: torch.dtype, say: Callable[[str], None]
) -> dict[str, object]:
    """Seconds of each procedure, and their ratios."""
    base = make_base(folder / "base", shape, dtype)
    folders = make_adapters(folder / "base", folder, work.cards)
    if not greedy_equal(folder / "base", folders[:3]):
        sys.exit("the engine generates other tokens than peft, so no figures are measured")
    say("greedy in fp32: token for token as peft")
    rivals = Rivals(folder / "base", base, folders, work)
    runs: dict[str, Callable[[], None]] = {
        "floor": partial(floor, rivals.bare, work),
        "stacked": rivals.stacked,
        "base_eager": partial(rivals.base, "eager"),
        "base_sdpa": partial(rivals.base, "sdpa"),
        "mixed": rivals.mixed,
        "reference": rivals.reference,
    }
    for name in ("floor", "stacked"):
        synchronised(runs[name], "cpu")
    rivals.prepare()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    processor: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(repeats):
        for name, run in runs.items():
            before = time.process_time()
            seconds[name].append(synchronised(run, "cpu"))
            processor[name].append(time.process_time() - before)
            say(f"round {number + 1}: {name} {seconds[name][-1]:.2f} s, {processor[name][-1]:.2f} CPU s")
    took, spent = (
        {name: statistics.median(times) for name, times in every.items()} for every in (seconds, processor)
    )
    return {
        **machine(),
        "format": str(dtype).removeprefix("torch."),
        "shape": shape,
        "cards": work.cards,
        "documents": work.documents,
        "tokens": work.tokens,
        "repeats": repeats,
        "greedy_equals_peft": True,
        **ratios(took),
        **{f"cpu_{name}": ratio for name, ratio in ratios(spent).items()},
        "seconds": took,
        "rounds": seconds,
        "cpu_seconds": spent,
        "cpu_rounds": processor,
    }


def ratios(seconds: Mapping[str, float]) -> dict[str, float]:
    bare = min(seconds["base_eager"], seconds["base_sdpa"])
    return {
        "stacked_over_base": seconds["stacked"] / bare,
        "mixed_over_stacked": seconds["mixed"] / seconds["stacked"],
        "reference_over_stacked": seconds["reference"] / seconds["stacked"],
        "time_over_floor": seconds["stacked"] / seconds["floor"],
    }


def growth(
    folder: Path, shape: str, work: Work, repeats: int, dtype: torch.dtype, say: Callable[[str], None]
) -> list[tuple[int, float, float]]:
    """Cards, seconds of the engine, seconds of the bare base with as many rows (the best of eager and sdpa)."""
    base = make_base(folder / "base", shape, dtype)
    folders = make_adapters(folder / "base", folder, max(GROWTH))
    sizes = []
    for cards in GROWTH:
        part = Work(cards, work.documents, work.tokens, work.prompt)
        rivals = Rivals(folder / "base", base, folders, part)
        runs = [rivals.stacked, partial(rivals.base, "eager"), partial(rivals.base, "sdpa")]
        synchronised(rivals.stacked, "cpu")
        times = [[synchronised(run, "cpu") for run in runs] for _ in range(repeats)]
        stacked, *bare = (statistics.median(column) for column in zip(*times, strict=True))
        sizes.append((cards, stacked, min(bare)))
        say(f"{cards} cards: engine {stacked:.2f} s, bare base {min(bare):.2f} s")
    return sizes


def plot(rows: list[tuple[int, float, float]], work: Work, target: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5))
    axes = figure.subplots()
    cards = [row[0] for row in rows]
    axes.plot(cards, [row[2] for row in rows], marker="o", color="#999999", label="bare base, transformers")
    axes.plot(cards, [row[1] for row in rows], marker="o", color="#1f6feb", label="all cards, engine")
    axes.set_xlabel(f"cards ({work.documents} documents of {work.tokens} tokens each)")
    axes.set_ylabel("seconds")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee")
    axes.legend(frameon=False)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kcard"}):
        figure.savefig(target, metadata={"Date": None}, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cards", type=int, default=25)
    parser.add_argument("--documents", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=32, help="its tokens")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--shape", choices=SHAPES, default="125m")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--format", choices=("native", "fp32", "bf16"), default="native", help="of numbers")
    parser.add_argument("--growth", type=Path, help="plot 1 to 64 cards against the bare base")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dtype = number_format(args.format, args.shape)
    work = Work(args.cards, args.documents, args.tokens, args.prompt)
    say = partial(print, file=sys.stderr)
    with tempfile.TemporaryDirectory() as temporary:
        if args.growth is not None:
            rows = growth(Path(temporary), args.shape, work, args.repeats, dtype, say)
            plot(rows, work, args.growth)
            print(json.dumps([dict(zip(("cards", "stacked", "base"), row, strict=True)) for row in rows]))
            return
        figures = measured(Path(temporary), args.shape, work, args.repeats, dtype, say)
    if args.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        if isinstance(value, float):
            print(f"{name:24} {value:.2f}")


if __name__ == "__main__":
    main()
