"""Analyses of records: the registry, and those that apply to any gate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.gates.calibration import cache_embeddings
from kcard.evaluation.gates.outcome import (
    FOLDS,
    Floats,
    GateOutcome,
    Seeks,
    gated_scores,
    scores_both_ways,
    split_folds,
)
from kcard.evaluation.metrics import interval, round_floats
from kcard.evaluation.plots import Curves, PlotSeries
from kcard.events import Event, OnEvent, ignore
from kcard.gates import base
from kcard.gates.base import Resources, parse_settings
from kcard.gates.records import RECALL, Record
from kcard.gates.self_ask import KNOWLEDGE_CARD, SKR, score_knowledge


@dataclass(frozen=True)
class AnalysisInputs:
    """Records by task (the name of their file), with the settings and resources of an analysis.

    on_event  called with the number of finished steps (kind steps)
    """

    tasks: Mapping[str, Sequence[Record]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    on_event: OnEvent = ignore

    @property
    def records(self) -> list[Record]:
        """The records of all tasks."""
        return [record for records in self.tasks.values() for record in records]


@dataclass(frozen=True)
class GateAnalysis:
    """The result of an analysis.

    rows     the table; all rows have the same columns; None: unknown
    summary  single figures
    """

    name: str
    records: int
    rows: tuple[Mapping[str, Any], ...]
    chart: Curves
    summary: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON-ready data."""
        data: dict[str, Any] = round_floats(asdict(self))
        return data


Analyse = Callable[[AnalysisInputs], GateAnalysis]


def bar_chart(label: str, rows: Sequence[Mapping[str, Any]], name: str, value: str) -> Curves:
    """Return bars of the column `value` with the interval (`low` to `high`) of each row, named by the column `name`."""
    names = tuple(str(row[name]) for row in rows)
    heights, lows, highs = (tuple(row[key] for row in rows) for key in (value, "low", "high"))
    return Curves("", label, (PlotSeries("", names, heights, lows, highs),), "bar")


# The analyses by name, with their descriptions and their functions, which are imported when used.

ANALYSES = {
    "popularity-curves": (
        "accuracy by popularity, and their correlation in each relation",
        "popularity:analyse_popularity_curves",
    ),
    "popularity-splits": (
        "the popularity gate over 100 splits of 75 % and 25 %",
        "popularity:analyse_popularity_splits",
    ),
    "recall": ("recall@1 where cards help, hurt, or change nothing", "analysis:analyse_recall"),
    "self-ask-templates": (
        "how reliable the LLM's self-assessment is, by wording",
        "analysis:analyse_self_ask_templates",
    ),
    "thrust-scores": ("the distribution of Thrust's scores in each task", "thrust:analyse_thrust_scores"),
    "thrust-shares": (
        "knowledge for 25, 50 and 75 % of the questions: Thrust, BM25, random",
        "thrust:analyse_thrust_shares",
    ),
    "training-sizes": (
        "gates fitted on 10, 25, 50 and 100 % of the records",
        "analysis:analyse_training_sizes",
    ),
}


def find_analysis(name: str) -> Analyse:
    """Return the analysis of a name. Raises UsageError, which lists the names, for an unknown one."""
    if name not in ANALYSES:
        raise UsageError(f"unknown analysis {name!r}: choose one of {', '.join(ANALYSES)}")
    module, function = ANALYSES[name][1].split(":")
    analyse: Analyse = getattr(import_module(f"kcard.evaluation.gates.analyses.{module}"), function)
    return analyse


# How often the first passage contains the answer, by whether the answers without and with cards are right (Adaptive
# Retrieval, table 1).

MIN_RIGHT = 0.5  # minimum score of a right answer
# By whether the answer is right without cards, and with them.
GROUPS = {
    (True, True): "right both ways",
    (False, True): "right only with cards",
    (True, False): "right only without cards",
    (False, False): "wrong both ways",
}


