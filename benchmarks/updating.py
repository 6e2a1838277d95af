"""An embedded card is updated: is it better to train it anew on old and new passages, or to go on from its weights?

    python benchmarks/updating.py --path demo/corpora/moons --new 0.5 --passes 10 20

The corpus is split at random; a first version learns the old part. The next one learns both parts, anew or from
the weights of the first: tokens that both tokenizers have keep their embeddings, old passages keep their
addresses. Recall is that of exam questions about each part, seconds are those of the processor.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from kcard.answer import Source
from kcard.cards.folder import finish
from kcard.evaluation.exam import recall
from kcard.evaluation.questions import about
from kcard.manifest import Manifest
from kcard.training import embedded
from kcard.training.corpus import read_corpus
from kcard.training.loop import run
from kcard.training.preparation import Preparation
from kcard.training.recipe import Recipe, choose_style
from kcard.training.threads import one_thread


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", required=True, help="a corpus")
    parser.add_argument("--new", type=float, default=0.5, help="share of passages that are new")
    parser.add_argument(
        "--passes", type=float, nargs="*", default=[10, 20], help="when going on, over both parts"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = list(read_corpus(given.path).passages)
    Random(given.seed).shuffle(found)
    border = round((1 - given.new) * len(found))
    old, both = found[:border], found
    style, _ = choose_style([source.text for source in both])
    questions = [about(part, 200, given.seed, accepted=both) for part in (old, found[border:])]
    print(f"{len(old)} old passages, {len(both) - len(old)} new, {style}")
    print("| version | steps | CPU s | recall, old | recall, new |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work, one_thread():
        first = Path(work) / "first"
        ways: list[tuple[str, Sequence[Source], float | None, Path | None]] = [
            ("first, old alone", old, None, None),
            ("anew", both, None, None),
            *((f"going on, {passes:g} passes", both, passes, first) for passes in given.passes),
        ]
        for number, (name, sources, passes, start) in enumerate(ways):
            folder = first if number == 0 else Path(work) / str(number)
            steps, seconds = _train(
                sources, Recipe(style=style, seed=given.seed, epochs=passes), folder, start
            )
            known = [recall(folder, asked) for asked in questions]
            print(f"| {name} | {steps} | {seconds:.0f} | {known[0]} | {known[1]} |", flush=True)


def _train(sources: Sequence[Source], recipe: Recipe, folder: Path, start: Path | None) -> tuple[int, float]:
    begun = time.process_time()
    prepared = embedded.prepare([source.text for source in sources], recipe)
    folder.mkdir()
    if start is not None:
        _go_on(prepared, start, folder)
    run(prepared.job, folder / ".checkpoint")
    prepared.save(folder)
    seconds = time.process_time() - begun
    finish(folder, Manifest("updated", "A card", prompt=prepared.prompt), sources)
    return prepared.job.steps, seconds


def _go_on(prepared: Preparation, start: Path, folder: Path) -> None:
    """Give the prepared model the weights of the card in `start`, embeddings by token."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoTokenizer

    prepared.save(folder)
    tokens: list[Any] = [AutoTokenizer.from_pretrained(where) for where in (start, folder)]
    old = load_file(start / "model.safetensors")
    model: Any = prepared.job.modules["model"]
    table = model.get_input_embeddings().weight
    before = old.pop("model.decoder.embed_tokens.weight")
    shared = {name: row for name, row in tokens[0].get_vocab().items() if name in tokens[1].get_vocab()}
    with torch.no_grad():
        for name, row in shared.items():
            table[tokens[1].get_vocab()[name]] = before[row]
        addresses = before[len(tokens[0]) :]
        table[len(tokens[1]) : len(tokens[1]) + len(addresses)] = addresses
    old.pop("lm_head.weight", None)
    model.load_state_dict(old, strict=False)
    if "projection" in prepared.job.modules:
        prepared.job.modules["projection"].load_state_dict(load_file(start / "projection.safetensors"))


if __name__ == "__main__":
    main()
