"""How often large cards are loaded into a memory that does not hold them all, against the least possible.

    python -m benchmarks.card_residency [--cards 26] [--questions 1000] [--seed 1] [--measured] [--json]
    python -m benchmarks.card_residency --picture FILE.svg

Questions come in batches. In bottom-up every question asks all cards; in top-down each asks one, drawn by Zipf's law
(the n-th most popular card with a probability of 1/n). Memory holds 3, 8 or 13 of 26 cards of one size. Loads are
counted of

    before   cards in the order given: in bottom-up stacked anew for each batch, as many as fit, so that each is loaded
             in each batch, and once more at first; in top-down those asked longest ago leave
    kcard    the order of kcard.cards.turns and the memory of kcard.cards.lm.memory, with the next card read ahead
    least    batches as they are, cards within them in any order, with knowledge of all batches to come (Belady's rule,
             for batches: of the cards at hand, keep those that are wanted soonest). No order and no rule load less

and the least of all is each distinct card once. `--measured` counts the files that real cards read, 26 small random
models, as well: they must write the same documents in all settings, and load as often as simulated.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from kcard.batches import batched
from kcard.cards.lm.memory import Memory
from kcard.cards.turns import ordered

ROOMS = (3, 8, 13)
BATCHES = (16, 64, 256, 1000)
MODES = ("bottom-up", "top-down")
Batches = list[list[tuple[str, ...]]]  # by batch, by question: the cards that it asks


def asked(mode: str, cards: int, questions: int, seed: int) -> list[tuple[str, ...]]:
    """The cards of each question."""
    names = [f"card{number}" for number in range(cards)]
    if mode == "bottom-up":
        return [tuple(names)] * questions
    weights = [1 / (number + 1) for number in range(cards)]
    return [(name,) for name in random.Random(seed).choices(names, weights, k=questions)]


def before(batches: Batches, room: int) -> int:
    """Loads by the former rule."""
    loads, held = 0, list[str]()
    for batch in batches:
        if len(batch[0]) > 1:
            loads += len(batch[0])
            continue
        for (name,) in dict.fromkeys(batch):
            loads += name not in held
            held = [*(other for other in held if other != name), name][-room:]
    return loads + (len(batches[0][0]) if len(batches[0][0]) > 1 else 0)


def simulated(batches: Batches, room: int) -> int:
    """Loads by kcard's own order and memory, of cards of one byte. As in the pool, a card is used twice in its turn,
    and the one after it is read into reserved memory in between; but for a card's first time, when it is verified."""
    memory, known, loads = Memory(room), set[str](), 0
    for batch in batches:
        counts = Counter(name for names in batch for name in names)
        order = ordered(counts, lambda name: name not in memory)
        memory.expected.update(order)
        reading = ""
        for name, following in zip_longest(order, order[1:]):
            if memory.get(name) is None:
                if reading == name:
                    memory.release(1)
                else:
                    loads += 1
                    memory.make_room(1)
                memory.put(name, name, 1)
                known.add(name)
            if following in known and following not in memory and memory.reserve(1):
                reading, loads = following, loads + 1
            memory.get(name)
            memory.expected.discard(name)
    return loads


def least(batches: Batches, room: int) -> int:
    """A bound that no rule and no order within the batches stays under."""
    wanted = [{name for names in batch for name in names} for batch in batches]
    following: list[dict[str, int]] = []
    ahead: dict[str, int] = {}
    for number in reversed(range(len(wanted))):
        following.append(dict(ahead))
        ahead |= dict.fromkeys(wanted[number], number)
    held, loads = set[str](), 0
    for now, then in zip(wanted, reversed(following), strict=True):
        loads += len(now - held)
        held = set(sorted(held | now, key=lambda name: then.get(name, len(wanted)))[:room])
    return loads


def settings(args: argparse.Namespace) -> Iterator[tuple[str, int, int, Batches]]:
    """Mode, room, size of a batch, and the batches."""
    for mode, room, size in product(MODES, ROOMS, BATCHES):
        questions = asked(mode, args.cards, args.questions, args.seed)
        yield mode, room, size, list(batched(questions, size))


