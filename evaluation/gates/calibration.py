"""Compare gates on records and recommend one.

Every gate scores each record while it is held out. The threshold of a fold is chosen on the held-out scores of the
other folds: the most accurate one within the budget. So gates are compared by their ranking of questions, and a gate
that ranks no better than chance becomes never or always.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.gates.outcome import (
    FOLDS,
    CurvePoint,
    Floats,
    GateOutcome,
    Indices,
    Seeks,
    best_within_budget,
    cost_curve,
    gated_scores,
    scores_both_ways,
    split_folds,
)
from kcard.evaluation.metrics import holm, interval, sign_flip
from kcard.evaluation.plots import (
    COLOURS,
    GREY,
    Curves,
    PlotSeries,
    draw_chart,
    picture,
    render_template,
    write_document,
    write_figure,
)
from kcard.events import Event, OnEvent, ignore, note
from kcard.gates import features
from kcard.gates.base import Calibrated, FittedGate, Resources
from kcard.gates.records import Query, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Cross-validation of a kind of gate.

ENCODER = "minilm"


@dataclass(frozen=True)
class Trial:
    """Held-out scores of a gate with their thresholds, shape (n,) each.

    correct_without  P(right without cards), shape (n,); None if the kind gives no probability
    fitted           the gate that was fitted for the first fold
    tuned            for settings in which the folds differ, the number of folds by value: {"k": {"5": 4, "7": 1}}
    """

    scores: Floats
    thresholds: Floats
    correct_without: Floats | None
    fitted: FittedGate
    tuned: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def seeks(self) -> Seeks:
        return np.asarray(self.scores < self.thresholds)


def cross_validate(
    records: Sequence[Record],
    kind: type[FittedGate],
    settings: Mapping[str, Any],
    resources: Resources,
    folds: Sequence[Indices],
    on_event: OnEvent = ignore,
) -> Trial:
    """Score each fold by a gate fitted, and tuned, on the other folds.

    `on_event` is called with the number of folds that are done (kind folds). Raises what fitting and scoring raise.
    """
    # Fit a gate for each fold.
    scores, thresholds, right = (np.zeros(len(records)) for _ in range(3))
    is_probabilistic = False
    first: FittedGate | None = None
    counts: dict[str, Counter[str]] = {}
    for done, held_out in enumerate(folds, 1):
        others = np.setdiff1d(np.arange(len(records)), held_out)
        fitted = kind.fit([records[i] for i in others], settings, resources)
        first = first or fitted
        queries = [records[i].query for i in held_out]
        scores[held_out], thresholds[held_out] = fitted.scores(queries), fitted.threshold
        probabilities = fitted.correct_without(queries)
        if probabilities is not None:
            right[held_out], is_probabilistic = probabilities, True
        for key, value in fitted.settings.items():
            counts.setdefault(key, Counter())[str(value)] += 1
        on_event(Event("folds", done=done, total=len(folds)))
    assert first is not None  # there are two folds or more
    tuned = {key: dict(count.most_common()) for key, count in counts.items() if len(count) > 1}
    trial = Trial(scores, thresholds, None, first, tuned)
    if is_probabilistic:
        trial = replace(trial, correct_without=right)
    return trial


def score_fitted(records: Sequence[Record], fitted: FittedGate) -> Trial:
    """Score records with a fitted gate, which may have been fitted on the same records."""
    queries = [record.query for record in records]
    scores = np.asarray(fitted.scores(queries), dtype=np.float64)
    trial = Trial(scores, np.full(len(records), fitted.threshold), None, fitted)
    right = fitted.correct_without(queries)
    if right is not None:
        trial = replace(trial, correct_without=right.astype(np.float64))
    return trial


def cache_embeddings(resources: Resources, settings: Mapping[str, Any]) -> Resources:
    """Return the resources with a representation that embeds each question only once for all gates."""
    if resources.representation is not None:
        return resources
    representation = features.find(str(settings.get("encoder", ENCODER)))
    return replace(resources, representation=features.CachedRepresentation(representation))


@dataclass(frozen=True)
class GateCandidate:
    """A gate to compare: a kind with its settings and resources."""

    name: str
    kind: type[FittedGate]
    settings: Mapping[str, Any]
    resources: Resources


@dataclass(frozen=True)
class GatelessBaseline:
    """The best decision without a gate: never, always, or, if always exceeds the budget, a random share.

    `outcomes`: the (expected) score of each answer, shape (n,).
    """

    name: str
    share: float
    outcomes: Floats

    @property
    def accuracy(self) -> float:
        return float(self.outcomes.mean())


@dataclass(frozen=True)
class ComparedGate:
    """A gate with its outcome. `low`, `high`: 95 % interval of the accuracy.

    difference  accuracy minus that of the reference, with its 95 % interval
    p           of the paired test against the reference; p_holm: corrected for all compared gates
    curve       accuracy against cost, over all held-out scores
    threshold   the recommended threshold, chosen on all held-out scores
    obstacle    why `kcard ask` can't use it, which has only the text of a question; "" if it can
    """

    gate: str
    outcome: GateOutcome
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float
    p: float
    p_holm: float
    threshold: float
    curve: tuple[CurvePoint, ...]
    trial: Trial
    obstacle: str = ""


@dataclass(frozen=True)
class Calibration:
    """A comparison of gates. `skipped`: gates that can't be fitted on these records, and why."""

    records: int
    folds: int
    seed: int
    budget: float
    reference: GatelessBaseline
    rows: tuple[ComparedGate, ...]
    skipped: tuple[tuple[str, str], ...]
    baselines: GateOutcome


