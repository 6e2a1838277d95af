"""train: a corpus becomes a card. The signature is the command line's and the config file's."""

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import kcard
from kcard.config import settings
from kcard.errors import UsageError
from kcard.manifest import Manifest, Training
from kcard.training.bases import EMBEDDED, default_base
from kcard.training.corpus import Corpus, read_corpus
from kcard.training.loop import Outcome, run
from kcard.training.naming import describe, name_from
from kcard.training.output import CHECKPOINT, claim, fresh
from kcard.training.preparation import Preparation
from kcard.training.progress import Note, Report, silent
from kcard.training.threads import one_thread

if TYPE_CHECKING:
    from kcard.cards.folder import Card

__all__ = ["train"]

DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")


def train(
    corpus: str | Path,
    *,
    name: str | None = None,
    description: str | None = None,
    base: str | None = None,
    method: Literal["full", "lora"] | None = None,
    objective: Literal["recite", "clm"] = "recite",
    domain: str = "general",
    licence: str = "unknown",
    language: str = "en",
    knowledge_date: str | None = None,
    output: str | Path | None = None,
    seed: int = 0,
    epochs: float | None = None,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    rank: int | None = None,
    prompt_style: Literal["tokens", "encoder-prefix"] | None = None,
    resume: bool = False,
    report: Report | None = None,
) -> "Card":
    """Train a card on a corpus and return it, whole and sealed.

    corpus          a .txt, .md or .jsonl file, or a folder of them
    name            the card's name (default: the corpus' file or folder name)
    description     one line on what it knows (default: the corpus' top terms)
    base            the model to start from: "embedded" (a small one from scratch), a hub id or a folder
                    (default: facebook/opt-1.3b where a GPU and the hub are at hand, else embedded)
    method          full: all weights; lora: a small adapter (default: lora, with embedded full)
    objective       recite: question -> passage; clm: plain causal language modelling
    domain          where it belongs, such as biomedical/oncology
    licence         the corpus' licence, which the card inherits
    language        the corpus' language code
    knowledge_date  up to which date the corpus speaks, as YYYY-MM-DD
    output          the card's folder (default: drafts/NAME under the kcard home)
    seed            equal seeds give equal weights on one machine and one thread
    epochs          passes over the corpus (default: 10; embedded: as many as the corpus needs)
    learning_rate   peak learning rate (default: 2e-5, lora 2e-4; embedded: Muon's, 0.02)
    batch_size      passages a step (default: 32; embedded fills steps with 1024 tokens)
    rank            rank of the LoRA adapter (default: 16)
    prompt_style    how a question reaches the embedded card: tokens or encoder-prefix
                    (default: chosen for the corpus)
    resume          go on from the checkpoint that an interrupted run left in the output folder
    report          called with Progress and Note values while it runs

    A card that already lies in `output` under the same name is replaced once the new one is whole. Raises
    UsageError, CorpusError, ModelUnavailable, and TrainingInterrupted after Ctrl-C.
    """
    report = report or silent
    read = _read(Path(corpus), report)
    name = name or name_from(read.path)
    if description is None:
        description = describe(read.texts)
        report(Note(f"description, from the corpus' top terms: {description}"))
    base = base or _announced_base(report)
    method = method or ("full" if base == EMBEDDED else "lora")
    if knowledge_date is not None and not DATE.fullmatch(knowledge_date):
        raise UsageError(
            f"knowledge_date {knowledge_date!r} is not a date: write it as YYYY-MM-DD, YYYY-MM or YYYY"
        )
    _check(base, method, objective, batch_size, rank, prompt_style, epochs, learning_rate)
    folder = Path(output).expanduser().absolute() if output else settings().drafts / name
    claim(folder, name)
    manifest = Manifest(name, description, domain, "full", language, licence, knowledge_date)

    given: dict[str, Any] = {
        "objective": objective,
        "method": method,
        "seed": seed,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "rank": rank,
        "style": prompt_style,
    }
    with one_thread() if base == EMBEDDED else nullcontext():
        given = {key: value for key, value in given.items() if value is not None}
        prepared = _prepared(read, base, given, report)
        outcome = run(prepared.job, folder / CHECKPOINT, resume=resume, report=report, remedy=_remedy())
    record = _record(read, prepared, outcome, objective, method, seed, licence)
    return _finish(folder, manifest, prepared, record, read)


def _read(path: Path, report: Report) -> Corpus:
    corpus = read_corpus(path)
    for file, reason in corpus.skipped:
        report(Note(f"skipped {file}: {reason}"))
    if corpus.duplicates:
        report(Note(f"{corpus.duplicates} passages were there before and count once"))
    report(Note(f"{len(corpus.passages)} passages in {path}"))
    return corpus


