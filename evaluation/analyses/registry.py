"""Analyses by name, the built-in ones and a user's own (entry points of the group `kcard.analyses`)."""

from collections.abc import Iterable, Mapping

from kcard import plugins
from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis, Analyst
from kcard.evaluation.runs.result import Result

__all__ = ["analyse", "analysis_names", "applicable"]

GROUP = "kcard.analyses"


def analysis_names() -> list[str]:
    """The analyses there are, sorted."""
    return plugins.names(GROUP)


def analyse(name: str, results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """What the analysis `name` finds in results; `metrics` by task.

    Raises UsageError for an unknown name, and where the results hold nothing for it.
    """
    if name not in analysis_names():
        raise UsageError(f"unknown analysis {name!r}: choose one of {', '.join(analysis_names()) or 'none'}")
    analyst: Analyst = plugins.load(GROUP, name)
    return analyst(results, metrics)


def applicable(results: Iterable[Result], metrics: Mapping[str, str]) -> list[Analysis]:
    """Every analysis that finds something in the results, which are iterated once for each."""
    found = []
    for name in analysis_names():
        try:
            found.append(analyse(name, results, metrics))
        except UsageError:
            continue
    return found
