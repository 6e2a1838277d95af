"""Data sets of the Hugging Face Hub by name, and those that `datasets` saved to a folder."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kcard.config import settings
from kcard.errors import CorpusError, one_line
from kcard.training.corpora.columns import Row, texts
from kcard.training.corpora.document import Block, Document

__all__ = ["PREFIX", "is_saved", "read", "read_saved", "repository"]

PREFIX = "hf:"
ROWS = 1000


def repository(name: str) -> str:
    """The last part of a data set's name: hf:owner/name/config:split is called name."""
    return _parts(name)[0].rpartition("/")[2]


def read(document: Document) -> Iterator[Block]:
    """The rows of hf:owner/name, hf:owner/name:split or hf:owner/name/config:split, one after the other.

    Without a split it is train, or the only one. Rows are streamed; offline the data set must be in datasets'
    cache. Data sets that need code of their own are refused.
    """
    name, config, split = _parts(document.name)
    if not name.strip("/"):
        raise CorpusError(f"{document.name} lacks the name of a data set: write {PREFIX}owner/name")
    return texts(_numbered(_loaded(name, config, split)), document)


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` of datasets wrote the folder."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


def read_saved(document: Document) -> Iterator[Block]:
    """The rows of a folder that `save_to_disk` wrote, from its train split or its only one."""
    from datasets import load_from_disk

    try:
        found = load_from_disk(str(document.path))
    except Exception as error:  # datasets lets through whatever a broken folder provokes
        raise CorpusError(
            f"{document.path} can't be loaded as a saved data set ({one_line(error, 200)})"
        ) from error
    if isinstance(found, dict):
        names = ", ".join(f"{document.path}/{split}" for split in found)
        found = found[_split(list(found), None, str(document.path), f"name one of {names}")]
    return texts(_numbered(_rows(found)), document)


def _parts(name: str) -> tuple[str, str | None, str | None]:
    """(owner/name, config, split)."""
    path, _, split = name.removeprefix(PREFIX).partition(":")
    owner, *rest = path.split("/", 2)
    return "/".join([owner, *rest[:1]]), rest[1] if len(rest) > 1 else None, split or None


def _loaded(name: str, config: str | None, split: str | None) -> Iterator[Any]:
    """Rows as they come. datasets and its many backends raise what they like, at any row: each is one line."""
    from datasets import load_dataset

    offline = settings().offline
    try:
        found = load_dataset(name, config, streaming=not offline)
        remedy = f"write {PREFIX}{name}{f'/{config}' if config else ''}:SPLIT"
        chosen = _split(list(found), split, f"{PREFIX}{name}", remedy)
        yield from found[chosen] if not offline else _rows(found[chosen])
    except CorpusError:
        raise
    except Exception as error:  # see above
        raise CorpusError(_refusal(name, error, offline)) from error


def _refusal(name: str, error: Exception, offline: bool) -> str:
    said = one_line(error, 200)
    if "script" in said.lower():
        return f"{PREFIX}{name} needs its own code, which kcard does not run: use a Parquet version of it"
    if offline:
        return (
            f"{PREFIX}{name} is not on this machine and HF_HUB_OFFLINE is set: unset it, or download the "
            "data set and give "
            f"its folder ({said})"
        )
    return f"{PREFIX}{name} can't be loaded: check name, access and network ({said})"


def _split(splits: list[str], wanted: str | None, name: str, remedy: str) -> str:
    chosen = wanted or ("train" if "train" in splits else splits[0] if len(splits) == 1 else None)
    if chosen not in splits:
        asked = f"no split {wanted!r}" if wanted else "several splits and no train"
        raise CorpusError(f"{name} has {asked}; it has {', '.join(map(str, splits))}: {remedy}")
    return chosen


def _rows(table: Any) -> Iterator[Row]:
    """Rows of a data set on disk, a thousand at a time."""
    for batch in table.iter(batch_size=ROWS):
        for cells in zip(*batch.values(), strict=True):
            yield dict(zip(batch, cells, strict=True))


def _numbered(rows: Iterable[Row]) -> Iterator[tuple[int, Row]]:
    return enumerate(rows, 1)
