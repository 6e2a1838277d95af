"""The analyses of records, by the name that the command line takes. Each is imported when it is wanted."""

from importlib import import_module

from kcard.errors import UsageError
from kcard.evaluation.gates.analyses.analysis import Analyse

__all__ = ["NAMES", "find"]

NAMES = {
    "popularity-curves": "accuracy by popularity, and their correlation in each relation",
    "popularity-splits": "the popularity gate over 100 splits of 75 % and 25 %",
    "recall": "recall@1 where cards help, spoil, or change nothing",
    "self-ask-templates": "what the LLM's own word is worth in each wording",
    "thrust-scores": "the distribution of Thrust's scores in each task",
    "thrust-shares": "knowledge for 25, 50 and 75 % of the questions: Thrust, BM25, random",
    "training-sizes": "gates fitted on 10, 25, 50 and 100 % of the records",
}


def find(name: str) -> Analyse:
    """The analysis of that name; UsageError lists the ones there are."""
    if name not in NAMES:
        raise UsageError(f"unknown analysis {name!r}: choose one of {', '.join(NAMES)}")
    found: Analyse = import_module(f"kcard.evaluation.gates.analyses.{name.replace('-', '_')}").analyse
    return found
