"""Train a card on a corpus, and estimate what that takes."""

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kcard
from kcard.config import settings
from kcard.errors import TrainingInterrupted, UsageError
from kcard.manifest import LOOKED_UP, MANIFEST, Manifest, Training
from kcard.text import is_english, stemmer_of
from kcard.training.corpus import Corpus, read_corpus
from kcard.training.execution import one_thread
from kcard.training.loop import Preparation, TrainingRun, steps_of
from kcard.training.memory import (
    MINUTES,
    TrainingEstimate,
    check_memory,
    disk_note,
    free_memory,
    seconds_to_embed,
)
from kcard.training.options import (
    EMBEDDED_BASE,
    EMBEDDED_RANK,
    TrainOptions,
    check,
    default_base,
    with_preset,
)
from kcard.training.output import (
    CHECKPOINT,
    check_output,
    describe,
    index_record,
    name_from,
    remedy,
    replacing_output,
    training_record,
    write_card,
)
from kcard.training.progress import Note, Report, silent
from kcard.training.study import StudyQueries, make_study_queries, read_study_material
from kcard.training.update import CorpusUpdate, Previous, previous

if TYPE_CHECKING:
    from kcard.cards.card import Card
    from kcard.offline.train import TrainingPlan
    from kcard.training.distillation import Distillation

__all__ = ["estimate", "make_plan", "read_study_of", "train"]

SEARCHES = "whatever a search finds for the question"
TRIAL = (1, 3)  # steps of a large model by which its time is estimated: to warm up, and measured
DESCRIBED = 5000  # passages, spread over the corpus, whose terms describe a card
SAMPLED = 200  # passages, from which those embedded for an estimate are drawn
TRIED = 64  # questions that the teacher answers for an estimate


