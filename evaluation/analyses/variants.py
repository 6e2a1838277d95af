"""Analyses of runs that vary cards, selectors, numbers of documents or the wording of self-ask."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis, Cell, SettingKey, group_by_setting
from kcard.evaluation.plots import Curves, Heat, Intervals, PlotPoint, PlotSeries
from kcard.evaluation.records import Mean, value_of
from kcard.evaluation.runs.results import EvalResult
from kcard.evaluation.runs.run import SettingName
from kcard.llms.parsing import from_text
from kcard.llms.prompts import NEED_WORDINGS


@dataclass(frozen=True)
class Variant:
    """A setting on a task. `base`: the setting without the varied options; `options`: the varied ones."""

    task: str
    base: str
    options: tuple[tuple[str, str], ...]
    results: Mapping[str, EvalResult]

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the options, without their names."""
        return tuple(value for _, value in self.options)


def find_variants(results: Iterable[EvalResult], keys: frozenset[str]) -> list[Variant]:
    """Return every setting of every task as a variant in the options `keys`, in the order of the results."""
    variants = []
    for (task, setting), part in group_by_setting(results).items():
        name = SettingName.of(setting)
        varied, other = [], []
        for option in name.options:
            if option[0] in keys:
                varied.append(option)
            else:
                other.append(option)
        base = SettingName(name.base, tuple(other))
        variants.append(Variant(task, str(base), tuple(varied), {result.id: result for result in part}))
    return variants


def group_by_base(variants: Iterable[Variant]) -> dict[tuple[str, str], list[Variant]]:
    """Return the variants of each task and base, of those with at least two."""
    groups: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants:
        groups.setdefault((variant.task, variant.base), []).append(variant)
    return {key: group for key, group in groups.items() if len(group) > 1}


def mean_score(variant: Variant, metric: str) -> Mean:
    """Return the mean of the metric, with its interval."""
    mean = Mean.of([result.score(metric) for result in variant.results.values()])
    assert mean is not None  # a variant has a result
    return mean


def mean_difference(first: Variant, second: Variant, metric: str) -> Mean | None:
    """Return the mean difference, first minus second, on the questions of both; None if they share no question."""
    differences = []
    for id_, result in first.results.items():
        if id_ in second.results:
            differences.append(result.score(metric) - second.results[id_].score(metric))
    return Mean.of(differences, paired=True)


# The score as cards are added to a pool one by one (Knowledge Card, section 6).


