"""Training options, presets, and the default base model."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from kcard.config import launch, settings
from kcard.embedded.opt import BASE
from kcard.errors import UsageError
from kcard.io import build
from kcard.manifest import LOOKED_UP
from kcard.options import Option, OptionGroup
from kcard.training.execution import Execution, OptimizerName, check_optimizer

# The default base model: that of the paper if it is available, else the embedded one.

EMBEDDED_BASE = BASE  # which comes with kcard
EMBEDDED_RANK = 56  # with the embeddings of 1,536 tokens: just under a megabyte
PAPER = "facebook/opt-1.3b"
PROBE_SECONDS = 3.0


def default_base() -> tuple[str, str]:
    """Return (base, why): the embedded one without a GPU or access to the hub, or if HF_HUB_OFFLINE is set."""
    if settings().offline:
        return EMBEDDED_BASE, "HF_HUB_OFFLINE is set"
    import torch

    if not torch.cuda.is_available():
        return EMBEDDED_BASE, "no GPU was found"
    import huggingface_hub

    if not huggingface_hub.try_to_load_from_cache(PAPER, "config.json"):
        try:
            huggingface_hub.HfApi().model_info(PAPER, timeout=PROBE_SECONDS)
        except Exception:  # noqa: BLE001 - a probe: DNS, TLS, proxy and HTTP failures all mean the same here
            return EMBEDDED_BASE, f"{PAPER} can't be reached"
    return PAPER, "a GPU and the hub are available"


EMBEDDED_WIDTH = 128

Kind = Literal["model", "retrieval", "both", "graph", "search"]

DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
# The options of the training method, and those that must be above 0.
SIZES = ("epochs", "learning_rate", "batch_size", "block", "rank")
METHOD = ("method", "objective", "prompt_style", *SIZES, "dtype", "optimizer", "seed")
POSITIVE = ("minutes", "micro_batch", *SIZES)
# Options that apply only to bases other than the embedded one.
OF_BASES = ("device", "micro_batch", "gradient_checkpointing", "dtype", "optimizer")
# Options that do not apply to cards without a model.
OF_MODELS = ("base", "method", "prompt_style", *POSITIVE, *(set(OF_BASES) - set(POSITIVE)))


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(OptionGroup, panel="The corpus"):
    """What a card learns from."""

    field: Annotated[
        str | None,
        Option(
            "The column or key that holds the text, or a sentence with {columns} in it.",
            default="chosen by its name",
        ),
    ] = None
    readers: Annotated[
        int | None,
        Option(
            "Worker processes for reading the corpus (does not affect the result).", default="one per core"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ManifestOptions(OptionGroup, panel="The card"):
    """What the card says of itself and carries."""

    domain: Annotated[str, Option("The card's domain, such as biomedical/oncology.")] = "general"
    licence: Annotated[str, Option("The corpus' licence, which the card inherits.")] = "unknown"
    language: Annotated[str | None, Option("The corpus' language code.", default="detected")] = None
    knowledge_date: Annotated[
        str | None, Option("The date up to which the corpus is current, as YYYY-MM-DD.")
    ] = None
    evidence: Annotated[
        Literal["passages", "hashes"],
        Option("What the card carries of its corpus: the passages with their index, or only their hashes."),
    ] = "passages"
    output: Annotated[
        str | Path | None,
        Option("The card's folder.", default="drafts/NAME under the kcard home", command_line=Path | None),
    ] = None


@dataclass(frozen=True, kw_only=True)
class MethodOptions(OptionGroup, panel="The model, and what it learns"):
    """The method of training."""

    preset: Annotated[
        str | None,
        Option(
            "The settings of a paper, which other options override: knowledge-card for your own corpus, "
            "knowledge-card:pubmed for one of the paper's."
        ),
    ] = None
    method: Annotated[
        Literal["full", "lora"] | None,
        Option("full: all weights; lora: a small adapter.", default="lora, with embedded full"),
    ] = None
    objective: Annotated[
        Literal["recite", "clm"] | None,
        Option("recite: question -> passage; clm: plain causal language modelling.", default="recite"),
    ] = None
    rank: Annotated[
        int | None, Option("Rank of the LoRA adapter.", default="16; embedded: 56, 128 at most")
    ] = None
    prompt_style: Annotated[
        Literal["tokens", "encoder-prefix"] | None,
        Option("How the embedded card receives a question.", default="chosen for the corpus"),
    ] = None
    epochs: Annotated[
        float | None,
        Option(
            "Passes over the corpus. Objective recite ends before, once recall no longer rises.",
            default="20 at most, to recite; 10 for other objectives; embedded: as many as the corpus needs",
        ),
    ] = None
    learning_rate: Annotated[
        float | None,
        Option(
            "Peak learning rate.",
            default="to recite 3e-4, lora 2e-3, less for wide models; else 2e-5, lora 2e-4; embedded: Muon's, 0.02",
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        Option(
            "Passages or blocks per step.",
            default="8 to recite, else 32; embedded fills steps with 512 or 1024 tokens",
        ),
    ] = None
    block: Annotated[
        int | None,
        Option("Tokens of a block of contiguous text (objective clm).", default="512; embedded 256"),
    ] = None
    seed: Annotated[int, Option("Equal seeds give equal weights on one machine and one thread.")] = 0


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions(OptionGroup, panel="The machine"):
    """Where training runs."""

    device: Annotated[
        str | None,
        Option("Where to train and examine: cpu, cuda or cuda:N.", default="a GPU where there is one"),
    ] = None
    micro_batch: Annotated[
        int | None,
        Option(
            "Passages or blocks that go through the model at once; their gradients add up to the batch's.",
            default="as many as hold 8192 tokens",
        ),
    ] = None
    gradient_checkpointing: Annotated[
        bool | None,
        Option(
            "Recompute activations in the backward pass instead of keeping them: less memory, a third more time.",
            default="off",
        ),
    ] = None
    optimizer: Annotated[
        OptimizerName | None,
        Option(
            "adamw8bit: states of 8 bits by bitsandbytes; paged-adamw8bit moves them to main memory where the GPU "
            "has no room.",
            default="adamw",
        ),
    ] = None
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None,
        Option(
            "Data type of the trained weights and of the card; bfloat16 takes half the memory.",
            default="float32",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrainOptions(CorpusOptions, ManifestOptions, MethodOptions, ExecutionOptions):
    """How a card is trained. None leaves the choice to the base and the corpus."""

    name: Annotated[str | None, Option("The card's name.", default="the corpus' file or folder name")] = None
    description: Annotated[
        str | None, Option("What the card knows, in one line.", default="the corpus' top terms")
    ] = None
    base: Annotated[
        str | None,
        Option(
            "The base model: embedded (a small model, trained from scratch or, with method lora, the one "
            "in the package), a hub id or a folder.",
            default="facebook/opt-1.3b with a GPU and a reachable hub, else embedded",
        ),
    ] = None
    kind: Annotated[
        Kind | None,
        Option(
            "retrieval: an index of the corpus, ready in seconds to minutes; model: a language model "
            "trained on it; both: model and index together; graph: a knowledge graph, from a corpus of "
            "triples; search: searches what --corpus names, such as wikipedia:de, and sends questions "
            "there.",
            default="both; retrieval if a model can't learn the corpus in --minutes, or is worse in the exam",
        ),
    ] = None
    minutes: Annotated[
        float | None,
        Option(
            "Maximum minutes for training the model on this machine. The embedded base takes as many steps as the "
            "corpus needs, or as fit; if it would recall less than half of what it reads, it is not trained, and "
            "--epochs overrides the minutes. Another base ends when they are over.",
            default="3; of an update and a sync, those of the last version; another base takes what it needs",
        ),
    ] = None
    update: Annotated[
        str | Path | None,
        Option(
            "The card to train the next version of: a draft's name, a folder or a published card. Name, "
            "kind, base and passages stay; the corpus adds new passages.",
            command_line=str | None,
        ),
    ] = None
    resume: Annotated[
        bool, Option("Resume from the checkpoint of an interrupted run in the output folder.")
    ] = False

    @property
    def execution(self) -> Execution:
        """How training runs, which does not change the result."""
        checkpointing = bool(self.gradient_checkpointing)
        return Execution(self.device, self.micro_batch, checkpointing, launch()[1])

    def settings(self) -> dict[str, Any]:
        """Return the options of the training method, without those left to their defaults."""
        chosen = {name: getattr(self, name) for name in METHOD if getattr(self, name) is not None}
        return {"style" if name == "prompt_style" else name: value for name, value in chosen.items()}


def check(options: TrainOptions) -> None:
    """Raise UsageError for a value that is out of range, or has no effect with this kind, base or method.

    `base` and `method` are those that the card will have; a retrieval card has neither.
    """
    date = options.knowledge_date
    if date is not None and not DATE.fullmatch(date):
        raise UsageError(f"knowledge_date {date!r} is not a date: write it as YYYY-MM-DD, YYYY-MM or YYYY")
    for flaw in _flaws(options):
        raise UsageError(flaw)
    # Raise for a missing device or package.
    if options.kind not in LOOKED_UP and options.base != EMBEDDED_BASE:
        options.execution.place(launch()[2])
    if options.kind not in LOOKED_UP and options.optimizer is not None:
        check_optimizer(options.optimizer)


def _flaws(options: TrainOptions) -> Iterator[str]:
    """Yield what is wrong with the options, the most specific first."""
    for name in (*POSITIVE, "readers"):
        number = getattr(options, name)
        if number is not None and not number > 0:
            yield f"{name} {number} must be above 0"
    if options.kind not in (None, "model") and options.evidence == "hashes":
        yield (
            f"evidence hashes keeps the text out of the card, but kind {options.kind} returns that text: use kind "
            "model or evidence passages"
        )
    if options.kind in LOOKED_UP:
        for name in OF_MODELS:
            value = getattr(options, name)
            if value not in (None, False):
                yield f"{name} {value!r} is only for models, and kind {options.kind} has none: leave it out"
        return
    # What objective, method and base do not support.
    if options.base == EMBEDDED_BASE:
        yield from _flaws_of_embedded(options)
    elif options.prompt_style is not None:
        yield f"prompt_style {options.prompt_style!r} is only for base embedded: leave it out with base {options.base}"
    elif options.minutes is not None and options.execution.processes > 1:
        yield f"minutes {options.minutes:g}: several processes don't end by the clock; give epochs"
    # What is only for one objective, method or optimizer.
    if options.block is not None and options.objective != "clm":
        yield (
            f"block {options.block} is only for objective clm: leave it out with objective "
            f"{options.objective or 'recite'}"
        )
    is_sharded = options.method == "full" and options.execution.processes > 1
    if options.optimizer not in (None, "adamw") and is_sharded:
        yield (
            f"optimizer {options.optimizer!r} can't shard its states, which several processes with method full need: "
            "use adamw or method lora"
        )
    if options.rank is not None and options.method != "lora":
        yield f"rank {options.rank} is only for method lora: leave it out with method {options.method}"


def _flaws_of_embedded(options: TrainOptions) -> Iterator[str]:
    for name in OF_BASES:
        value = getattr(options, name)
        if value not in (None, False) and (name, value) != ("device", "cpu"):
            yield f"{name} {value!r} has no effect with base embedded: leave it out"
    if options.method == "lora" and options.prompt_style == "encoder-prefix":
        yield (
            "prompt_style encoder-prefix needs a full model; an adapter on base embedded reads tokens: leave it out or "
            "use method full"
        )
    if options.rank is not None and options.rank > EMBEDDED_WIDTH:
        yield f"rank {options.rank} is above the width of base embedded: give {EMBEDDED_WIDTH} at most"
    if options.block is not None:
        yield "block has no effect with base embedded, which reads 256 tokens: leave it out"
    if options.batch_size is not None:
        yield "batch_size has no effect with base embedded, whose steps hold 512 or 1024 tokens: leave it out"
    if options.prompt_style == "encoder-prefix" and options.objective == "clm":
        yield "objective clm has no questions to encode: use prompt_style tokens or objective recite"


# Presets of training (presets.toml): how the papers trained a card, and on which corpora.
#
# knowledge-card           the paper's numbers for a corpus of one's own
# knowledge-card:pubmed    those, on its corpus, with its description

NAME = "knowledge-card"


@dataclass(frozen=True)
class PresetCorpus:
    """A corpus of the paper. `data`: a data set that kcard reads, "" if there is none; `note`: why, or how the data
    differs from the paper's."""

    name: str
    description: str
    domain: str
    note: str
    data: str = ""
    field: str | None = None


