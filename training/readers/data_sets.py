"""Data sets of the Hugging Face Hub, and folders that datasets saved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kcard.config import settings
from kcard.errors import CorpusError, one_line
from kcard.training.readers.files import Block, Document
from kcard.training.readers.tables import Row, texts

PREFIX = "hf:"
BATCH_ROWS = 1000


def repository(name: str) -> str:
    """Return the repository in a data set's name: "name" of hf:owner/name/config:split."""
    return _parts(name)[0].rpartition("/")[2]


def read_huggingface(document: Document) -> Iterator[Block]:
    """Read the rows of hf:owner/name, hf:owner/name:split or hf:owner/name/config:split.

    The default split is train, or the only one. Rows are streamed; offline the data set must be in datasets'
    cache. Data sets that need custom code are refused.
    """
    name, config, split = _parts(document.name)
    if not name.strip("/"):
        raise CorpusError(f"{document.name} lacks the name of a data set: write {PREFIX}owner/name")
    return texts(enumerate(stream_rows(name, config, split), 1), document)


def is_saved(folder: Path) -> bool:
    """Return whether `save_to_disk` of datasets wrote the folder."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


def read_saved(document: Document) -> Iterator[Block]:
    """Read the rows of a folder that `save_to_disk` wrote, from its train split or its only one."""
    from datasets import load_from_disk

    try:
        dataset = load_from_disk(str(document.path))
    except Exception as error:  # a broken folder can raise anything in datasets
        raise CorpusError(
            f"{document.path} can't be loaded as a saved data set ({one_line(error, 200)})"
        ) from error
    if isinstance(dataset, dict):
        names = ", ".join(f"{document.path}/{split}" for split in dataset)
        dataset = dataset[choose_split(list(dataset), None, str(document.path), f"name one of {names}")]
    return texts(enumerate(_rows(dataset), 1), document)


def _parts(name: str) -> tuple[str, str | None, str | None]:
    """Split a data set's name into (owner/name, config, split)."""
    path, _, split = name.removeprefix(PREFIX).partition(":")
    owner, *rest = path.split("/", 2)
    config = rest[1] if len(rest) > 1 else None
    return "/".join([owner, *rest[:1]]), config, split or None


def stream_rows(name: str, config: str | None, split: str | None) -> Iterator[Any]:
    """Yield rows as they arrive. Whatever datasets and its backends raise, at any row, becomes one line."""
    from datasets import load_dataset

    offline = settings().offline
    try:
        dataset = load_dataset(name, config, streaming=not offline)
        named = f"{name}/{config}" if config else name
        chosen = choose_split(list(dataset), split, f"{PREFIX}{name}", f"write {PREFIX}{named}:SPLIT")
        if offline:
            yield from _rows(dataset[chosen])
        else:
            yield from dataset[chosen]
    except CorpusError:
        raise
    except Exception as error:  # see above
        reason = one_line(error, 200)
        if "script" in reason.lower():
            message = "needs its own code, which kcard does not run: use a Parquet version of it"
        elif offline:
            message = (
                "is not on this machine and HF_HUB_OFFLINE is set: unset it, or download the data set and give its "
                f"folder ({reason})"
            )
        else:
            message = f"can't be loaded: check name, access and network ({reason})"
        raise CorpusError(f"{PREFIX}{name} {message}") from error


def choose_split(splits: list[str], split: str | None, name: str, remedy: str) -> str:
    """Return the split to read: `split`, or else train or the only one. Raises CorpusError, with the remedy, for
    another one."""
    if split in splits:
        return split
    problem = f"no split {split!r}"
    if not split:
        if "train" in splits:
            return "train"
        if len(splits) == 1:
            return splits[0]
        problem = "several splits and no train"
    raise CorpusError(f"{name} has {problem}; it has {', '.join(map(str, splits))}: {remedy}")


def _rows(table: Any) -> Iterator[Row]:
    """Yield the rows of a data set on disk, loaded a thousand at a time."""
    for batch in table.iter(batch_size=BATCH_ROWS):
        for cells in zip(*batch.values(), strict=True):
            yield dict(zip(batch, cells, strict=True))
