"""A card's README.md, with exam results in its model-index."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.embedded.opt import BASE
from kcard.manifest import Manifest

if TYPE_CHECKING:
    from jinja2 import Template

# Exam results in a card's README.md: as `model-index` for other tools, and as a section for people.
#
# This code takes measured values and runs no exam. The rest of the page is left unchanged.

TASK = "question-answering"
BEGIN, END = "<!-- exam -->", "<!-- end of exam -->"
SECTION = re.compile(rf"\n*{re.escape(BEGIN)}.*?{re.escape(END)}\n*", re.DOTALL)


@dataclass(frozen=True)
class ExamResult:
    """One measured value and its 95 % interval.

    metric   an identifier such as recall; `name` says it in words
    dataset  what was asked about, in words; `dataset_type` is an identifier
    sha256   the digest of that data, or None
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


def with_results(page: str, card: str, results: Sequence[ExamResult], remarks: Sequence[str]) -> str:
    """Return the page with these results instead of those of an earlier exam; idempotent.

    Other results in the page's model-index stay. `remarks`: sentences below the table. Raises ValueError if the page's
    front matter is not a model card's.
    """
    from huggingface_hub import EvalResult, ModelCard

    # The model-index: other results stay, ours are replaced.
    read = ModelCard(page)
    data: Any = read.data
    theirs = [result for result in data.eval_results or [] if result.dataset_args != {"exam": "kcard"}]
    ours, rows = [], []
    for result in results:
        ours.append(
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
        )
        cells = [_escape_cell(result.name), f"{result.mean:.2f}", f"{result.low:.2f} to {result.high:.2f}"]
        rows.append(f"| {' | '.join(cells)} | {_escape_cell(result.dataset)} |")
    data.model_name = data.model_name or card
    data.eval_results = [*theirs, *ours] or None
    # The section.
    table = []
    if rows:
        table = ["| | mean | 95 % interval | asked about |", "|---|---|---|---|", *rows, ""]
    sentences = [*remarks, "Take it again with `kcard exam`."]
    paragraphs = "\n\n".join(map(_escape_cell, sentences))
    section = "\n".join([BEGIN, "## Exam", "", *table, paragraphs, END])
    read.text = SECTION.sub("\n", read.text).rstrip("\n") + f"\n\n{section}\n"
    return str(read)


def _escape_cell(text: str) -> str:
    """Escape names of files and cards, so that they end no cell or comment."""
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|")


# The page itself: cards/readme.md.jinja.

LIBRARIES = {
    "lora": ("peft", "text-generation"),
    "retrieval": ("bm25s", "text-ranking"),
    "graph": ("kcard", "text-ranking"),
    "search": ("kcard", "text-ranking"),
    "llm": ("kcard", "text-generation"),
}


def metadata(manifest: Manifest) -> dict[str, Any]:
    """Return the front matter, in the Hub's model card keys. `base_model` is given only for a Hub model."""
    made_from: dict[str, Any] = {}
    if manifest.base.name not in ("", BASE) and manifest.kind != "llm":
        relation = "adapter" if manifest.is_adapter else "finetune"
        made_from = {"base_model": manifest.base.name, "base_model_relation": relation}
    corpus = manifest.training.corpus_sha256
    library, task = LIBRARIES.get(manifest.method or manifest.kind, ("transformers", "text-generation"))
    return {
        **made_from,
        "library_name": library,
        "pipeline_tag": task,
        "license": manifest.licence,
        "language": [manifest.language],
        # A corpus that was read from disk has no name on the Hub: its content names it.
        "datasets": [f"corpus-{corpus[:12]}"] if corpus else [],
        "tags": ["kcard", "knowledge-card", *dict.fromkeys(manifest.domain.split("/"))],
    }


def readme(manifest: Manifest) -> str:
    import yaml

    front = yaml.safe_dump(metadata(manifest), sort_keys=False, allow_unicode=True)
    return str(_template().render(front=front, card=manifest))


@cache
def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["repr"] = repr
    return environment.get_template("readme.md.jinja")