def _announced_base(report: Report) -> str:
    base, why = default_base()
    what = "embedded, a small model trained from scratch" if base == EMBEDDED else base
    report(Note(f"base: {what}, since {why}"))
    return base


def _check(
    base: str,
    method: str,
    objective: str,
    batch_size: int | None,
    rank: int | None,
    prompt_style: str | None,
    epochs: float | None,
    learning_rate: float | None,
) -> None:
    """UsageError for settings that are out of range or that this base or method has no use for."""
    for key, value in {
        "batch_size": batch_size,
        "rank": rank,
        "epochs": epochs,
        "learning_rate": learning_rate,
    }.items():
        if value is not None and not value > 0:
            raise UsageError(f"{key} {value} is not above 0")
    if method not in {"full", "lora"}:
        raise UsageError(f"method {method!r} is unknown: choose full or lora")
    if objective not in {"recite", "clm"}:
        raise UsageError(f"objective {objective!r} is unknown: choose recite or clm")
    if prompt_style not in {None, "tokens", "encoder-prefix"}:
        raise UsageError(f"prompt_style {prompt_style!r} is unknown: choose tokens or encoder-prefix")
    if base == EMBEDDED:
        if method == "lora":
            raise UsageError(
                "method lora needs a base with weights and base embedded has none: use method full or another base"
            )
        if batch_size is not None:
            raise UsageError(
                "batch_size does nothing with base embedded, whose steps hold 1024 tokens: leave it out"
            )
        if prompt_style == "encoder-prefix" and objective == "clm":
            raise UsageError(
                "objective clm has no questions to encode: use prompt_style tokens or objective recite"
            )
    elif prompt_style is not None:
        raise UsageError(f"prompt_style {prompt_style!r} is for base embedded: leave it out with base {base}")
    if rank is not None and method != "lora":
        raise UsageError(f"rank {rank} is for method lora: leave it out with method {method}")


def _prepared(corpus: Corpus, base: str, given: dict[str, Any], report: Report) -> Preparation:
    """The way of training that the base calls for, with what was given in place of its defaults."""
    fingerprint = _fingerprint(corpus, {"base": base, **given})
    if base != EMBEDDED:
        from kcard.training import finetune

        return finetune.prepare(corpus.texts, finetune.Options(base, **given), fingerprint)
    from kcard.training import embedded
    from kcard.training.recipe import Recipe, choose_style

    if "style" not in given and given["objective"] == "recite":
        given["style"], why = choose_style(corpus.texts)
        report(Note(f"prompt style: {given['style']}, since {why}"))
    recipe = {key: value for key, value in given.items() if key not in {"method", "learning_rate"}}
    if "learning_rate" in given:
        recipe["muon_rate"] = given["learning_rate"]
    return embedded.prepare(corpus.texts, Recipe(**recipe), fingerprint, report)


def _fingerprint(corpus: Corpus, settings: Mapping[str, Any]) -> str:
    """What a checkpoint must agree with to be resumed."""
    text = json.dumps([kcard.__version__, corpus.sha256, dict(settings)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _command_line() -> list[str]:
    """The program and its arguments, as they would be typed again."""
    program = Path(sys.argv[0])
    run_as_module = (program.parent.name, program.name) == ("kcard", "__main__.py")
    return ["kcard" if run_as_module else program.name, *sys.argv[1:]]


def _remedy() -> str:
    """How to go on after Ctrl-C: the same command line with --resume."""
    program, *arguments = _command_line()
    if program == "kcard":
        again = [word for word in arguments if word != "--resume"]
        return f"go on with: {shlex.join([program, *again, '--resume'])}"
    return "go on with the same arguments and resume=True (--resume)"


def _record(
    corpus: Corpus,
    prepared: Preparation,
    outcome: Outcome,
    objective: str,
    method: str,
    seed: int,
    licence: str,
) -> Training:
    measured = {"final_loss": round(outcome.loss, 4), "passes": outcome.epochs}
    return Training(
        command=shlex.join(_command_line()),
        objective=objective,
        method=method,
        hyperparameters={**prepared.hyperparameters, **measured, **prepared.check()},
        seed=seed,
        corpus_sha256=corpus.sha256,
        corpus_licence=licence,
        passages=len(corpus.passages),
        tokens=outcome.tokens,
        seconds=round(outcome.seconds, 1),
        libraries={"kcard": kcard.__version__} | {name: version(name) for name in prepared.libraries},
    )


def _finish(
    folder: Path, manifest: Manifest, prepared: Preparation, record: Training, corpus: Corpus
) -> "Card":
    from kcard.cards import folder as cards

    made = replace(manifest, kind=prepared.kind, base=prepared.base, prompt=prepared.prompt, training=record)
    with fresh(folder) as partial:
        prepared.save(partial)
        cards.finish(partial, made, corpus.passages)
    return cards.Card.open(folder)
