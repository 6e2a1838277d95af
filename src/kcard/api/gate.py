"""Fit a gate on records, and judge one by them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard import plugins
from kcard.errors import UsageError
from kcard.option import Option, documented

if TYPE_CHECKING:
    from kcard.evaluation.gates.outcome import GateOutcome
    from kcard.evaluation.gates.ranking import GateRanking
    from kcard.evaluation.gates.trial import Trial
    from kcard.gates.kinds import Fitted, Resources
    from kcard.gates.record import Record
    from kcard.protocols import LLM, Gate

__all__ = ["AskedLLM", "Evaluation", "Records", "evaluate", "fit", "resources"]

# Options that fitting, judging and calibrating share.
Records = Annotated[
    "Path | str | Sequence[Record]",
    Option(
        "Records, one JSON object per line (kcard gate collect); or a folder of such files.",
        command_line=Path,
    ),
]
GateSettings = Annotated[
    "Mapping[str, Any] | None",
    Option("A setting of the kind, such as k=5. Repeatable.", flag="--set", command_line=list[str] | None),
]
AskedLLM = Annotated[
    "str | LLM | None",
    Option(
        "The LLM, for gates that query it: embedded, openai:MODEL, hf:MODEL.",
        command_line=str | None,
    ),
]


@dataclass(frozen=True)
class Evaluation:
    """How a gate did on records. `folds`: how many, None for a gate that was taken as it is.

    settings  the gate's, as fitted on all records; `tuned`: what its folds chose, where they differ
    """

    gate: str
    outcome: "GateOutcome"
    ranking: "GateRanking"
    settings: Mapping[str, Any]
    folds: int | None = None
    tuned: Mapping[str, Mapping[str, int]] | None = None

    def to_json(self) -> dict[str, Any]:
        """One flat object: the figures, then the settings, which also stand together under "settings"."""
        figures = {
            "gate": self.gate,
            **self.outcome.to_json(),
            **self.ranking.to_json(),
            "folds": self.folds,
        }
        data = {**self.settings, **figures, "settings": dict(self.settings)}
        ordered = {key: data[key] for key in (*figures, *self.settings, "settings")}
        return ordered | ({"tuned": self.tuned} if self.tuned else {})


@documented
def fit(
    records: Records,
    kind: Annotated[str, Option("The kind of gate: skr-knn, thrust, popularity ...")],
    *,
    output: Annotated[
        Path | str | None,
        Option("The gate's file.", default="kept under the kcard home", short="-o", command_line=Path | None),
    ] = None,
    settings: GateSettings = None,
    llm: AskedLLM = None,
) -> "tuple[Fitted, Path]":
    """Fit a gate on records and keep it, for `kcard ask --gate`; the gate and its file.

    Raises UsageError for records or settings that it can't be fitted with.
    """
    from kcard.gates import kinds, storage
    from kcard.gates.record import digest
    from kcard.integrators.named_gate import gates_folder, kept_name

    found = _records(records)
    fitted = kinds.find(kind).fit(found, settings or {}, resources(llm))
    path = Path(output).expanduser() if output is not None else gates_folder() / kept_name(kind)
    storage.save(fitted, path, digest(found))
    return fitted, path


@documented
def evaluate(
    records: Records,
    gate: Annotated[str, Option("A kind, fitted anew for each fold; or a gate's file, evaluated as it is.")],
    *,
    folds: Annotated[
        int | str | None,
        Option("Number of folds; loo leaves one record out at a time.", command_line=str),
    ] = 5,
    settings: GateSettings = None,
    llm: AskedLLM = None,
    seed: Annotated[int, Option("Seed of the folds.")] = 0,
    report: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Evaluate a gate on records that it was not fitted on.

    `report` is called with how many folds are done, and of how many. `folds` None is loo.

    Raises UsageError for a gate that is not there, or can't be fitted on these records.
    """
    from kcard.integrators.named_gate import kind_names

    count = _number_of(folds)
    found = _records(records)
    if gate not in kind_names():
        return _as_it_is(found, gate, settings, llm)
    from kcard.evaluation.gates import folds as gate_folds
    from kcard.evaluation.gates import trial as gate_trial
    from kcard.evaluation.gates.outcome import GateOutcome
    from kcard.evaluation.gates.ranking import GateRanking
    from kcard.gates import kinds

    kind, given = kinds.find(gate), settings or {}
    cut = gate_folds.folds(found, count, seed)
    using = gate_trial.embedding_once(resources(llm), given)
    whole = kind.fit(found, given, using)
    progress = None if report is None else lambda done: report(done, len(cut))
    trial = gate_trial.tried(found, kind, given, using, cut, progress)
    outcome = GateOutcome.of(found, trial.seeks)
    ranking = GateRanking.of(found, trial.scores, trial.correct_without)
    return Evaluation(gate, outcome, ranking, whole.settings, len(cut), trial.tuned)


def resources(llm: "str | LLM | None") -> "Resources":
    """What gates may use: the LLM, asked for the same only once, where one is given."""
    from kcard.gates.kinds import Resources
    from kcard.integrators.assembly import Endpoint, make_llm
    from kcard.integrators.metered import Metered

    if llm is None:
        return Resources()
    return Resources(llm=Metered(make_llm(llm, 0.1, Endpoint()) if isinstance(llm, str) else llm))


def _as_it_is(
    records: "Sequence[Record]", gate: str, settings: Mapping[str, Any] | None, llm: "str | LLM | None"
) -> Evaluation:
    if settings:
        raise UsageError(f"{gate} is not fitted anew, so it takes no settings: leave out --set")
    from kcard.evaluation.gates.outcome import GateOutcome
    from kcard.evaluation.gates.ranking import GateRanking
    from kcard.gates.decision import THRESHOLD
    from kcard.integrators.named_gate import UNFITTED, gate_file, title

    if gate in plugins.names(UNFITTED):
        scores = _unfitted(records, gate, llm)
        outcome = GateOutcome.of(records, scores < THRESHOLD)
        return Evaluation(gate, outcome, GateRanking.of(records, scores), {})
    from kcard.evaluation.gates.trial import scored
    from kcard.gates import storage

    trial: Trial = scored(records, storage.load(gate_file(gate), resources(llm)))
    (fitted,) = trial.fits
    ranking = GateRanking.of(records, trial.scores, trial.correct_without)
    return Evaluation(title(fitted), GateOutcome.of(records, trial.seeks), ranking, fitted.settings)


def _unfitted(records: "Sequence[Record]", gate: str, llm: "str | LLM | None") -> Any:
    """The scores by a gate that needs no records to be fitted on, shape (n,)."""
    import numpy as np

    from kcard.integrators.named_gate import UNFITTED

    asked = resources(llm).llm
    if asked is None and gate not in {"always", "never"}:
        raise UsageError(f"gate {gate} needs an LLM: choose one with --llm")
    made: Gate = plugins.load(UNFITTED, gate)(asked, ())
    return np.asarray(made.knows([record.question for record in records]), dtype=np.float64)


def _number_of(folds: int | str | None) -> int | None:
    from kcard.evaluation.gates.folds import number_of_folds

    return number_of_folds(folds) if isinstance(folds, str) else folds


def _records(records: "Path | str | Sequence[Record]") -> "Sequence[Record]":
    from kcard.gates.record import read_records

    return read_records(records) if isinstance(records, Path | str) else records