def analyse_recall(inputs: AnalysisInputs) -> GateAnalysis:
    """Return a table with a row for each group and one for all: number of questions, recall@1 and its interval.

    Raises UsageError for a record without recall@1.
    """
    records = inputs.records
    for record in records:
        if RECALL not in record.scores:
            raise UsageError(
                f'the record of {record.question[:60]!r} has no "{RECALL}" among its scores: collect records with '
                "`kcard gate collect`"
            )
    recalls: dict[str, list[float]] = {name: [] for name in (*GROUPS.values(), "all")}
    for record in records:
        group = GROUPS[record.correct_without >= MIN_RIGHT, record.correct_with >= MIN_RIGHT]
        recalls[group].append(record.scores[RECALL])
        recalls["all"].append(record.scores[RECALL])
    rows: list[Mapping[str, Any]] = []
    for group, values in recalls.items():
        low, high = interval(values)
        mean = None
        if values:
            mean = sum(values) / len(values)
        shares = {"n": len(values), "share": len(values) / len(records)}
        rows.append({"group": group, **shares, "recall@1": mean, "low": low, "high": high})
    chart = bar_chart("recall@1", [row for row in rows if row["n"]], "group", "recall@1")
    return GateAnalysis("recall", len(records), tuple(rows), chart)


# Reliability of the LLM's self-assessment in each wording of self-ask (SKR, table 2; Knowledge Card, section 2.3), and
# agreement of the wordings (figure 7).

PAPERS = {**dict.fromkeys(KNOWLEDGE_CARD, "knowledge-card"), **dict.fromkeys(SKR, "skr")}


def analyse_self_ask_templates(inputs: AnalysisInputs) -> GateAnalysis:
    """Return a table with a row for each wording: number of questions that the LLM claims to know, and its accuracy.

    `accuracy_known` is SKR's accuracy, with Wilson's interval; `right_word` is the share of questions on which the
    claim agrees with being right without cards; `accuracy` and `beneficial_guidance` are the gate's. Records may carry
    the claims as scores "need_0" to "need_7": the probability in [0, 1] that the LLM needs knowledge, by wording.
    Otherwise the LLM is asked. Raises UsageError without either.
    """
    records, seeks = inputs.records, {}
    rows: list[dict[str, Any]] = []
    for template, paper in PAPERS.items():
        # The LLM's needs, from the records or from its replies.
        key = f"need_{template}"
        scores = [record.scores.get(key) for record in records]
        if None not in scores:
            needs: Floats = np.array(scores, dtype=np.float64)
        elif inputs.resources.llm is None:
            raise UsageError(
                f'not every record has "{key}" among its scores, so an LLM is needed: pass --llm'
            )
        else:
            questions = [record.query.to_ask for record in records]
            knowledge = score_knowledge(inputs.resources.llm, questions, (), (template,))
            needs = 1 - knowledge.astype(np.float64)
        seeks[template] = needs > 0.5
        # The row: accuracy where it claims to know, and the outcome of the gate.
        outcome = GateOutcome.of(records, seeks[template])
        without, _ = scores_both_ways(records)
        claimed = without[~seeks[template]].tolist()
        accuracy = None
        if claimed:
            accuracy = float(np.mean(claimed))
        low, high = interval(claimed)
        rows.append(
            {
                "template": template,
                "paper": paper,
                "known": len(claimed),
                "unknown": int(seeks[template].sum()),
                "accuracy_known": accuracy,
                "low": low,
                "high": high,
                "right_word": float(((without >= 0.5) == ~seeks[template]).mean()),
                "accuracy": outcome.accuracy,
                "beneficial_guidance": outcome.beneficial_guidance,
            }
        )
        inputs.on_event(Event("steps", done=len(rows), total=len(PAPERS)))
    # The share of questions on which all wordings of a paper agree.
    summary = {}
    for paper in dict.fromkeys(PAPERS.values()):
        decisions = np.stack([seeks[template] for template, of in PAPERS.items() if of == paper])
        summary[f"unanimous_{paper}"] = float((decisions == decisions[0]).all(axis=0).mean())
    # The chart of wordings with at least one claim.
    confident = [row for row in rows if row["known"]]
    label = "accuracy where the LLM says that it knows"
    chart = bar_chart(label, confident, "template", "accuracy_known")
    return GateAnalysis("self-ask-templates", len(records), tuple(rows), chart, summary)


