"""MMLU (Hendrycks et al., 2021): four-choice questions in 57 subjects, answered after five demonstrations.

Its own layout is a folder with dev/, val/ and test/, each with a table a subject (anatomy_test.csv: question, four
options and the letter, without a header): the questions are those of test/, the demonstrations those of dev/. A file
of {question, choices, answer}, as MMLU-Redux (Gema et al., 2024) has, is read too; of its re-annotated questions only
those whose error_type is "ok" count.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from kcard.errors import UsageError
from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.gathering import Placed, from_rows, gathered
from kcard.evaluation.tasks.task import Item, TaskData
from kcard.rows import Row, reading

__all__ = ["DOMAINS", "domain_of", "read"]

NAME = "mmlu"
METRIC = "accuracy"
SPLITS = ("test", "val")
HEADER = ("question", "A", "B", "C", "D", "answer")
COLUMNS = Columns(group=("subject", "category"))
DOMAINS = {
    "STEM": (
        "abstract_algebra astronomy college_biology college_chemistry college_computer_science college_mathematics "
        "college_physics computer_security conceptual_physics electrical_engineering elementary_mathematics "
        "high_school_biology high_school_chemistry high_school_computer_science high_school_mathematics "
        "high_school_physics high_school_statistics machine_learning"
    ),
    "humanities": (
        "formal_logic high_school_european_history high_school_us_history high_school_world_history "
        "international_law jurisprudence logical_fallacies moral_disputes moral_scenarios philosophy prehistory "
        "professional_law world_religions"
    ),
    "social sciences": (
        "econometrics high_school_geography high_school_government_and_politics high_school_macroeconomics "
        "high_school_microeconomics high_school_psychology human_sexuality professional_psychology public_relations "
        "security_studies sociology us_foreign_policy"
    ),
    "other": (
        "anatomy business_ethics clinical_knowledge college_medicine global_facts human_aging management marketing "
        "medical_genetics miscellaneous nutrition professional_accounting professional_medicine virology"
    ),
}


def domain_of(subject: str) -> str:
    """STEM, humanities, social sciences or other, as MMLU's authors sort the subjects; "" for an unknown one."""
    return next((domain for domain, subjects in DOMAINS.items() if subject in subjects.split()), "")


def read(path: Path) -> TaskData:
    """Accuracy; the group of a question is its subject."""
    if not path.is_dir():
        return from_rows(NAME, METRIC, path, COLUMNS, _kept)
    split = next((split for split in SPLITS if any((path / split).glob("*.csv"))), None)
    if split is None:
        raise UsageError(f"{NAME} {path}: expected tables such as test/anatomy_test.csv in the folder")
    shots: dict[str, tuple[Item, ...]] = {}
    for _, item in _tables(path / "dev", "dev"):
        shots[item.group] = (*shots.get(item.group, ()), item)
    return gathered(NAME, METRIC, path, _tables(path / split, split), shots)


def _kept(row: Row) -> Row | None:
    return row if row.get("error_type") in {None, "ok"} else None


def _tables(folder: Path, split: str) -> Iterator[Placed]:
    for file in sorted(folder.glob("*.csv")):
        subject = file.stem.removesuffix(f"_{split}")
        for number, (where, row) in enumerate(_table(file), start=1):
            yield where, COLUMNS.item({**row, "subject": subject, "id": f"{subject}-{number}"}, where)


def _table(file: Path) -> Iterator[tuple[str, Row]]:
    with reading(file, NAME), file.open(encoding="utf-8-sig", newline="") as stream:
        table = csv.reader(stream)
        try:
            for row in table:
                where = f"{NAME} {file}, line {table.line_num}"
                if len(row) != len(HEADER):
                    raise UsageError(
                        f"{where}: expected {len(HEADER)} columns ({', '.join(HEADER)}), found {len(row)}"
                    )
                yield where, dict(zip(HEADER, row, strict=True))
        except csv.Error as error:
            raise UsageError(f"{NAME} {file}, line {table.line_num + 1}: not CSV: {error}") from error