def added_cards(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return the score with the first card, with the first two, and so on, and the change that each card brings.

    Raises UsageError unless the run has settings that each add one card to the one before.
    """
    # Chains of settings, each with one more card.
    chains: dict[tuple[str, str], list[Variant]] = {}
    for variant in find_variants(results, frozenset({"cards"})):
        chain = chains.setdefault((variant.task, variant.base), [])
        earlier: tuple[tuple[str, str], ...] = ()
        if chain:
            earlier = chain[-1].options
        if variant.options and variant.options[:-1] == earlier:
            chain.append(variant)
    chains = {key: chain for key, chain in chains.items() if len(chain) > 1}
    if not chains:
        raise UsageError("this run adds no cards one by one: start one with `kcard eval --analysis adding`")
    # A row and a point for each step, and a chart for each task, with a line for each chain.
    rows: list[tuple[Cell, ...]] = []
    series: dict[str, list[PlotSeries]] = {}
    ticks: dict[str, list[str]] = {}
    for (task, base), chain in chains.items():
        points: list[tuple[float, Mean]] = []
        labels: list[str] = []
        for n, variant in enumerate(chain):
            card, mean = variant.values[-1], mean_score(variant, metrics[task])
            change, label = None, card
            if n:
                change = mean_difference(variant, chain[n - 1], metrics[task])
                label = f"+ {card}"
            rows.append((task, base, n + 1, card, mean, change))
            points.append((float(n), mean))
            labels.append(label)
        series.setdefault(task, []).append(PlotSeries.of(base, points))
        if len(labels) > len(ticks.get(task, ())):
            ticks[task] = labels
    charts = []
    for task, lines in series.items():
        x = "cards in the pool, each beside those on its left"
        charts.append(Curves(x, f"score on {task}", tuple(lines), ticks=tuple(ticks[task])))
    return Analysis(
        "adding",
        "Cards one by one",
        "The score as cards join the pool in this order, and the change that each brings on the same questions, with "
        "95 % intervals. A pool that keeps its score has selectors that tell cards apart.",
        ("task", "setting", "cards", "added", "score", "change"),
        tuple(rows),
        tuple(charts),
    )


# The score by numbers of documents: generated by cards, kept by selectors (Knowledge Card, section 6 and figure 4).

DOCUMENT_COUNTS_NAMES = {
    "n1": "n1, written by each card",
    "n2": "n2, kept by relevance",
    "n3": "n3, kept by factuality",
}


def document_counts(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return the score, and the seconds a question, for each number of documents.

    Raises UsageError unless the run has settings that differ only in n1, n2 or n3.
    """
    variants = find_variants(results, frozenset(DOCUMENT_COUNTS_NAMES))
    parts = group_by_base(variant for variant in variants if len(variant.options) == 1)
    if not parts:
        raise UsageError("this run varies no n1, n2 or n3: start one with `kcard eval --analysis documents`")
    # A row for each variant, and a chart for each setting, with a line for each of n1, n2 and n3.
    rows: list[tuple[Cell, ...]] = []
    charts = []
    for (task, base), part in parts.items():
        points: dict[str, list[tuple[float, Mean]]] = {}
        for variant in part:
            ((key, value),) = variant.options
            mean = mean_score(variant, metrics[task])
            seconds = sum(result.seconds for result in variant.results.values()) / len(variant.results)
            rows.append((task, base, key, int(value), mean, seconds))
            points.setdefault(key, []).append((int(value), mean))
        series = []
        for key, line in points.items():
            line.sort(key=lambda point: point[0])
            series.append(PlotSeries.of(DOCUMENT_COUNTS_NAMES[key], line))
        charts.append(Curves("documents", f"score of {base} on {task}", tuple(series)))
    return Analysis(
        "documents",
        "Numbers of documents",
        "The score, with its 95 % interval, for numbers of documents that each card writes (n1) and that relevance "
        "(n2) and factuality (n3) keep; the other two stay as they are.",
        ("task", "setting", "varied", "number", "score", "seconds"),
        tuple(rows),
        tuple(charts),
    )


DIRECT = "direct"


def patched_cards(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return the score of the LLM with each card alone, and its gain over the LLM without cards, by group.

    Raises UsageError unless the run has the setting `direct` and settings with one card each.
    """
    # The LLM without cards, and with one card, on each task.
    variants = find_variants(results, frozenset({"cards"}))
    bare = {variant.task: variant for variant in variants if variant.base == DIRECT}
    patched = [variant for variant in variants if len(variant.options) == 1 and variant.task in bare]
    if not patched:
        raise UsageError(
            "this run has no settings with one card each: start one with `kcard eval --analysis patch`"
        )
    # A row for all questions, then for each group if there are any.
    rows: list[tuple[Cell, ...]] = []
    for variant in patched:
        metric = metrics[variant.task]
        for group in ("", *_groups([variant])):
            part = _only(variant, group)
            gain = mean_difference(part, bare[variant.task], metric)
            labels = variant.task, variant.base, variant.values[0], group or "all"
            rows.append((*labels, len(part.results), mean_score(part, metric), gain))
    # For each task, a chart of gains, and a map of cards by group.
    charts: list[Intervals | Heat] = []
    for task in dict.fromkeys(variant.task for variant in patched):
        alone, metric = bare[task], metrics[task]
        of_task = [variant for variant in patched if variant.task == task]
        # Cards are named with their setting if there are several settings.
        has_several_bases = len({variant.base for variant in of_task}) != 1
        names = []
        points = []
        for variant in of_task:
            name = variant.values[0]
            if has_several_bases:
                name = f"{name}, {variant.base}"
            names.append(name)
            gain = mean_difference(variant, alone, metric)
            if gain is not None:
                points.append(PlotPoint(name, gain))
        charts.append(
            Intervals(f"gain over the LLM without cards on {task}", tuple(points), 0.0, signed=True)
        )
        groups = _groups(of_task)
        if len(groups) > 1:
            values = []
            for group in groups:
                scores: list[float | None] = []
                for variant in (alone, *of_task):
                    part = _only(variant, group)
                    mean = Mean.of([result.score(metric) for result in part.results.values()])
                    scores.append(value_of(mean))
                values.append(tuple(scores))
            columns = ("no card", *names)
            charts.append(Heat(f"{task}: score with one card", tuple(groups), columns, tuple(values)))
    return Analysis(
        "patch",
        "One card at a time",
        "The LLM with each card alone, and its gain over the LLM without cards on the same questions, with 95 % "
        "intervals. Cards on the questions' own subject should gain most.",
        ("task", "setting", "card", "group", "questions", "score", "gain"),
        tuple(rows),
        tuple(charts),
    )


def _groups(variants: Sequence[Variant]) -> list[str]:
    groups = set[str]()
    for variant in variants:
        groups.update(result.group for result in variant.results.values() if result.group)
    return sorted(groups)


def _only(variant: Variant, group: str) -> Variant:
    """Restrict a variant to the questions of a group; "" is all questions."""
    part = {id_: result for id_, result in variant.results.items() if group in ("", result.group)}
    return Variant(variant.task, variant.base, variant.options, part)


# The effect of each selector: the score without it (Knowledge Card, section 6 and figure 3).

SELECTOR_ABLATION_NAMES = {"relevance": "relevance", "pruner": "pruning", "checker": "factuality"}


def selector_ablation(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return the score of a setting without each selector, and the change against all three.

    Raises UsageError unless the run has a setting with and without all selectors.
    """
    # The variants of each setting, with and without a selector.
    wholes: dict[tuple[str, str], Variant] = {}
    groups = group_by_base(find_variants(results, frozenset(SELECTOR_ABLATION_NAMES)))
    for key, part in groups.items():
        for variant in part:
            if not variant.options:
                wholes[key] = variant
    if not wholes:
        raise UsageError("this run leaves out no selector: start one with `kcard eval --analysis selectors`")
    # A row for each variant, and a chart for each setting.
    rows: list[tuple[Cell, ...]] = []
    charts = []
    for (task, base), whole in wholes.items():
        metric = metrics[task]
        points = []
        for variant in groups[task, base]:
            name, mean = _selectors_name(variant), mean_score(variant, metric)
            change = None
            if variant is not whole:
                change = mean_difference(variant, whole, metric)
            rows.append((task, base, name, mean, change))
            points.append(PlotPoint(name, mean))
        charts.append(Intervals(f"score of {base} on {task}", tuple(points), mean_score(whole, metric).mean))
    return Analysis(
        "selectors",
        "Without a selector",
        "The score with relevance left to chance, without pruning, and without factuality, and the change against all "
        "three selectors on the same questions, with 95 % intervals.",
        ("task", "setting", "selectors", "score", "change"),
        tuple(rows),
        tuple(charts),
    )


def _selectors_name(variant: Variant) -> str:
    left_out = [SELECTOR_ABLATION_NAMES[key] for key, _ in variant.options]
    if len(left_out) == len(SELECTOR_ABLATION_NAMES):
        return "none"
    if left_out:
        return f"without {', '.join(left_out)}"
    return "all three"


# Agreement of the wordings of self-ask, which ask the LLM whether it needs knowledge (Knowledge Card, appendix and
# figure 7).

Votes = dict[int, bool]  # whether knowledge is needed, by the number of the wording


def wordings(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return the share of questions on which all wordings agree, and every two of them, by their first replies.

    A reply that is neither yes nor no counts as a need, as for gates. Raises UsageError if no question was asked in two
    wordings.
    """
    del metrics
    # The vote of each wording on each question.
    by_setting: dict[SettingKey, list[Votes]] = {}
    for result in results:
        votes: Votes = {}
        for call in result.calls:
            if call.kind != "need" or call.error:
                continue
            # The prompt ends with the wording; earlier occurrences are in examples and in the transcript.
            places = [call.prompt.rfind(need.ask) for need in NEED_WORDINGS]
            wording = places.index(max(places))
            if places[wording] >= 0:
                yes = NEED_WORDINGS[wording].needed(from_text(call.reply))
                votes.setdefault(wording, yes is None or yes > 0.5)
        if len(votes) > 1:
            by_setting.setdefault((result.task, result.setting), []).append(votes)
    if not by_setting:
        raise UsageError(
            "no question of this run was asked in several wordings: run a setting with an ensemble, such as "
            "top-down@self-ask-ensemble"
        )
    # The agreement of all wordings, and of every two.
    rows: list[tuple[Cell, ...]] = []
    points = []
    for (task, setting), questions in by_setting.items():
        unanimous = Mean.of([float(len(set(votes.values())) == 1) for votes in questions])
        assert unanimous is not None  # a setting has a question
        rows.append((task, setting, "all", len(questions), unanimous))
        points.append(PlotPoint(f"{setting} on {task}", unanimous))
        agree: dict[tuple[int, int], list[float]] = {}
        for votes in questions:
            for one, other in combinations(sorted(votes), 2):
                agree.setdefault((one, other), []).append(float(votes[one] == votes[other]))
        for (one, other), values in sorted(agree.items()):
            pair = f"{NEED_WORDINGS[one].ask} / {NEED_WORDINGS[other].ask}"
            rows.append((task, setting, pair, len(values), Mean.of(values)))
    return Analysis(
        "wordings",
        "Agreement of the yes/no questions",
        "The share of questions on which the LLM says the same to every wording, and to every two of them, with 95 % "
        "intervals. Where they disagree, the majority decides.",
        ("task", "setting", "wordings", "questions", "agree"),
        tuple(rows),
        (Intervals("share of questions on which all wordings agree", tuple(points)),),
    )
