"""Collect records, fit gates, calibrate and analyse them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard import system
from kcard.config import user_file
from kcard.errors import KcardError, UsageError
from kcard.evaluation.gates.analyses.analysis import make_record_row
from kcard.evaluation.gates.outcome import METRICS, Metric
from kcard.evaluation.runs.run import make_question, sample_ids
from kcard.evaluation.tasks.base import Item, read_task, recognise_task
from kcard.events import OnEvent, ignore
from kcard.integrators.batch_files import QuestionTotals, answer_file, earlier_lines
from kcard.integrators.options import AskOptions, Paper
from kcard.integrators.pipeline import Pipeline
from kcard.io import Row
from kcard.options import Option, documented
from kcard.types import Answer, Question

if TYPE_CHECKING:
    from kcard.cards.models.loader import Loader
    from kcard.evaluation.gates.analyses.analysis import GateAnalysis
    from kcard.evaluation.gates.calibration import Calibration, GateCandidate, Recommendation, Trial
    from kcard.evaluation.gates.outcome import GateOutcome, GateRanking
    from kcard.gates.base import FittedGate, Resources
    from kcard.gates.records import Record
    from kcard.hub.registry import Hub
    from kcard.interfaces import LLM, Evidence, Gate

# Collect records: answer each question without cards and with them, and score both answers (SKR, section 3.1).


@dataclass(frozen=True)
class _RecordedQuestion:
    """One question, answered twice."""

    item: Item
    without: Answer
    with_: Answer
    metric: Metric

    def to_json(self) -> Row:
        return make_record_row(self.item, self.without, self.with_, self.metric)


class Collection:
    """A run over questions: `rows`, of which an earlier run answered `done`. No question is asked before `run`.

    questions  a file of questions with answers, or a data set in its own layout; label, group (as relation) and
               popularity are copied to the records
    task       the data set (kcard.evaluation.tasks); None: recognised from the file, else jsonl
    output     the file of records
    metric     the metric of correct_without and correct_with: substring, em, f1 or accuracy; all four are stored as
               scores. None: the task's own; substring for jsonl
    limit      the number of questions, drawn with the seed; None: all
    resume     continue an earlier run in `output`
    options    and what follows: those of Pipeline, options of AskOptions by name included; the gate is "always", since
               every question is asked with cards

    Raises UsageError for a wrong argument or file, and what Pipeline raises.
    """

    def __init__(
        self,
        questions: Path | str,
        output: Path | str,
        *,
        task: str | None = None,
        metric: Metric | None = None,
        limit: int | None = None,
        resume: bool = False,
        options: AskOptions | None = None,
        preset: Paper | None = None,
        hub: "Hub | None" = None,
        on_event: OnEvent = ignore,
        loader: "Loader | None" = None,
        retriever: "Evidence | None" = None,
        **changes: Any,
    ) -> None:
        if metric is not None and metric not in METRICS:
            raise UsageError(f"metric {metric!r} is unknown: choose one of {', '.join(METRICS)}")
        if changes.get("mode", options and options.mode) == "direct" or "gate" in changes:
            raise UsageError("records need answers with cards: leave out mode direct and gate")
        self.output, path = Path(output).expanduser(), Path(questions).expanduser()
        if path.resolve() == self.output.resolve():
            raise UsageError(f"--output {output} is the questions file: name another, or it would be lost")
        task = task or recognise_task(path)
        self._task = read_task(task, path)
        # The task's metric; balanced accuracy is defined over many records, so that of one record is accuracy.
        own: Metric = next((name for name in METRICS if name == self._task.metric), "accuracy")
        if task == "jsonl" and self._task.metric != "accuracy":
            own = "substring"
        self._metric = metric or own
        # Each distinct question once, since no gate could distinguish equal ones; the answers of all are accepted.
        seed = changes.get("seed", options.seed if options else 0)
        drawn = set(sample_ids(self._task, limit, seed))
        self._items: dict[Question, Item] = {}
        for item in self._task.items:
            if item.id not in drawn:
                continue
            question = Question(item.question, item.choices)
            first = self._items.setdefault(question, item)
            if first is not item:
                answers = tuple(dict.fromkeys([*first.answers, *item.answers]))
                self._items[question] = replace(first, answers=answers)
        # The rows of the questions, with what the task says of each.
        self.rows: list[Row] = []
        for item in self._items.values():
            columns = {
                "choices": {choice.name: choice.description for choice in item.choices},
                "label": item.label,
                "relation": item.group,
            }
            carried: Row = {key: value for key, value in columns.items() if value}
            if item.popularity is not None:
                carried["popularity"] = item.popularity
            self.rows.append(
                {
                    "question": item.question,
                    "answers": list(item.answers),
                    **carried,
                    "metric": self._metric,
                }
            )
        self._earlier = earlier_lines(self.rows, self.output, resume)
        self.done = sum("error" not in line for line in self._earlier)
        changes["gate"] = "always"
        places: dict[str, Any] = {"hub": hub, "on_event": on_event, "loader": loader}
        self._with = Pipeline(options, preset=preset, retriever=retriever, **places, **changes)
        shared = self._with.options
        self._without = Pipeline(
            mode="direct",
            llm=self.llm,
            examples=shared.examples,
            concurrency=shared.concurrency,
            on_event=on_event,
        )

    @property
    def llm(self) -> "LLM":
        return self._with.llm

    def run(self, on_event: OnEvent = ignore) -> QuestionTotals:
        """Ask the questions that are missing; each record is on disk before the next question is asked.

        A question that fails becomes a line with its error, and is asked again on resuming. Raises LLMError after many
        consecutive failures.
        """
        return answer_file(self.rows, self.output, self._outcomes, on_event, self._earlier, self._with.batch)

    def _outcomes(self, questions: Sequence[str | Question]) -> Iterator[_RecordedQuestion | KcardError]:
        items = [self._items[Question(q) if isinstance(q, str) else q] for q in questions]
        without_cards, with_cards = (
            pipeline.outcomes([make_question(self._task, item, None) for item in items])
            for pipeline in (self._without, self._with)
        )
        for item, without, with_ in zip(items, without_cards, with_cards, strict=True):
            if isinstance(without, KcardError):
                yield without
            elif isinstance(with_, KcardError):
                yield with_
            else:
                yield _RecordedQuestion(item, without, with_, self._metric)


def collect(
    questions: Path | str,
    output: Path | str,
    *,
    task: str | None = None,
    metric: Metric | None = None,
    limit: int | None = None,
    resume: bool = False,
    options: AskOptions | None = None,
    preset: Paper | None = None,
    hub: "Hub | None" = None,
    on_event: OnEvent = ignore,
    loader: "Loader | None" = None,
    retriever: "Evidence | None" = None,
    **changes: Any,
) -> QuestionTotals:
    """Collect records of an LLM's answers without cards and with them; `kcard gate collect` does the same.

    Arguments are those of Collection; `on_event` is called with the number of finished questions (kind asking).
    """
    run = Collection(
        questions,
        output,
        task=task,
        metric=metric,
        limit=limit,
        resume=resume,
        options=options,
        preset=preset,
        hub=hub,
        loader=loader,
        retriever=retriever,
        **changes,
    )
    return run.run(on_event)


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
    from kcard.gates.registry import kind_names

    count = parse_fold_count(folds) if isinstance(folds, str) else folds
    rows = _records(records)
    if gate not in kind_names():
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
    return Resources(llm=LLMClient(make_llm(llm, 0.1, Endpoint()) if isinstance(llm, str) else llm))


def _evaluate_unchanged(
    records: "Sequence[Record]", gate: str, settings: Mapping[str, Any] | None, llm: "str | LLM | None"
) -> GateEvaluation:
    if settings:
        raise UsageError(f"{gate} is not fitted anew, so it takes no settings: leave out --set")
    import numpy as np

    from kcard.evaluation.gates.outcome import GateOutcome, GateRanking
    from kcard.gates.registry import UNFITTED, gate_file, title

    if gate in system.names(UNFITTED):
        client = resources(llm).llm
        if client is None and gate not in {"always", "never"}:
            raise UsageError(f"gate {gate} needs an LLM: choose one with --llm")
        unfitted: Gate = system.load(UNFITTED, gate)(client, ())
        scores = np.asarray(unfitted.knows([record.query.to_ask for record in records]), dtype=np.float64)
        outcome = GateOutcome.of(records, scores < unfitted.threshold)
        return GateEvaluation(gate, outcome, GateRanking.of(records, scores), {})
    from kcard.evaluation.gates.calibration import score_fitted
    from kcard.gates import registry

    trial: Trial = score_fitted(records, registry.load(gate_file(gate), resources(llm)))
    ranking = GateRanking.of(records, trial.scores, trial.correct_without)
    outcome = GateOutcome.of(records, trial.seeks)
    return GateEvaluation(title(trial.fitted), outcome, ranking, trial.fitted.settings)


def _records(records: "Path | str | Sequence[Record]") -> "Sequence[Record]":
    from kcard.gates.records import read_records

    return read_records(records) if isinstance(records, Path | str) else records


# Calibrate: compare all gates on the user's own records, and configure the best one if it pays off.

NOT_COMPARED = {"calibrated", "never", "always", "random"}  # baselines of the comparison
ENOUGH = 50  # minimum number of records for changing the config
SLOW = {"skr-fine-tuned"}  # takes minutes per fold; compared only if it is named


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
    if isinstance(gates, str):
        gates = [name.strip() for name in gates.split(",") if name.strip()]
    names = list(gates) if gates is not None else [n for n in base.names() if n not in NOT_COMPARED | SLOW]
    settings = settings or {}
    if strange := sorted(set(settings) - set(names)):
        raise UsageError(f"settings for {strange[0]!r}, which is not compared: add it to the gates")
    # Candidates share one encoder, except those whose settings name another.
    client = resources(llm)
    shared = cache_embeddings(client, {})
    candidates = {}
    for name in names:
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

    config = user_file()
    best, row = result.comparison.reference, result.choice.gate
    if row is None and best.name in {"never", "always"}:
        value = best.name
    else:
        path = gates_folder() / f"calibrated-{'random' if row is None else row.gate}"
        if row is None:
            fitted = base.find("random").fit(result.records, {"share": best.share}, resources(None))
        else:
            fitted = fit_chosen_gate(result.records, result.candidates[row.gate], row, result.comparison)
        registry.save(fitted, path, digest(result.records))
        value = str(path)
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
