"""Analyses of a run's answers, and the registry of all analyses."""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kcard import system
from kcard.errors import UsageError
from kcard.evaluation.metrics import compare_scores, normalise, substring
from kcard.evaluation.plots import Chart, Heat, Intervals, PlotPoint
from kcard.evaluation.records import Mean
from kcard.evaluation.runs.results import EvalResult, holds_answer
from kcard.evaluation.tasks.base import read_entries
from kcard.evaluation.tasks.datasets import domain_of
from kcard.types import add_counts

# The result of an analysis: a table, charts, and a sentence or two that explain them.

Cell = str | int | float | Mean | None


@dataclass(frozen=True)
class Analysis:
    """The result of an analysis.

    text  what it shows, and what it does not
    rows  one cell for each of `columns`; None: not measured
    """

    name: str
    title: str
    text: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    charts: tuple[Chart, ...] = ()


class Analyst(Protocol):
    """A function that analyses a run, registered under `kcard.analyses`."""

    def __call__(self, results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
        """Analyse results, which may come without prompts and passages' texts (`drop_texts`). `metrics` by task.

        An analysis that needs a file takes its path as a third argument.

        Raises UsageError, with a remedy, if the results contain nothing to analyse.
        """
        ...


def format_cell(cell: Cell) -> str:
    """Format a cell as text."""
    if cell is None:
        return "–"
    if isinstance(cell, Mean):
        return f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]"
    if isinstance(cell, float):
        return f"{cell:.3f}" if abs(cell) < 100 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


SettingKey = tuple[str, str]  # task and setting


def group_by_setting(results: Iterable[EvalResult]) -> dict[SettingKey, list[EvalResult]]:
    """Return the results of each setting on each task, in their order."""
    groups: dict[SettingKey, list[EvalResult]] = {}
    for result in results:
        groups.setdefault((result.task, result.setting), []).append(result)
    return groups


def group_name(result: EvalResult) -> str:
    """Return the task and group of a result, as one name."""
    return f"{result.task}: {result.group}" if result.group else result.task


def charts_by_task(label: str, means: Mapping[SettingKey, Mean | None]) -> tuple[Intervals, ...]:
    """Return a chart of the settings' means for each task. `label` contains {task}."""
    points: dict[str, list[PlotPoint]] = {}
    for (task, setting), mean in means.items():
        if mean is not None:
            points.setdefault(task, []).append(PlotPoint(setting, mean))
    return tuple(Intervals(label.format(task=task), tuple(part)) for task, part in points.items())


# Which cards generated passages, and whose passages the selectors kept, by task and group (Knowledge Card, figure 8).


