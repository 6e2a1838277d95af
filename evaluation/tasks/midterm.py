"""MidtermQA (Knowledge Card, section 3): who won a race of the 2022 U.S. midterm elections.

The three files of its repository, told apart by their questions: openbook, binary and fourchoice, each with five
demonstrations under "demos". The options stand in a question's last line: "A. Neil Parrott B. David Trone".
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

from kcard.errors import UsageError
from kcard.evaluation.entries import listed, parsed_file
from kcard.evaluation.tasks.columns import Columns, required_text
from kcard.evaluation.tasks.gathering import Placed, gathered
from kcard.evaluation.tasks.task import TaskData

__all__ = ["read"]

NAME = "midterm"
VARIANTS = {0: "openbook", 2: "binary", 4: "fourchoice"}
COLUMNS = Columns()
INITIAL = re.compile(r"[A-Z]\.")


def read(path: Path) -> TaskData:
    """Exact match for the open-book questions, accuracy for the others."""
    file = f"{NAME} {path}"
    data = parsed_file(path, NAME)
    items = list(_items(data, file, "testset"))
    shots = tuple(item for _, item in _items(data, file, "demos"))
    counts = sorted({len(item.choices) for _, item in items})
    if len(counts) > 1:
        raise UsageError(
            f"{file}: questions with {' and '.join(map(str, counts))} options: give one of its files"
        )
    found = gathered(NAME, "em" if counts == [0] else "accuracy", path, items, {"": shots})
    return replace(found, name=f"{NAME}-{VARIANTS[counts[0]]}")


def _items(data: object, file: str, key: str) -> Iterator[Placed]:
    for where, row in listed(data, file, (key,)):
        question, _, line = required_text(row, COLUMNS.question, where).partition("\n")
        options = _options(line)
        if line and not options:
            raise UsageError(
                f'{where}: expected options such as "A. Joe Wilson B. Judd Larkins", found {line[:60]!r}'
            )
        yield where, COLUMNS.item({**row, "question": question, "choices": options or None}, where)


def _options(line: str) -> list[str]:
    """The four or two options of a line.

    A letter may be an initial too ("A. J. B. Pritzker B. Darren Bailey"): of all ways to cut the line, the one whose
    shortest name has the most whole words is right.
    """
    for letters in ("ABCD", "AB"):
        places = [[m.start() for m in re.finditer(rf"(?<!\S){letter}\.\s", line)] for letter in letters]
        cuts = [cut for cut in product(*places) if cut[0] == 0 and all(a < b for a, b in pairwise(cut))]
        splits = [[line[a + 2 : b].strip() for a, b in pairwise((*cut, len(line)))] for cut in cuts]
        if splits:
            return max(splits, key=_fewest_words)
    return []


def _fewest_words(names: list[str]) -> int:
    return min(sum(not INITIAL.fullmatch(word) for word in name.split()) for name in names)
