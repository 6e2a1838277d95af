"""An embedded card is updated: is it better to train it anew on old and new passages, or to go on from its weights?

    python benchmarks/updating.py --path demo/corpora/moons --new 0.5 --share 0.1 0.3

The corpus is split at random; a first version learns the old part. The next one learns both parts, anew or from
the weights of the first, in a share of the steps. Recall is that of exam questions about each part, seconds are
those of the processor.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from kcard.answer import Source
from kcard.cards.format.folder import finish
from kcard.evaluation.exam import recall
from kcard.evaluation.questions import about
from kcard.manifest import Manifest
from kcard.training import embedded
from kcard.training.corpus import read_corpus
from kcard.training.loop import run
from kcard.training.recipe import Recipe, choose_style
from kcard.training.threads import one_thread


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", required=True, help="a corpus")
    parser.add_argument("--new", type=float, default=0.5, help="share of passages that are new")
    parser.add_argument("--share", type=float, nargs="*", default=[0.3], help="of the steps, when going on")
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
        ways: list[tuple[str, Sequence[Source], float, Path | None]] = [
            ("first, old alone", old, 1.0, None),
            ("anew", both, 1.0, None),
            *((f"going on, {share:g} of the steps", both, share, first) for share in given.share),
        ]
        for number, (name, sources, share, start) in enumerate(ways):
            folder = first if number == 0 else Path(work) / str(number)
            steps, seconds = _train(
                sources, Recipe(style=style, seed=given.seed, going_on=share), folder, start
            )
            known = [recall(folder, asked) for asked in questions]
            print(f"| {name} | {steps} | {seconds:.0f} | {known[0]} | {known[1]} |", flush=True)


def _train(sources: Sequence[Source], recipe: Recipe, folder: Path, start: Path | None) -> tuple[int, float]:
    begun = time.process_time()
    prepared = embedded.plan([source.text for source in sources], recipe, start=start).prepare()
    run(prepared.job, folder / ".checkpoint")
    prepared.save(folder)
    seconds = time.process_time() - begun
    finish(folder, Manifest("updated", "A card", prompt=prepared.prompt), sources)
    return prepared.job.steps, seconds


if __name__ == "__main__":
    main()
