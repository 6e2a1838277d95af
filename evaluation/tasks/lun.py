"""LUN (Rashkin et al., 2017), as Knowledge Card evaluates on it: which kind of news article is this?

LUN2.json (true, false) and LUN4.json (satire, hoax, propaganda, trusted) of Knowledge Card's repository: the classes
under "potential_labels", sixteen demonstrations under "demos", the articles under "testset".
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kcard.errors import UsageError
from kcard.evaluation.entries import listed, parsed_file
from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.gathering import Placed, gathered
from kcard.evaluation.tasks.task import TaskData

__all__ = ["read"]

NAME = "lun"
COLUMNS = Columns(question=("text",), answers=("label",))


def read(path: Path) -> TaskData:
    """Balanced accuracy; the variant is the number of classes: lun-2, lun-4."""
    file = f"{NAME} {path}"
    data = parsed_file(path, NAME)
    classes = data.get("potential_labels") if isinstance(data, dict) else None
    if not isinstance(classes, list) or not classes or not all(isinstance(name, str) for name in classes):
        raise UsageError(
            f'{file}: expected the classes as a list of texts, one or more, under "potential_labels"'
        )
    items = _items(data, file, "testset", classes)
    shots = tuple(item for _, item in _items(data, file, "demos", classes))
    return replace(
        gathered(NAME, "balanced-accuracy", path, items, {"": shots}), name=f"{NAME}-{len(classes)}"
    )


def _items(data: object, file: str, key: str, classes: list[str]) -> Iterator[Placed]:
    asked = f"Is the following news article {', '.join(classes[:-1])} or {classes[-1]}?"
    for where, row in listed(data, file, (key,)):
        item = COLUMNS.item({**row, "choices": classes}, where)
        yield where, replace(item, question=f"{asked}\n{item.question}")
