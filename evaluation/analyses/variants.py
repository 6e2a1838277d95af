"""Analyses that ask again: with other cards, selectors, numbers of documents or wordings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from kcard.errors import UsageError
from kcard.evaluation.analyses.answers import Analysis, Cell
from kcard.evaluation.charts.chart import Heat, Intervals, Line, Lines, Point
from kcard.evaluation.records import Mean
from kcard.evaluation.runs.run import Call, Result, SettingName
from kcard.evaluation.runs.summary import Outcome, outcomes
from kcard.llms.parsing import from_text
from kcard.llms.prompts import NEED

__all__ = [
    "Variant",
    "added_cards",
    "difference",
    "document_counts",
    "patched_cards",
    "score",
    "selector_ablation",
    "varied",
    "wordings",
]


# Settings of a run that vary one setting in some of its options, with their outcomes.


@dataclass(frozen=True)
class Variant:
    """A setting on a task. `base`: the setting without the options that are varied; `options`: these."""

    task: str
    base: str
    options: tuple[tuple[str, str], ...]
    outcomes: Mapping[str, Outcome]

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the options, without their names."""
        return tuple(value for _, value in self.options)


def varied(results: Iterable[Result], metrics: Mapping[str, str], keys: frozenset[str]) -> list[Variant]:
    """Every setting of every task, with its options among `keys`, in the order of the results."""
    found: dict[tuple[str, str], dict[str, Outcome]] = {}
    for outcome in outcomes(results, metrics):
        found.setdefault((outcome.task, outcome.setting), {})[outcome.id] = outcome
    made = []
    for (task, setting), part in found.items():
        name = SettingName.of(setting)
        options = tuple(each for each in name.options if each[0] in keys)
        base = SettingName(name.base, tuple(each for each in name.options if each[0] not in keys))
        made.append(Variant(task, str(base), options, part))
    return made


def score(variant: Variant, metric: str) -> Mean:
    """The mean of the metric, with its interval."""
    found = Mean.of([outcome.score(metric) for outcome in variant.outcomes.values()])
    assert found is not None  # a variant has an outcome
    return found


def difference(first: Variant, second: Variant, metric: str) -> Mean | None:
    """The first's score less the second's on the questions that both were asked; None where there is none."""
    both = [(o, second.outcomes[id_]) for id_, o in first.outcomes.items() if id_ in second.outcomes]
    return Mean.of([a.score(metric) - b.score(metric) for a, b in both], paired=True)


# What a pool is worth as cards are added to it one by one (Knowledge Card, section 6).


