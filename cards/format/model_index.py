"""What an exam found, in a card's README.md: as `model-index` for other tools, and as a section for people.

It knows no exam: it takes measured values. The rest of the page is left as it is.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Result", "with_results"]

TASK = "question-answering"
BEGIN, END = "<!-- exam -->", "<!-- end of exam -->"
SECTION = re.compile(rf"\n*{re.escape(BEGIN)}.*?{re.escape(END)}\n*", re.DOTALL)


@dataclass(frozen=True)
class Result:
    """One measured value and its 95 % interval.

    metric   an identifier such as recall; `name` says it in words
    dataset  what was asked about, in words; `dataset_type` is an identifier
    sha256   the digest of that data, None where there is none
    args     what else the metric depends on, such as the checker
    """

    metric: str
    name: str
    mean: float
    low: float
    high: float
    dataset: str
    dataset_type: str
    sha256: str | None = None
    args: Mapping[str, str] | None = None


def with_results(page: str, card: str, results: Sequence[Result], remarks: Sequence[str]) -> str:
    """The page with these results in place of those of an earlier exam; the same results give the same page.

    Results of others in the page's model-index stay. `remarks`: sentences below the table. Raises ValueError
    where the page's front matter is not what a model card has.
    """
    from huggingface_hub import EvalResult, ModelCard

    read = ModelCard(page)
    data: Any = read.data
    theirs = [result for result in data.eval_results or [] if result.dataset_args != {"exam": "kcard"}]
    ours = [
        EvalResult(
            task_type=TASK,
            task_name="Question Answering",
            dataset_type=result.dataset_type,
            dataset_name=result.dataset,
            dataset_revision=result.sha256,
            dataset_args={"exam": "kcard"},
            metric_type=result.metric,
            metric_name=result.name,
            metric_value=result.mean,
            metric_args=dict(result.args) if result.args else None,
        )
        for result in results
    ]
    data.model_name = data.model_name or card
    data.eval_results = [*theirs, *ours] or None
    read.text = SECTION.sub("\n", read.text).rstrip("\n") + f"\n\n{_section(results, remarks)}\n"
    return str(read)


def _section(results: Sequence[Result], remarks: Sequence[str]) -> str:
    rows = [
        f"| {_cell(r.name)} | {r.mean:.2f} | {r.low:.2f} to {r.high:.2f} | {_cell(r.dataset)} |"
        for r in results
    ]
    table = ["| | mean | 95 % interval | asked about |", "|---|---|---|---|", *rows] if rows else []
    told = [*remarks, "Take it again with `kcard exam`."]
    return "\n".join([BEGIN, "## Exam", "", *table, *([""] if table else []), *_paragraphs(told), END])


def _paragraphs(sentences: Sequence[str]) -> list[str]:
    return [line for sentence in sentences for line in (_cell(sentence), "")][:-1]


def _cell(text: str) -> str:
    """Names of files and cards are text: they end no cell and no comment."""
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|")
