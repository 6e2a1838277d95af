"""Whether the factuality score favours well-documented domains (Knowledge Card, limitations and appendix D).

A document of a little documented domain finds no evidence, or evidence on something else, and may score low although it
is right. So only documents that hold an accepted answer are compared: were the score unbiased, they would score alike
in every domain, and find evidence equally often.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis, group_name
from kcard.evaluation.plots import Curves, PlotSeries
from kcard.evaluation.records import Mean
from kcard.evaluation.runs.results import EvalResult, holds_answer

MIN_PLOTTED_DOCUMENTS = 5  # right documents with a score; a domain with fewer is no point of the plot


@dataclass
class _Domain:
    """Documents of a domain: how many there are, and the factuality of those with evidence; `right` ones apart."""

    right: int = 0
    wrong: int = 0
    scores_right: list[float] = field(default_factory=list)
    scores_wrong: list[float] = field(default_factory=list)


def factuality_bias(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Return, by domain, the share of documents with evidence, and the factuality of those that hold an accepted
    answer and of those that hold none. A domain is a group of a task (an MMLU subject, a PopQA relation).

    Raises UsageError if no document was checked against independent evidence.
    """
    del metrics
    domains: defaultdict[str, _Domain] = defaultdict(_Domain)
    for result in results:
        domain = domains[group_name(result)]
        for passage in result.passages:
            score = passage.get("factuality")
            if holds_answer(passage, result):
                domain.right += 1
                scores = domain.scores_right
            else:
                domain.wrong += 1
                scores = domain.scores_wrong
            if isinstance(score, int | float):
                scores.append(float(score))
    rows, points = [], []
    for name, domain in sorted(domains.items()):
        count = domain.right + domain.wrong
        if not count:
            continue
        covered = (len(domain.scores_right) + len(domain.scores_wrong)) / count
        right, wrong = Mean.of(domain.scores_right), Mean.of(domain.scores_wrong)
        right_covered = None
        if domain.right:
            right_covered = len(domain.scores_right) / domain.right
        rows.append((name, count, covered, domain.right, right_covered, right, wrong))
        if right is not None and len(domain.scores_right) >= MIN_PLOTTED_DOCUMENTS:
            points.append(PlotSeries.of(name, [(covered, right)]))
    if not any(row[5] or row[6] for row in rows):
        raise UsageError(
            "no document of this run was checked against independent evidence: run it with --evidence, such as "
            "--evidence wikipedia"
        )
    charts: tuple[Curves, ...] = ()
    if points:
        x, y = "share of documents with evidence", "factuality of right documents"
        charts = (Curves(x, y, tuple(points), "dot"),)
    return Analysis(
        "factuality-bias",
        "Factuality by domain",
        "Documents that hold an accepted answer should score alike in every domain. Where they score lower, or find "
        "evidence less often, the domain is less documented in the evidence, not less factual: judge its cards by "
        "evidence of its own.",
        (
            *("domain", "documents", "with evidence", "right", "right with evidence"),
            *("factuality, right", "factuality, wrong"),
        ),
        tuple(rows),
        charts,
    )
