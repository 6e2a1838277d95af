"""A question that was answered without cards and with them, as a line of records (SKR, section 3.1)."""

from kcard.answer import Answer
from kcard.evaluation.classification import accuracy
from kcard.evaluation.gates.analyses.recall import RECALL
from kcard.evaluation.gates.answer_scores import METRICS, Metric
from kcard.evaluation.metrics import substring
from kcard.evaluation.tasks.task import Item
from kcard.rows import Row

__all__ = ["both_ways"]

DIGITS = 6


def both_ways(item: Item, without: Answer, with_: Answer, metric: Metric) -> Row:
    """What `read_records` reads, beside the question itself.

    The scores have every metric of both answers, what each took (calls, seconds, tokens where they are known), and
    recall@1: whether the first passage holds an accepted answer, where there is a passage.
    """
    ways = {"without": without, "with": with_}
    scores = {
        f"{name}_{way}": score
        for way, answer in ways.items()
        for name, score in _scores(item, answer).items()
    }
    ordered = {f"{name}_{way}": scores[f"{name}_{way}"] for name in METRICS for way in ways}
    costs = {f"{name}_{way}": cost for way, answer in ways.items() for name, cost in _costs(answer).items()}
    return {
        **{f"correct_{way}": scores[f"{metric}_{way}"] for way in ways},
        **{f"answer_{way}": _said(item, answer) for way, answer in ways.items()},
        "scores": ordered | costs | _recall(item, with_),
        "calls": without.calls + with_.calls,
    }


def _said(item: Item, answer: Answer) -> str:
    """The letter of the chosen option, where one was chosen; else the text."""
    return (item.choices and answer.choice) or answer.answer


def _scores(item: Item, answer: Answer) -> dict[str, float]:
    """Of a multiple-choice question every metric is whether the right option was chosen."""
    if item.choices:
        return dict.fromkeys(METRICS, accuracy(answer.choice or "", item.answers))
    return {name: round(score(answer.answer, item.answers), DIGITS) for name, score in METRICS.items()}


def _costs(answer: Answer) -> dict[str, float]:
    usage = answer.usage
    known = usage is not None and usage.tokens_in is not None and usage.tokens_out is not None
    tokens = {"tokens": (usage.tokens_in or 0) + (usage.tokens_out or 0)} if usage and known else {}
    return {"calls": answer.calls, "seconds": round(answer.seconds, 4), **tokens}


def _recall(item: Item, answer: Answer) -> dict[str, float]:
    """By the passage that the LLM read first, or, where it read none, the first that was found."""
    passage = next((p for p in answer.passages if p.kept), next(iter(answer.passages), None))
    if passage is None:
        return {}
    options = {choice.name: choice.description for choice in item.choices}
    return {RECALL: float(substring(passage.text, [options.get(answer, answer) for answer in item.answers]))}
