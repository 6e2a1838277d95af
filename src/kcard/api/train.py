"""train: a corpus becomes a card, and the card takes its exam."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard.config import launch
from kcard.option import Option, documented
from kcard.training.options import TrainOptions

if TYPE_CHECKING:
    from kcard.cards.format.folder import Card
    from kcard.training.costs import TrainingEstimate

__all__ = ["estimate_training", "train"]


@documented
def train(
    corpus: Annotated[
        str | Path | None,
        Option(
            "A file or folder of documents, tables or triples (.txt, .md, .rst, .html, .pdf, .docx, .info, man pages, "
            ".jsonl, .csv, .tsv, .parquet), or a data set: hf:owner/name[:split].",
            default="the preset's",
            command_line=Path | None,
        ),
    ] = None,
    options: TrainOptions | None = None,
    *,
    exam: Annotated[
        bool | None, Option("Examine the card after training.", default="if it has a model")
    ] = None,
    exam_evidence: Annotated[
        str | Path | None,
        Option("Independent text to measure factuality against in the exam.", command_line=Path | None),
    ] = None,
    report: Callable[[Any], None] | None = None,
    **given: Any,
) -> "Card":
    """Train a card on a corpus, examine it and return it. `kcard train` does the same.

    `options` are a TrainOptions; those that are given by name take the place of its own. `report` is called with the
    events of training (kcard.training.progress) and of the exam (kcard.evaluation.progress). The exam's result lies in
    the card's folder (kcard.evaluation.record.read_exam); with `update`, so does what the update made it forget.

    A card of the same name that already lies in `output` is replaced once the new one is whole. Raises UsageError,
    CorpusError, ModelUnavailable, and TrainingInterrupted after Ctrl-C.
    """
    from kcard.training.presets import with_preset
    from kcard.training.progress import Note, silent

    corpus, chosen = with_preset(corpus, replace(options or TrainOptions(), **given))
    report = report or silent
    if exam_evidence is not None:
        from kcard.selectors.evidence.registry import open_evidence

        open_evidence(str(exam_evidence))  # a wrong name is an error before hours of training, not after
    if chosen.update is None or exam is False:
        from kcard.training.train import train as make

        card = make(corpus, chosen, report=report)
    else:
        from kcard.evaluation.forgetting import update

        card = update(corpus, chosen, report=report)
    wanted = card.manifest.has_model if exam is None else exam
    hashed = card.manifest.evidence == "hashes"
    if wanted and chosen.update is not None and hashed:
        report(
            Note(
                "no exam: it needs the text of all passages, but the card carries only hashes of the old ones"
            )
        )
        wanted = False
    if not wanted:
        return card
    if chosen.kind is None and chosen.update is None and card.manifest.index:
        return _examined(card, exam_evidence, _device(card, chosen), report)
    from kcard.api.exam import exam as examine

    text: dict[str, Any] = {"corpus": corpus, "field": chosen.field} if hashed else {}
    examine(card.folder, evidence=exam_evidence or (), report=report, device=_device(card, chosen), **text)
    return type(card).open(card.folder)


def _examined(
    card: "Card", evidence: str | Path | None, device: str, report: Callable[[Any], None]
) -> "Card":
    """Examine a card of both whose kind was left to us; a model that is worse than the index is left out.

    The exam that is written is that of what is left, by the same answers.
    """
    from kcard.evaluation.exam import sit
    from kcard.evaluation.independent import read_independent
    from kcard.evaluation.scorer import Scorer, named_checker
    from kcard.evaluation.target import find
    from kcard.training.progress import Note
    from kcard.training.writing import without_model

    sitting = sit(find(card.folder), None, device=device, report=report)
    if fault := sitting.fault():
        card = without_model(card)
        sitting = sitting.of_index(card)
        report(
            Note(f"{fault}: the model is left out (kind retrieval); --kind both or more --minutes keep one")
        )
    target = sitting.target
    independent = read_independent([] if evidence is None else [evidence], target.digests)
    judge, name = named_checker("minilm", device)
    made, answered = sitting.exam(Scorer(judge, target.own_evidence, independent, report), name)
    target.keep(made, answered)
    return type(card).open(card.folder)


def estimate_training(
    corpus: str | Path | None = None,
    options: TrainOptions | None = None,
    *,
    report: Callable[[Any], None] | None = None,
    **given: Any,
) -> "TrainingEstimate":
    """What `train` with the same arguments would take, in memory and time, without the exam. `kcard train --estimate`
    does the same. Raises what train does, and UsageError for a card without a model."""
    from kcard.training.train import estimate

    return estimate(corpus, options, report=report, **given)


def _device(card: "Card", options: TrainOptions) -> str:
    """Where the exam runs: where training did."""
    on_a_base = "device" in card.manifest.training.hyperparameters
    return options.execution.place(launch()[2]) if on_a_base else "cpu"
