"""What a pool is worth as cards are added to it one by one (Knowledge Card, section 6)."""

from collections.abc import Iterable, Mapping

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.analyses.variant import Variant, difference, score, varied
from kcard.evaluation.charts.chart import Line, Lines, Point
from kcard.evaluation.record import Mean
from kcard.evaluation.runs.result import Result

__all__ = ["added_cards"]


def added_cards(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """The score with the first card, with the first two, and so on; what each added card changes.

    Raises UsageError unless the run has settings each of which has one card more than the one before.
    """
    chains: dict[tuple[str, str], list[Variant]] = {}
    for variant in varied(results, metrics, frozenset({"cards"})):
        chain = chains.setdefault((variant.task, variant.base), [])
        if len(variant.options) == len(chain) + 1 and (
            not chain or variant.options[:-1] == chain[-1].options
        ):
            chain.append(variant)
    chains = {key: chain for key, chain in chains.items() if len(chain) > 1}
    if not chains:
        raise UsageError("this run adds no cards one by one: start one with `kcard eval --analysis adding`")
    return Analysis(
        "adding",
        "Cards one by one",
        "The score as cards join the pool in this order, and the change that each brings on the same questions, with "
        "95 % intervals. A pool that keeps its score has selectors that tell cards apart.",
        ("task", "setting", "cards", "added", "score", "change"),
        tuple(
            (task, base, n + 1, v.values[-1], score(v, metrics[task]), _change(chain, n, metrics[task]))
            for (task, base), chain in chains.items()
            for n, v in enumerate(chain)
        ),
        tuple(_chart(task, chains, metrics[task]) for task in dict.fromkeys(task for task, _ in chains)),
    )


def _change(chain: list[Variant], n: int, metric: str) -> Mean | None:
    return difference(chain[n], chain[n - 1], metric) if n else None


def _chart(task: str, chains: Mapping[tuple[str, str], list[Variant]], metric: str) -> Lines:
    mine = {base: chain for (name, base), chain in chains.items() if name == task}
    longest = sorted(mine.values(), key=len)[-1]
    return Lines(
        f"score on {task} as cards are added; the numbers are in the table",
        tuple(
            Line(base, tuple(Point(v.values[-1], score(v, metric), n) for n, v in enumerate(chain)))
            for base, chain in mine.items()
        ),
        "cards in the pool, each beside those on its left",
        f"score on {task}",
        tuple(("" if n == 0 else "+ ") + v.values[-1] for n, v in enumerate(longest)),
    )
