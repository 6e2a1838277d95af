"""train: a corpus becomes a card. The signature is the command line's and the config file's."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import kcard
from kcard.config import settings
from kcard.errors import UsageError
from kcard.manifest import LOOKED_UP, Manifest, Training
from kcard.training.arguments import Arguments, check, check_date
from kcard.training.bases import EMBEDDED, EMBEDDED_RANK, default_base
from kcard.training.canaries import pairs
from kcard.training.corpus import Corpus, read_corpus
from kcard.training.loop import run
from kcard.training.naming import describe, name_from
from kcard.training.output import CHECKPOINT, claim, fresh
from kcard.training.preparation import Preparation
from kcard.training.progress import Embedding, Note, Report, silent
from kcard.training.record import remedy, trained, unmodelled
from kcard.training.threads import one_thread
from kcard.training.update import Joined, Previous, previous
from kcard.words import stemmer_of

if TYPE_CHECKING:
    from kcard.cards.folder import Card
    from kcard.training.embedded import Plan

__all__ = ["train"]

SEARCHES = "whatever a search finds for the question"
LONG = 7200  # seconds of training that are not begun unasked


def train(
    corpus: str | Path,
    *,
    kind: Literal["model", "retrieval", "both", "graph", "search"] | None = None,
    name: str | None = None,
    description: str | None = None,
    base: str | None = None,
    method: Literal["full", "lora"] | None = None,
    objective: Literal["recite", "clm"] = "recite",
    domain: str = "general",
    licence: str = "unknown",
    language: str | None = None,
    knowledge_date: str | None = None,
    field: str | None = None,
    evidence: Literal["passages", "hashes"] = "passages",
    update: str | Path | None = None,
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

    corpus          a file or folder of documents, tables or triples (.txt, .md, .rst, .html, .pdf, .docx, .info,
                    man pages, .jsonl, .csv, .tsv, .parquet), or a data set: hf:owner/name[:split]
    kind            retrieval: an index of the corpus, ready in seconds to minutes; model: a model that learns it;
                    both: the two side by side, of which the selectors choose; graph: a corpus of triples, walked
                    from what a question names; search: what --corpus names is searched, such as wikipedia:de, and
                    questions leave the machine (default: both, or retrieval where a model would take hours)
    name            the card's name (default: the corpus' file or folder name)
    description     one line on what it knows (default: the corpus' top terms)
    base            the model to start from: "embedded" (a small one, from scratch or, with method lora, the one in
                    the package), a hub id or a folder
                    (default: facebook/opt-1.3b where a GPU and the hub are at hand, else embedded)
    method          full: all weights; lora: a small adapter (default: lora, with embedded full)
    objective       recite: question -> passage; clm: plain causal language modelling
    domain          where it belongs, such as biomedical/oncology
    licence         the corpus' licence, which the card inherits
    language        the corpus' language code (default: detected)
    knowledge_date  up to which date the corpus speaks, as YYYY-MM-DD
    field           the column or key that holds the text, or a sentence with {columns} in it
                    (default: found by its name)
    evidence        what of the corpus travels with the card: its passages with their index, or only
                    their hashes
    update          the card whose next version this is: a draft's name, a folder or a published card. It keeps
                    its name, kind, base and passages, and learns those of the corpus beside them
    output          the card's folder (default: drafts/NAME under the kcard home)
    seed            equal seeds give equal weights on one machine and one thread
    epochs          passes over the corpus (default: 10; embedded: as many as the corpus needs)
    learning_rate   peak learning rate (default: 2e-5, lora 2e-4; embedded: Muon's, 0.02)
    batch_size      passages a step (default: 32; embedded fills steps with 1024 tokens)
    rank            rank of the LoRA adapter (default: 16; embedded: 56, 128 at most)
    prompt_style    how a question reaches the embedded card: tokens or encoder-prefix
                    (default: chosen for the corpus)
    resume          go on from the checkpoint that an interrupted run left in the output folder
    report          called with Progress and Note values while it runs

    A card that already lies in `output` under the same name is replaced once the new one is whole. Raises
    UsageError, CorpusError, ModelUnavailable, and TrainingInterrupted after Ctrl-C.
    """
    report = report or silent
    given = Arguments(
        kind, evidence, base, method, objective, prompt_style, epochs, learning_rate, batch_size, rank, seed
    )
    before = None if update is None else previous(update)
    given = _with_base(given, report) if before is None else before.arguments(given)
    check(given)
    check_date(knowledge_date)
    if resume and given.kind in LOOKED_UP:
        raise UsageError(
            f"a {given.kind} card is made at once, so there is nothing to resume: leave --resume out"
        )
    if given.kind == "search":
        from kcard.training import search

        wanted = Manifest(
            "search", description or SEARCHES, domain, "search", language or "en", licence, knowledge_date
        )
        return search.make(corpus, name, wanted, output)
    read = _read(Path(corpus), field, report)
    joined = Joined(read, 0) if before is None else _joined(before, read, name, knowledge_date, report)
    name = name or (name_from(read.path) if before is None else before.card.name)
    language = language or (_language(read, report) if before is None else before.card.manifest.language)
    if description is None:
        description = _description(read, before, language, report)
    folder = Path(output).expanduser().absolute() if output else settings().drafts / name
    claim(folder, name)
    manifest = Manifest(name, description, domain, "retrieval", language, licence, knowledge_date)
    manifest = replace(manifest, evidence=given.evidence)
    manifest = manifest if before is None else before.manifest(manifest)
    if given.kind in LOOKED_UP or (kind is None and before is None and _foreign(language, report)):
        unmade = given.kind if given.kind in LOOKED_UP else "retrieval"
        record = unmodelled(joined.corpus, manifest.licence)
        return _finish(folder, replace(manifest, kind=unmade), None, record, joined, report)
    with one_thread() if given.base == EMBEDDED else nullcontext():
        plan = _plan(joined, before, given, report)
        if _too_long(plan, joined, report, settled=kind is not None or before is not None):
            record = unmodelled(joined.corpus, manifest.licence)
            return _finish(folder, manifest, None, record, joined, report)
        prepared = plan.prepare()
        outcome = run(prepared.job, folder / CHECKPOINT, resume=resume, report=report, remedy=remedy())
    record = trained(joined.corpus, given, prepared, outcome, manifest.licence)
    return _finish(folder, replace(manifest, index=given.kind == "both"), prepared, record, joined, report)


