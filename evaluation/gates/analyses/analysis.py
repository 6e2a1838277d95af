"""Analyses of records by name, and those that suit any gate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.gates.calibration import cache_embeddings
from kcard.evaluation.gates.outcome import (
    FOLDS,
    METRICS,
    Floats,
    GateOutcome,
    Metric,
    Seeks,
    gated_scores,
    split_folds,
)
from kcard.evaluation.gates.outcome import scores_both_ways as outcome_both_ways
from kcard.evaluation.metrics import accuracy, interval, substring
from kcard.evaluation.plots import Chart, PlotSeries
from kcard.evaluation.tasks.base import Item
from kcard.gates import base
from kcard.gates.base import Resources
from kcard.gates.records import Record
from kcard.gates.self_ask import KNOWLEDGE_CARD, SKR, score_knowledge
from kcard.io import Row, build
from kcard.types import Answer

__all__ = [
    "NAMES",
    "RECALL",
    "Analyse",
    "AnalysisInputs",
    "GateAnalysis",
    "analyse_recall",
    "analyse_self_ask_templates",
    "analyse_training_sizes",
    "find_analysis",
    "make_record_row",
]


T = TypeVar("T")
DIGITS = 6


@dataclass(frozen=True)
class AnalysisInputs:
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
        """Return the settings as the analysis' own dataclass. Raises UsageError for a setting that is unknown or of
        a wrong type."""
        try:
            return build(cls, dict(self.settings))
        except (TypeError, ValueError) as error:
            names = ", ".join(one.name for one in fields(cls))  # type: ignore[arg-type] # a dataclass, by contract
            raise UsageError(f"--set: {error} (settings of this analysis: {names})") from error


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
        """Return everything as JSON-ready data."""
        data: dict[str, Any] = round_floats(asdict(self))
        return data


Analyse = Callable[[AnalysisInputs], GateAnalysis]


def round_floats(value: Any) -> Any:
    """Round numbers to six digits after the point, within tables and lists too; infinities and nan become None."""
    if isinstance(value, float):
        return round(value, DIGITS) if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {key: round_floats(inner) for key, inner in value.items()}
    return [round_floats(inner) for inner in value] if isinstance(value, list | tuple) else value


# The analyses of records, by the name that the command line takes. Each is imported when it is wanted.

NAMES = {
    "popularity-curves": "accuracy by popularity, and their correlation in each relation",
    "popularity-splits": "the popularity gate over 100 splits of 75 % and 25 %",
    "recall": "recall@1 where cards help, spoil, or change nothing",
    "self-ask-templates": "what the LLM's own word is worth in each wording",
    "thrust-scores": "the distribution of Thrust's scores in each task",
    "thrust-shares": "knowledge for 25, 50 and 75 % of the questions: Thrust, BM25, random",
    "training-sizes": "gates fitted on 10, 25, 50 and 100 % of the records",
}

HOMES = {
    "popularity-curves": "kcard.evaluation.gates.analyses.popularity:analyse_popularity_curves",
    "popularity-splits": "kcard.evaluation.gates.analyses.popularity:analyse_popularity_splits",
    "recall": "kcard.evaluation.gates.analyses.analysis:analyse_recall",
    "self-ask-templates": "kcard.evaluation.gates.analyses.analysis:analyse_self_ask_templates",
    "thrust-scores": "kcard.evaluation.gates.analyses.thrust:analyse_thrust_scores",
    "thrust-shares": "kcard.evaluation.gates.analyses.thrust:analyse_thrust_shares",
    "training-sizes": "kcard.evaluation.gates.analyses.analysis:analyse_training_sizes",
}


def find_analysis(name: str) -> Analyse:
    """Return the analysis of that name. Raises UsageError, which lists the names, for an unknown one."""
    if name not in NAMES:
        raise UsageError(f"unknown analysis {name!r}: choose one of {', '.join(NAMES)}")
    module, function = HOMES[name].split(":")
    analyse: Analyse = getattr(import_module(module), function)
    return analyse


# Whether the first document held the answer, where cards made an answer right, kept it, spoiled it or did not help
# (Adaptive Retrieval, table 1).

RECALL_NAME = "recall"
RECALL = "recall@1"  # among a record's scores: 1 where its first passage holds an accepted answer
RIGHT = 0.5  # from which score on an answer counts as right
GROUPS = {
    "right both ways": (True, True),
    "right only with cards": (False, True),
    "right only without cards": (True, False),
    "wrong both ways": (False, False),
}


def analyse_recall(inputs: AnalysisInputs) -> GateAnalysis:
    """Return a table with a row per group and one for all: the number of questions, and recall@1 with Wilson's
    interval.

    Raises UsageError for a record without recall@1.
    """
    records = inputs.records
    for record in records:
        if RECALL not in record.scores:
            raise UsageError(
                f'the record of {record.question[:60]!r} has no "{RECALL}" among its scores: kcard gate collect '
                "writes it"
            )
    groups = {
        name: [r for r in records if (r.correct_without >= RIGHT, r.correct_with >= RIGHT) == group]
        for name, group in GROUPS.items()
    }
    rows: list[Mapping[str, Any]] = []
    for name, group in [*groups.items(), ("all", records)]:
        recalls = [record.scores[RECALL] for record in group]
        low, high = interval(recalls)
        mean = sum(recalls) / len(recalls) if recalls else None
        shares = {"n": len(group), "share": len(group) / len(records)}
        rows.append({"group": name, **shares, "recall@1": mean, "low": low, "high": high})
    filled = [row for row in rows if row["n"]]
    columns = ([row[key] for row in filled] for key in ("group", "recall@1", "low", "high"))
    names, *figures = map(tuple, columns)
    chart = Chart("", "recall@1", (PlotSeries("", names, *figures),), kind="bar")
    return GateAnalysis(RECALL_NAME, len(records), tuple(rows), chart)


# A question that was answered without cards and with them, as a line of records (SKR, section 3.1).


def make_record_row(item: Item, without: Answer, with_: Answer, metric: Metric) -> Row:
    """Return a line of records as `read_records` reads it, without the question itself.

    The scores have every metric of both answers, what each took (calls, seconds, tokens where they are known), and
    recall@1: whether the first passage holds an accepted answer, where there is a passage.
    """
    ways = {"without": without, "with": with_}
    scores: dict[str, float] = {}
    costs: dict[str, float] = {}
    for way, answer in ways.items():
        for name, score in METRICS.items():
            # Of a multiple-choice question every metric is whether the right option was chosen.
            scores[f"{name}_{way}"] = (
                accuracy(answer.choice or "", item.answers)
                if item.choices
                else round(score(answer.answer, item.answers), DIGITS)
            )
        costs |= {f"calls_{way}": answer.calls, f"seconds_{way}": round(answer.seconds, 4)}
        usage = answer.usage
        if usage is not None and usage.tokens_in is not None and usage.tokens_out is not None:
            costs[f"tokens_{way}"] = usage.tokens_in + usage.tokens_out
    ordered = {f"{name}_{way}": scores[f"{name}_{way}"] for name in METRICS for way in ways}
    # recall@1 is of the passage that the LLM read first, or, where it read none, the first that was found.
    recall: dict[str, float] = {}
    passage = next((p for p in with_.passages if p.kept), next(iter(with_.passages), None))
    if passage is not None:
        options = {choice.name: choice.description for choice in item.choices}
        recall[RECALL] = float(substring(passage.text, [options.get(right, right) for right in item.answers]))
    return {
        **{f"correct_{way}": scores[f"{metric}_{way}"] for way in ways},
        # The letter of the chosen option, where one was chosen; else the text.
        **{f"answer_{way}": (item.choices and a.choice) or a.answer for way, a in ways.items()},
        "scores": ordered | costs | recall,
        "calls": without.calls + with_.calls,
    }


# What an LLM's own word is worth in each wording of self-ask (SKR, table 2; Knowledge Card, section 2.3), and how far
# the wordings agree (figure 7).

SELF_ASK_TEMPLATES_NAME = "self-ask-templates"
PAPERS = {**dict.fromkeys(KNOWLEDGE_CARD, "knowledge-card"), **dict.fromkeys(SKR, "skr")}


def analyse_self_ask_templates(inputs: AnalysisInputs) -> GateAnalysis:
    """Return a table with a row per wording: how many questions the LLM says it knows, and its accuracy on these.

    `accuracy_known` is SKR's accuracy, with Wilson's interval; `right_word` is the share of questions where saying to
    know and being right without cards agree; `accuracy` and `beneficial_guidance` are those of the gate. Records may
    carry what was said as scores, "need_0" to "need_7": the probability in [0, 1] that the LLM needs more in that
    wording. Else the LLM is asked. Raises UsageError where there is neither.
    """
    records, seeks = inputs.records, {}
    rows: list[dict[str, Any]] = []
    for template, paper in PAPERS.items():
        key = f"need_{template}"
        scores = [record.scores.get(key) for record in records]
        if None not in scores:
            needs: Floats = np.array(scores, dtype=np.float64)
        elif (llm := inputs.resources.llm) is None:
            raise UsageError(
                f'no LLM to ask, and not every record has "{key}" among its scores: choose one with --llm'
            )
        else:
            needs = 1 - score_knowledge(llm, [record.question for record in records], (), (template,)).astype(
                np.float64
            )
        seeks[template] = needs > 0.5
        outcome, without = GateOutcome.of(records, seeks[template]), outcome_both_ways(records)[0]
        claimed = without[~seeks[template]].tolist()
        lowest, highest = interval(claimed)
        rows.append(
            {
                "template": template,
                "paper": paper,
                "known": len(claimed),
                "unknown": int(seeks[template].sum()),
                "accuracy_known": float(np.mean(claimed)) if claimed else None,
                "low": lowest,
                "high": highest,
                "right_word": float(((without >= 0.5) == ~seeks[template]).mean()),
                "accuracy": outcome.accuracy,
                "beneficial_guidance": outcome.beneficial_guidance,
            }
        )
        inputs.report(len(rows), len(PAPERS))
    summary = {}
    for paper in dict.fromkeys(PAPERS.values()):
        decisions = np.stack([seeks[template] for template, of in PAPERS.items() if of == paper])
        summary[f"unanimous_{paper}"] = float((decisions == decisions[0]).all(axis=0).mean())
    confident = [row for row in rows if row["known"]]
    names, y, low, high = (
        tuple(row[key] for row in confident) for key in ("template", "accuracy_known", "low", "high")
    )
    series = PlotSeries("", tuple(map(str, names)), y, low, high)
    chart = Chart("template", "accuracy where the LLM says that it knows", (series,), kind="bar")
    return GateAnalysis(SELF_ASK_TEMPLATES_NAME, len(records), tuple(rows), chart, summary)


# How many records a gate needs: fitted on 10, 25, 50 and 100 % of them (SKR, section 5.3), and the share of questions
# that it then sends the better way, "beneficial guidance" (section 5.2).

TRAINING_SIZES_NAME = "training-sizes"
SIZES = (0.1, 0.25, 0.5, 1.0)
FIGURES = ("accuracy", "share", "beneficial_guidance")


@dataclass(frozen=True)
class TrainingSizesSettings:
    """`gates`: kinds of gates, separated by commas; `repeats`: how often folds and samples are drawn; `seed`."""

    gates: str = "skr-knn,skr-classifier"
    repeats: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ValueError(f"repeats is {self.repeats}, expected a whole number of at least 1")


def analyse_training_sizes(inputs: AnalysisInputs) -> GateAnalysis:
    """Return a table with a row per gate and size: means over the repeats, each of which judges every record held out
    once.

    `difference` is the accuracy less that with all records, with the paired bootstrap's interval over the records.
    `fitted` of the `repeats` could be fitted; a gate that needs records of both kinds can't on too few. Raises
    UsageError for an unknown gate.
    """
    settings, records = inputs.typed(TrainingSizesSettings), inputs.records
    using = cache_embeddings(inputs.resources, {})
    rows: list[dict[str, Any]] = []
    gates = [name.strip() for name in settings.gates.split(",")]
    for gate in gates:
        base.find(gate)
        whole: Floats | None = None
        for size in sorted(SIZES, reverse=True):
            seeds = range(settings.seed, settings.seed + settings.repeats)
            tries = (_decide_held_out(records, gate, size, using, seed) for seed in seeds)
            decisions = [seeks for seeks in tries if seeks is not None]
            mean = (
                np.mean([gated_scores(records, seeks) for seeks in decisions], axis=0) if decisions else None
            )
            whole = mean if size == max(SIZES) else whole
            results = [GateOutcome.of(records, seeks) for seeks in decisions]
            # The mean and standard deviation of each figure over the repeats.
            figures: dict[str, Any] = {}
            for name in FIGURES:
                values = [value for outcome in results if (value := getattr(outcome, name)) is not None]
                figures[name] = float(np.mean(values)) if values else None
                figures[f"{name}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
            row = {
                "gate": gate,
                "size": size,
                "records": round(size * len(records) * (FOLDS - 1) / FOLDS),
                "fitted": len(results),
                **figures,
                "never": results[0].never if results else None,
                "always": results[0].always if results else None,
            }
            difference: dict[str, float | None] = {"difference": None, "low": None, "high": None}
            if mean is not None and whole is not None:
                low, high = (
                    interval((mean - whole).tolist(), paired=True) if mean is not whole else (0.0, 0.0)
                )
                difference = {"difference": float((mean - whole).mean()), "low": low, "high": high}
            rows.append(row | difference)
            inputs.report(len(rows), len(gates) * len(SIZES))
    rows.sort(key=lambda row: (gates.index(row["gate"]), row["size"]))
    series = []
    for gate in dict.fromkeys(row["gate"] for row in rows):
        for name in ("accuracy", "beneficial_guidance"):
            own = [row for row in rows if row["gate"] == gate and row[name] is not None]
            label = f"{gate}: {name.replace('_', ' ')}"
            series.append(
                PlotSeries(label, tuple(row["records"] for row in own), tuple(row[name] for row in own))
            )
    chart = Chart("records that the gate is fitted on", "share of the questions", tuple(series))
    return GateAnalysis(TRAINING_SIZES_NAME, len(records), tuple(rows), chart)


def _decide_held_out(
    records: Sequence[Record], gate: str, size: float, using: Resources, seed: int
) -> Seeks | None:
    """Decide each fold by a gate fitted on that share of the others; None where a gate can't be fitted."""
    kind, random = base.find(gate), np.random.default_rng(seed)
    seeks = np.zeros(len(records), dtype=np.bool_)
    for held_out in split_folds(records, min(FOLDS, len(records)), seed):
        others = np.setdiff1d(np.arange(len(records)), held_out)
        sample: list[int] = random.permutation(others)[: max(1, round(size * len(others)))].tolist()
        try:
            fitted = kind.fit([records[row] for row in sample], {}, using)
        except UsageError:
            return None
        seeks[held_out] = fitted.scores([records[row].query for row in held_out]) < fitted.threshold
    return seeks