def compare_gates(
    records: Sequence[Record],
    candidates: Sequence[GateCandidate],
    *,
    budget: float = 1.0,
    count: int = FOLDS,
    seed: int = 0,
    on_event: OnEvent = ignore,
) -> Calibration:
    """Compare gates with each other and with the reference; gates that can't be fitted are skipped.

    `on_event` is called with a note on each gate before its turn. Raises UsageError for a budget outside [0, 1] or an
    impossible number of folds.
    """
    if not 0 <= budget <= 1:
        raise UsageError(f"budget is {budget:g}: expected a share of the questions, from 0 to 1")
    # Cross-validate each gate on the same folds.
    cut = split_folds(records, count, seed)
    best = best_baseline(records, budget)
    trials: list[tuple[str, Trial, Seeks]] = []
    skipped = []
    for candidate in candidates:
        on_event(note(f"comparing {candidate.name}"))
        try:
            trial = cross_validate(records, candidate.kind, candidate.settings, candidate.resources, cut)
        except UsageError as error:
            skipped.append((candidate.name, str(error)))
            continue
        # Its decisions on each fold, by the best threshold on the held-out scores of the other folds.
        seeks = np.zeros(len(records), dtype=np.bool_)
        for held_out in cut:
            others = np.setdiff1d(np.arange(len(records)), held_out)
            points = cost_curve([records[i] for i in others], trial.scores[others])
            seeks[held_out] = trial.scores[held_out] < best_within_budget(points, budget).threshold
        trials.append((candidate.name, trial, seeks))
    # Test each gate against the reference, corrected for all gates.
    ps = [sign_flip(gated_scores(records, seeks) - best.outcomes, seed) for _, _, seeks in trials]
    rows = []
    for (name, trial, seeks), p, adjusted in zip(trials, ps, holm(ps), strict=True):
        right = gated_scores(records, seeks)
        low, high = interval(right.tolist(), seed)
        differences = right - best.outcomes
        difference_low, difference_high = interval(differences.tolist(), seed, paired=True)
        points = cost_curve(records, trial.scores)
        # `kcard ask` has only the text of a question, which some gates can't score.
        obstacle = ""
        try:
            trial.fitted.scores([Query(records[0].question)])
        except UsageError as error:
            obstacle = str(error)
        rows.append(
            ComparedGate(
                gate=name,
                outcome=GateOutcome.of(records, seeks),
                low=low,
                high=high,
                difference=float(differences.mean()),
                difference_low=difference_low,
                difference_high=difference_high,
                p=p,
                p_holm=adjusted,
                threshold=best_within_budget(points, budget).threshold,
                curve=tuple(points),
                trial=trial,
                obstacle=obstacle,
            )
        )
    baselines = GateOutcome.of(records, np.zeros(len(records), dtype=np.bool_))
    return Calibration(len(records), count, seed, budget, best, tuple(rows), tuple(skipped), baselines)


