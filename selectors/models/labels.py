"""What the labels of an entailment model mean: read from its config, then tried on pairs that leave no doubt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kcard.errors import ModelUnavailable
from kcard.protocols import Array, Pair

__all__ = ["PROBES", "Labels", "read", "verify"]

SUPPORTS = frozenset({"entailment", "entails", "supports", "supported", "support", "consistent", "grounded"})
REFUTES = frozenset({"contradiction", "contradicts", "refutes", "refuted", "refute"})

_TOWER = "The Eiffel Tower stands in Paris. It was completed in 1889."
_WATER = "At sea level water freezes at 0 degrees Celsius and boils at 100 degrees Celsius."
_CURIE = "Marie Curie won the Nobel Prize in Physics in 1903 and the Nobel Prize in Chemistry in 1911."
# (evidence, a claim that it supports, a claim that it refutes)
PROBES = (
    (_TOWER, "The Eiffel Tower is in Paris.", "The Eiffel Tower is in London."),
    (
        _WATER,
        "Water boils at 100 degrees Celsius at sea level.",
        "Water boils at 40 degrees Celsius at sea level.",
    ),
    (_CURIE, "Marie Curie won the Nobel Prize in Physics in 1903.", "Marie Curie never won a Nobel Prize."),
)


@dataclass(frozen=True)
class Labels:
    """Places of the labels among the model's outputs; `refutes` is None where it has none of its own."""

    supports: int
    refutes: int | None = None


def read(id2label: Mapping[int, str], meanings: Mapping[str, str], model: str) -> Labels:
    """The places that the config's own names tell.

    `meanings`: what names mean that say nothing by themselves (LABEL_1), from the model's documentation.
    Raises ModelUnavailable where no label, or more than one, means that the evidence supports the claim.
    """
    usual = {**dict.fromkeys(SUPPORTS, "supports"), **dict.fromkeys(REFUTES, "refutes")}
    known = usual | {_plain(name): meaning for name, meaning in meanings.items()}
    places: dict[str, list[int]] = {"supports": [], "refutes": []}
    for place, name in id2label.items():
        if (meaning := known.get(_plain(str(name)))) in places:
            places[meaning].append(int(place))
    if len(places["supports"]) != 1 or len(places["refutes"]) > 1:
        names = ", ".join(map(str, id2label.values()))
        raise ModelUnavailable(
            f"{model} names its labels {names}, and none clearly means supported: choose a model whose "
            "config names one entailment or SUPPORTS"
        )
    return Labels(places["supports"][0], next(iter(places["refutes"]), None))


def verify(support: Callable[[Sequence[Pair]], Array], model: str) -> None:
    """ModelUnavailable unless plainly supported claims score higher, on the whole, than plainly refuted ones."""
    true = [Pair(claim, evidence) for evidence, claim, _ in PROBES]
    false = [Pair(claim, evidence) for evidence, _, claim in PROBES]
    scores = support([*true, *false])
    kept, refuted = float(np.mean(scores[: len(true)])), float(np.mean(scores[len(true) :]))
    if not kept > refuted:
        raise ModelUnavailable(
            f"{model} scores claims that are plainly refuted {refuted:.2f} and plainly supported ones {kept:.2f}: "
            "its labels are swapped, or it is not a fact checker"
        )


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")
