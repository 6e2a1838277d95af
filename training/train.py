"""Train a card on a corpus, and estimate what that takes."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.card import Card
from kcard.config import settings
from kcard.errors import CardError, TrainingInterrupted, UsageError
from kcard.events import OnEvent, ignore, note
from kcard.manifest import LOOKED_UP, MANIFEST, Manifest, Training
from kcard.text import detect, is_english, stemmer_of
from kcard.training.corpus import Corpus, read_corpus
from kcard.training.description import describe, name_from
from kcard.training.draft_corpus import check_same_corpus, record_corpus, state_of
from kcard.training.estimates import (
    MINUTES,
    TrainingEstimate,
    check_memory,
    free_memory,
    seconds_to_embed,
)
from kcard.training.execution import one_thread
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
    earlier_draft,
    index_record,
    make_search_card,
    remedy,
    replacing_output,
    training_record,
    write_card,
)
from kcard.training.run import Preparation, TrainingRun, steps_of
from kcard.training.update import CorpusUpdate, Previous, previous
from kcard.types import Source
from kcard.version import __version__

if TYPE_CHECKING:
    from kcard.training.embedded.train import TrainingPlan

SEARCH_DESCRIPTION = "whatever a search finds for the question"
TRIAL_STEPS = (1, 3)  # steps of a large model by which its time is estimated: to warm up, and measured
MAX_DESCRIBING_PASSAGES = 5000  # passages, spread over the corpus, whose terms describe a card
EMBEDDING_SAMPLE = 200  # passages, from which those embedded for an estimate are drawn


def train(
    corpus: str | Path | None = None,
    options: TrainOptions | None = None,
    *,
    confirm_description: Callable[[str], str] | None = None,
    on_event: OnEvent | None = None,
    **overrides: Any,
) -> "Card":
    """Train a card on a corpus and return it, complete and sealed. Unlike kcard.train, it holds no exam.

    corpus   a file or folder of documents, tables or triples, or a data set: hf:owner/name[:split]; None: the preset's
    options  see TrainOptions; keyword arguments override its fields
    confirm_description  called, where no description is set, with that of the card that is replaced, or else with one
             made from the corpus; returns the one to use
    on_event  called with an Event while it runs

    A card of the same name in `output` is replaced once the new one is complete; the last one that was replaced is
    kept beside it (kcard.training.output.earlier_draft). Raises UsageError, CorpusError, ModelUnavailable, and
    TrainingInterrupted after Ctrl-C.
    """
    on_event = on_event or ignore
    # The options, completed by the preset, by the last version, or by defaults.
    corpus, options = with_preset(corpus, TrainOptions.of(options, overrides))
    before, chosen = _complete(options, on_event)
    if options.resume and chosen.kind in LOOKED_UP:
        raise UsageError(
            f"a {chosen.kind} card is built in one step, so there is nothing to resume: leave out --resume"
        )
    if chosen.kind == "search":
        template = _manifest(
            options, "search", options.description or SEARCH_DESCRIPTION, options.language or "en"
        )
        return make_search_card(corpus, options.name, replace(template, kind="search"), options.output)
    # The corpus, joined with the passages of the last version.
    state = state_of(Path(corpus).expanduser())
    update = _read(Path(corpus), before, options, chosen, on_event)
    passages = update.corpus.passages
    # Name, language and description, those of the last version or derived from the corpus where they are not set.
    name, language = options.name, options.language
    last = None
    if before is None:
        name = name or name_from(update.corpus.path)
        language = language or _language(passages, on_event)
    else:
        last = before.card.manifest
        name, language = name or last.name, language or last.language
    folder = settings().drafts / name
    if options.output:
        folder = Path(options.output).expanduser().absolute()
    check_output(folder, name)
    if options.name is None and before is None:
        check_same_corpus(folder, update.corpus.path)
    description = options.description
    if description is None and last is not None:
        description = last.description
    elif description is None and options.resume and (folder / MANIFEST).exists():
        description = Manifest.read(folder).description
    elif description is None:
        description = _describe(passages, update.corpus.path, language)
        if confirm_description is None:
            on_event(note(f"description: {description} (--description replaces it)"))
        else:
            with suppress(CardError):
                description = Manifest.read(folder).description
            description = confirm_description(description)
    # The manifest.
    manifest = replace(_manifest(options, name, description, language), evidence=chosen.evidence)
    if before is not None:
        manifest = before.manifest(manifest)
    is_decided = options.kind is not None or before is not None
    # The card of an earlier run, but not the index that this run makes first and its model completes.
    replaces = (folder / MANIFEST).exists() and not options.resume
    if (folder / CHECKPOINT).exists() and not options.resume:
        on_event(
            note(
                f"this run replaces the checkpoint of an interrupted one in {folder}; --resume goes on from it"
            )
        )

    def write(manifest: Manifest, prepared: Preparation[TrainingRun] | None, record: Training) -> "Card":
        """Write the complete card into a new folder that replaces the old one."""
        nonlocal replaces
        with replacing_output(folder, keep=replaces) as partial:
            finished = write_card(partial, manifest, prepared, record, update, on_event)
        if before is None:
            record_corpus(folder, update.corpus.path, state)
        if replaces:
            on_event(note(f"the earlier card of this name is kept: {earlier_draft(folder)}"))
        replaces = False
        return type(finished)(folder, finished.manifest)

    def write_index() -> "Card":
        kind = chosen.kind if chosen.kind in LOOKED_UP else "retrieval"
        return write(replace(manifest, kind=kind), None, index_record(update.corpus, manifest.licence))

    def train_model() -> "Card | None":
        """Train the model and write the card; return None if it could not learn enough in its minutes."""
        checkpoint, how = folder / CHECKPOINT, remedy()
        replaceable = chosen.kind == "both" and before is None
        with one_thread(chosen.base == EMBEDDED_BASE):
            prepared = prepare_model(
                update, before, chosen, name, checkpoint, on_event, replaceable=replaceable
            )
            if prepared is None:
                return None
            outcome = prepared.job.run(checkpoint, resume=chosen.resume, on_event=on_event, remedy=how)
            record = training_record(update.corpus, chosen, prepared, outcome, manifest.licence)
            return write(replace(manifest, kind=chosen.kind or "both"), prepared, record)

    # A card without a model; also the default in languages other than English.
    if chosen.kind in LOOKED_UP:
        return write_index()
    if not is_decided and not is_english(language):
        stems = "their stems" if stemmer_of(language) else "their words"
        on_event(
            note(
                f"the models that come with kcard support English only: in {language}, passages are found by {stems} "
                "and quoted, and no model is trained (--kind both trains one anyway)"
            )
        )
        return write_index()
    # A card with a model.
    if chosen.base != EMBEDDED_BASE or chosen.kind != "both" or before is not None:
        return train_model() or write_index()
    # Make the index first, so that there is a usable card even if the model fails. The folder may contain a card with
    # a model, which stays until the new one is complete, or the index of the run that is resumed.
    first = None
    if not (folder / MANIFEST).exists():
        if not options.resume or not (folder / CHECKPOINT).exists():
            first = write_index()
    elif not Manifest.read(folder).has_model:
        first = Card.open(folder) if options.resume else write_index()
    if first is not None:
        on_event(
            note(
                f"{name}: an index of {len(passages):,} passages (kind retrieval), usable now; the model comes next"
            )
        )
    try:
        return train_model() or first or write_index()
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
    on_event: OnEvent | None = None,
    **overrides: Any,
) -> TrainingEstimate:
    """Estimate what `train` with the same arguments would take: memory from the model's shape, time by a few steps on
    throw-away weights.

    With several processes the time is that of one. Raises what train does, and UsageError for a card without a model.
    """
    on_event = on_event or ignore
    corpus, options = with_preset(corpus, TrainOptions.of(options, overrides))
    before, chosen = _complete(options, on_event)
    if chosen.kind in LOOKED_UP:
        raise UsageError(f"a {chosen.kind} card has no model, so no training can be estimated")
    update = _read(Path(corpus), before, options, chosen, on_event)
    if chosen.base == EMBEDDED_BASE:
        indexing = None
        if chosen.kind == "both":
            # How long the passages take to embed, by which a card in English is searched.
            from kcard.embedded.static_embeddings import embed

            indexing, passages = 0.0, update.corpus.passages
            if is_english(options.language or _language(passages, ignore)):
                texts = [source.text for source in passages[:: max(1, len(passages) // EMBEDDING_SAMPLE)]]
                indexing = seconds_to_embed(texts, embed) * len(passages) / len(texts)
        with one_thread():
            plan = make_plan(update, before, chosen, on_event, measured=True)
        assert plan.estimate is not None
        return TrainingEstimate(
            plan.estimate.steps, plan.estimate.seconds, indexing=indexing, model=plan.estimate
        )
    from kcard.training.base_trainer import FineTuning

    # The estimate itself holds what planning tells: the memory.
    plan = make_plan(update, before, chosen, ignore)
    execution = chosen.execution
    free = 0
    if plan.memory is not None:
        free = free_memory(execution.place(), execution.processes)
    prepared = plan.prepare()
    assert isinstance(prepared.job, FineTuning)
    each = prepared.job.seconds_a_step(*TRIAL_STEPS)
    seconds = each * prepared.job.steps
    if chosen.minutes is not None:
        seconds = min(seconds, 60 * chosen.minutes)
    return TrainingEstimate(prepared.job.steps, seconds, prepared.device, plan.memory, free)


def _describe(passages: Sequence[Source], corpus: Path, language: str) -> str:
    """Describe the passages of a corpus by a sample of them."""
    step = -(-len(passages) // MAX_DESCRIBING_PASSAGES)
    return describe(passages[::step], corpus, language)


def train_anew(
    before: Previous, corpus: Corpus, options: TrainOptions, folder: Path, on_event: OnEvent
) -> "Card":
    """Train the next version of a card on `corpus` alone, by its `options` (Previous.arguments), and write it into an
    empty folder.

    It has nothing of the last version but its manifest, so it has forgotten what is not in the corpus. A description
    that was derived from the earlier corpus is derived from this one. Raises what training raises.
    """
    manifest = replace(
        before.card.manifest, updates=before.sha256, knowledge_date=options.knowledge_date, files={}
    )
    if manifest.description == _describe(before.passages, corpus.path, manifest.language):
        manifest = replace(manifest, description=_describe(corpus.passages, corpus.path, manifest.language))
    update = CorpusUpdate(corpus, 0, documents=corpus.documents)
    if manifest.kind in LOOKED_UP:
        return write_card(folder, manifest, None, index_record(corpus, manifest.licence), update, on_event)
    options = replace(options, seed=manifest.training.seed)
    checkpoint = folder / CHECKPOINT
    with one_thread(options.base == EMBEDDED_BASE):
        prepared = prepare_model(update, None, options, manifest.name, checkpoint, on_event)
        assert prepared is not None
        outcome = prepared.job.run(checkpoint, on_event=on_event)
        shutil.rmtree(checkpoint, ignore_errors=True)
        record = training_record(corpus, options, prepared, outcome, manifest.licence)
        return write_card(folder, manifest, prepared, record, update, on_event)


def prepare_model(
    update: CorpusUpdate,
    before: Previous | None,
    options: TrainOptions,
    name: str,
    checkpoint: Path,
    on_event: OnEvent,
    *,
    replaceable: bool = False,
) -> Preparation[TrainingRun] | None:
    """Prepare a model's training; return None if the model would learn too little in its minutes and is replaceable by
    an index.

    options     complete, see TrainOptions; `name`: of the card, for messages
    checkpoint  the folder of an interrupted run, if the options say to resume it
    """
    steps = None
    if options.resume and options.base == EMBEDDED_BASE:
        steps = steps_of(checkpoint)
    plan = make_plan(update, before, options, on_event, steps=steps)
    cost = plan.estimate
    if cost is not None:
        if not cost.is_enough and replaceable:
            on_event(note(f"{name} is an index alone (kind retrieval): {cost.refusal()}"))
            return None
        on_event(cost.note())
        if not cost.is_enough:
            on_event(note(f"expect little of this model: {cost.refusal()}"))
    return plan.prepare()


def _manifest(options: TrainOptions, name: str, description: str, language: str) -> Manifest:
    return Manifest(
        name, description, options.domain, "retrieval", language, options.licence, options.knowledge_date
    )


def _language(passages: Sequence[Source], on_event: OnEvent) -> str:
    """Return the language of the corpus; English if it can't be detected."""
    language = detect([passage.text for passage in passages[:: max(1, len(passages) // 100)]])
    if language is None:
        on_event(note("language: undetermined, read as English (--language names another)"))
    elif language != "en":
        on_event(note(f"language: {language}, detected (--language overrides it)"))
    return language or "en"


def _complete(options: TrainOptions, on_event: OnEvent) -> tuple[Previous | None, TrainOptions]:
    """Return the last version of the card, if this is an update, and the options completed by it, or else by the
    defaults of kind, base and method; they are checked."""
    if options.update is not None:
        before = previous(options.update)
        options = before.arguments(options)
        check(options)
        return before, options
    if options.kind is None:
        options = replace(options, kind="model" if options.evidence == "hashes" else "both")
    if options.kind not in LOOKED_UP:
        base = options.base
        if not base:
            base, why = default_base()
            named = "embedded, a small model" if base == EMBEDDED_BASE else base
            on_event(note(f"base: {named}, since {why}"))
        method = options.method or ("full" if base == EMBEDDED_BASE else "lora")
        options = replace(options, base=base, method=method)
    check(options)
    return None, options


def _read(
    path: Path, before: Previous | None, options: TrainOptions, chosen: TrainOptions, on_event: OnEvent
) -> CorpusUpdate:
    """Read the corpus, join it with the passages of the last version, and report what the user should know."""
    whole = chosen.kind not in LOOKED_UP and chosen.objective == "clm"
    read = read_corpus(path, chosen.field, whole=whole, readers=chosen.readers)
    for sentence in read.remarks():
        on_event(note(sentence))
    if before is None:
        return CorpusUpdate(read, 0, documents=read.documents)
    card = before.card
    if options.name not in (None, card.name):
        raise UsageError(f"name {options.name!r}: an update of {card.name} keeps its name, leave it out")
    update = before.join(read)
    old, new = update.old_count + len(update.hashed), len(update.corpus.passages) - update.old_count
    on_event(note(f"updating {card.name} ({before.sha256[:12]}): {old} passages, and {new} new ones"))
    if update.hashed:
        on_event(
            note(
                "the card carries only hashes of the old passages: they can't be replayed and may be forgotten"
            )
        )
    if options.knowledge_date is None:
        last = card.manifest.knowledge_date or "none either"
        on_event(note(f"knowledge date: none was given (the last version: {last}); --knowledge-date sets it"))
    return update


def make_plan(
    update: CorpusUpdate,
    before: Previous | None,
    options: TrainOptions,
    on_event: OnEvent,
    *,
    steps: int | None = None,
    measured: bool = False,
) -> "TrainingPlan[TrainingRun]":
    """Plan the training that the base calls for, by the options that are set, else by its defaults.

    steps, measured  of the embedded base, see kcard.training.embedded.train.plan
    """
    assert options.base is not None
    chosen, corpus = options.settings(), update.corpus
    version = "" if before is None else before.sha256
    # The fingerprint that a checkpoint must match to be resumed.
    identity = {"base": options.base, "updates": version, **chosen}
    text = json.dumps([__version__, corpus.sha256, identity], sort_keys=True, default=str)
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    from kcard.training.embedded import train

    # Another base is fine-tuned, if the memory suffices.
    if options.base != EMBEDDED_BASE:
        from kcard.training import finetune
        from kcard.training.base_model import WeightSource

        tuning = finetune.options_of(options.base, **chosen)
        new, old = update.training_texts()
        origin = WeightSource() if before is None else before.weight_source(old)
        execution = options.execution
        device = execution.place()
        memory = check_memory(tuning, execution, origin, device, on_event)
        return train.TrainingPlan(
            None,
            lambda: finetune.prepare(new, tuning, fingerprint, origin, execution, options.minutes),
            memory,
        )
    # The embedded base has a recipe of its own.
    from kcard.training.embedded.recipe import Recipe, choose_style

    recipe = {key: value for key, value in chosen.items() if key not in {"method", "learning_rate"}}
    if options.method == "lora":
        recipe |= {"style": "tokens", "rank": options.rank or EMBEDDED_RANK}
    elif "style" not in chosen and options.objective != "clm":
        recipe["style"], why = choose_style(corpus.texts)
        on_event(note(f"prompt style: {recipe['style']}, since {why}"))
    if options.learning_rate is not None:
        recipe["muon_rate"] = options.learning_rate
    documents = None
    if update.documents is not None:
        new, old = update.training_texts()
        documents = [*old, *new]
    return train.plan(
        corpus.texts,
        Recipe(**recipe),
        fingerprint,
        documents,
        corpus.continuations,
        minutes=options.minutes or MINUTES,
        steps=steps,
        measured=measured,
    )