def best_baseline(records: Sequence[Record], budget: float = 1.0) -> GatelessBaseline:
    """Return the most accurate decision without a gate within the budget; among equals, the cheapest."""
    without, with_ = scores_both_ways(records)
    if with_.mean() <= without.mean() or not budget:
        return GatelessBaseline("never", 0.0, without)
    if budget >= 1:
        return GatelessBaseline("always", 1.0, with_)
    return GatelessBaseline(f"random {budget:.0%}", budget, (1 - budget) * without + budget * with_)


# The recommendation of a calibration, and the fitted gate.

SIGNIFICANCE_LEVEL = 0.05
MARGIN = 0.01  # loss of accuracy within which a gate is as good as the reference
MIN_SAVING = 0.1  # share of the questions that a cheaper gate must save to be mentioned


@dataclass(frozen=True)
class Recommendation:
    """The recommended gate, None if none beats the reference, and a sentence for the user."""

    gate: ComparedGate | None
    text: str


def recommend(calibration: Calibration) -> Recommendation:
    """Recommend the most accurate gate that beats the reference; none if none does.

    A gate beats the reference if it is more accurate and its p, by Holm's correction for all compared gates, is below
    0.05. A gate that needs more than a question's text is mentioned but not recommended.
    """
    beating = [row for row in calibration.rows if row.difference > 0 and row.p_holm < SIGNIFICANCE_LEVEL]
    beating.sort(key=lambda row: (-row.outcome.accuracy, row.outcome.share))
    # The best gate that can be used, else the reference, perhaps with a cheaper gate that is as good.
    usable = None
    for row in reversed(beating):
        if not row.obstacle:
            usable = row
    text = ""
    if usable is not None:
        text = f"use {_describe(usable, calibration)}"
    elif not beating:
        best = calibration.reference
        text = f"no gate beats {best.name} here: use {best.name} ({best.accuracy:.3f} right)"
        cheaper = []
        for row in calibration.rows:
            is_as_good = row.difference_low >= -MARGIN and not row.obstacle
            if is_as_good and row.outcome.share <= best.share - MIN_SAVING:
                cheaper.append(row)
        if cheaper:
            row = min(cheaper, key=lambda row: row.outcome.share)
            gain = f"{row.difference:+.3f} [{row.difference_low:+.3f}, {row.difference_high:+.3f}]"
            text += f"; {row.gate} is as good ({gain}) and uses cards for only {row.outcome.share:.0%} of the questions"
    # A better gate that can't be used is mentioned first.
    if beating and beating[0].obstacle:
        first = (
            f"best is {_describe(beating[0], calibration)}, but it can't be used yet: {beating[0].obstacle}"
        )
        text = "; ".join(filter(None, (first, text)))
    return Recommendation(usable, text)


def _describe(row: ComparedGate, calibration: Calibration) -> str:
    best = calibration.reference.name
    return (
        f"{row.gate}: {row.outcome.accuracy:.3f} right with cards for {row.outcome.share:.0%} of the questions, "
        f"{row.difference:+.3f} [{row.difference_low:+.3f}, {row.difference_high:+.3f}] over {best} "
        f"(p = {row.p_holm:.2g} for all {len(calibration.rows)} gates)"
    )


def fit_chosen_gate(
    records: Sequence[Record], candidate: GateCandidate, row: ComparedGate, calibration: Calibration
) -> FittedGate:
    """Fit a compared gate on all records, with the threshold that the comparison chose.

    The scale of scores may grow with the number of records (Thrust's does), and the comparison fitted on fewer records.
    So the threshold is transferred by rank: as many records score below it as below the chosen one in the first fold's
    gate.
    """
    fitted = candidate.kind.fit(records, candidate.settings, candidate.resources)
    held_out = set(split_folds(records, calibration.folds, calibration.seed)[0].tolist())
    common = [record for i, record in enumerate(records) if i not in held_out]
    queries = [record.query for record in common]
    before = np.asarray(row.trial.fitted.scores(queries), dtype=np.float64)
    after = np.asarray(fitted.scores(queries), dtype=np.float64)
    share = float((before < row.threshold).mean())
    # The threshold whose share is nearest; an infinite one becomes finite, beyond all scores, to be stored in a file.
    nearest = min(cost_curve(common, after), key=lambda point: abs(point.share - share)).threshold
    return Calibrated(fitted, float(np.clip(nearest, after.min() - 1, after.max() + 1)))


