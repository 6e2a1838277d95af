"""Presets of training (presets.toml): how the papers trained a card, and on which corpora.

knowledge-card           the paper's numbers for a corpus of one's own
knowledge-card:pubmed    those, on its corpus, with its description
"""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.json_values import build
from kcard.training.options import EMBEDDED, TrainOptions

__all__ = ["CORPORA", "KNOWLEDGE_CARD", "NAME", "PresetCorpus", "with_preset"]

NAME = "knowledge-card"


@dataclass(frozen=True)
class PresetCorpus:
    """A corpus of the paper. `data`: a data set that kcard reads, "" where there is none; `note` says why, or how the
    data differs from the paper's."""

    name: str
    description: str
    domain: str
    note: str
    data: str = ""
    field: str | None = None


_TABLES = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
KNOWLEDGE_CARD: dict[str, Any] = _TABLES[NAME]
CORPORA = {row["name"].lower(): build(PresetCorpus, row) for row in _TABLES["corpora"]}


def with_preset(corpus: str | Path | None, given: TrainOptions) -> tuple[str | Path, TrainOptions]:
    """Corpus and options with what the preset says in place of what was left out.

    Raises UsageError for an unknown preset, one beside an update or the embedded base, and where no corpus is given or
    known.
    """
    if given.preset is None:
        return _known(corpus, "name a file or folder of documents or tables"), given
    if given.update is not None:
        raise UsageError(
            f"preset {given.preset!r}: an update is trained as its card was, leave the preset out"
        )
    if given.base == EMBEDDED:
        raise UsageError(
            f"preset {given.preset!r}: its numbers are for a pretrained model, leave out --base embedded"
        )
    kind, _, name = given.preset.partition(":")
    if kind != NAME or (name and name.lower() not in CORPORA):
        choices = ", ".join(row.name for row in CORPORA.values())
        raise UsageError(
            f"preset {given.preset!r} is unknown: use {NAME}, or {NAME}:CORPUS with one of {choices}"
        )
    chosen = _filled(given, KNOWLEDGE_CARD)
    if not name:
        return _known(
            corpus, f"the preset {NAME} is for one of yours; {NAME}:CORPUS names one of the paper"
        ), chosen
    row = CORPORA[name.lower()]
    described = {"name": row.name.lower(), "description": row.description}
    if given.domain == TrainOptions.domain:
        described["domain"] = row.domain
    if corpus is None and row.field:
        described["field"] = row.field
    told = f"that of the preset {given.preset} is not on the Hugging Face Hub as kcard reads it ({row.note})"
    return _known(corpus or row.data or None, told), _filled(chosen, described)


def _filled(given: TrainOptions, values: dict[str, Any]) -> TrainOptions:
    """The options with these values where they have their default."""
    left = {key: value for key, value in values.items() if getattr(given, key) == getattr(TrainOptions, key)}
    return replace(given, **left)


def _known(corpus: str | Path | None, told: str) -> str | Path:
    if corpus is None:
        raise UsageError(f"--corpus is missing: {told}")
    return corpus
