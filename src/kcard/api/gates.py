"""Fit gates on records, evaluate, calibrate and analyse them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard import system
from kcard.config import user_file
from kcard.errors import UsageError
from kcard.events import OnEvent, ignore
from kcard.options import Option, documented

if TYPE_CHECKING:
    from kcard.evaluation.gates.analyses.analysis import GateAnalysis
    from kcard.evaluation.gates.calibration import Calibration, GateCandidate, Recommendation
    from kcard.evaluation.gates.outcome import GateOutcome, GateRanking
    from kcard.gates.base import FittedGate, Resources
    from kcard.gates.records import Record
    from kcard.interfaces import LLM, Gate

# Options shared by fit, evaluate and calibrate.
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
class GateEvaluation:
    """A gate's results on records. `folds`: their number, None for a gate that was not fitted.

    settings  the gate's, as fitted on all records; `tuned`: those of its folds, if they differ
    """

    gate: str
    outcome: "GateOutcome"
    ranking: "GateRanking"
    settings: Mapping[str, Any]
    folds: int | None = None
    tuned: Mapping[str, Mapping[str, int]] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return one flat object: the figures, then the settings, which are also under "settings"."""
        data = {"gate": self.gate, **self.outcome.to_json(), **self.ranking.to_json(), "folds": self.folds}
        for key, value in self.settings.items():
            data.setdefault(key, value)
        data["settings"] = dict(self.settings)
        if self.tuned:
            data["tuned"] = self.tuned
        return data


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
) -> "tuple[FittedGate, Path]":
    """Fit a gate on records and store it for `kcard ask --gate`; return the gate and its file.

    Raises UsageError for unsuitable records or settings.
    """
    from kcard.gates import base, registry
    from kcard.gates.records import digest
    from kcard.gates.registry import gates_folder, stored_gate_name

    rows = _records(records)
    fitted = base.find(kind).fit(rows, settings or {}, resources(llm))
    path = Path(output).expanduser() if output is not None else gates_folder() / stored_gate_name(kind)
    registry.save(fitted, path, digest(rows))
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
    on_event: OnEvent = ignore,
) -> GateEvaluation:
    """Evaluate a gate on records that it was not fitted on.

    `on_event` is called with the number of finished folds. `folds`: None means loo.

    Raises UsageError for an unknown gate, and for one that can't be fitted on these records.
    """
    from kcard.evaluation.gates import calibration as gate_trial
    from kcard.evaluation.gates import outcome as gate_folds
    from kcard.evaluation.gates.outcome import GateOutcome, GateRanking, parse_fold_count
    from kcard.gates import base
    from kcard.gates.base import names

    count = parse_fold_count(folds) if isinstance(folds, str) else folds
    rows = _records(records)
    if gate not in names():
        return _evaluate_unchanged(rows, gate, settings, llm)
    kind, values = base.find(gate), settings or {}
    cut = gate_folds.split_folds(rows, count, seed)
    using = gate_trial.cache_embeddings(resources(llm), values)
    whole = kind.fit(rows, values, using)
    trial = gate_trial.cross_validate(rows, kind, values, using, cut, on_event)
    outcome = GateOutcome.of(rows, trial.seeks)
    ranking = GateRanking.of(rows, trial.scores, trial.correct_without)
    return GateEvaluation(gate, outcome, ranking, whole.settings, len(cut), trial.tuned)


def resources(llm: "str | LLM | None") -> "Resources":
    """Return the resources of gates: the LLM, if there is one, through a client that repeats no request."""
    from kcard.gates.base import Resources
    from kcard.integrators.assembly import Endpoint, make_llm
    from kcard.llms.client import LLMClient

    if llm is None:
        return Resources()
    return Resources(llm=LLMClient(make_llm(llm, 0.1, Endpoint())))


def _evaluate_unchanged(
    records: "Sequence[Record]", gate: str, settings: Mapping[str, Any] | None, llm: "str | LLM | None"
) -> GateEvaluation:
    if settings:
        raise UsageError(f"{gate} is not fitted anew, so it takes no settings: leave out --set")
    import numpy as np

    from kcard.evaluation.gates.outcome import GateOutcome, GateRanking
    from kcard.gates.registry import UNFITTED_GROUP, gate_file, title

    if gate in system.names(UNFITTED_GROUP):
        client = resources(llm).llm
        if client is None and gate not in {"always", "never"}:
            raise UsageError(f"gate {gate} needs an LLM: choose one with --llm")
        unfitted: Gate = system.load(UNFITTED_GROUP, gate)(client, ())
        scores = np.asarray(unfitted.knows([record.query.to_ask for record in records]), dtype=np.float64)
        outcome = GateOutcome.of(records, scores < unfitted.threshold)
        return GateEvaluation(gate, outcome, GateRanking.of(records, scores), {})
    from kcard.evaluation.gates.calibration import score_fitted
    from kcard.gates import registry

    trial = score_fitted(records, registry.load(gate_file(gate), resources(llm)))
    ranking = GateRanking.of(records, trial.scores, trial.correct_without)
    outcome = GateOutcome.of(records, trial.seeks)
    return GateEvaluation(title(trial.fitted), outcome, ranking, trial.fitted.settings)


