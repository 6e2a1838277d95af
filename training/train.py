"""train: a corpus becomes a card."""

import hashlib
import json
from collections.abc import Callable, Mapping
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
from kcard.training.execution import Execution, Processes, one_thread
from kcard.training.loop import Preparation, run, steps_of
from kcard.training.memory import (
    MINUTES,
    Estimate,
    TrainingEstimate,
    check_memory,
    disk_note,
    free_memory,
    seconds_a_step,
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
    claim,
    describe,
    fresh,
    index_record,
    name_from,
    remedy,
    training_record,
    write_card,
)
from kcard.training.progress import Note, Report, silent
from kcard.training.study import StudyQueries, make_study_queries, study_material
from kcard.training.update import CorpusUpdate, Previous, previous
from kcard.training.workers import processes_of

if TYPE_CHECKING:
    from kcard.cards.card import Card
    from kcard.offline.train import Plan
    from kcard.training.distillation import Distillation

__all__ = ["estimate", "make_plan", "read_study_of", "train"]

SEARCHES = "whatever a search finds for the question"
TRIAL = (1, 3)  # steps of a large model by which its time is estimated: to warm up, and measured
DESCRIBED = 5000  # passages, spread over the corpus, whose terms describe a card
SAMPLED = 200  # passages among which those lie that are embedded for an estimate
TRIED = 64  # questions that the teacher is asked for an estimate


def train(
    corpus: str | Path | None = None,
    options: TrainOptions | None = None,
    *,
    report: Report | None = None,
    **overrides: Any,
) -> "Card":
    """Train a card on a corpus and return it, whole and sealed; without an exam (kcard.train takes one too).

    corpus   a file or folder of documents, tables or triples, or a data set: hf:owner/name[:split]; None: the preset's
    options  see TrainOptions; those that are given by name take the place of its own
    report   called with Progress and Note values while it runs

    A card that already lies in `output` under the same name is replaced once the new one is whole. Raises
    UsageError, CorpusError, ModelUnavailable, and TrainingInterrupted after Ctrl-C.
    """
    report = report or silent
    corpus, asked = with_preset(corpus, replace(options or TrainOptions(), **overrides))
    before = None if asked.update is None else previous(asked.update)
    chosen = _with_base(asked, report) if before is None else before.arguments(asked)
    check(chosen)
    if asked.resume and chosen.kind in LOOKED_UP:
        raise UsageError(
            f"a {chosen.kind} card is built in one step, so there is nothing to resume: leave out --resume"
        )
    if chosen.kind == "search":
        from kcard.training import output

        template = _manifest(asked, "search", asked.description or SEARCHES, asked.language or "en")
        return output.make_search_card(corpus, asked.name, replace(template, kind="search"), asked.output)
    read = _read(Path(corpus), chosen, report)
    joined = (
        CorpusUpdate(read, 0, documents=read.documents)
        if before is None
        else _joined(before, read, asked, report)
    )
    name = asked.name or (name_from(read.path) if before is None else before.card.name)
    language = asked.language or (
        _language(read, report) if before is None else before.card.manifest.language
    )
    description = asked.description
    if description is None:
        description = _description(read, before, language, report)
    folder = Path(asked.output).expanduser().absolute() if asked.output else settings().drafts / name
    claim(folder, name)
    manifest = replace(_manifest(asked, name, description, language), evidence=chosen.evidence)
    manifest = manifest if before is None else before.manifest(manifest)
    settled = asked.kind is not None or before is not None

    def index() -> "Card":
        kind = chosen.kind if chosen.kind in LOOKED_UP else "retrieval"
        record = index_record(joined.corpus, manifest.licence)
        return _finish(folder, replace(manifest, kind=kind), None, record, joined, report)

    if chosen.kind in LOOKED_UP or (not settled and _foreign(language, report)):
        return index()
    alone = chosen.base == EMBEDDED_BASE
    if not (alone and chosen.kind == "both" and before is None):
        return _modelled(joined, before, chosen, folder, manifest, report) or index()
    # The index first: whatever becomes of the model, there is a card by then.
    first = _first_index(folder, index, resume=asked.resume)
    if first is not None:
        count = f"{len(joined.corpus.passages):,} passages"
        report(Note(f"{name}: an index of {count} (kind retrieval), usable now; the model comes next"))
    try:
        return _modelled(joined, before, chosen, folder, manifest, report) or first or index()
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
    """What `train` with the same arguments would take: memory from the model's shape, time by a few steps on weights
    that are thrown away.

    With several processes the time is that of one. Raises what train does, and UsageError for a card without a model.
    """
    report = report or silent
    corpus, asked = with_preset(corpus, replace(options or TrainOptions(), **overrides))
    before = None if asked.update is None else previous(asked.update)
    chosen = _with_base(asked, report) if before is None else before.arguments(asked)
    check(chosen)
    if chosen.kind in LOOKED_UP:
        raise UsageError(f"a {chosen.kind} card has no model, so there is no training to estimate")
    read = _read(Path(corpus), chosen, report)
    joined = (
        CorpusUpdate(read, 0, documents=read.documents)
        if before is None
        else _joined(before, read, asked, report)
    )
    if chosen.base == EMBEDDED_BASE:
        indexing = _seconds_to_index(joined, asked) if chosen.kind == "both" else None
        with one_thread():
            minutes = chosen.minutes or (MINUTES if before is None else None)
            plan = make_plan(
                joined, before, chosen, report, None, StudyQueries(), minutes=minutes, measured=True
            )
        assert plan.estimate is not None
        return TrainingEstimate(
            plan.estimate.steps, plan.estimate.seconds, indexing=indexing, model=plan.estimate
        )
    studied, distillation = StudyQueries(), None
    if chosen.objective == "distil":
        studied, distillation = read_study_of(chosen, joined, silent)
        distillation = None if distillation is None else replace(distillation, limit=TRIED)
    # The estimate itself holds what planning tells: the memory.
    plan = make_plan(joined, before, chosen, silent, None, studied, distillation)
    execution = chosen.execution
    free = free_memory(execution.place(), execution.processes) if plan.memory is not None else 0
    prepared = plan.prepare()
    each = seconds_a_step(prepared.job, *(TRIAL if plan.memory is not None else ()))
    seconds = prepared.seconds + each * prepared.job.steps
    return TrainingEstimate(prepared.job.steps, seconds, prepared.device, plan.memory, free)