_TABLES = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
KNOWLEDGE_CARD: dict[str, Any] = _TABLES[NAME]
CORPORA = {row["name"].lower(): build(PresetCorpus, row) for row in _TABLES["corpora"]}


def with_preset(corpus: str | Path | None, options: TrainOptions) -> tuple[str | Path, TrainOptions]:
    """Return corpus and options, completed by the preset.

    Raises UsageError for an unknown preset, one with an update or the embedded base, and where neither the user nor the
    preset names a corpus.
    """
    # Options that contradict a preset.
    if options.preset is None:
        return _require_corpus(corpus, "name a file or folder of documents or tables"), options
    if options.update is not None:
        raise UsageError(
            f"preset {options.preset!r}: an update is trained as its card was, leave the preset out"
        )
    if options.base == EMBEDDED_BASE:
        raise UsageError(
            f"preset {options.preset!r}: its numbers are for a pretrained model, leave out --base embedded"
        )
    kind, _, name = options.preset.partition(":")
    if kind != NAME or (name and name.lower() not in CORPORA):
        choices = ", ".join(row.name for row in CORPORA.values())
        raise UsageError(
            f"preset {options.preset!r} is unknown: use {NAME}, or {NAME}:CORPUS with one of {choices}"
        )
    # The paper's numbers; with the name of one of its corpora, also that corpus and its description.
    chosen = _complete(options, KNOWLEDGE_CARD)
    if not name:
        return _require_corpus(
            corpus, f"the preset {NAME} is for one of yours; {NAME}:CORPUS names one of the paper"
        ), chosen
    row = CORPORA[name.lower()]
    described = {"name": row.name.lower(), "description": row.description}
    if options.domain == TrainOptions.domain:
        described["domain"] = row.domain
    if corpus is None and row.field:
        described["field"] = row.field
    remedy = (
        f"that of the preset {options.preset} is not on the Hugging Face Hub as kcard reads it ({row.note})"
    )
    return _require_corpus(corpus or row.data or None, remedy), _complete(chosen, described)


def _complete(options: TrainOptions, values: dict[str, Any]) -> TrainOptions:
    """Return the options with these values where they have their defaults."""
    left = {
        key: value for key, value in values.items() if getattr(options, key) == getattr(TrainOptions, key)
    }
    return replace(options, **left)


def _require_corpus(corpus: str | Path | None, remedy: str) -> str | Path:
    if corpus is None:
        raise UsageError(f"--corpus is missing: {remedy}")
    return corpus