# A calibration as JSON-ready data.

DIGITS = 6


def calibration_data(calibration: Calibration) -> dict[str, Any]:
    """Return all figures; the curve as [share, accuracy] pairs; an infinite threshold (never, always) as null."""
    # The gates.
    gates = []
    for row in calibration.rows:
        outcome = row.outcome.to_json()
        threshold = None
        if math.isfinite(row.threshold):
            threshold = _rounded(row.threshold)
        gate: dict[str, Any] = {"gate": row.gate}
        for key in ("accuracy", "share", "beneficial_guidance", "random_same_share"):
            gate[key] = outcome[key]
        gates.append(
            gate
            | {
                "interval": [_rounded(row.low), _rounded(row.high)],
                "difference": _rounded(row.difference),
                "difference_interval": [_rounded(row.difference_low), _rounded(row.difference_high)],
                "p": _rounded(row.p),
                "p_holm": _rounded(row.p_holm),
                "threshold": threshold,
                "curve": [[_rounded(point.share), _rounded(point.accuracy)] for point in row.curve],
            }
        )
        if row.obstacle:
            gates[-1]["obstacle"] = row.obstacle
    # The records, the folds and the reference.
    best = calibration.reference
    return {
        "n": calibration.records,
        "folds": calibration.folds,
        "seed": calibration.seed,
        "budget": calibration.budget,
        "never": _rounded(calibration.baselines.never),
        "always": _rounded(calibration.baselines.always),
        "oracle": _rounded(calibration.baselines.oracle),
        "reference": {"name": best.name, "accuracy": _rounded(best.accuracy), "share": best.share},
        "gates": gates,
        "skipped": [{"gate": gate, "why": why} for gate, why in calibration.skipped],
    }


def _rounded(value: float) -> float:
    return round(value, DIGITS)


# The curves of a calibration as a figure.


def draw_calibration(calibration: Calibration) -> "Figure":
    """Draw the curve of each gate, accuracy against the share of questions with cards, and a dot for its outcome.

    The dots are the figures of the table, whose thresholds were chosen without the held-out fold, so they may lie below
    the curves.
    """
    base = calibration.baselines
    series = [
        PlotSeries("random", (0.0, 1.0), (base.never, base.always)),
        PlotSeries("oracle", (0.0, 1.0), (base.oracle, base.oracle)),
    ]
    for row in calibration.rows:
        shares, accuracies, _ = zip(*row.curve, strict=True)
        series.append(PlotSeries(row.gate, shares, accuracies))
    chart = Curves("share of the questions that ask cards (cost)", "accuracy", tuple(series))
    figure = draw_chart(chart, f"{calibration.records} records, {calibration.folds} folds")
    axes = figure.axes[0]
    for number, row in enumerate(calibration.rows, start=2):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot([row.outcome.share], [row.outcome.accuracy], "D", color=colour, markeredgecolor="black")
    if calibration.budget < 1:
        axes.axvline(calibration.budget, color=GREY, linewidth=0.8, linestyle="--")
        axes.annotate("budget", (calibration.budget, 0.01), xycoords=("data", "axes fraction"), fontsize=8)
    return figure


def write_plot(calibration: Calibration, path: Path) -> None:
    """Write the figure to a file. Raises UsageError if that fails."""
    write_figure(draw_calibration(calibration), path)


# The report of a calibration as a self-contained web page, without scripts or network access.

TEMPLATE = Path(__file__).with_name("calibration.html")
TITLE = "Which gate for these questions?"


def render(calibration: Calibration, choice: "Recommendation", title: str = TITLE) -> str:
    """Render the page as HTML."""
    return render_template(
        TEMPLATE,
        title=title,
        text=choice.text,
        chosen=choice.gate.gate if choice.gate else "",
        calibration=calibration,
        rows=sorted(calibration.rows, key=lambda row: -row.outcome.accuracy),
        picture=picture(draw_calibration(calibration)),
    )


def write_page(calibration: Calibration, choice: "Recommendation", path: Path | str) -> Path:
    """Write the page to `path`, atomically. Raises UsageError if that fails."""
    return write_document(path, render(calibration, choice))
