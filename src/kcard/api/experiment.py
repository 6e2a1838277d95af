"""The experiment of a paper about gates, whole: collect records, fit its gates per task, evaluate, analyse."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kcard.api.collect import Collection
from kcard.api.gates import resources
from kcard.errors import UsageError
from kcard.evaluation.gates.outcome import GateOutcome, GateRanking
from kcard.events import OnEvent, ignore, note
from kcard.integrators.options import AskOptions
from kcard.io import write_text
from kcard.options import Option, documented
from kcard.types import derive_seed

if TYPE_CHECKING:
    from kcard.evaluation.gates.analyses.analysis import GateAnalysis
    from kcard.gates.records import Record
    from kcard.hub.registry import Hub

GatePaper = Literal["thrust", "skr", "adaptive-retrieval"]


@dataclass(frozen=True)
class GateExperiment:
    """What a paper does with the records of each task.

    gates     its kinds of gates, with the settings in which the defaults differ
    analyses  its tables and figures that are made from records
    fitted    the records that gates are fitted on: a number, or a share of all
    """

    gates: Mapping[str, Mapping[str, Any]]
    analyses: Sequence[str]
    fitted: int | float


EXPERIMENTS: Mapping[GatePaper, GateExperiment] = {
    # Sections 3 and 4: clusters of 200 questions of each task.
    "thrust": GateExperiment(
        {"thrust": {}, "bm25": {}, "random": {}}, ("thrust-shares", "thrust-scores"), 200
    ),
    # Sections 3.2 and 4: its four strategies, with prompts as printed.
    "skr": GateExperiment(
        {
            "skr-prompt": {"wording": "skr-inline"},
            "skr-icl": {"wording": "skr-inline"},
            "skr-fine-tuned": {},
            "skr-knn": {},
        },
        ("self-ask-templates", "training-sizes"),
        0.75,
    ),
    # Sections 3 and 5: thresholds of popularity on 75 % of the questions.
    "adaptive-retrieval": GateExperiment(
        {"popularity": {}}, ("popularity-curves", "popularity-splits", "recall"), 0.75
    ),
}


@dataclass(frozen=True)
class GateRow:
    """A gate on a task's held-out questions. `skipped`: why it could not be fitted; "" if it was."""

    task: str
    gate: str
    fitted_on: int
    held_out: int
    outcome: GateOutcome | None = None
    ranking: GateRanking | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    skipped: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return one flat object; the settings are under "settings"."""
        figures = {**(self.outcome.to_json() if self.outcome else {})}
        figures |= self.ranking.to_json() if self.ranking else {}
        own = {"task": self.task, "gate": self.gate, "fitted_on": self.fitted_on, "held_out": self.held_out}
        return {**own, **figures, "settings": dict(self.settings), "skipped": self.skipped}


@dataclass(frozen=True)
class ExperimentResult:
    """The rows of all tasks and gates, and the analyses of all records. `folder`: where they were written."""

    paper: GatePaper
    folder: Path
    rows: tuple[GateRow, ...]
    analyses: Mapping[str, "GateAnalysis"]

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON-ready data."""
        analyses = {name: analysis.to_json() for name, analysis in self.analyses.items()}
        return {"paper": self.paper, "gates": [row.to_json() for row in self.rows], "analyses": analyses}


