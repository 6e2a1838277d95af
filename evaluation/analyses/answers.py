"""Analyses of a run's answers: by card, cost, group and source."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import (
    Analysis,
    Cell,
    SettingKey,
    charts_by_task,
    group_by_setting,
    group_name,
)
from kcard.evaluation.metrics import compare_scores, normalise, substring
from kcard.evaluation.plots import Heat, Intervals, PlotPoint
from kcard.evaluation.records import Mean, value_of
from kcard.evaluation.runs.results import EvalResult, holds_answer
from kcard.evaluation.tasks.base import read_entries
from kcard.evaluation.tasks.datasets import domain_of
from kcard.trace import add_counts

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
        cards = set()
        kept_cards = set()
        for passage in result.passages:
            cards.add(str(passage.get("card")))
            if passage.get("kept"):
                kept_cards.add(str(passage.get("card")))
        for card in cards:
            wrote[setting, group, card] += 1
        for card in kept_cards:
            kept_counts[setting, group, card] += 1
    if not wrote:
        raise UsageError("no card wrote a passage in this run: run a setting with cards, such as bottom-up")
    # A row for each setting, group and card, and a map for each setting; for a run with a single group, one map of all
    # settings.
    all_cards = sorted({card for _, _, card in wrote})
    parts = sorted({(setting, group) for setting, group, _ in wrote})
    is_single = len({group for _, group in parts}) == 1
    rows: list[tuple[Cell, ...]] = []
    maps: dict[str, dict[str, tuple[float, ...]]] = {}
    for setting, group in parts:
        count = questions[setting, group]
        shares = []
        for card in all_cards:
            share = kept_counts[setting, group, card] / count
            shares.append(share)
            if wrote[setting, group, card]:
                rows.append((setting, group, card, count, wrote[setting, group, card] / count, share))
        title, label = setting, group
        if is_single:
            title, label = group, setting
        maps.setdefault(title, {})[label] = tuple(shares)
    charts = []
    for title, part in maps.items():
        heading = f"{title}: share of questions with a kept passage"
        charts.append(Heat(heading, tuple(part), tuple(all_cards), tuple(part.values())))
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
    if total is None:
        return None
    return total / len(counts)


# The score of each setting in each group of a task, such as MMLU's subjects.


def groups(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return a table and a heat map of groups x settings. Raises UsageError if no task has two groups."""
    # The results by group and setting, for tasks with several groups.
    by_group: dict[tuple[str, str], dict[str, list[EvalResult]]] = {}
    for result in results:
        if result.group:
            by_setting = by_group.setdefault((result.task, result.group), {})
            by_setting.setdefault(result.setting, []).append(result)
    groups_of_task = Counter(task for task, _ in by_group)
    parts = {key: part for key, part in sorted(by_group.items()) if groups_of_task[key[0]] > 1}
    if not parts:
        raise UsageError("no task of this run has groups: MMLU has subjects, PopQA relations")
    settings: dict[str, None] = {}
    for part in parts.values():
        settings |= dict.fromkeys(part)
    has_several_tasks = len({task for task, _ in parts}) > 1
    # The mean of each setting in each group, for the table and the map.
    rows: list[tuple[Cell, ...]] = []
    values: dict[str, tuple[float | None, ...]] = {}
    for (task, group), part in parts.items():
        name = group
        if has_several_tasks:
            name = f"{task}: {group}"
        questions = set[str]()
        means = []
        for setting in settings:
            in_group = part.get(setting, [])
            questions.update(result.id for result in in_group)
            means.append(Mean.of([result.score(metrics[task]) for result in in_group]))
        rows.append((name, len(questions), *means))
        values[name] = tuple(value_of(mean) for mean in means)
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
        question = f" {normalise(result.question)} "
        for race, incumbent in incumbents:
            if race not in question:
                continue
            key = result.task, result.setting
            scores.setdefault(key, []).append(result.score(metrics[result.task]))
            answer = result.choices.get(result.prediction, result.prediction)
            is_part = bool(normalise(answer)) and substring(incumbent, [answer])
            named.setdefault(key, []).append(float(is_part or substring(answer, [incumbent])))
            break
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
    own = []
    for result in results:
        domain = domain_of(result.group)
        if result.task == "mmlu" and domain:
            own.append(replace(result, group=domain))
    analysis = groups(own, metrics)
    text = "The mean over the questions of each domain, with 95 % intervals, so subjects of many questions weigh more."
    return replace(analysis, name="mmlu-domains", title="Score by MMLU's domains", text=text)


CARD_MODES = {"bottom-up", "top-down", "hybrid"}  # modes
RETRIEVAL_MODES = {"retrieval", "replug"}


def sources(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Compare every setting with cards only to every setting with retrieval only, on the questions both answered.

    Raises UsageError unless the run has both.
    """
    # The settings by where their passages come from; a card may be called retrieval, for cards and retrieval together.
    with_cards: dict[SettingKey, dict[str, EvalResult]] = {}
    with_retrieval: dict[SettingKey, dict[str, EvalResult]] = {}
    for key, part in group_by_setting(result for result in results if not result.error).items():
        ways = set[str]()
        for result in part:
            ways.add(str(result.trace.get("mode")))
            for passage in _read_passages(result):
                if str(passage.get("card")) in RETRIEVAL_MODES:
                    ways.add(str(passage["card"]))
        if ways <= CARD_MODES:
            with_cards[key] = {result.id: result for result in part}
        elif ways <= RETRIEVAL_MODES:
            with_retrieval[key] = {result.id: result for result in part}
    # A paired comparison of every two settings of one task.
    rows: list[tuple[Cell, ...]] = []
    points = []
    for (task, setting), first in with_cards.items():
        for (other_task, other), second in with_retrieval.items():
            if task != other_task:
                continue
            both = [id_ for id_ in first if id_ in second]
            right = _right_answers(first, both, metrics[task])
            other_right = _right_answers(second, both, metrics[task])
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


def _right_answers(results: Mapping[str, EvalResult], ids: Sequence[str], metric: str) -> list[float]:
    return [float(results[id_].is_right(metric)) for id_ in ids]


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
DIRECT_MODE = "direct"

GateKey = tuple[str, str, str]  # task, setting and gate


def yes_no(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return how often a gate said yes or no, and how often the answer was then right.

    Over-asking is a yes although the LLM alone is right, under-asking a no although it is wrong, as shares of the
    questions that the setting `direct` answered too. Failed questions are left out. Raises UsageError if no gate
    decided.
    """
    # For each question of each gate, whether it was sent to cards and whether the answer was right; and whether that of
    # the LLM alone was.
    decisions: dict[GateKey, dict[str, tuple[bool, bool]]] = {}
    alone: dict[tuple[str, str], bool] = {}
    for result in results:
        if result.error:
            continue
        correct = result.is_right(metrics[result.task])
        if result.setting == DIRECT_MODE:
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
        total = tally.total()
        yes = tally[True, True], tally[True, False]
        no = tally[False, True], tally[False, False]
        over, under = [], []
        for id_, (is_yes, _) in gate_decisions.items():
            if (task, id_) in alone:
                is_right = alone[task, id_]
                over.append(float(is_yes and is_right))
                under.append(float(not is_yes and not is_right))
        rows.append((task, setting, name, total, *yes, *no, Mean.of(over), Mean.of(under)))
        shares = (yes[0] / total, yes[1] / total), (no[0] / total, no[1] / total)
        title = f"{task}, {setting}: {name} and correctness"
        charts.append(Heat(title, ("yes", "no"), ("right", "wrong"), shares))
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
