"""Analyses of a run's answers, and the registry of all analyses."""

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from kcard import system
from kcard.errors import UsageError
from kcard.evaluation.metrics import compare_scores, normalise, substring
from kcard.evaluation.plots import Chart, Heat, Intervals, PlotPoint
from kcard.evaluation.records import Mean
from kcard.evaluation.runs.run import EvalResult, holds_answer
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


# Which cards generated passages, and whose passages the selectors kept, by task and group (Knowledge Card, figure 8).


@dataclass
class _Counts:
    """Numbers of questions of a group: all, and those with a passage, and a kept passage, of each card."""

    questions: int = 0
    wrote: Counter[str] = field(default_factory=Counter)
    selected: Counter[str] = field(default_factory=Counter)


def card_choice(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return shares of questions by setting, group and card. Raises UsageError if no card generated a passage."""
    del metrics
    # Count questions, and the cards of their passages, by setting and group.
    by_group: defaultdict[tuple[str, str], _Counts] = defaultdict(_Counts)
    for result in results:
        counts = by_group[result.setting, f"{result.task}: {result.group}" if result.group else result.task]
        counts.questions += 1
        counts.wrote.update({str(p.get("card")) for p in result.passages})
        counts.selected.update({str(p.get("card")) for p in result.passages if p.get("kept")})
    by_group = defaultdict(_Counts, {key: counts for key, counts in sorted(by_group.items()) if counts.wrote})
    if not by_group:
        raise UsageError("no card wrote a passage in this run: run a setting with cards, such as bottom-up")
    cards = sorted({card for counts in by_group.values() for card in counts.wrote})

    def heat(name: str, parts: Mapping[str, _Counts]) -> Heat:
        return Heat(
            f"share of questions for which each of {len(cards)} cards was kept, {name}; the numbers are in the table",
            tuple(parts),
            tuple(cards),
            tuple(tuple(part.selected[card] / part.questions for card in cards) for part in parts.values()),
            title=f"{name}: share of questions with a kept passage",
        )

    # One map for each setting; for a run with a single group, one map of all settings.
    groups = list(dict.fromkeys(group for _, group in by_group))
    if len(groups) == 1:
        heats = [heat(groups[0], {setting: counts for (setting, _), counts in by_group.items()})]
    else:
        heats = [
            heat(setting, {group: counts for (name, group), counts in by_group.items() if name == setting})
            for setting in dict.fromkeys(setting for setting, _ in by_group)
        ]
    return Analysis(
        "cards",
        "Cards by task",
        "The share of questions for which a card wrote a passage, and for which the selectors kept one. A group "
        "without a card that is kept often may need a card of its own.",
        ("setting", "group", "card", "questions", "wrote", "kept"),
        tuple(
            (*key, card, n.questions, n.wrote[card] / n.questions, n.selected[card] / n.questions)
            for key, n in by_group.items()
            for card in cards
            if n.wrote[card]
        ),
        tuple(heats),
    )


# The cost of each setting beside its score: calls, tokens, and the seconds a question takes.

PERCENTILES = (0.1, 0.5, 0.9, 0.99)


def cost(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Compare scores, calls, tokens and latency percentiles of the answered questions.

    Raises UsageError if no question was answered.
    """
    # The results of each setting, and the percentiles of their seconds.
    answered: dict[tuple[str, str], list[EvalResult]] = {}
    for result in results:
        if not result.error:
            answered.setdefault((result.task, result.setting), []).append(result)
    if not answered:
        raise UsageError("this run has no answer yet")
    seconds = {
        key: tuple(float(value) for value in np.quantile([r.seconds for r in part], PERCENTILES))
        for key, part in answered.items()
    }
    # A row for each setting, and a chart for each task.
    rows: list[tuple[Cell, ...]] = []
    for (task, setting), part in answered.items():
        score = Mean.of([r.score(metrics[task]) for r in part])
        calls = sum(len(r.calls) for r in part) / len(part)
        tokens = _mean([r.tokens_in for r in part]), _mean([r.tokens_out for r in part])
        rows.append((task, setting, score, calls, *tokens, *seconds[task, setting]))
    charts = tuple(
        Intervals(
            f"seconds a question of each setting on {task}; the numbers are in the table",
            tuple(
                PlotPoint(setting, Mean(median, low, high))
                for (name, setting), (low, median, high, _) in seconds.items()
                if name == task
            ),
            f"seconds a question on {task}: median, and from 10 % to 90 %",
        )
        for task in dict.fromkeys(task for task, _ in answered)
    )
    return Analysis(
        "cost",
        "Latency and cost",
        "Calls and tokens of the LLM are means a question; seconds are percentiles over questions, from the question "
        "to its answer. In a batch a question has its share of the batch's time.",
        ("task", "setting", "score", "calls", "tokens in", "tokens out", "10 %", "median", "90 %", "99 %"),
        tuple(rows),
        charts,
    )


def _mean(counts: Sequence[int | None]) -> float | None:
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
    tasks = [task for task, _ in by_group]
    parts = {key: part for key, part in sorted(by_group.items()) if tasks.count(key[0]) > 1}
    if not parts:
        raise UsageError("no task of this run has groups: MMLU has subjects, PopQA relations")
    # The mean of each setting in each group, for the table and the map.
    settings = list(dict.fromkeys(setting for part in parts.values() for setting in part))
    several = len({task for task, _ in parts}) > 1
    names = [f"{task}: {group}" if several else group for task, group in parts]
    means = [
        [Mean.of([r.score(metrics[task]) for r in part.get(setting, ())]) for setting in settings]
        for (task, _), part in parts.items()
    ]
    cells: list[list[Cell]] = [list(row) for row in means]
    counts = [len({r.id for asked in part.values() for r in asked}) for part in parts.values()]
    return Analysis(
        "groups",
        "Score by group",
        "The score of each setting on the questions of each group, with 95 % intervals. Groups of few questions have "
        "wide intervals.",
        ("group", "questions", *settings),
        tuple((name, n, *row) for name, n, row in zip(names, counts, cells, strict=True)),
        (
            Heat(
                f"score of {len(settings)} settings in {len(names)} groups; the numbers are in the table",
                tuple(names),
                tuple(settings),
                tuple(tuple(mean.mean if mean else None for mean in row) for row in means),
            ),
        ),
    )


# Scores on races whose incumbent was not re-elected (Knowledge Card, section 5 and table 5).
#
# An LLM trained before the election names the incumbent; cards trained later should not.

IncumbentKey = tuple[str, str]  # task and setting


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
    scores: dict[IncumbentKey, list[float]] = {}
    named: dict[IncumbentKey, list[float]] = {}
    for result in results:
        name = next((name for race, name in incumbents if race in f" {normalise(result.question)} "), None)
        if name is not None:
            key = result.task, result.setting
            scores.setdefault(key, []).append(result.score(metrics[result.task]))
            answer = result.choices.get(result.prediction, result.prediction)
            named.setdefault(key, []).append(
                float(substring(answer, [name]) or bool(normalise(answer) and substring(name, [answer])))
            )
    if not scores:
        raise UsageError(
            f"no question of this run is about a race of {file}: word the races as the questions do"
        )
    # A chart for each task.
    charts = []
    for task in dict.fromkeys(task for task, _ in scores):
        means = [(setting, Mean.of(found)) for (name, setting), found in scores.items() if name == task]
        charts.append(
            Intervals(
                f"scores on {task} where the incumbent lost; the numbers are in the table",
                tuple(PlotPoint(setting, mean) for setting, mean in means if mean is not None),
                f"score on {task} where the incumbent lost",
            )
        )
    return Analysis(
        "lost-incumbents",
        "Races whose incumbent lost",
        "The score on races whose incumbent was not elected again, and the share of answers that name the incumbent, "
        "with 95 % intervals.",
        ("task", "setting", "races", "score", "names the incumbent"),
        tuple((*key, len(found), Mean.of(found), Mean.of(named[key])) for key, found in scores.items()),
        tuple(charts),
    )


# MMLU's subjects in the four domains of its authors (Knowledge Card, table 1).


def mmlu_domains(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return the score of each setting in STEM, humanities, social sciences and other.

    Raises UsageError unless the run has questions of MMLU's subjects in two domains.
    """
    own = (
        replace(result, group=domain)
        for result in results
        if result.task == "mmlu" and (domain := domain_of(result.group))
    )
    analysis = groups(own, metrics)
    text = "The mean over the questions of each domain, with 95 % intervals, so subjects of many questions weigh more."
    return replace(analysis, name="mmlu-domains", title="Score by MMLU's domains", text=text)


CARDS = {"bottom-up", "top-down", "hybrid"}  # modes
RETRIEVAL = {"retrieval", "replug"}


@dataclass
class _SettingAnswers:
    """A setting on a task: for each question, whether its answer was right, and whether a passage that the LLM read
    contains an accepted answer."""

    correct: dict[str, bool] = field(default_factory=dict)
    holds_answer: dict[str, bool] = field(default_factory=dict)
    modes: set[str] = field(default_factory=set)

    def add(self, result: EvalResult, metric: str) -> None:
        self.correct[result.id] = result.is_right(metric)
        read = [p for p in result.passages if p.get("kept")]
        self.modes.add(str(result.trace.get("mode")))
        self.modes |= {str(p.get("card")) for p in read} & RETRIEVAL  # cards and retrieval together
        self.holds_answer[result.id] = any(holds_answer(p, result) for p in read)


def sources(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Compare every setting with cards only to every setting with retrieval only, on the questions both answered.

    Raises UsageError unless the run has both.
    """
    # The answers of each setting, sorted by where its passages come from.
    settings: dict[tuple[str, str], _SettingAnswers] = {}
    for result in results:
        if not result.error:
            settings.setdefault((result.task, result.setting), _SettingAnswers()).add(
                result, metrics[result.task]
            )
    with_cards = [key for key, answers in settings.items() if answers.modes <= CARDS]
    with_retrieval = [key for key, answers in settings.items() if answers.modes <= RETRIEVAL]
    # A paired comparison of every two settings of one task.
    pairs = [(one, two) for one in with_cards for two in with_retrieval if one[0] == two[0]]
    rows: list[tuple[Cell, ...]] = []
    points = []
    for one, two in pairs:
        cards, retrieval = settings[one], settings[two]
        both = [id_ for id_ in cards.correct if id_ in retrieval.correct]
        first, second = ([float(answers.correct[id_]) for id_ in both] for answers in (cards, retrieval))
        comparison = compare_scores(first, second)
        difference = Mean(comparison.difference, comparison.low, comparison.high)
        rows.append(
            (
                *(*one, two[1], len(both), Mean.of(first), Mean.of(second)),
                *(difference, comparison.p, comparison.better, comparison.worse),
                *(Mean.of([float(part.holds_answer[id_]) for id_ in both]) for part in (cards, retrieval)),
            )
        )
        points.append(PlotPoint(f"{one[1]} − {two[1]}, {one[0]}", difference))
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
        (
            Intervals(
                f"{len(points)} differences of score, cards less retrieval, with 95 % intervals",
                tuple(points),
                "score with cards less score with retrieval",
                reference=0.0,
            ),
        ),
    )


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
                f"shares of {total} questions of {task} by what {name} said under {setting} and whether the answer was "
                "right",
                ("yes", "no"),
                ("right", "wrong"),
                (tuple(shares[:2]), tuple(shares[2:])),
                f"{task}, {setting}: {name} and correctness",
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