@documented
def experiment(
    paper: Annotated[GatePaper, Option("The paper.", argument=True)],
    tasks: Annotated[
        Sequence[str],
        Option(
            "A data set and its file, as nq=nq-dev.jsonl. Repeatable.", flag="--task", command_line=list[str]
        ),
    ],
    output: Annotated[
        Path | str,
        Option("Folder for records, gates and results; records that are there are used.", command_line=Path),
    ],
    *,
    encoder: Annotated[
        str | None,
        Option("Encoder of the gates that embed questions, such as hf:bert-base-uncased.", default="minilm"),
    ] = None,
    limit: Annotated[
        int | None, Option("Questions of each task, drawn with the seed.", default="all", least=2)
    ] = None,
    fitted: Annotated[
        float | None,
        Option(
            "Records to fit gates on: a number, or a share below 1.",
            least=0,
            default="200 for thrust, else 0.75",
        ),
    ] = None,
    hub: "Hub | None" = None,
    on_event: OnEvent = ignore,
    **changes: Any,
) -> ExperimentResult:
    """Run the experiment of a paper about gates on one or more tasks.

    Every question is answered without and with cards as in the paper (its preset; other options override it). Each of
    the paper's gates is fitted on a part of a task's records and evaluated on the others (TASK/held-out.jsonl). The
    paper's analyses are of all records, since they hold out themselves what they fit. A run that was interrupted goes
    on where it was.

    Raises UsageError for a wrong task, file or option, for a folder whose records were answered with other options,
    and what Pipeline raises.
    """
    from kcard.evaluation.gates.analyses.analysis import ANALYSES, AnalysisInputs, find_analysis
    from kcard.evaluation.gates.calibration import cache_embeddings, score_fitted
    from kcard.gates import base, registry
    from kcard.gates.features import find
    from kcard.gates.records import digest, read_records, write_records

    if paper not in EXPERIMENTS:
        raise UsageError(f"paper {paper!r} is unknown: choose one of {', '.join(EXPERIMENTS)}")
    plan, folder = EXPERIMENTS[paper], Path(output).expanduser()
    files = _task_files(tasks)
    share = plan.fitted if fitted is None else fitted
    if encoder is not None:
        find(encoder)  # an unknown one should not be told after hours of asking
    AskOptions.of(None, changes)
    _check_options(folder, {"paper": paper, **changes})
    rows: list[GateRow] = []
    by_task: dict[str, Sequence[Record]] = {}
    using = resources(None)
    for task, path in files.items():
        # Answer each question without and with cards.
        place = folder / task
        place.mkdir(parents=True, exist_ok=True)
        on_event(note(f"{task}: answering the questions of {path}"))
        collection = Collection(
            path,
            place / "records.jsonl",
            task=task,
            limit=limit,
            preset=paper,
            resume=True,
            hub=hub,
            on_event=on_event,
            **changes,
        )
        collection.run(on_event)
        records = by_task[task] = read_records(place / "records.jsonl")
        using = cache_embeddings(resources(collection.llm), {"encoder": encoder} if encoder else {})
        # Fit the gates on a part, drawn by the questions, and evaluate them on the rest. The draw is not that of the
        # random gate, which would otherwise decide all of the rest alike.
        ordered = sorted(records, key=lambda record: derive_seed(0, "held out", record.question))
        count = min(round(share * len(records)) if share < 1 else int(share), len(records) - 1)
        if count < 1:
            raise UsageError(
                f"{task}: {len(records)} records are too few: some must be fitted on, others held out"
            )
        sample, held_out = ordered[:count], ordered[count:]
        write_records(place / "held-out.jsonl", held_out)
        for kind, own in plan.gates.items():
            settings = {**own, "encoder": encoder} if encoder and kind in EMBEDDING else dict(own)
            row = GateRow(task, kind, count, len(records) - count)
            try:
                gate = base.find(kind).fit(sample, settings, using)
            except UsageError as error:
                on_event(note(f"{task}: {error}"))
                rows.append(replace(row, skipped=str(error)))
                continue
            registry.save(gate, place / kind, digest(sample))
            trial = score_fitted(held_out, gate)
            outcome = GateOutcome.of(held_out, trial.seeks)
            ranking = GateRanking.of(held_out, trial.scores, trial.correct_without)
            rows.append(
                replace(row, outcome=outcome, ranking=ranking, settings={**settings, **gate.settings})
            )
    # The paper's analyses.
    analyses = {}
    for name in plan.analyses:
        on_event(note(f"analysis {name}: {ANALYSES[name][0]}"))
        try:
            analyses[name] = find_analysis(name)(AnalysisInputs(by_task, {}, using, on_event))
        except UsageError as error:
            on_event(note(f"{name}: {error}"))
    result = ExperimentResult(paper, folder, tuple(rows), analyses)
    write_text(folder / "results.json", json.dumps(result.to_json(), indent=2) + "\n")
    return result


EMBEDDING = {"thrust", "skr-knn", "skr-classifier", "skr-fine-tuned"}  # kinds with an encoder of questions


# Options of a question that say where and how fast it is answered, not how.
WITHOUT_EFFECT = {
    "llm_url",
    "llm_timeout",
    "retries",
    "concurrency",
    "device",
    "memory",
    "engine",
    "engine_places",
}


def _check_options(folder: Path, options: Mapping[str, Any]) -> None:
    """Store the options that decide the answers; if there are records, compare them with the stored ones.

    Raises UsageError where they differ: the records would then be taken for those of other options.
    """
    values = {
        key: value if isinstance(value, str | int | float) else repr(value)
        for key, value in options.items()
        if key not in WITHOUT_EFFECT and value is not None
    }
    llm = options.get("llm")
    if not isinstance(llm, str | None):  # an object or a function, whose address changes
        values["llm"] = getattr(llm, "__qualname__", type(llm).__name__)
    path = folder / "options.json"
    if not path.exists() or not any(folder.glob("*/records.jsonl")):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(values, indent=2) + "\n")
        return
    stored = json.loads(path.read_text(encoding="utf-8"))
    for key in sorted({*stored, *values}):
        if stored.get(key) != values.get(key):
            flag = key if key == "paper" else "--" + key.replace("_", "-")
            raise UsageError(
                f"--output {folder}: its records were answered with {flag} {stored.get(key, 'unset')}, not "
                f"{values.get(key, 'unset')}: choose another folder, or repeat those options"
            )


def _task_files(tasks: Sequence[str]) -> dict[str, Path]:
    """Return the file of each task, from NAME=FILE. Raises UsageError."""
    from kcard.evaluation.tasks.base import task_names

    files: dict[str, Path] = {}
    for text in [tasks] if isinstance(tasks, str) else tasks:
        name, _, file = text.partition("=")
        if not file:
            raise UsageError(f"task {text!r}: expected NAME=FILE, such as nq=nq-dev.jsonl")
        if name not in task_names():
            raise UsageError(f"task {name!r} is unknown: choose among {', '.join(task_names())}")
        if name in files:
            raise UsageError(f"task {name} is given twice: give each data set once")
        files[name] = Path(file).expanduser()
    if not files:
        raise UsageError("no task: name data sets and their files, as nq=nq-dev.jsonl")
    return files
