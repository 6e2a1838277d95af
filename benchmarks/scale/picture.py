"""Hits and latency by policy for growing numbers of cards: adapters, which are small, and whole models."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.scale.fleet import Fleet, Outcome, outcome
from benchmarks.scale.inputs import KINDS, Parts
from benchmarks.scale.placement import POLICIES

__all__ = ["draw"]

# Questions a second, and numbers of cards.
SIZES = {
    "adapter": (100.0, (1_000, 3_000, 10_000, 30_000, 100_000)),
    "whole": (10.0, (30, 100, 300, 1_000, 3_000)),
}
COLOURS = {
    "random": "#999999",
    "least-loaded": "#d4a72c",
    "hashing": "#cf222e",
    "bounded": "#1f6feb",
    "replicated": "#1a7f37",
}
# By kind, by policy: for each number of cards.
Found = Mapping[str, Mapping[str, Sequence[Outcome]]]


def draw(questions: int, target: Path) -> None:
    plot(
        {
            name: {
                policy: [
                    outcome(Fleet(KINDS[name], n, rate, policy=policy), Parts(), questions) for n in cards
                ]
                for policy in POLICIES
            }
            for name, (rate, cards) in SIZES.items()
        },
        target,
    )


def plot(found: Found, target: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6))
    axes = figure.subplots(2, len(found), squeeze=False)
    for column, (name, policies) in enumerate(found.items()):
        hits, latency = axes[:, column]
        rate, cards = SIZES[name]
        for policy, rows in policies.items():
            line = {"marker": "o", "markersize": 4, "color": COLOURS[policy]}
            hits.plot(cards, [row.hits for row in rows], label=policy, **line)
            latency.plot(cards, [row.p95 for row in rows], **line)
        hits.set_ylim(0, 1.02)
        hits.set_ylabel("questions whose card is in memory")
        latency.set_yscale("log")
        latency.set_ylabel("95th percentile, seconds")
        latency.set_xlabel(
            f"{name} cards, {rate:.0f} questions a second, {policies['bounded'][0].workers} workers"
        )
        for one in (hits, latency):
            one.set_xscale("log")
            one.spines[["top", "right"]].set_visible(False)
            one.grid(axis="y", color="#eeeeee")
    axes[0, 0].legend(frameon=False, fontsize="small", loc="lower left")
    figure.tight_layout()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kcard"}):
        figure.savefig(target, metadata={"Date": None}, bbox_inches="tight")
