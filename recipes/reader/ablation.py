"""What each set of questions adds to the reader.

    python -m recipes.reader.ablation --data DATA --start FOLDER --output FOLDER [--steps 200]

One short run for each condition, from the same weights and equally long: all sets, and all but one group of them, on
articles and sets only, so that no manual need be downloaded. Measured on samples of what is held out of both. "All" is
run with two seeds, since small differences are noise.
"""

import argparse
import functools
import random
from collections.abc import Sequence
from pathlib import Path

import torch

from kcard.embedded.reader import load_reader
from recipes.reader import datasets, train, wikipedia
from recipes.reader.example import Reading
from recipes.reader.mixture import batches, epoch
from recipes.reader.network import save, untrained
from recipes.reader.record import table
from recipes.reader.score import figures

__all__: list[str] = []

GROUPS: dict[str, Sequence[str]] = {
    "all": (),
    "without mismatches": ("mismatch-none",),
    "without reviews": ("squadshifts-amazon", "squadshifts-reddit"),
    "without lower-cased sentences": ("squad-sentence",),
    "all, another seed": (),
    "without yes and no": ("boolq", "pubmedqa", "strategyqa-facts"),
    "without chats": ("molweni",),
}
WARM = 30  # steps
MOST = 300  # questions of a set that are read after each run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with questions/ and reading/")
    parser.add_argument("--start", type=Path, required=True, help="folder of weights that go on")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train.WARM = WARM
    datasets.questions = functools.cache(datasets.questions)
    squad, squad_held = wikipedia.squad(options.data)
    nq, nq_held = wikipedia.natural_questions(options.data)
    articles = [*squad, *nq, *nq]
    sets = datasets.held_out(options.data)
    del sets["all sets"]
    held_out = {
        name: random.Random(name).sample(readings, min(MOST, len(readings)))
        for name, readings in {"SQuAD": squad_held, "NQ": nq_held, **sets}.items()
    }
    held_out["all sets"] = [reading for name in sets for reading in held_out[name]]
    for name, left_out in GROUPS.items():
        folder = options.output / name.replace(" ", "-").replace(",", "")
        if not (folder / "figures.md").is_file():
            _run(folder, options, articles, left_out, int("seed" in name), held_out)
        print(name, (folder / "figures.md").read_text(encoding="utf-8"), sep="\n\n", flush=True)


def _run(
    folder: Path,
    options: argparse.Namespace,
    articles: Sequence[Reading],
    left_out: Sequence[str],
    seed: int,
    held_out: dict[str, list[Reading]],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shares = {source: share for source, share in datasets.SHARES.items() if source not in left_out}
    sets = datasets.draw(options.data, 0, shares)
    plan = batches(epoch(articles, sets, [], [], seed), train.TOKENS, seed)[: options.steps]
    torch.manual_seed(seed)
    network = untrained(options.start, train.DROPOUT)
    network.model.encoder.layer[: train.FROZEN].requires_grad_(False)
    train.train(network, plan, checkpoint=folder / train.CHECKPOINT)
    save(network, folder)
    reader = load_reader(folder)
    measured = {source: figures(reader, readings) for source, readings in held_out.items()}
    (folder / "figures.md").write_text(table(measured), encoding="utf-8")


if __name__ == "__main__":
    main()
