"""What an LLM's own word is worth in each wording of self-ask (SKR, table 2; Knowledge Card, section 2.3), and how far
the wordings agree (figure 7)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.gates.analyses.analysis import GateAnalysis, Given
from kcard.evaluation.gates.analyses.chart import Chart, Series
from kcard.evaluation.gates.outcome import Floats, GateOutcome, Seeks, both_ways
from kcard.evaluation.intervals import interval
from kcard.gates.record import Record
from kcard.gates.self_ask import KNOWLEDGE_CARD, SKR, asked
from kcard.protocols import LLM

__all__ = ["analyse"]

NAME = "self-ask-templates"
PAPERS = {**dict.fromkeys(KNOWLEDGE_CARD, "knowledge-card"), **dict.fromkeys(SKR, "skr")}


def analyse(given: Given) -> GateAnalysis:
    """The table has a row a wording: of how many questions the LLM says that it knows, and how right these are.

    `accuracy_known` is SKR's accuracy, with Wilson's interval; `right_word` is the share of questions where saying to
    know and being right without cards agree; `accuracy` and `beneficial_guidance` are those of the gate. Records may
    carry what was said as scores, "need_0" to "need_7": the probability in [0, 1] that the LLM needs more in that
    wording. Else the LLM is asked. Raises UsageError where there is neither.
    """
    records, rows, seeks = given.records, [], {}
    for template, paper in PAPERS.items():
        seeks[template] = _needs(records, template, given.resources.llm) > 0.5
        rows.append({"template": template, "paper": paper, **_figures(records, seeks[template])})
        given.report(len(rows), len(PAPERS))
    summary = {
        f"unanimous_{paper}": _unanimous([seeks[one] for one, of in PAPERS.items() if of == paper])
        for paper in dict.fromkeys(PAPERS.values())
    }
    return GateAnalysis(NAME, len(records), tuple(rows), _chart(rows), summary)


def _chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    said = [row for row in rows if row["known"]]
    names, y, low, high = (
        tuple(row[key] for row in said) for key in ("template", "accuracy_known", "low", "high")
    )
    series = Series("", tuple(map(str, names)), y, low, high)
    return Chart("template", "accuracy where the LLM says that it knows", (series,), kind="bar")


def _needs(records: Sequence[Record], template: int, llm: LLM | None) -> Floats:
    key = f"need_{template}"
    found = [record.scores.get(key) for record in records]
    if None not in found:
        return np.array(found, dtype=np.float64)
    if llm is None:
        raise UsageError(
            f'no LLM to ask, and not every record has "{key}" among its scores: choose one with --llm'
        )
    return 1 - asked(llm, [record.question for record in records], (), (template,)).astype(np.float64)


def _figures(records: Sequence[Record], seeks: Seeks) -> Mapping[str, Any]:
    outcome, without = GateOutcome.of(records, seeks), both_ways(records)[0]
    known = without[~seeks].tolist()
    low, high = interval(known)
    return {
        "known": len(known),
        "unknown": int(seeks.sum()),
        "accuracy_known": float(np.mean(known)) if known else None,
        "low": low,
        "high": high,
        "right_word": float(((without >= 0.5) == ~seeks).mean()),
        "accuracy": outcome.accuracy,
        "beneficial_guidance": outcome.beneficial_guidance,
    }


def _unanimous(seeks: Sequence[Seeks]) -> float:
    said = np.stack(seeks)
    return float((said == said[0]).all(axis=0).mean())