# The outcome of gates by number of records: fitted on 10, 25, 50 and 100 % (SKR, section 5.3).

SIZES = (0.1, 0.25, 0.5, 1.0)
FIGURES = ("accuracy", "share", "beneficial_guidance")


@dataclass(frozen=True)
class TrainingSizesSettings:
    """`gates`: kinds of gates, comma-separated; `repeats`: number of draws of folds and samples; `seed`."""

    gates: str = "skr-knn,skr-classifier"
    repeats: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ValueError(f"repeats is {self.repeats}, expected a whole number of at least 1")


def analyse_training_sizes(inputs: AnalysisInputs) -> GateAnalysis:
    """Return a table with a row for each gate and size: means over the repeats, each with every record held out once.

    `difference` is the accuracy minus that with all records, with the paired bootstrap's interval over the records.
    `fitted` is the number of repeats in which the gate could be fitted; too few records may lack one of two classes.
    Raises UsageError for an unknown gate.
    """
    settings = parse_settings(TrainingSizesSettings, inputs.settings, "training-sizes", "analysis")
    records = inputs.records
    using = cache_embeddings(inputs.resources, {})
    rows: list[dict[str, Any]] = []
    gates = [name.strip() for name in settings.gates.split(",")]
    for gate in gates:
        base.find(gate)
        # From all records down to the smallest sample, since each size is compared with all.
        whole: Floats | None = None
        for size in sorted(SIZES, reverse=True):
            decisions = []
            for seed in range(settings.seed, settings.seed + settings.repeats):
                seeks = _decide_held_out(records, gate, size, using, seed)
                if seeks is not None:
                    decisions.append(seeks)
            results = [GateOutcome.of(records, seeks) for seeks in decisions]
            row: dict[str, Any] = {
                "gate": gate,
                "size": size,
                "records": round(size * len(records) * (FOLDS - 1) / FOLDS),
                "fitted": len(results),
            }
            for figure in FIGURES:
                row |= _summarise_figure(figure, results)
            row |= dict.fromkeys(("never", "always", "difference", "low", "high"))
            if results:
                row |= {"never": results[0].never, "always": results[0].always}
                mean: Floats = np.mean([gated_scores(records, seeks) for seeks in decisions], axis=0)
                if size == max(SIZES):
                    whole = mean
                    row |= {"difference": 0.0, "low": 0.0, "high": 0.0}
                elif whole is not None:
                    low, high = interval((mean - whole).tolist(), paired=True)
                    row |= {"difference": float((mean - whole).mean()), "low": low, "high": high}
            rows.append(row)
            inputs.on_event(Event("steps", done=len(rows), total=len(gates) * len(SIZES)))
    rows.sort(key=lambda row: (gates.index(row["gate"]), row["size"]))
    # Two lines for each gate.
    series = []
    for gate in dict.fromkeys(gates):
        for figure in ("accuracy", "beneficial_guidance"):
            sizes, values = [], []
            for row in rows:
                if row["gate"] == gate and row[figure] is not None:
                    sizes.append(row["records"])
                    values.append(row[figure])
            label = f"{gate}: {figure.replace('_', ' ')}"
            series.append(PlotSeries(label, tuple(sizes), tuple(values)))
    chart = Curves("records that the gate is fitted on", "share of the questions", tuple(series))
    return GateAnalysis("training-sizes", len(records), tuple(rows), chart)


def _summarise_figure(figure: str, outcomes: Sequence[GateOutcome]) -> dict[str, float | None]:
    """Return the mean and standard deviation of a figure over the repeats, as far as they have it."""
    values = [getattr(outcome, figure) for outcome in outcomes if getattr(outcome, figure) is not None]
    mean = deviation = None
    if values:
        mean = float(np.mean(values))
    if len(values) > 1:
        deviation = float(np.std(values, ddof=1))
    return {figure: mean, f"{figure}_sd": deviation}


def _decide_held_out(
    records: Sequence[Record], gate: str, size: float, using: Resources, seed: int
) -> Seeks | None:
    """Decide each fold by a gate fitted on a sample of the others, a share `size`; None if one can't be fitted."""
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