def card_choice(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return shares of questions by setting, group and card. Raises UsageError if no card generated a passage."""
    del metrics
    # Count questions by setting and group, and those with a passage, and a kept passage, of each card.
    questions: Counter[tuple[str, str]] = Counter()
    wrote: Counter[tuple[str, str, str]] = Counter()
    kept_counts: Counter[tuple[str, str, str]] = Counter()
    for result in results:
        setting, group = result.setting, group_name(result)
        questions[setting, group] += 1
        for card in {str(passage.get("card")) for passage in result.passages}:
            wrote[setting, group, card] += 1
        for card in {str(passage.get("card")) for passage in result.passages if passage.get("kept")}:
            kept_counts[setting, group, card] += 1
    if not wrote:
        raise UsageError("no card wrote a passage in this run: run a setting with cards, such as bottom-up")
    cards = sorted({card for _, _, card in wrote})
    parts = sorted({(setting, group) for setting, group, _ in wrote})
    rows: list[tuple[Cell, ...]] = []
    shares: dict[tuple[str, str], tuple[float, ...]] = {}
    for setting, group in parts:
        count = questions[setting, group]
        for card in cards:
            if wrote[setting, group, card]:
                selected = kept_counts[setting, group, card] / count
                rows.append((setting, group, card, count, wrote[setting, group, card] / count, selected))
        shares[setting, group] = tuple(kept_counts[setting, group, card] / count for card in cards)
    # One map for each setting; for a run with a single group, one map of all settings.
    groups = {group for _, group in parts}
    maps: dict[str, dict[str, tuple[float, ...]]] = {}
    for (setting, group), values in shares.items():
        title, row = (group, setting) if len(groups) == 1 else (setting, group)
        maps.setdefault(title, {})[row] = values
    charts = [
        Heat(
            f"{title}: share of questions with a kept passage",
            tuple(part),
            tuple(cards),
            tuple(part.values()),
        )
        for title, part in maps.items()
    ]
    return Analysis(
        "cards",
        "Cards by task",
        "The share of questions for which a card wrote a passage, and for which the selectors kept one. A group "
        "without a card that is kept often may need a card of its own.",
        ("setting", "group", "card", "questions", "wrote", "kept"),
        tuple(rows),
        tuple(charts),
    )


# The cost of each setting beside its score: calls, tokens, and the seconds a question takes.

PERCENTILES = (0.1, 0.5, 0.9, 0.99)


def cost(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Compare scores, calls, tokens and latency percentiles of the answered questions.

    Raises UsageError if no question was answered.
    """
    answered = group_by_setting(result for result in results if not result.error)
    if not answered:
        raise UsageError("this run has no answer yet")
    rows: list[tuple[Cell, ...]] = []
    medians: dict[SettingKey, Mean | None] = {}
    for (task, setting), part in answered.items():
        seconds = np.quantile([result.seconds for result in part], PERCENTILES).tolist()
        low, median, high, _ = seconds
        medians[task, setting] = Mean(median, low, high)
        score = Mean.of([result.score(metrics[task]) for result in part])
        calls = sum(len(result.calls) for result in part) / len(part)
        tokens_in = _mean_count([result.tokens_in for result in part])
        tokens_out = _mean_count([result.tokens_out for result in part])
        rows.append((task, setting, score, calls, tokens_in, tokens_out, *seconds))
    return Analysis(
        "cost",
        "Latency and cost",
        "Calls and tokens of the LLM are means a question; seconds are percentiles over questions, from the question "
        "to its answer. In a batch a question has its share of the batch's time.",
        ("task", "setting", "score", "calls", "tokens in", "tokens out", "10 %", "median", "90 %", "99 %"),
        tuple(rows),
        charts_by_task("seconds a question on {task}: median, and from 10 % to 90 %", medians),
    )


def _mean_count(counts: Sequence[int | None]) -> float | None:
    total = add_counts(counts)
    return None if total is None else total / len(counts)


# The score of each setting in each group of a task, such as MMLU's subjects.


def groups(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return a table and a heat map of groups x settings. Raises UsageError if no task has two groups."""
    # The results by group and setting, for tasks with several groups.
    by_group: dict[tuple[str, str], dict[str, list[EvalResult]]] = {}
    for result in results:
        if result.group:
            by_setting = by_group.setdefault((result.task, result.group), {})
            by_setting.setdefault(result.setting, []).append(result)
    tasks = Counter(task for task, _ in by_group)
    parts = {key: part for key, part in sorted(by_group.items()) if tasks[key[0]] > 1}
    if not parts:
        raise UsageError("no task of this run has groups: MMLU has subjects, PopQA relations")
    settings = list(dict.fromkeys(setting for part in parts.values() for setting in part))
    several = len({task for task, _ in parts}) > 1
    # The mean of each setting in each group, for the table and the map.
    rows: list[tuple[Cell, ...]] = []
    values: dict[str, tuple[float | None, ...]] = {}
    for (task, group), part in parts.items():
        name = f"{task}: {group}" if several else group
        means = [Mean.of([r.score(metrics[task]) for r in part.get(setting, ())]) for setting in settings]
        questions = {result.id for of_setting in part.values() for result in of_setting}
        rows.append((name, len(questions), *means))
        values[name] = tuple(mean.mean if mean else None for mean in means)
    return Analysis(
        "groups",
        "Score by group",
        "The score of each setting on the questions of each group, with 95 % intervals. Groups of few questions have "
        "wide intervals.",
        ("group", "questions", *settings),
        tuple(rows),
        (Heat("score by group and setting", tuple(values), tuple(settings), tuple(values.values())),),
    )


# Scores on races whose incumbent was not re-elected (Knowledge Card, section 5 and table 5).
#
# An LLM trained before the election names the incumbent; cards trained later should not.


def lost_incumbents(
    results: Iterable[EvalResult], metrics: Mapping[str, str], file: Path | None = None
) -> Analysis:
    """Return scores on the races of a file, and how often the answer names the incumbent.

    The file has the columns `race`, as the questions word it, and `incumbent`. Raises UsageError without a file, for a
    malformed one, and if no question is about one of its races.
    """
    if file is None:
        raise UsageError(
            "lost-incumbents needs a file with race and incumbent: --analysis lost-incumbents=races.csv"
        )
    # Each race, normalised and between spaces, with its incumbent.
    incumbents = []
    for where, row in read_entries(file, "incumbents"):
        race, incumbent = row.get("race"), row.get("incumbent")
        if not (isinstance(race, str) and race.strip() and isinstance(incumbent, str) and incumbent.strip()):
            raise UsageError(f'{where}: expected a "race" and an "incumbent", both with a text')
        incumbents.append((f" {normalise(race)} ", incumbent))
    # Score the questions about these races; an answer names the incumbent if it contains the name or is part of it.
    scores: dict[SettingKey, list[float]] = {}
    named: dict[SettingKey, list[float]] = {}
    for result in results:
        name = next((name for race, name in incumbents if race in f" {normalise(result.question)} "), None)
        if name is not None:
            key = result.task, result.setting
            scores.setdefault(key, []).append(result.score(metrics[result.task]))
            answer = result.choices.get(result.prediction, result.prediction)
            is_named = substring(answer, [name]) or (bool(normalise(answer)) and substring(name, [answer]))
            named.setdefault(key, []).append(float(is_named))
    if not scores:
        raise UsageError(
            f"no question of this run is about a race of {file}: word the races as the questions do"
        )
    means = {key: Mean.of(values) for key, values in scores.items()}
    rows = [(*key, len(scores[key]), mean, Mean.of(named[key])) for key, mean in means.items()]
    return Analysis(
        "lost-incumbents",
        "Races whose incumbent lost",
        "The score on races whose incumbent was not elected again, and the share of answers that name the incumbent, "
        "with 95 % intervals.",
        ("task", "setting", "races", "score", "names the incumbent"),
        tuple(rows),
        charts_by_task("score on {task} where the incumbent lost", means),
    )


# MMLU's subjects in the four domains of its authors (Knowledge Card, table 1).


def mmlu_domains(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return the score of each setting in STEM, humanities, social sciences and other.

    Raises UsageError unless the run has questions of MMLU's subjects in two domains.
    """
    own = [replace(r, group=domain_of(r.group)) for r in results if r.task == "mmlu" and domain_of(r.group)]
    analysis = groups(own, metrics)
    text = "The mean over the questions of each domain, with 95 % intervals, so subjects of many questions weigh more."
    return replace(analysis, name="mmlu-domains", title="Score by MMLU's domains", text=text)


CARDS = {"bottom-up", "top-down", "hybrid"}  # modes
RETRIEVAL = {"retrieval", "replug"}


def sources(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Compare every setting with cards only to every setting with retrieval only, on the questions both answered.

    Raises UsageError unless the run has both.
    """
    # The settings by where their passages come from; a card may be called retrieval, for cards and retrieval together.
    with_cards: dict[SettingKey, dict[str, EvalResult]] = {}
    with_retrieval: dict[SettingKey, dict[str, EvalResult]] = {}
    for key, part in group_by_setting(result for result in results if not result.error).items():
        modes = {str(result.trace.get("mode")) for result in part}
        cards = {str(passage.get("card")) for result in part for passage in _read_passages(result)}
        modes |= cards & RETRIEVAL
        if modes <= CARDS:
            with_cards[key] = {result.id: result for result in part}
        elif modes <= RETRIEVAL:
            with_retrieval[key] = {result.id: result for result in part}
    # A paired comparison of every two settings of one task.
    rows: list[tuple[Cell, ...]] = []
    points = []
    for (task, setting), first in with_cards.items():
        for (other_task, other), second in with_retrieval.items():
            if task != other_task:
                continue
            both = [id_ for id_ in first if id_ in second]
            right = [float(first[id_].is_right(metrics[task])) for id_ in both]
            other_right = [float(second[id_].is_right(metrics[task])) for id_ in both]
            comparison = compare_scores(right, other_right)
            difference = Mean(comparison.difference, comparison.low, comparison.high)
            rows.append(
                (
                    *(task, setting, other, len(both), Mean.of(right), Mean.of(other_right)),
                    *(difference, comparison.p, comparison.better, comparison.worse),
                    *(_share_held(first, both), _share_held(second, both)),
                )
            )
            points.append(PlotPoint(f"{setting} − {other}, {task}", difference))
    if not rows:
        raise UsageError(
            "nothing to compare: run a setting with cards, such as bottom-up, and retrieval or replug"
        )
    return Analysis(
        "sources",
        "Cards and retrieval",
        "Cards against passages retrieved from a corpus, by default the cards' own source passages, on the same "
        "questions. Held: the share of questions for which a passage that the LLM read holds an accepted answer. "
        "p is McNemar's.",
        (
            *("task", "cards", "retrieval", "questions", "score, cards", "score, retrieval", "difference"),
            *("p", "only cards right", "only retrieval right", "held, cards", "held, retrieval"),
        ),
        tuple(rows),
        (Intervals("score with cards less score with retrieval", tuple(points), reference=0.0),),
    )


def _read_passages(result: EvalResult) -> list[Mapping[str, Any]]:
    """Return the passages that the LLM read."""
    return [passage for passage in result.passages if passage.get("kept")]


def _share_held(results: Mapping[str, EvalResult], ids: Sequence[str]) -> Mean | None:
    """Return the share of questions for which a passage that the LLM read contains an accepted answer."""
    scores = []
    for id_ in ids:
        passages = _read_passages(results[id_])
        scores.append(float(any(holds_answer(passage, results[id_]) for passage in passages)))
    return Mean.of(scores)


# Whether the gate's decisions agree with what the LLM knows (Knowledge Card, section 5 and figure 6).

CONSTANT_GATES = {"always", "never"}
ALONE = "direct"

WordingKey = tuple[str, str, str]  # task, setting and gate


def yes_no(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return how often a gate said yes or no, and how often the answer was then right.

    Over-asking is a yes although the LLM alone is right, under-asking a no although it is wrong, as shares of the
    questions that the setting `direct` answered too. Failed questions are left out. Raises UsageError if no gate
    decided.
    """
    # For each question of each gate, whether it was sent to cards and whether the answer was right; and whether that of
    # the LLM alone was.
    decisions: dict[WordingKey, dict[str, tuple[bool, bool]]] = {}
    alone: dict[tuple[str, str], bool] = {}
    for result in results:
        if result.error:
            continue
        correct = result.is_right(metrics[result.task])
        if result.setting == ALONE:
            alone[result.task, result.id] = correct
        gate = result.trace.get("gate")
        if isinstance(gate, dict) and gate.get("name") not in CONSTANT_GATES:
            key = result.task, result.setting, str(gate.get("name"))
            decisions.setdefault(key, {})[result.id] = bool(gate.get("fired")), correct
    if not decisions:
        raise UsageError("no gate decided anything in this run: run a setting with one, such as top-down")
    # A row and a two-by-two map for each gate.
    rows: list[tuple[Cell, ...]] = []
    charts = []
    for (task, setting, name), gate_decisions in decisions.items():
        tally = Counter(gate_decisions.values())
        counts = [tally[yes, correct] for yes in (True, False) for correct in (True, False)]
        both = [(yes, alone[task, i]) for i, (yes, _) in gate_decisions.items() if (task, i) in alone]
        over = Mean.of([float(yes and correct) for yes, correct in both])
        under = Mean.of([float(not yes and not correct) for yes, correct in both])
        total = tally.total()
        rows.append((task, setting, name, total, *counts, over, under))
        shares = [count / total for count in counts]
        charts.append(
            Heat(
                f"{task}, {setting}: {name} and correctness",
                ("yes", "no"),
                ("right", "wrong"),
                (tuple(shares[:2]), tuple(shares[2:])),
            )
        )
    return Analysis(
        "yes-no",
        "Yes, no and correctness",
        "Yes: the gate sought knowledge; with a self-ask gate, the LLM said that it needs more. Over-asking and "
        "under-asking compare with what the LLM answers alone, on the questions that the setting direct was asked.",
        (
            *("task", "setting", "gate", "questions"),
            *("yes, right", "yes, wrong", "no, right", "no, wrong", "over-asking", "under-asking"),
        ),
        tuple(rows),
        tuple(charts),
    )


# Analyses by name, built-in ones and plugins (entry points of the group `kcard.analyses`).

GROUP = "kcard.analyses"


def analysis_names() -> list[str]:
    """Return the names of all analyses, sorted."""
    return system.names(GROUP)


def analyse(name: str, results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Run an analysis: NAME, or NAME=FILE for one that needs a file. `metrics` by task.

    Raises UsageError for an unknown name, for a file that the analysis doesn't take, and if the results contain nothing
    to analyse.
    """
    name, separator, file = name.partition("=")
    if name not in analysis_names():
        raise UsageError(f"unknown analysis {name!r}: choose one of {', '.join(analysis_names()) or 'none'}")
    analyst: Callable[..., Analysis] = system.load(GROUP, name)
    if not separator:
        return analyst(results, metrics)
    if len(inspect.signature(analyst).parameters) < 3:
        raise UsageError(f"the analysis {name} takes no file: leave out ={file}")
    return analyst(results, metrics, Path(file).expanduser())


def run_applicable(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> list[Analysis]:
    """Run every analysis, and return those that find something in the results."""
    analyses = []
    for name in analysis_names():
        try:
            analyses.append(analyse(name, results, metrics))
        except UsageError:
            continue
    return analyses
