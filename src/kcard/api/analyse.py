"""Analyses of records: what the papers report of gates, as tables and plots."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kcard.api.gate import AskedLLM, GateSettings, resources
from kcard.errors import UsageError
from kcard.option import Option, documented

if TYPE_CHECKING:
    from kcard.evaluation.gates.analyses.analysis import GateAnalysis
    from kcard.gates.record import Record

__all__ = ["analyse"]


@documented
def analyse(
    name: Annotated[str, Option("The analysis.", argument=True)],
    records: Annotated[
        "Path | str | Sequence[Path | str] | Mapping[str, Sequence[Record]]",
        Option(
            "Records, one JSON object per line (kcard gate collect). Repeatable: each file is a task.",
            command_line=list[Path],
        ),
    ],
    *,
    settings: GateSettings = None,
    llm: AskedLLM = None,
    report: Callable[[int, int], None] | None = None,
) -> "GateAnalysis":
    """Analyse records of one or more tasks. The analyses are those of kcard.evaluation.gates.analyses.names.

    In Python, records may also be given by task. `report` is called with how many steps are done, and of how many.

    Raises UsageError for an unknown analysis or setting, and for records that lack what it needs.
    """
    from kcard.evaluation.gates.analyses.analysis import Given
    from kcard.evaluation.gates.analyses.names import find

    run = find(name)
    given = Given(_tasks(records), settings or {}, resources(llm))
    return run(given if report is None else Given(given.tasks, given.settings, given.resources, report))


def _tasks(
    records: "Path | str | Sequence[Path | str] | Mapping[str, Sequence[Record]]",
) -> "Mapping[str, Sequence[Record]]":
    """The records of each file under its name; UsageError for two files of one name."""
    from kcard.gates.record import read_records

    if isinstance(records, Mapping):
        return records
    found: dict[str, Sequence[Record]] = {}
    for path in map(Path, [records] if isinstance(records, Path | str) else records):
        task = path.name.split(".")[0]
        if task in found:
            raise UsageError(f"--records {path}: there is another file named {task}: rename one of them")
        found[task] = read_records(path)
    return found
