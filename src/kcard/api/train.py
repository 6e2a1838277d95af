"""Train a card on a corpus and examine it, or train a card on each of many corpora."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard.cluster import RayOptions, complete_rows, json_ready, worker_device
from kcard.config import launch, settings
from kcard.errors import UsageError
from kcard.events import OnEvent, ignore, note
from kcard.io import Row, read_rows, suffix
from kcard.options import Option, check_keywords, declared, documented
from kcard.training.options import TrainOptions

if TYPE_CHECKING:
    from kcard.cards.card import Card

ONE_CARD = {"name", "description", "update", "output", "resume"}  # options that belong to one card
# Of a table, besides corpus.
COLUMNS = ("name", "description", "domain", "licence", "language", "knowledge_date")


@documented
def train(
    corpus: Annotated[
        str | Path | None,
        Option(
            "A file or folder of documents, tables or triples (.txt, .md, .rst, .html, .pdf, .docx, .pptx, .xlsx, "
            ".odt, .rtf, .epub, .eml, .ipynb, .tex, .adoc, .org, man pages, .jsonl, .csv, .tsv, .parquet and others), "
            "or a data set: hf:owner/name[:split].",
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
        Option(
            "Independent text to measure factuality against in the exam.",
            panel="The corpus",
            command_line=Path | None,
        ),
    ] = None,
    confirm_description: Callable[[str], str] | None = None,
    on_event: OnEvent = ignore,
    **changes: Any,
) -> "Card":
    """Train a card on a corpus, examine it and return it. `kcard train` does the same.

    `options`: a TrainOptions; options passed by name override its values. `on_event` is called with the events of
    training and of the exam. `confirm_description`, where no description is set, is called with the one that would be
    used, and returns the one to use. The exam is stored in the card's folder (kcard.evaluation.records.read_exam); with
    `update`, so is what the update made the card forget.

    A card of the same name in `output` is replaced once the new one is complete. Raises UsageError, CorpusError,
    ModelUnavailable, and TrainingInterrupted after Ctrl-C.
    """
    from kcard.training.options import with_preset

    corpus, chosen = with_preset(corpus, TrainOptions.of(options, changes))
    if exam_evidence is not None:
        from kcard.selectors.evidence import open_evidence

        open_evidence(str(exam_evidence))  # raises for a wrong name before hours of training, not after
    # Train the card.
    if chosen.update is None or exam is False:
        from kcard.training.train import train as train_card

        card = train_card(corpus, chosen, confirm_description=confirm_description, on_event=on_event)
    else:
        from kcard.evaluation.retention import update_card

        card = update_card(corpus, chosen, on_event=on_event)

    # Examine it, if there is something to ask.
    examined = card.manifest.has_model if exam is None else exam
    hashed = card.manifest.evidence == "hashes"
    if examined and chosen.update is not None and hashed:
        on_event(
            note(
                "no exam: it needs the text of all passages, but the card carries only hashes of the old ones"
            )
        )
        examined = False
    if not examined:
        return card
    if chosen.kind is None and chosen.update is None and card.manifest.index:
        return _examine_both(card, exam_evidence, exam_device(card, chosen), on_event)
    from kcard.api.exam import exam as examine

    text: dict[str, Any] = {"corpus": corpus, "field": chosen.field} if hashed else {}
    examine(
        card.folder, evidence=exam_evidence or (), on_event=on_event, device=exam_device(card, chosen), **text
    )
    return type(card).open(card.folder)


def _examine_both(card: "Card", evidence: str | Path | None, device: str, on_event: OnEvent) -> "Card":
    """Examine a card of kind both that was chosen automatically, and drop its model if it does worse than the index.

    The exam that is stored is that of the remaining card, by the same answers.
    """
    from kcard.evaluation.exam import take_exam
    from kcard.evaluation.independent_evidence import read_independent
    from kcard.evaluation.recall import Scorer, load_checker
    from kcard.evaluation.target import find_target
    from kcard.training.output import without_model

    exam_answers = take_exam(find_target(card.folder), None, device=device, on_event=on_event)
    fault = exam_answers.explain_weak_model()
    if fault:
        card = without_model(card)
        exam_answers = exam_answers.drop_model(card)
        on_event(
            note(f"{fault}: the model is left out (kind retrieval); --kind both or more --minutes keep one")
        )
    target = exam_answers.target
    independent = read_independent([] if evidence is None else [evidence], target.digests, target.corpus)
    judge, name = load_checker("minilm", device)
    result, answers = exam_answers.exam(Scorer(judge, target.own_evidence, independent, on_event), name)
    target.keep(result, answers)
    return type(card).open(card.folder)


def exam_device(card: "Card", options: TrainOptions) -> str:
    """Return the device of the exam, which is that of training."""
    if "device" not in card.manifest.training.hyperparameters:  # it was not trained on a base
        return "cpu"
    return options.execution.place(launch()[2])


def train_many(
    corpora: Path | str,
    *,
    output: Path | str | None = None,
    resume: bool = False,
    cluster: RayOptions | None = None,
    on_event: OnEvent = ignore,
    **options: Any,
) -> tuple[Row, ...]:
    """Train and examine a card of each corpus; `kcard train-many` does the same.

    corpora   a folder with a sub-folder for each; or a table (.csv, .tsv, .jsonl) with the column `corpus`, whose
              paths are relative to its folder, and optionally COLUMNS
    output    folder for the cards' folders, which all workers must share; None: the drafts under the kcard home
    resume    train only the cards that an earlier run did not finish, or that failed in it
    cluster   where to train; None: one card after another in this process
    on_event  called with the number of finished cards (kind cards)
    options   those of train and TrainOptions, for all cards; those of a table override them

    Returns a row for each card, in the order of the corpora: `card`, its name, `options`, `folder`, and `recall` on its
    own corpus or None; or the `error` of a card that failed. Raises UsageError for wrong options or corpora,
    ClusterError, and TrainingInterrupted; finished cards are kept.
    """
    from kcard.manifest import MANIFEST, file_digest
    from kcard.training.output import CHECKPOINT

    # The options of each card, ready for workers.
    names = declared(TrainOptions).keys() - ONE_CARD
    check_keywords("train_many", options, {*names, "exam", "exam_evidence"})
    folder = (settings().drafts if output is None else Path(output)).expanduser().absolute()
    device = str(options.get("device") or "cpu")
    if "device" in options:
        options["device"] = worker_device(cluster, device)
    shared = json_ready(options)
    rows: list[Row] = []
    for name, own in corpora_by_card(Path(corpora)).items():
        output = folder / name
        rows.append({"card": name, "options": {**shared, **own, "output": str(output)}})
        if not resume:
            shutil.rmtree(output / CHECKPOINT, ignore_errors=True)

    def check_arrived(row: Row) -> None:
        manifest = Path(row["folder"]) / MANIFEST
        if not manifest.is_file() or file_digest(manifest) != row["manifest"]:
            raise UsageError(
                f"its worker wrote the card to {manifest.parent}, which is not shared with this machine: choose a "
                "folder on a shared file system with --output"
            )

    # Train the cards; the file of results is needed only to resume.
    path = folder / ".train-many.jsonl"
    results = complete_rows(
        _train_row,
        rows,
        path,
        resume=resume,
        cluster=cluster,
        device=device,
        on_event=on_event,
        check=check_arrived,
    )
    if not any("error" in row for row in results):
        path.unlink()
    return results


def _train_row(card: str, options: Row) -> Row:
    """Train and examine a card, from the checkpoint in its folder if there is one."""
    from kcard.evaluation.records import read_exam, value_of
    from kcard.manifest import MANIFEST, file_digest
    from kcard.training.output import CHECKPOINT

    trained = train(**options, resume=(Path(options["output"]) / CHECKPOINT).is_dir())
    exam = read_exam(trained.folder)
    recall = None if exam is None else value_of(exam.recall)
    digest = file_digest(trained.folder / MANIFEST)
    return {"card": card, "folder": str(trained.folder), "manifest": digest, "recall": recall}


def corpora_by_card(path: Path) -> dict[str, Row]:
    """Return the options of each card by its name; files next to the folders are ignored."""
    from kcard.training.description import name_from

    rows: list[tuple[str, Row]] = []
    if path.is_dir():
        for folder in sorted(path.iterdir()):
            if folder.is_dir() and not folder.name.startswith("."):
                rows.append((str(path), {"corpus": folder.name}))
    elif suffix(path) in {".csv", ".tsv", ".jsonl"}:
        rows = [*read_rows(path, "table")]
    cards: dict[str, Row] = {}
    for where, row in rows:
        values = {key: str(value) for key, value in row.items() if value not in (None, "")}
        if "corpus" not in values or not set(values) <= {"corpus", *COLUMNS}:
            raise UsageError(f"{where}: expected the column corpus and optionally {', '.join(COLUMNS)}")
        corpus = (path if path.is_dir() else path.parent).absolute() / Path(values["corpus"]).expanduser()
        if not corpus.exists():
            raise UsageError(f"{where}: the corpus {corpus} does not exist")
        name = values.get("name") or name_from(corpus)
        if name in cards:
            raise UsageError(
                f"{cards[name]['corpus']} and {corpus} would both become the card {name!r}: name them in a table"
            )
        cards[name] = values | {"corpus": str(corpus), "name": name}
    if not cards:
        raise UsageError(
            f"{path} contains no corpora: expected a folder with a sub-folder for each, or a table (.csv, .tsv, "
            ".jsonl) with the column corpus"
        )
    return cards
