"""The papers' tables (papers.toml): what each shows, and how to ask the same here."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from kcard.errors import UsageError
from kcard.json_values import build

__all__ = ["Paper", "PaperTable", "TableRow", "paper_table", "paper_tables"]

Paper = Literal["knowledge-card", "thrust", "skr", "adaptive-retrieval"]


@dataclass(frozen=True)
class TableRow:
    """A row of a table; `setting` is its name in `kcard eval`, empty where there is none. nan: not given."""

    name: str
    setting: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    data, model, metric  the paper's, in words
    commands   what asks the same here; {paths} and {llm} stand for options that only the user knows
    files      TASK=what its file is, one for each --path
    cards      the pool of cards that it needs; `own_cards`: it needs cards of the user's own, such as over Wikipedia
    selectors  the preset of selectors whose models it needs; `models`: other repositories of the Hugging Face Hub
    gates      the kinds of gate that must be fitted first
    lacks      what the paper has and nobody can get or kcard does not have
    """

    paper: Paper
    number: int
    title: str
    data: str
    model: str
    metric: str
    commands: tuple[str, ...]
    files: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[TableRow, ...] = ()
    cards: str = ""
    own_cards: bool = False
    selectors: str = ""
    models: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    @property
    def tasks(self) -> tuple[str, ...]:
        """The task of each file."""
        return tuple(file.partition("=")[0] for file in self.files)

    def filled(self, paths: Sequence[str], llm: str) -> tuple[str, ...]:
        """The commands with these --path and --llm options."""
        options = " ".join(f"--path {path}" for path in paths)
        return tuple(c.replace("{paths}", options).replace("{llm}", f"--llm {llm}") for c in self.commands)


@cache
def paper_tables() -> tuple[PaperTable, ...]:
    """Every table of the four papers."""
    text = Path(__file__).with_name("papers.toml").read_text(encoding="utf-8")
    return tuple(build(PaperTable, row) for row in tomllib.loads(text)["tables"])


def paper_table(paper: str, number: int) -> PaperTable:
    """Raises UsageError for a paper or a table that there is not."""
    theirs = {table.number: table for table in paper_tables() if table.paper == paper}
    if not theirs:
        raise UsageError(f"paper {paper!r} is unknown: choose one of {', '.join(get_args(Paper))}")
    if number not in theirs:
        raise UsageError(f"{paper} has no table {number}: it has {', '.join(map(str, theirs))}")
    return theirs[number]
