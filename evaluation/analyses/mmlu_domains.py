"""MMLU's subjects in the four domains of its authors (Knowledge Card, table 1)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.analyses.groups import groups
from kcard.evaluation.runs.result import Result
from kcard.evaluation.tasks.mmlu import domain_of

__all__ = ["mmlu_domains"]


def mmlu_domains(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """The score of each setting in STEM, humanities, social sciences and other.

    Raises UsageError where the run has no questions of MMLU's subjects in two domains.
    """
    own = (
        replace(result, group=domain)
        for result in results
        if result.task == "mmlu" and (domain := domain_of(result.group))
    )
    found = groups(own, metrics)
    text = "The mean over the questions of each domain, with 95 % intervals, so subjects of many questions weigh more."
    return replace(found, name="mmlu-domains", title="Score by MMLU's domains", text=text)
