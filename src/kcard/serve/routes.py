"""Model names of the endpoint: the LLM, the LLM with a mode, and the LLM with one card.

llama-3.1-8b               as `kcard serve --mode` says
llama-3.1-8b:direct        without cards; also top-down, bottom-up, hybrid
llama-3.1-8b:biomedical    with that card
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import get_args

from kcard.integrators.options import Mode
from kcard.serve.errors import NoSuchModel

__all__ = ["Route", "names", "route_of"]

MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Route:
    """How a question is answered. `card`: the only card that is asked; None: all."""

    mode: Mode
    card: str | None = None


def names(llm: str, cards: Iterable[str]) -> Iterator[str]:
    yield llm
    yield from (f"{llm}:{mode}" for mode in MODES)
    yield from (f"{llm}:{card}" for card in cards)


def route_of(model: str, llm: str, default: Mode, cards: Iterable[str]) -> Route:
    """Raises NoSuchModel for a name that is neither the LLM's nor the LLM's with a mode or card."""
    if model == llm:
        return Route(default)
    wanted = model.removeprefix(f"{llm}:") if model.startswith(f"{llm}:") else ""
    if wanted in MODES:
        return Route(wanted)
    if wanted and wanted in set(cards):
        return Route("bottom-up", wanted)
    raise NoSuchModel(f"the model {model!r} does not exist: GET /v1/models lists those that do", "model")