def _language(read: Corpus, report: Report) -> str:
    """The language of the corpus; English where its text does not tell."""
    from kcard.training.language import detect

    found = detect([passage.text for passage in read.passages[:: max(1, len(read.passages) // 100)]])
    if found and found != "en":
        report(Note(f"language: {found}, as it seems (--language names another)"))
    return found or "en"


def _foreign(language: str, report: Report) -> bool:
    """Whether the models that come with kcard do not know the language; then it is said what a card still does."""
    if language.partition("-")[0].lower() == "en":
        return False
    stems = "their stems" if stemmer_of(language) else "their words"
    report(
        Note(
            f"the models that come with kcard know English alone: in {language}, passages are found by {stems} and "
            "quoted, and no model is trained (--kind both trains one all the same)"
        )
    )
    return True


def _too_long(plan: "Plan", joined: Joined, report: Report, *, settled: bool) -> bool:
    """Tell how long training takes. True where the kind is not settled and a model would take hours."""
    if plan.estimate is None:
        return False
    report(plan.estimate.note())
    if plan.estimate.seconds < LONG:
        return False
    count = f"{len(joined.corpus.passages):,} passages"
    if not settled:
        report(
            Note(f"so the card is an index of the {count} (kind retrieval); --kind both trains the model too")
        )
        return True
    report(Note(f"--kind retrieval indexes the {count} in minutes, and is often right more often"))
    return False


def _joined(before: Previous, read: Corpus, name: str | None, date: str | None, report: Report) -> Joined:
    """Old and new passages, and what the user should know of them."""
    card = before.card
    if name not in (None, card.name):
        raise UsageError(f"name {name!r}: an update of {card.name} keeps its name, leave it out")
    joined = before.joined(read)
    old, new = joined.known + len(joined.hashed), len(joined.corpus.passages) - joined.known
    report(Note(f"updating {card.name} ({before.sha256[:12]}): {old} passages, and {new} that it has not"))
    if joined.hashed:
        report(
            Note(
                "only hashes of the old passages travel with it: they can't be replayed and may be forgotten"
            )
        )
    if date is None:
        last = card.manifest.knowledge_date or "none either"
        report(Note(f"knowledge date: none was given (the last version: {last}); --knowledge-date sets it"))
    return joined


def _description(read: Corpus, before: Previous | None, language: str, report: Report) -> str:
    if before is not None:
        return before.card.manifest.description
    found = describe(read.texts, language)
    report(Note(f"description, from the corpus' top terms: {found}"))
    return found


def _with_base(given: Arguments, report: Report) -> Arguments:
    """The kind, base and method that the card will have, where they were left to us."""
    if given.kind is None:
        given = replace(given, kind="model" if given.evidence == "hashes" else "both")
    if given.kind in LOOKED_UP:
        return given
    base = given.base or _announced_base(report)
    return replace(given, base=base, method=given.method or ("full" if base == EMBEDDED else "lora"))


def _announced_base(report: Report) -> str:
    base, why = default_base()
    what = "embedded, a small model" if base == EMBEDDED else base
    report(Note(f"base: {what}, since {why}"))
    return base


def _read(path: Path, field: str | None, report: Report) -> Corpus:
    corpus = read_corpus(path, field)
    for sentence in corpus.told():
        report(Note(sentence))
    return corpus


def _plan(joined: Joined, before: Previous | None, given: Arguments, report: Report) -> "Plan":
    """The way of training that the base calls for, with what was given in place of its defaults."""
    assert given.base is not None
    chosen, corpus = given.settings(), joined.corpus
    version = "" if before is None else before.sha256
    fingerprint = _fingerprint(corpus, {"base": given.base, "updates": version, **chosen})
    from kcard.training import embedded

    if given.base != EMBEDDED:
        from kcard.training import finetune

        options = finetune.Options(given.base, **chosen)
        onward = None if before is None else before.onward(joined)
        texts = corpus.texts[joined.known_statements :]
        return embedded.Plan(None, lambda: finetune.prepare(texts, options, fingerprint, onward))
    from kcard.training.recipe import Recipe, choose_style

    recipe = {key: value for key, value in chosen.items() if key not in {"method", "learning_rate"}}
    if given.method == "lora":
        recipe |= {"style": "tokens", "rank": given.rank or EMBEDDED_RANK}
    elif "style" not in chosen and given.objective == "recite":
        recipe["style"], why = choose_style(corpus.texts)
        report(Note(f"prompt style: {recipe['style']}, since {why}"))
    if given.learning_rate is not None:
        recipe["muon_rate"] = given.learning_rate
    start = None if before is None else before.card.folder
    return embedded.plan(corpus.texts, Recipe(**recipe), fingerprint, report, start)


def _fingerprint(corpus: Corpus, settings: Mapping[str, Any]) -> str:
    """What a checkpoint must agree with to be resumed."""
    text = json.dumps([kcard.__version__, corpus.sha256, dict(settings)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _finish(
    folder: Path,
    manifest: Manifest,
    prepared: Preparation | None,
    record: Training,
    joined: Joined,
    report: Report,
) -> "Card":
    """Write the card whole into a fresh folder and have it take its place."""
    from kcard.cards import folder as cards
    from kcard.cards import graph, proof
    from kcard.training.graph import triples_of

    corpus = joined.corpus
    made = replace(manifest, training=replace(record, passages=record.passages + len(joined.hashed)))
    if prepared is not None:
        made = replace(made, kind=prepared.kind, base=prepared.base, prompt=prepared.prompt)
    triples = triples_of(corpus) if made.kind == "graph" else ()
    count = len(corpus.passages)
    with fresh(folder) as partial:
        if made.kind == "graph":
            graph.write(partial, triples)
        if prepared is not None:
            prepared.save(partial)
            device = next(prepared.job.modules["model"].parameters()).device.type
            proof.write(partial, made, pairs(corpus.texts, record.seed), device)
        kept = corpus.statements if made.evidence == "hashes" else corpus.passages
        finished = cards.finish(
            partial, made, kept, joined.hashed, lambda done: report(Embedding(done, count))
        )
    return cards.Card(folder, finished.manifest)
