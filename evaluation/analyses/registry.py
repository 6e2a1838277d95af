"""Analyses by name, the built-in ones and a user's own (entry points of the group `kcard.analyses`)."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kcard import plugins
from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.runs.result import Result

__all__ = ["analyse", "analysis_names", "applicable"]

GROUP = "kcard.analyses"


def analysis_names() -> list[str]:
    """The analyses there are, sorted."""
    return plugins.names(GROUP)


def analyse(name: str, results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """What an analysis finds in results: NAME, or NAME=FILE for one that needs a file. `metrics` by task.

    Raises UsageError for an unknown name, a file where none is taken, and where the results hold nothing for it.
    """
    name, given, file = name.partition("=")
    if name not in analysis_names():
        raise UsageError(f"unknown analysis {name!r}: choose one of {', '.join(analysis_names()) or 'none'}")
    analyst: Callable[..., Analysis] = plugins.load(GROUP, name)
    if not given:
        return analyst(results, metrics)
    if len(inspect.signature(analyst).parameters) < 3:
        raise UsageError(f"the analysis {name} takes no file: leave out ={file}")
    return analyst(results, metrics, Path(file).expanduser())


def applicable(results: Iterable[Result], metrics: Mapping[str, str]) -> list[Analysis]:
    """Every analysis that finds something in the results."""
    found = []
    for name in analysis_names():
        try:
            found.append(analyse(name, results, metrics))
        except UsageError:
            continue
    return found
