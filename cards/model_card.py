"""A card's README.md, with exam results in its model-index."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kcard.manifest import Manifest
from kcard.offline.opt import BASE

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
    # The section.
    rows = [
        f"| {_escape_cell(r.name)} | {r.mean:.2f} | {r.low:.2f} to {r.high:.2f} | {_escape_cell(r.dataset)} |"
        for r in results
    ]
    table = ["| | mean | 95 % interval | asked about |", "|---|---|---|---|", *rows] if rows else []
    sentences = [*remarks, "Take it again with `kcard exam`."]
    paragraphs = [line for sentence in sentences for line in (_escape_cell(sentence), "")][:-1]
    section = "\n".join([BEGIN, "## Exam", "", *table, *([""] if table else []), *paragraphs, END])
    read.text = SECTION.sub("\n", read.text).rstrip("\n") + f"\n\n{section}\n"
    return str(read)


def _escape_cell(text: str) -> str:
    """Escape names of files and cards, so that they end no cell or comment."""
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|")


WRITES = (
    "A knowledge card: a small language model that writes what it learned from one corpus, to be read by "
    "a larger one. It can be wrong: have what it writes checked before it is used."
)
RETRIEVES = (
    "A knowledge card without a model: the passages of one corpus and their index, to be read by a large language "
    "model. Its passages are the corpus' own words, which may not be what the question asks for."
)
WALKS = (
    "A knowledge card without a model: a knowledge graph, told in sentences, to be read by a large language model. It "
    "writes the statements near the things that a question names, one or two steps away."
)
SEARCHES = (
    "A knowledge card without a model and without text: it writes what a search finds for the question. **The question "
    "leaves the machine**: kcard uses such a card only where it is named."
)
PROMPTED = {
    "tokens": "The question is put into the template {template}; the continuation is the document.",
    "encoder-prefix": (
        "The sentence encoder `{encoder}` embeds the question; a linear layer (`projection.safetensors`) "
        "turns the embedding{words} into {vectors} prefix vectors, which the embedding of the beginning-of-sequence "
        "token follows. No token of the question is used."
    ),
}

LOOKED_UP = (
    "It is not: BM25 and, for English, a sentence encoder look up the passages that fit the question best."
)
WALKED = (
    "It is not: the names of the graph are found in the question, and the statements about them are ranked."
)
SEARCHED = "It is not: the question is sent to {evidence}, and the paragraphs found there that fit it best are written."
BESIDE = " Beside the model the index of the source passages writes: the best of them, word for word."

OPENING = {"retrieval": RETRIEVES, "graph": WALKS, "search": SEARCHES}

INDEX = """\
import bm25s

index = bm25s.BM25.load(folder + "/index")  # row n is line n of passages.jsonl"""

SEARCHING = """\
import kcard

kcard.ask("...", cards=["{name}"])"""

WHOLE = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)"""

REFERENCE = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained({base!r}, revision={revision!r})
tokenizer = AutoTokenizer.from_pretrained({base!r}, revision={revision!r})"""

ADAPTER = """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained({base!r}{revision})
model = PeftModel.from_pretrained(base, folder)
tokenizer = AutoTokenizer.from_pretrained(folder)"""

EMBEDDED_ADAPTER = """\
from kcard.offline.opt import FOLDER
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained(FOLDER, dtype="float32")
model = PeftModel.from_pretrained(base, folder)
tokenizer = AutoTokenizer.from_pretrained(folder)"""


LIBRARIES = {
    "lora": ("peft", "text-generation"),
    "prefix": ("peft", "text-generation"),
    "retrieval": ("bm25s", "text-ranking"),
    "graph": ("kcard", "text-ranking"),
    "search": ("kcard", "text-ranking"),
}


def metadata(manifest: Manifest) -> dict[str, Any]:
    """Return the front matter, in the Hub's model card keys. `base_model` is given only for a Hub model."""
    made_from: dict[str, Any] = {}
    if manifest.base.name not in ("", BASE):
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
    """Return the README.md."""
    import yaml

    front = yaml.safe_dump(metadata(manifest), sort_keys=False, allow_unicode=True)
    # What it is.
    scratch = "none: trained from scratch" if manifest.has_model else "none: passages are looked up"
    sources = "their text and index" if manifest.evidence == "passages" else "their hashes only"
    if manifest.kind == "search":
        sources = "none: they stay where they are found"
    facts = [
        ("domain", manifest.domain),
        ("kind", manifest.kind),
        ("method", manifest.method),
        ("base model", manifest.base.name or scratch),
        ("base revision", manifest.base.revision),
        ("source passages", sources),
        ("language", manifest.language),
        ("licence", manifest.licence),
        ("knowledge up to", manifest.knowledge_date or "not stated"),
    ]
    # How it was trained.
    training = manifest.training
    trained = [
        ("command", f"`{training.command}`" if training.command else None),
        ("objective", training.objective),
        ("method", training.method),
        ("seed", training.seed),
        ("passages", f"{training.passages:,}"),
        ("tokens trained on", f"{training.tokens:,}"),
        ("seconds", f"{training.seconds:,.0f}"),
        ("corpus sha256", f"`{training.corpus_sha256}`" if training.corpus_sha256 else None),
        ("corpus licence", training.corpus_licence),
        *((f"`{key}`", value) for key, value in sorted(training.hyperparameters.items())),
        *((f"{key} version", value) for key, value in sorted(training.libraries.items())),
    ]
    sections = [
        f"# {manifest.name}",
        manifest.description,
        OPENING.get(manifest.method or manifest.kind, WRITES),
        "## What it is",
        _table(facts),
        "## How it is prompted",
        _describe_prompt(manifest),
        "## How it was trained",
        _table(trained),
        "## How to load it",
        f"```python\n{_loading_code(manifest)}\n```",
        "With kcard: `kcard publish` this folder, then `kcard ask` your question.",
    ]
    return f"---\n{front}---\n\n" + "\n\n".join(sections) + "\n"


def _describe_prompt(manifest: Manifest) -> str:
    if manifest.kind == "search":
        return SEARCHED.format(evidence=manifest.training.method)
    if not manifest.has_model:
        return WALKED if manifest.kind == "graph" else LOOKED_UP
    prompt = manifest.prompt
    description = PROMPTED[prompt.style].format(
        template=f"`{prompt.template!r}`",
        encoder=prompt.encoder,
        vectors=prompt.vectors,
        words=" and a sketch of the question's words (`words.json`)" if prompt.words else "",
    )
    return description + (BESIDE if manifest.index else "")


def _loading_code(manifest: Manifest) -> str:
    if manifest.kind == "search":
        return SEARCHING.format(name=manifest.name)
    if not manifest.has_model:
        return INDEX
    if manifest.kind == "reference":
        return REFERENCE.format(base=manifest.base.name, revision=manifest.base.revision)
    if not manifest.is_adapter:
        return WHOLE
    if manifest.base.name == BASE:
        return EMBEDDED_ADAPTER
    revision = manifest.base.revision
    return ADAPTER.format(base=manifest.base.name, revision=f", revision={revision!r}" if revision else "")


def _table(rows: Sequence[tuple[str, Any]]) -> str:
    cells = [
        (key, str(value).replace("|", "\\|").replace("\n", " "))
        for key, value in rows
        if value not in (None, "")
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in cells)])
