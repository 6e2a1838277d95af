"""A piece of a file of questions, as a worker answers it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from kcard.bulk.piece import Piece
from kcard.integrators.batch import answered_rows
from kcard.integrators.options import AskOptions
from kcard.integrators.pipeline import Pipeline
from kcard.rows import Row

__all__ = ["answered", "ask_piece"]


def ask_piece(key: str, options: AskOptions, rows: Sequence[Row]) -> Piece:
    """The piece that asks these rows. Its LLM is named, not an object."""
    return Piece(key, f"{__name__}:answered", {"options": _json_ready(asdict(options)), "rows": list(rows)})


def answered(options: Mapping[str, Any], rows: Sequence[Row]) -> list[Row]:
    """The answer to each row, or its `error`; see kcard.integrators.batch.

    A worker keeps the pipeline, and so the models, for its next piece.
    """
    return [*answered_rows(rows, _pipeline(json.dumps(options)).outcomes)]


@lru_cache(maxsize=1)
def _pipeline(options: str) -> Pipeline:
    given = json.loads(options)
    examples = given["examples"]
    return Pipeline(AskOptions(**given | {"examples": None if examples is None else Path(examples)}))


def _json_ready(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json_ready(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(each) for each in value]
    return str(value) if isinstance(value, Path) else value
