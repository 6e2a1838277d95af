"""Calibrating: every gate compared on the user's own records, and the one that is worth it made ready to be used."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard.api.gate import AskedLLM, Records, resources
from kcard.config import user_file
from kcard.errors import UsageError
from kcard.option import Option, documented

if TYPE_CHECKING:
    from kcard.evaluation.gates.calibration import Calibration, GateCandidate
    from kcard.evaluation.gates.choice import Recommendation
    from kcard.gates.record import Record
    from kcard.protocols import LLM

__all__ = ["ENOUGH", "CalibrationResult", "calibrate", "keep"]

NOT_COMPARED = {"calibrated", "never", "always", "random"}  # what the others are compared with
ENOUGH = 50  # records on which the gate of every later question may be chosen
SLOW = {"skr-fine-tuned"}  # minutes a fold; compared where it is named


@dataclass(frozen=True)
class CalibrationResult:
    """The comparison, and what it comes to. `candidates`: the gates that were compared, by name."""

    comparison: "Calibration"
    choice: "Recommendation"
    records: "Sequence[Record]"
    candidates: "Mapping[str, GateCandidate]"

    @property
    def gate(self) -> str:
        """The gate to use: the chosen one, else what needs no gate."""
        chosen = self.choice.gate
        return self.comparison.reference.name if chosen is None else chosen.gate


@documented
def calibrate(
    records: Records,
    *,
    budget: Annotated[float, Option("Maximum share of questions that may use cards.", least=0, most=1)] = 1.0,
    gates: Annotated[
        str | Sequence[str] | None,
        Option("Kinds to compare, comma-separated.", default="all that fit", command_line=str | None),
    ] = None,
    folds: Annotated[int, Option("Number of folds; each is judged by gates fitted on the others.")] = 5,
    settings: Mapping[str, Any] | None = None,
    llm: AskedLLM = None,
    seed: Annotated[int, Option("Seed of the folds.")] = 0,
    report: Callable[[str], None] | None = None,
) -> CalibrationResult:
    """Compare gates on records, each held out in turn; nothing is written (see `keep`).

    `settings`: the kinds' own, by kind, such as {"skr-knn": {"k": 5}}. `report` is called with the name of each gate
    as its turn comes. Kinds that take minutes a fold are compared only where they are named.

    Raises UsageError for records, a budget or a gate that can't be used.
    """
    from kcard.evaluation.gates.calibration import calibrated
    from kcard.evaluation.gates.choice import choose
    from kcard.gates import kinds
    from kcard.gates.record import read_records

    found = read_records(records) if isinstance(records, Path | str) else records
    if isinstance(gates, str):
        gates = [name.strip() for name in gates.split(",") if name.strip()]
    named = list(gates) if gates is not None else [n for n in kinds.names() if n not in NOT_COMPARED | SLOW]
    candidates = _candidates(named, settings or {}, llm)
    comparison = calibrated(
        found, list(candidates.values()), budget=budget, count=folds, seed=seed, report=report
    )
    return CalibrationResult(comparison, choose(comparison), found, candidates)


def keep(found: CalibrationResult) -> tuple[str, Path]:
    """Fit the chosen gate on all records, keep it under the kcard home, and have `kcard ask` use it.

    What was written as ask.gate (a gate's name, or its file), and the config file where it stands. Raises UsageError
    where either can't be written.
    """
    from kcard.config_edit import write_setting

    config = user_file()
    value = _kept(found)
    write_setting(config, "ask.gate", value)
    return value, config


def _kept(found: CalibrationResult) -> str:
    from kcard.evaluation.gates.choice import deployed
    from kcard.gates import kinds, storage
    from kcard.gates.record import digest
    from kcard.integrators.named_gate import gates_folder

    best, row = found.comparison.reference, found.choice.gate
    if row is None and best.name in {"never", "always"}:
        return best.name
    path = gates_folder() / f"calibrated-{'random' if row is None else row.gate}"
    if row is None:
        fitted = kinds.find("random").fit(found.records, {"share": best.share}, resources(None))
    else:
        fitted = deployed(found.records, found.candidates[row.gate], row, found.comparison)
    storage.save(fitted, path, digest(found.records))
    return str(path)


def _candidates(
    named: Sequence[str], settings: Mapping[str, Any], llm: "str | LLM | None"
) -> "dict[str, GateCandidate]":
    from kcard.evaluation.gates.calibration import GateCandidate
    from kcard.evaluation.gates.trial import embedding_once
    from kcard.gates import kinds

    if strange := sorted(set(settings) - set(named)):
        raise UsageError(f"settings for {strange[0]!r}, which is not compared: add it to the gates")
    asked = resources(llm)
    shared = embedding_once(asked, {})
    found = {}
    for name in named:
        given = settings.get(name, {})
        using = embedding_once(asked, given) if "encoder" in given else shared
        found[name] = GateCandidate(name, kinds.find(name), given, using)
    return found