def added_cards(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """The score with the first card, with the first two, and so on; what each added card changes.

    Raises UsageError unless the run has settings each of which has one card more than the one before.
    """
    chains: dict[tuple[str, str], list[Variant]] = {}
    for variant in varied(results, metrics, frozenset({"cards"})):
        chain = chains.setdefault((variant.task, variant.base), [])
        if len(variant.options) == len(chain) + 1 and (
            not chain or variant.options[:-1] == chain[-1].options
        ):
            chain.append(variant)
    chains = {key: chain for key, chain in chains.items() if len(chain) > 1}
    if not chains:
        raise UsageError("this run adds no cards one by one: start one with `kcard eval --analysis adding`")
    return Analysis(
        "adding",
        "Cards one by one",
        "The score as cards join the pool in this order, and the change that each brings on the same questions, with "
        "95 % intervals. A pool that keeps its score has selectors that tell cards apart.",
        ("task", "setting", "cards", "added", "score", "change"),
        tuple(
            (task, base, n + 1, v.values[-1], score(v, metrics[task]), _change(chain, n, metrics[task]))
            for (task, base), chain in chains.items()
            for n, v in enumerate(chain)
        ),
        tuple(
            _added_cards_chart(task, chains, metrics[task])
            for task in dict.fromkeys(task for task, _ in chains)
        ),
    )


def _change(chain: list[Variant], n: int, metric: str) -> Mean | None:
    return difference(chain[n], chain[n - 1], metric) if n else None


def _added_cards_chart(task: str, chains: Mapping[tuple[str, str], list[Variant]], metric: str) -> Lines:
    mine = {base: chain for (name, base), chain in chains.items() if name == task}
    longest = sorted(mine.values(), key=len)[-1]
    return Lines(
        f"score on {task} as cards are added; the numbers are in the table",
        tuple(
            Line(base, tuple(Point(v.values[-1], score(v, metric), n) for n, v in enumerate(chain)))
            for base, chain in mine.items()
        ),
        "cards in the pool, each beside those on its left",
        f"score on {task}",
        tuple(("" if n == 0 else "+ ") + v.values[-1] for n, v in enumerate(longest)),
    )


# How many documents cards should write and selectors keep (Knowledge Card, section 6 and figure 4).

DOCUMENT_COUNTS_NAMES = {
    "n1": "n1, written by each card",
    "n2": "n2, kept by relevance",
    "n3": "n3, kept by factuality",
}


def document_counts(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """The score, and the seconds a question, for each number of documents.

    Raises UsageError unless the run has settings that differ in n1, n2 or n3 alone.
    """
    parts: dict[tuple[str, str], list[Variant]] = {}
    for variant in varied(results, metrics, frozenset(DOCUMENT_COUNTS_NAMES)):
        if len(variant.options) == 1:
            parts.setdefault((variant.task, variant.base), []).append(variant)
    parts = {key: part for key, part in parts.items() if len(part) > 1}
    if not parts:
        raise UsageError("this run varies no n1, n2 or n3: start one with `kcard eval --analysis documents`")
    return Analysis(
        "documents",
        "Numbers of documents",
        "The score, with its 95 % interval, for numbers of documents that each card writes (n1) and that relevance "
        "(n2) and factuality (n3) keep; the other two stay as they are.",
        ("task", "setting", "varied", "number", "score", "seconds"),
        tuple(
            (task, base, v.options[0][0], int(v.values[0]), score(v, metrics[task]), _seconds(v))
            for (task, base), part in parts.items()
            for v in part
        ),
        tuple(
            _document_counts_chart(task, base, part, metrics[task]) for (task, base), part in parts.items()
        ),
    )


def _seconds(variant: Variant) -> float:
    return sum(outcome.seconds for outcome in variant.outcomes.values()) / len(variant.outcomes)


def _document_counts_chart(task: str, base: str, part: Sequence[Variant], metric: str) -> Lines:
    series: dict[str, list[tuple[int, Mean]]] = {}
    for variant in part:
        ((key, value),) = variant.options
        series.setdefault(key, []).append((int(value), score(variant, metric)))
    return Lines(
        f"score of {base} on {task} by number of documents; the numbers are in the table",
        tuple(
            Line(
                DOCUMENT_COUNTS_NAMES[key],
                tuple(Point(f"{key} = {n}", mean, n) for n, mean in sorted(points, key=lambda p: p[0])),
            )
            for key, points in series.items()
        ),
        "documents",
        f"score of {base} on {task}",
    )


DIRECT = "direct"


def patched_cards(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """The score of the LLM with each card alone, and its gain over the LLM without cards, by group.

    Raises UsageError unless the run has direct and settings with one card each.
    """
    found = varied(results, metrics, frozenset({"cards"}))
    bare = {variant.task: variant for variant in found if variant.base == DIRECT}
    patched = [variant for variant in found if len(variant.options) == 1 and variant.task in bare]
    if not patched:
        raise UsageError(
            "this run has no settings with one card each: start one with `kcard eval --analysis patch`"
        )
    return Analysis(
        "patch",
        "One card at a time",
        "The LLM with each card alone, and its gain over the LLM without cards on the same questions, with 95 % "
        "intervals. Cards on the questions' own subject should gain most.",
        ("task", "setting", "card", "group", "questions", "score", "gain"),
        tuple(
            row for variant in patched for row in _rows(variant, bare[variant.task], metrics[variant.task])
        ),
        tuple(
            chart
            for task in dict.fromkeys(variant.task for variant in patched)
            for chart in _charts([v for v in patched if v.task == task], bare[task], metrics[task])
        ),
    )


def _rows(variant: Variant, bare: Variant, metric: str) -> Iterable[tuple[Cell, ...]]:
    """All questions, then those of each group, where there are some."""
    for group in ("", *_groups([variant])):
        part = _only(variant, group)
        gain = difference(part, bare, metric)
        card = variant.values[0]
        yield variant.task, variant.base, card, group or "all", len(part.outcomes), score(part, metric), gain


def _groups(variants: Sequence[Variant]) -> list[str]:
    return sorted({outcome.group for variant in variants for outcome in variant.outcomes.values()} - {""})


def _only(variant: Variant, group: str) -> Variant:
    """The variant on the questions of a group; "" is all."""
    kept = {id_: outcome for id_, outcome in variant.outcomes.items() if group in ("", outcome.group)}
    return Variant(variant.task, variant.base, variant.options, kept)


def _charts(patched: Sequence[Variant], bare: Variant, metric: str) -> Iterable[Intervals | Heat]:
    gains = [(_named(v, patched), difference(v, bare, metric)) for v in patched]
    yield Intervals(
        f"gain of each of {len(patched)} cards alone on {bare.task}; the numbers are in the table",
        tuple(Point(name, gain) for name, gain in gains if gain is not None),
        f"gain over the LLM without cards on {bare.task}",
        0.0,
        signed=True,
    )
    groups = _groups(patched)
    if len(groups) > 1:
        columns = [bare, *patched]
        yield Heat(
            f"score with each of {len(patched)} cards alone in {len(groups)} groups; the numbers are in the table",
            tuple(groups),
            ("no card", *(_named(v, patched) for v in patched)),
            tuple(tuple(_mean(_only(v, group), metric) for v in columns) for group in groups),
            title=f"{bare.task}: score with one card",
        )


def _named(variant: Variant, among: Sequence[Variant]) -> str:
    """The card, with the setting where there are several."""
    return variant.values[0] if len({v.base for v in among}) == 1 else f"{variant.values[0]}, {variant.base}"


def _mean(variant: Variant, metric: str) -> float | None:
    found: Mean | None = score(variant, metric) if variant.outcomes else None
    return None if found is None else found.mean


# What each selector is good for: one at a time left to chance (Knowledge Card, section 6 and figure 3).

SELECTOR_ABLATION_NAMES = {"relevance": "relevance", "pruner": "pruning", "checker": "factuality"}


def selector_ablation(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """The score of a setting without each selector, and what that costs.

    Raises UsageError unless the run has a setting with and without changed selectors.
    """
    parts: dict[tuple[str, str], list[Variant]] = {}
    for variant in varied(results, metrics, frozenset(SELECTOR_ABLATION_NAMES)):
        parts.setdefault((variant.task, variant.base), []).append(variant)
    parts = {key: part for key, part in parts.items() if len(part) > 1 and any(not v.options for v in part)}
    if not parts:
        raise UsageError("this run leaves out no selector: start one with `kcard eval --analysis selectors`")
    return Analysis(
        "selectors",
        "Without a selector",
        "The score with relevance left to chance, without pruning, and without factuality, and the change against all "
        "three selectors on the same questions, with 95 % intervals.",
        ("task", "setting", "selectors", "score", "change"),
        tuple(
            (
                task,
                base,
                _selector_ablation_named(v),
                score(v, metrics[task]),
                difference(v, _whole(part), metrics[task]) if v.options else None,
            )
            for (task, base), part in parts.items()
            for v in part
        ),
        tuple(_chart(task, base, part, metrics[task]) for (task, base), part in parts.items()),
    )


def _whole(part: Sequence[Variant]) -> Variant:
    """The setting with all its selectors."""
    return next(variant for variant in part if not variant.options)


def _selector_ablation_named(variant: Variant) -> str:
    left_out = [SELECTOR_ABLATION_NAMES[key] for key, _ in variant.options]
    if len(left_out) == len(SELECTOR_ABLATION_NAMES):
        return "none"
    return f"without {', '.join(left_out)}" if left_out else "all three"


def _chart(task: str, base: str, part: Sequence[Variant], metric: str) -> Intervals:
    return Intervals(
        f"score of {base} on {task} without selectors; the numbers are in the table",
        tuple(Point(_selector_ablation_named(v), score(v, metric)) for v in part),
        f"score of {base} on {task}",
        score(_whole(part), metric).mean,
    )


# How far the wordings agree that ask the LLM whether it needs more (Knowledge Card, appendix and figure 7).

Key = tuple[str, str]  # task and setting
Votes = dict[int, bool]  # whether more is needed, by wording


def wordings(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """The share of questions on which all wordings agree, and every two of them; the first time that each was asked.

    A reply that is neither yes nor no counts as a need, as it does for gates. Raises UsageError where no question was
    asked in two wordings.
    """
    del metrics
    found: dict[Key, list[Votes]] = {}
    for result in results:
        votes = _votes(result.calls)
        if len(votes) > 1:
            found.setdefault((result.task, result.setting), []).append(votes)
    if not found:
        raise UsageError(
            "no question of this run was asked in several wordings: run a setting with an ensemble, such as "
            "top-down@self-ask-ensemble"
        )
    unanimous = {
        key: [float(len(set(votes.values())) == 1) for votes in asked] for key, asked in found.items()
    }
    return Analysis(
        "wordings",
        "Agreement of the yes/no questions",
        "The share of questions on which the LLM says the same to every wording, and to every two of them, with 95 % "
        "intervals. Where they disagree, the majority decides.",
        ("task", "setting", "wordings", "questions", "agree"),
        tuple(
            row
            for key, asked in found.items()
            for row in (
                (*key, "all", len(asked), Mean.of(unanimous[key])),
                *((*key, *pair) for pair in _pairs(asked)),
            )
        ),
        (
            Intervals(
                "share of questions on which all wordings agree; the numbers are in the table",
                tuple(
                    Point(f"{setting} on {task}", mean)
                    for (task, setting), values in unanimous.items()
                    if (mean := Mean.of(values))
                ),
                "share of questions on which all wordings agree",
            ),
        ),
    )


def _pairs(asked: Iterable[Votes]) -> list[tuple[Cell, ...]]:
    agree: dict[tuple[int, int], list[float]] = {}
    for votes in asked:
        for one, other in combinations(sorted(votes), 2):
            agree.setdefault((one, other), []).append(float(votes[one] == votes[other]))
    return [
        (f"{NEED[one].ask} / {NEED[other].ask}", len(values), Mean.of(values))
        for (one, other), values in sorted(agree.items())
    ]


def _votes(calls: Iterable[Call]) -> Votes:
    votes: Votes = {}
    for call in calls:
        if call.kind == "need" and not call.error and (wording := _wording(call.prompt)) is not None:
            yes = NEED[wording].needed(from_text(call.reply))
            votes.setdefault(wording, yes is None or yes > 0.5)
    return votes


def _wording(prompt: str) -> int | None:
    """The wording that the prompt ends with; earlier ones stand in examples and in the transcript."""
    last = max(range(len(NEED)), key=lambda i: prompt.rfind(NEED[i].ask))
    return last if NEED[last].ask in prompt else None
