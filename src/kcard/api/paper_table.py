"""A table of a paper: the commands that ask the same here, and what is missing on this machine to run them."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.config import OFFLINE_LLMS, settings
from kcard.errors import HubError, KcardError, UsageError
from kcard.evaluation.papers import PaperTable, paper_table

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["Reproduction", "reproduction"]

LLM = "openai:MODEL"


@dataclass(frozen=True)
class Reproduction:
    """A table, the commands for it with the user's paths and LLM, and what is still missing, in sentences.

    `missing` is checked on this machine; what nobody can get is in `table.lacks`.
    """

    table: PaperTable
    commands: tuple[str, ...]
    missing: tuple[str, ...]


def reproduction(
    paper: str,
    number: int,
    *,
    path: Sequence[str | Path] = (),
    llm: str | None = None,
    hub: "Hub | None" = None,
) -> Reproduction:
    """How to ask what the table shows, here.

    path  files of the table's tasks, in its order
    llm   the LLM, as for evaluate

    Nothing is asked or fetched. Raises UsageError for an unknown table, or more paths than it has files.
    """
    table = paper_table(paper, number)
    if len(path) > len(table.files):
        raise UsageError(f"{len(path)} paths for the {len(table.files)} files of {paper}, table {number}")
    named = [file.partition("=")[2] for file in table.files]
    shown = [shlex.quote(str(file)) for file in (*path, *named[len(path) :])]
    missing = [
        *_data(table, path),
        *_llm(llm),
        *_weights(table),
        *_gates(table),
        *_cards(table, hub),
    ]
    return Reproduction(table, table.filled(shown, llm or LLM), tuple(missing))


def _data(table: PaperTable, path: Sequence[str | Path]) -> Iterator[str]:
    from kcard.evaluation.tasks.registry import read_task

    for task, file in zip(table.tasks, path, strict=False):
        try:
            read_task(task, file)
        except KcardError as error:
            yield f"data: {error}"
    for file in table.files[len(path) :]:
        yield f"data: {file.partition('=')[2]}, given as --path"


def _llm(llm: str | None) -> Iterator[str]:
    named = llm or settings().llm
    backend, _, model = named.partition(":")
    if backend == "embedded":
        yield "LLM: an LLM, given as --llm; the embedded one only extracts answers from passages"
    elif backend in OFFLINE_LLMS and not _is_here(model):
        yield f"weights: {model} is not on this machine"


def _weights(table: PaperTable) -> Iterator[str]:
    from kcard.selectors.models.catalogue import PRESETS, Kind, models

    names = list(table.models)
    kinds: tuple[Kind, ...] = ("relevance", "pruner", "checker")
    for kind in kinds if table.selectors else ():
        chosen = models(kind, PRESETS[table.selectors].of(kind))
        names += [model.repository.name for model in chosen if not model.embedded]
    for name in dict.fromkeys(names):
        if not _is_here(name):
            yield f"weights: {name} is not on this machine"


def _gates(table: PaperTable) -> Iterator[str]:
    from kcard.integrators.named_gate import gates_folder

    for gate in table.gates:
        if not (gates_folder() / gate).is_file():
            yield f"gate: {gate} is not fitted yet (kcard gate fit --kind {gate})"


def _cards(table: PaperTable, hub: "Hub | None") -> Iterator[str]:
    from kcard.hub.registry import Hub

    if table.own_cards:
        yield "cards: a retrieval card of your own in place of CARD, such as over Wikipedia"
    if not table.cards:
        return
    try:
        (hub or Hub()).pools.get(table.cards)
    except HubError:
        yield f"cards: the pool {table.cards} (kcard add --published --convert)"


def _is_here(repository: str) -> bool:
    """Whether a model is a folder, or in the Hugging Face cache."""
    if Path(repository).expanduser().is_dir():
        return True
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(repository, "config.json"), str)
