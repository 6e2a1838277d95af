"""What an analysis of records is given, and what it comes to: a table, figures and a chart, without knowing how they
are shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from kcard.errors import UsageError
from kcard.evaluation.gates.analyses.chart import Chart
from kcard.gates.kinds import Resources
from kcard.gates.record import Record
from kcard.json_values import build

__all__ = ["Analyse", "GateAnalysis", "Given"]

T = TypeVar("T")
DIGITS = 6


@dataclass(frozen=True)
class Given:
    """Records by task (the name of their file), an analysis' settings, and what it may use.

    report  called with how many of its steps are done, and of how many
    """

    tasks: Mapping[str, Sequence[Record]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    report: Callable[[int, int], None] = lambda *_: None

    @property
    def records(self) -> list[Record]:
        """Those of all tasks."""
        return [record for records in self.tasks.values() for record in records]

    def typed(self, cls: type[T]) -> T:
        """The settings as the analysis' own dataclass; UsageError names what is unknown or of a wrong type."""
        try:
            return build(cls, dict(self.settings))
        except (TypeError, ValueError) as error:
            known = ", ".join(one.name for one in fields(cls))  # type: ignore[arg-type] # a dataclass, by contract
            raise UsageError(f"--set: {error} (settings of this analysis: {known})") from error


@dataclass(frozen=True)
class GateAnalysis:
    """rows     the table, each row with the same columns; a value that is not known is None
    summary  single figures
    """

    name: str
    records: int
    rows: tuple[Mapping[str, Any], ...]
    chart: Chart
    summary: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON-ready data."""
        found: dict[str, Any] = rounded(asdict(self))
        return found


Analyse = Callable[[Given], GateAnalysis]


def rounded(value: Any) -> Any:
    """Numbers of at most six digits after the point, within tables and lists too; what is no number is None."""
    if isinstance(value, float):
        return round(value, DIGITS) if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
