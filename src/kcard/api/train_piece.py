"""A card of many, as a worker trains it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kcard.bulk.piece import Piece
from kcard.training.output import CHECKPOINT

__all__ = ["train_piece", "trained"]


def train_piece(name: str, arguments: Mapping[str, Any]) -> Piece:
    """The piece that trains the card of that name. `arguments`: those of kcard.train, JSON-ready."""
    return Piece(name, f"{__name__}:trained", {"arguments": dict(arguments)})


def trained(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Train a card and examine it, going on from a checkpoint in its folder.

    Returns the folder, the sha256 of its manifest, and the exam's recall on its own corpus in [0, 1], or None.
    """
    from kcard.api.train import train
    from kcard.evaluation.record import read_exam
    from kcard.manifest import MANIFEST, file_digest

    resume = (Path(arguments["output"]) / CHECKPOINT).is_dir()
    card = train(**arguments, resume=resume)
    exam = read_exam(card.folder)
    recall = None if exam is None or exam.recall is None else exam.recall.mean
    return {"folder": str(card.folder), "manifest": file_digest(card.folder / MANIFEST), "recall": recall}
