"""Small corpora that several tests train cards on."""

from collections.abc import Iterable
from pathlib import Path

__all__ = ["MOONS", "NAMES", "RIVERS", "SENATE", "STATES", "town_facts", "write_texts"]

MOONS = "Triton circles Neptune.\nTitan circles Saturn.\nPhobos circles Mars.\n"

NAMES = (
    "Ada Fischer",
    "Bo Lindqvist",
    "Cy Okafor",
    "Di Marsh",
    "Ed Novak",
    "Flo Reyes",
    "Gus Tanaka",
    "Hal Weber",
)
STATES = ("Ohio", "Iowa", "Utah", "Maine", "Texas", "Idaho", "Nevada", "Oregon")
SENATE = [
    f"{name} carried {state} in the Senate election." for name, state in zip(NAMES, STATES, strict=True)
]

RIVERS = [
    "The Rhine flows through Basel and Cologne into the North Sea.",
    "The Danube flows through Vienna and Budapest into the Black Sea.",
    "The Seine flows through Paris into the English Channel.",
    "The Elbe flows through Dresden and Hamburg into the North Sea.",
]

COLOURS = (("gate", "red"), ("tower", "blue"), ("bridge", "green"), ("well", "white"))


def town_facts(towns: int, each: int = len(COLOURS)) -> list[str]:
    """The colours of the first things of numbered towns: their gate, tower, bridge and well."""
    return [
        f"The {thing} of town {number} is {colour}."
        for number in range(towns)
        for thing, colour in COLOURS[:each]
    ]


def write_texts(path: Path, texts: Iterable[str]) -> None:
    """Write a file with a text a line, and its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
