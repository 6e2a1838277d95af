"""EntityQuestions (Sciavolino et al., 2021), Adaptive Retrieval's second data set: simple questions by relation.

Its own layout has a file for each relation of Wikidata, such as test/P17.test.json, a list of {question, answers}.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kcard.errors import UsageError
from kcard.evaluation.entries import entries
from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.drawn_shots import at_random
from kcard.evaluation.tasks.gathering import Placed, gathered
from kcard.evaluation.tasks.task import TaskData

__all__ = ["read"]

NAME = "entityquestions"
SPLITS = ("test", "dev", ".")
COLUMNS = Columns(group=("relation",))


def read(path: Path) -> TaskData:
    """Substring accuracy, as Adaptive Retrieval reports it, over one relation's file or all of a folder (its test/).

    The demonstrations are fifteen questions at random.
    """
    files = [path]
    if path.is_dir():
        files = next((found for split in SPLITS if (found := sorted((path / split).glob("P*.json*")))), [])
    if not files:
        raise UsageError(f"{NAME} {path}: expected files such as test/P17.test.json in the folder")
    data = gathered(NAME, "substring", path, (placed for file in files for placed in _items(file)))
    return replace(data, shots=at_random(data.items))


def _items(file: Path) -> Iterator[Placed]:
    relation = file.name.split(".")[0]
    for number, (where, row) in enumerate(entries(file, NAME), start=1):
        yield where, COLUMNS.item({"relation": relation, "id": f"{relation}-{number}", **row}, where)