def simulation(args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for mode, room, size, batches in settings(args):
        found, bound = simulated(batches, room), least(batches, room)
        rows.append(
            {
                "mode": mode,
                "room": room,
                "batch": size,
                "before": before(batches, room),
                "kcard": found,
                "least": bound,
                "ratio": round(found / bound, 2),
            }
        )
    return rows


def measure(args: argparse.Namespace, rows: list[dict[str, Any]], say: Callable[[str], None]) -> None:
    """Add to each row what real cards load and read. Stops where documents differ."""
    from tests.cards.engine.cards import full

    from kcard.cards.lm.weights import size as bytes_of
    from kcard.cards.pool import Pool
    from kcard.sampling import Sampling

    sampling, expected = Sampling(temperature=1.0, tokens=2), dict[str, Any]()
    with tempfile.TemporaryDirectory() as temporary:
        cards = [full(Path(temporary), "opt", f"card{number}", number) for number in range(args.cards)]
        each = bytes_of(cards[0].folder, "cpu")
        for row, (mode, room, _, batches) in zip(rows, settings(args), strict=True):
            pool, texts, number = Pool(cards, memory=room * each), list[Any](), 0
            with counted() as loads:
                for batch in batches:
                    questions = [f"What is {number + i}?" for i in range(len(batch))]
                    number += len(batch)
                    found = pool.write_each(questions, batch, 1, sampling)
                    texts += [[passage.text for passage in passages] for passages in found]
            if expected.setdefault(mode, texts) != texts:
                sys.exit(f"{mode}, room {room}: documents differ from those in another setting")
            row["measured"], row["megabytes"] = sum(loads.values()), sum(loads.values()) * each / 1e6
            say(f"{mode}, room {room}, batches of {row['batch']}: {row['measured']} loads")


@contextmanager
def counted() -> Iterator[Mapping[str, int]]:
    """How often each card's weights are read from its files while the block lasts."""
    from kcard.cards.lm import rereading, weights

    loads: Counter[str] = Counter()
    first, again = weights.read, rereading.read

    def noted(card: Any, models: Any) -> Any:
        loads[card.name] += 1
        return first(card, models)

    def noted_again(found: Any) -> Any:
        loads[found.folder.name] += 1
        return again(found)

    weights.read, rereading.read = noted, noted_again
    try:
        yield loads
    finally:
        weights.read, rereading.read = first, again


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows])


def plot(rows: Sequence[Mapping[str, Any]], target: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.5))
    for axes, mode in zip(figure.subplots(1, 2, sharey=True), MODES, strict=True):
        own = [row for row in rows if row["mode"] == mode and row["room"] == ROOMS[1]]
        sizes = [row["batch"] for row in own]
        former = [row["before"] for row in own][:1] * len(own)
        axes.plot(sizes, former, "--", color="#999999", label="before, batches of 16")
        axes.plot(sizes, [row["kcard"] for row in own], marker="o", color="#1f6feb", label="kcard")
        axes.plot(sizes, [row["least"] for row in own], marker="x", ls=":", color="#d1242f", label="least")
        axes.set(title=mode, xscale="log", yscale="log", xlabel="questions in a batch", ylim=(20, 2500))
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#eeeeee")
        if mode == MODES[0]:
            axes.set_ylabel("loads for 1,000 questions")
        else:
            axes.legend(frameon=False, loc="upper right")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kcard"}):
        figure.savefig(target, metadata={"Date": None}, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cards", type=int, default=26)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measured", action="store_true", help="count the loads of real cards, too")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = simulation(args)
    if args.picture is not None:
        plot(rows, args.picture)
    if args.measured:
        measure(args, rows, partial(print, file=sys.stderr))
    print(json.dumps(rows) if args.json else table(rows))


if __name__ == "__main__":
    main()