def _records(records: "Path | str | Sequence[Record]") -> "Sequence[Record]":
    from kcard.gates.records import read_records

    if isinstance(records, Path | str):
        return read_records(records)
    return records


# Calibrate: compare all gates on the user's own records, and configure the best one if it pays off.

NOT_COMPARED = {"calibrated", "never", "always", "random"}  # baselines of the comparison
MIN_RECORDS = 50  # for changing the config
SLOW_GATES = {"skr-fine-tuned"}  # they take minutes per fold; compared only if they are named


@dataclass(frozen=True)
class CalibrationResult:
    """The comparison and the recommendation. `candidates`: the gates that were compared, by name."""

    comparison: "Calibration"
    choice: "Recommendation"
    records: "Sequence[Record]"
    candidates: "Mapping[str, GateCandidate]"

    @property
    def gate(self) -> str:
        """Return the gate to use: the recommended one, else the best baseline."""
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
    on_event: OnEvent = ignore,
) -> CalibrationResult:
    """Compare gates on records, each held out in turn; nothing is written (see `keep`).

    `settings`: of the kinds, by kind, such as {"skr-knn": {"k": 5}}. `on_event` is called with a note on each gate
    before it is tried. Kinds that take minutes per fold are compared only if they are named.

    Raises UsageError for unsuitable records, a wrong budget and an unknown gate.
    """
    from kcard.evaluation.gates.calibration import GateCandidate, cache_embeddings, compare_gates, recommend
    from kcard.gates import base

    rows = _records(records)
    if gates is None:
        gates = [name for name in base.names() if name not in NOT_COMPARED | SLOW_GATES]
    elif isinstance(gates, str):
        gates = [name.strip() for name in gates.split(",") if name.strip()]
    settings = settings or {}
    for name in settings:
        if name not in gates:
            raise UsageError(f"settings for {name!r}, which is not compared: add it to the gates")
    # Candidates share one encoder, except those whose settings name another.
    client = resources(llm)
    shared = cache_embeddings(client, {})
    candidates = {}
    for name in gates:
        values = settings.get(name, {})
        using = cache_embeddings(client, values) if "encoder" in values else shared
        candidates[name] = GateCandidate(name, base.find(name), values, using)
    comparison = compare_gates(
        rows, list(candidates.values()), budget=budget, count=folds, seed=seed, on_event=on_event
    )
    return CalibrationResult(comparison, recommend(comparison), rows, candidates)


@documented
def keep(result: CalibrationResult) -> tuple[str, Path]:
    """Fit the recommended gate on all records, store it under the kcard home, and configure `kcard ask` to use it.

    Returns the value of ask.gate (a gate's name, or its file) and the config file. Raises UsageError if either file
    can't be written.
    """
    from kcard.config_file import write_setting
    from kcard.evaluation.gates.calibration import fit_chosen_gate
    from kcard.gates import base, registry
    from kcard.gates.records import digest
    from kcard.gates.registry import gates_folder

    value, row = result.gate, result.choice.gate
    if row is not None or value not in {"never", "always"}:
        if row is None:
            share = result.comparison.reference.share
            fitted = base.find("random").fit(result.records, {"share": share}, resources(None))
        else:
            fitted = fit_chosen_gate(result.records, result.candidates[row.gate], row, result.comparison)
        path = gates_folder() / f"calibrated-{'random' if row is None else row.gate}"
        registry.save(fitted, path, digest(result.records))
        value = str(path)
    config = user_file()
    write_setting(config, "ask.gate", value)
    return value, config


# Analyses of records: the papers' results about gates, as tables and plots.


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
    on_event: OnEvent = ignore,
) -> "GateAnalysis":
    """Analyse records of one or more tasks. The analyses are those of kcard.evaluation.gates.analyses.analysis.

    In Python, records may also be passed by task. `on_event` is called with the number of finished steps.

    Raises UsageError for an unknown analysis or setting, and for records that lack what it needs.
    """
    from kcard.evaluation.gates.analyses.analysis import AnalysisInputs, find_analysis
    from kcard.gates.records import read_records

    run = find_analysis(name)
    # The records of each file go under its name.
    if isinstance(records, Mapping):
        tasks = records
    else:
        tasks = {}
        for path in map(Path, [records] if isinstance(records, Path | str) else records):
            task = path.name.split(".")[0]
            if task in tasks:
                raise UsageError(f"--records {path}: another file is also named {task}: rename one of them")
            tasks[task] = read_records(path)
    return run(AnalysisInputs(tasks, settings or {}, resources(llm), on_event))