def train(
    corpus: str | Path | None = None,
    options: TrainOptions | None = None,
    *,
    report: Report | None = None,
    **overrides: Any,
) -> "Card":
    """Train a card on a corpus and return it, complete and sealed. Unlike kcard.train, it holds no exam.

    corpus   a file or folder of documents, tables or triples, or a data set: hf:owner/name[:split]; None: the preset's
    options  see TrainOptions; keyword arguments override its fields
    report   called with Progress and Note values while it runs

    A card of the same name in `output` is replaced once the new one is complete. Raises
    UsageError, CorpusError, ModelUnavailable, and TrainingInterrupted after Ctrl-C.
    """
    report = report or silent
    # The options, completed by the preset, by the last version, or by defaults.
    corpus, options = with_preset(corpus, replace(options or TrainOptions(), **overrides))
    before = None if options.update is None else previous(options.update)
    chosen = _with_base(options, report) if before is None else before.arguments(options)
    check(chosen)
    if options.resume and chosen.kind in LOOKED_UP:
        raise UsageError(
            f"a {chosen.kind} card is built in one step, so there is nothing to resume: leave out --resume"
        )
    if chosen.kind == "search":
        from kcard.training import output

        template = _manifest(options, "search", options.description or SEARCHES, options.language or "en")
        return output.make_search_card(corpus, options.name, replace(template, kind="search"), options.output)
    # The corpus, joined with the passages of the last version.
    read = _read(Path(corpus), chosen, report)
    update = (
        CorpusUpdate(read, 0, documents=read.documents)
        if before is None
        else _join_previous(before, read, options, report)
    )
    # Name, language and description, derived from the corpus where they are not set.
    name = options.name or (name_from(read.path) if before is None else before.card.name)
    language = options.language or (
        _language(read, report) if before is None else before.card.manifest.language
    )
    description = options.description
    if description is None and before is not None:
        description = before.card.manifest.description
    elif description is None:
        spread = read.passages[:: -(-len(read.passages) // DESCRIBED)]
        description = describe([passage.text for passage in spread], language)
        report(Note(f"description, from the corpus' top terms: {description}"))
    # The folder and the manifest.
    folder = Path(options.output).expanduser().absolute() if options.output else settings().drafts / name
    check_output(folder, name)
    manifest = replace(_manifest(options, name, description, language), evidence=chosen.evidence)
    manifest = manifest if before is None else before.manifest(manifest)
    is_decided = options.kind is not None or before is not None

    def index() -> "Card":
        kind = chosen.kind if chosen.kind in LOOKED_UP else "retrieval"
        record = index_record(update.corpus, manifest.licence)
        return _write(folder, replace(manifest, kind=kind), None, record, update, report)

    # A card without a model; also the default in languages other than English.
    if chosen.kind in LOOKED_UP:
        return index()
    if not is_decided and not is_english(language):
        stems = "their stems" if stemmer_of(language) else "their words"
        report(
            Note(
                f"the models that come with kcard support English only: in {language}, passages are found by {stems} "
                "and quoted, and no model is trained (--kind both trains one anyway)"
            )
        )
        return index()
    # A card with a model.
    is_embedded = chosen.base == EMBEDDED_BASE
    if not (is_embedded and chosen.kind == "both" and before is None):
        return _train_model(update, before, chosen, folder, manifest, report) or index()
    # Make the index first, so that there is a usable card even if the model fails.
    first = _make_first_index(folder, index, resume=options.resume)
    if first is not None:
        count = f"{len(update.corpus.passages):,} passages"
        report(Note(f"{name}: an index of {count} (kind retrieval), usable now; the model comes next"))
    try:
        return _train_model(update, before, chosen, folder, manifest, report) or first or index()
    except (TrainingInterrupted, KeyboardInterrupt) as stop:
        if first is None:
            raise
        how = str(stop) or remedy()
        raise TrainingInterrupted(
            f"training interrupted: {name} is an index (kind retrieval), usable now; {how}"
        ) from None


def estimate(
    corpus: str | Path | None = None,
    options: TrainOptions | None = None,
    *,
    report: Report | None = None,
    **overrides: Any,
) -> TrainingEstimate:
    """Estimate what `train` with the same arguments would take: memory from the model's shape, time by a few steps on
    throw-away weights.

    With several processes the time is that of one. Raises what train does, and UsageError for a card without a model.
    """
    report = report or silent
    corpus, options = with_preset(corpus, replace(options or TrainOptions(), **overrides))
    before = None if options.update is None else previous(options.update)
    chosen = _with_base(options, report) if before is None else before.arguments(options)
    check(chosen)
    if chosen.kind in LOOKED_UP:
        raise UsageError(f"a {chosen.kind} card has no model, so no training can be estimated")
    read = _read(Path(corpus), chosen, report)
    update = (
        CorpusUpdate(read, 0, documents=read.documents)
        if before is None
        else _join_previous(before, read, options, report)
    )
    if chosen.base == EMBEDDED_BASE:
        indexing = None
        if chosen.kind == "both":
            # How long the passages take to embed, by which a card in English is searched.
            from kcard.offline.static_embeddings import embed

            indexing = 0.0
            if is_english(options.language or _language(update.corpus, silent)):
                passages = update.corpus.passages
                texts = [source.text for source in passages[:: max(1, len(passages) // SAMPLED)]]
                indexing = seconds_to_embed(texts, embed) * len(passages) / len(texts)
        with one_thread():
            minutes = chosen.minutes or (MINUTES if before is None else None)
            plan = make_plan(update, before, chosen, report, StudyQueries(), minutes=minutes, measured=True)
        assert plan.estimate is not None
        return TrainingEstimate(
            plan.estimate.steps, plan.estimate.seconds, indexing=indexing, model=plan.estimate
        )
    studied, distillation = StudyQueries(), None
    if chosen.objective == "distil":
        studied, distillation = read_study_of(chosen, update, silent)
        distillation = None if distillation is None else replace(distillation, limit=TRIED)
    from kcard.training.trainer import FineTuning

    # The estimate itself holds what planning tells: the memory.
    plan = make_plan(update, before, chosen, silent, studied, distillation)
    execution = chosen.execution
    free = free_memory(execution.place(), execution.processes) if plan.memory is not None else 0
    prepared = plan.prepare()
    assert isinstance(prepared.job, FineTuning)
    each = prepared.job.seconds_a_step(*TRIAL)
    seconds = prepared.seconds + each * prepared.job.steps
    return TrainingEstimate(prepared.job.steps, seconds, prepared.device, plan.memory, free)


def _manifest(options: TrainOptions, name: str, description: str, language: str) -> Manifest:
    return Manifest(
        name, description, options.domain, "retrieval", language, options.licence, options.knowledge_date
    )


def _language(read: Corpus, report: Report) -> str:
    """Return the language of the corpus; English if it can't be detected."""
    from kcard.text import detect

    language = detect([passage.text for passage in read.passages[:: max(1, len(read.passages) // 100)]])
    if language and language != "en":
        report(Note(f"language: {language}, detected (--language overrides it)"))
    return language or "en"


def _make_first_index(folder: Path, index: "Callable[[], Card]", *, resume: bool) -> "Card | None":
    """Return the index that the folder contains while the model is trained; None if it contains a card with a model,
    which stays until the new one is complete."""
    from kcard.cards.card import Card

    if not (folder / MANIFEST).exists():
        return None if resume and (folder / CHECKPOINT).exists() else index()
    last = Manifest.read(folder)
    if last.has_model:
        return None
    return Card.open(folder) if resume else index()


def _train_model(
    update: CorpusUpdate,
    before: Previous | None,
    chosen: TrainOptions,
    folder: Path,
    manifest: Manifest,
    report: Report,
) -> "Card | None":
    """Train the model and write the card; return None if it could not learn enough in its minutes."""
    is_embedded = chosen.base == EMBEDDED_BASE
    minutes = chosen.minutes or (MINUTES if before is None else None)
    with one_thread() if is_embedded else nullcontext():
        studied, distillation = read_study_of(chosen, update, report)
        if distillation is not None:
            distillation = replace(
                distillation, folder=folder / CHECKPOINT, resume=chosen.resume, remedy=remedy()
            )
        steps = steps_of(folder / CHECKPOINT) if is_embedded and chosen.resume else None
        plan = make_plan(update, before, chosen, report, studied, distillation, minutes=minutes, steps=steps)
        # Report how long it takes. A model that would learn too little is not trained if an index can replace it.
        if (cost := plan.estimate) is not None:
            if not cost.is_enough and chosen.kind == "both" and before is None:
                report(Note(f"{manifest.name} is an index alone (kind retrieval): {cost.refusal()}"))
                return None
            report(cost.note())
            if not cost.is_enough:
                report(Note(f"expect little of this model: {cost.refusal()}"))
        prepared = plan.prepare()
        outcome = prepared.job.run(folder / CHECKPOINT, resume=chosen.resume, report=report, remedy=remedy())
        record = training_record(update.corpus, chosen, prepared, outcome, manifest.licence)
        record = replace(record, hyperparameters={**record.hyperparameters, **studied.record})
        manifest = replace(manifest, index=chosen.kind == "both")
        return _write(folder, manifest, prepared, record, update, report)


def _join_previous(before: Previous, read: Corpus, options: TrainOptions, report: Report) -> CorpusUpdate:
    """Join old and new passages, and report what the user should know of them."""
    card = before.card
    if options.name not in (None, card.name):
        raise UsageError(f"name {options.name!r}: an update of {card.name} keeps its name, leave it out")
    update = before.join(read)
    old, new = update.old_count + len(update.hashed), len(update.corpus.passages) - update.old_count
    report(Note(f"updating {card.name} ({before.sha256[:12]}): {old} passages, and {new} new ones"))
    if update.hashed:
        report(
            Note(
                "the card carries only hashes of the old passages: they can't be replayed and may be forgotten"
            )
        )
    if options.knowledge_date is None:
        last = card.manifest.knowledge_date or "none either"
        report(Note(f"knowledge date: none was given (the last version: {last}); --knowledge-date sets it"))
    return update


def _with_base(options: TrainOptions, report: Report) -> TrainOptions:
    """Complete the options by the defaults of kind, base and method."""
    if options.kind is None:
        options = replace(options, kind="model" if options.evidence == "hashes" else "both")
    if options.kind in LOOKED_UP:
        return options
    base = options.base
    if not base:
        base, why = default_base()
        report(Note(f"base: {'embedded, a small model' if base == EMBEDDED_BASE else base}, since {why}"))
    return replace(options, base=base, method=options.method or ("full" if base == EMBEDDED_BASE else "lora"))


def _read(path: Path, options: TrainOptions, report: Report) -> Corpus:
    modelled = options.kind not in LOOKED_UP
    corpus = read_corpus(
        path, options.field, whole=modelled and options.objective == "clm", readers=options.readers
    )
    for sentence in corpus.remarks():
        report(Note(sentence))
    return corpus


def read_study_of(
    options: TrainOptions, update: CorpusUpdate, report: Report
) -> "tuple[StudyQueries, Distillation | None]":
    """Read the study material: return its queries and, with objective distil, the questions for the teacher."""
    passages = update.corpus.passages
    study = read_study_material(Path(options.study), report) if options.study is not None else None
    if options.objective != "distil" or study is None:
        return make_study_queries(study, passages, report), None
    from kcard.training.distillation import Distillation, passage_questions

    questions = passage_questions(study.items, passages, update.old_count)
    if not any(not question.is_old for question in questions):
        raise UsageError(
            f"{study.name} has no question with an answer about {'a new' if update.old_count else 'a'} passage "
            f"of this corpus, which objective distil needs: write some with `kcard study --corpus {update.corpus.path}`"
        )
    report(
        Note(f"study material: {len(questions):,} questions for the teacher, from {len(study.items):,} items")
    )
    record = {**study.record, "study_items": len(questions)}
    return StudyQueries(record=record), Distillation(questions, report=report)


def make_plan(
    update: CorpusUpdate,
    before: Previous | None,
    options: TrainOptions,
    report: Report,
    studied: StudyQueries,
    distillation: "Distillation | None" = None,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    measured: bool = False,
) -> "TrainingPlan[TrainingRun]":
    """Plan the training that the base calls for, by the options that are set, else by its defaults.

    minutes, steps, measured  of the embedded base, see kcard.offline.train.plan
    """
    assert options.base is not None
    chosen, corpus = options.settings(), update.corpus
    version = "" if before is None else before.sha256
    # The fingerprint that a checkpoint must match to be resumed.
    identity = {"base": options.base, "updates": version, **chosen, **studied.record}
    text = json.dumps([kcard.__version__, corpus.sha256, identity], sort_keys=True, default=str)
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    from kcard.offline import train

    # Another base is fine-tuned, if the memory suffices.
    if options.base != EMBEDDED_BASE:
        from kcard.training import finetune

        tuning = finetune.Options(options.base, **chosen)
        new, old = update.training_texts()
        start = None if before is None else before.warm_start(old)
        execution = options.execution
        device = execution.place()
        memory = check_memory(tuning, execution, finetune.origin_of(start), device, report)
        if distillation is not None:
            report(disk_note(len(distillation.questions), tuning))
        return train.TrainingPlan(
            None,
            lambda: finetune.prepare(
                new, tuning, fingerprint, start, execution, studied.queries, distillation
            ),
            memory,
        )
    # The embedded base has a recipe of its own.
    from kcard.offline.recipe import Recipe, choose_style

    recipe = {key: value for key, value in chosen.items() if key not in {"method", "learning_rate"}}
    if options.method == "lora":
        recipe |= {"style": "tokens", "rank": options.rank or EMBEDDED_RANK}
    elif "style" not in chosen and options.objective != "clm":
        recipe["style"], why = choose_style(corpus.texts)
        report(Note(f"prompt style: {recipe['style']}, since {why}"))
    if options.learning_rate is not None:
        recipe["muon_rate"] = options.learning_rate
    last = None if before is None else before.card.folder
    documents = (
        None if update.documents is None else [*chain.from_iterable(reversed(update.training_texts()))]
    )
    queries = studied.queries
    return train.plan(
        corpus.texts,
        Recipe(**recipe),
        fingerprint,
        report,
        last,
        documents,
        queries,
        corpus.continuations,
        minutes=minutes,
        steps=steps,
        measured=measured,
    )


def _write(
    folder: Path,
    manifest: Manifest,
    prepared: Preparation[TrainingRun] | None,
    record: Training,
    update: CorpusUpdate,
    report: Report,
) -> "Card":
    """Write the complete card into a new folder that replaces the old one."""
    with replacing_output(folder) as partial:
        finished = write_card(partial, manifest, prepared, record, update, report)
    return type(finished)(folder, finished.manifest)