def _seconds_to_index(joined: CorpusUpdate, options: TrainOptions) -> float:
    """How long the passages take to embed, by which a card in English is searched."""
    from kcard.offline.static import embed

    if not is_english(options.language or _language(joined.corpus, silent)):
        return 0.0
    passages = joined.corpus.passages
    texts = [source.text for source in passages[:: max(1, len(passages) // SAMPLED)]]
    return seconds_to_embed(texts, embed) * len(passages) / len(texts)


def _manifest(options: TrainOptions, name: str, description: str, language: str) -> Manifest:
    return Manifest(
        name, description, options.domain, "retrieval", language, options.licence, options.knowledge_date
    )


def _language(read: Corpus, report: Report) -> str:
    """The language of the corpus; English where its text does not tell."""
    from kcard.text import detect

    language = detect([passage.text for passage in read.passages[:: max(1, len(read.passages) // 100)]])
    if language and language != "en":
        report(Note(f"language: {language}, detected (--language overrides it)"))
    return language or "en"


def _foreign(language: str, report: Report) -> bool:
    """Whether the models that come with kcard do not know the language; then it is said what a card still does."""
    if is_english(language):
        return False
    stems = "their stems" if stemmer_of(language) else "their words"
    report(
        Note(
            f"the models that come with kcard support English only: in {language}, passages are found by {stems} and "
            "quoted, and no model is trained (--kind both trains one anyway)"
        )
    )
    return True


def _first_index(folder: Path, index: "Callable[[], Card]", *, resume: bool) -> "Card | None":
    """The index that lies in the folder while the model is trained; None where a card with a model lies there, which
    stays until the new one is whole."""
    from kcard.cards.card import Card

    if not (folder / MANIFEST).exists():
        return None if resume and (folder / CHECKPOINT).exists() else index()
    last = Manifest.read(folder)
    if last.has_model:
        return None
    return Card.open(folder) if resume else index()


def _modelled(
    joined: CorpusUpdate,
    before: Previous | None,
    chosen: TrainOptions,
    folder: Path,
    manifest: Manifest,
    report: Report,
) -> "Card | None":
    """The card with its model, trained; None where it could not learn enough in the minutes that it has."""
    alone = chosen.base == EMBEDDED_BASE
    execution = Execution() if alone else chosen.execution
    minutes = chosen.minutes or (MINUTES if before is None else None)
    with one_thread() if alone else nullcontext(), processes_of(execution) as processes:
        studied, distillation = read_study_of(chosen, joined, report)
        if distillation is not None:
            distillation = replace(
                distillation, folder=folder / CHECKPOINT, resume=chosen.resume, remedy=remedy()
            )
        steps = steps_of(folder / CHECKPOINT) if alone and chosen.resume else None
        plan = make_plan(
            joined, before, chosen, report, processes, studied, distillation, minutes=minutes, steps=steps
        )
        indexed = chosen.kind == "both" and before is None
        if plan.estimate is not None and not _is_worth_it(
            plan.estimate, manifest.name, report, indexed=indexed
        ):
            return None
        prepared = plan.prepare()
        outcome = run(prepared.job, folder / CHECKPOINT, resume=chosen.resume, report=report, remedy=remedy())
        record = training_record(joined.corpus, chosen, prepared, outcome, manifest.licence)
        record = replace(record, hyperparameters={**record.hyperparameters, **studied.record})
        made = replace(manifest, index=chosen.kind == "both")
        return _finish(folder, made, prepared, record, joined, report)


def _is_worth_it(estimate: Estimate, name: str, report: Report, *, indexed: bool) -> bool:
    """Tell how long training takes. False where the model would learn too little and there is an index in its place."""
    if estimate.is_enough:
        report(estimate.note())
        return True
    if indexed:
        report(Note(f"{name} is an index alone (kind retrieval): {estimate.refusal()}"))
        return False
    report(estimate.note())
    report(Note(f"expect little of this model: {estimate.refusal()}"))
    return True


def _joined(before: Previous, read: Corpus, options: TrainOptions, report: Report) -> CorpusUpdate:
    """Old and new passages, and what the user should know of them."""
    card = before.card
    if options.name not in (None, card.name):
        raise UsageError(f"name {options.name!r}: an update of {card.name} keeps its name, leave it out")
    joined = before.join(read)
    old, new = joined.known + len(joined.hashed), len(joined.corpus.passages) - joined.known
    report(Note(f"updating {card.name} ({before.sha256[:12]}): {old} passages, and {new} new ones"))
    if joined.hashed:
        report(
            Note(
                "the card carries only hashes of the old passages: they can't be replayed and may be forgotten"
            )
        )
    if options.knowledge_date is None:
        last = card.manifest.knowledge_date or "none either"
        report(Note(f"knowledge date: none was given (the last version: {last}); --knowledge-date sets it"))
    return joined


def _description(read: Corpus, before: Previous | None, language: str, report: Report) -> str:
    if before is not None:
        return before.card.manifest.description
    spread = read.passages[:: -(-len(read.passages) // DESCRIBED)]
    description = describe([passage.text for passage in spread], language)
    report(Note(f"description, from the corpus' top terms: {description}"))
    return description


def _with_base(options: TrainOptions, report: Report) -> TrainOptions:
    """The kind, base and method that the card will have, where they were left to us."""
    if options.kind is None:
        options = replace(options, kind="model" if options.evidence == "hashes" else "both")
    if options.kind in LOOKED_UP:
        return options
    base = options.base or _announced_base(report)
    return replace(options, base=base, method=options.method or ("full" if base == EMBEDDED_BASE else "lora"))


def _announced_base(report: Report) -> str:
    base, why = default_base()
    what = "embedded, a small model" if base == EMBEDDED_BASE else base
    report(Note(f"base: {what}, since {why}"))
    return base


def _read(path: Path, options: TrainOptions, report: Report) -> Corpus:
    modelled = options.kind not in LOOKED_UP
    corpus = read_corpus(
        path, options.field, whole=modelled and options.objective == "clm", readers=options.readers
    )
    for sentence in corpus.remarks():
        report(Note(sentence))
    return corpus


def read_study_of(
    options: TrainOptions, joined: CorpusUpdate, report: Report
) -> "tuple[StudyQueries, Distillation | None]":
    """What is learned of the study material; with objective distil, the questions for the teacher."""
    passages = joined.corpus.passages
    study = study_material(Path(options.study), report) if options.study is not None else None
    if options.objective != "distil" or study is None:
        return make_study_queries(study, passages, report), None
    from kcard.training.distillation import Distillation, passage_questions

    questions = passage_questions(study.items, passages, joined.known)
    if not any(not question.is_old for question in questions):
        raise UsageError(
            f"{study.name} has no question with an answer about {'a new' if joined.known else 'a'} passage "
            f"of this corpus, which objective distil needs: write some with `kcard study --corpus {joined.corpus.path}`"
        )
    report(
        Note(
            f"study material: the teacher is asked {len(questions):,} questions, out of {len(study.items):,} items"
        )
    )
    record = {**study.record, "study_items": len(questions)}
    return StudyQueries(record=record), Distillation(questions, report=report)


def make_plan(
    joined: CorpusUpdate,
    before: Previous | None,
    given: TrainOptions,
    report: Report,
    processes: Processes | None,
    studied: StudyQueries,
    distillation: "Distillation | None" = None,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    measured: bool = False,
) -> "Plan":
    """The way of training that the base calls for, with what was given in place of its defaults.

    minutes, steps, measured  of the embedded base, see kcard.offline.train.plan
    """
    assert given.base is not None
    chosen, corpus = given.settings(), joined.corpus
    version = "" if before is None else before.sha256
    fingerprint = _fingerprint(corpus, {"base": given.base, "updates": version, **chosen, **studied.record})
    from kcard.offline import train

    if given.base != EMBEDDED_BASE:
        from kcard.training import finetune

        tuning = finetune.Options(given.base, **chosen)
        new, old = joined.learned()
        onward = None if before is None else before.warm_start(old)
        execution = given.execution
        device = execution.place() if processes is None else processes.device
        memory = check_memory(tuning, execution, finetune.origin_of(onward), device, report)
        if distillation is not None:
            report(disk_note(len(distillation.questions), tuning))
        return train.Plan(
            None,
            lambda: finetune.prepare(
                new, tuning, fingerprint, onward, execution, processes, studied.queries, distillation
            ),
            memory,
        )
    from kcard.offline.recipe import Recipe, choose_style

    recipe = {key: value for key, value in chosen.items() if key not in {"method", "learning_rate"}}
    if given.method == "lora":
        recipe |= {"style": "tokens", "rank": given.rank or EMBEDDED_RANK}
    elif "style" not in chosen and given.objective != "clm":
        recipe["style"], why = choose_style(corpus.texts)
        report(Note(f"prompt style: {recipe['style']}, since {why}"))
    if given.learning_rate is not None:
        recipe["muon_rate"] = given.learning_rate
    start = None if before is None else before.card.folder
    documents = None if joined.documents is None else [*chain.from_iterable(reversed(joined.learned()))]
    queries = studied.queries
    return train.plan(
        corpus.texts,
        Recipe(**recipe),
        fingerprint,
        report,
        start,
        documents,
        queries,
        corpus.continuations,
        minutes=minutes,
        steps=steps,
        measured=measured,
    )


def _fingerprint(corpus: Corpus, settings: Mapping[str, Any]) -> str:
    """What a checkpoint must agree with to be resumed."""
    text = json.dumps([kcard.__version__, corpus.sha256, dict(settings)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _finish(
    folder: Path,
    manifest: Manifest,
    prepared: Preparation | None,
    record: Training,
    joined: CorpusUpdate,
    report: Report,
) -> "Card":
    """Write the card whole into a fresh folder and have it take its place."""
    with fresh(folder) as partial:
        finished = write_card(partial, manifest, prepared, record, joined, report)
    return type(finished)(folder, finished.manifest)
