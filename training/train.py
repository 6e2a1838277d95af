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
from kcard.training.progress import Note, Report, silent
from kcard.training.record import remedy, trained, unmodelled
from kcard.training.threads import one_thread
from kcard.training.update import Joined, Previous, previous

if TYPE_CHECKING:
    from kcard.cards.folder import Card

__all__ = ["train"]

SEARCHES = "whatever a search finds for the question"


def train(
    corpus: str | Path,
    *,
    kind: Literal["model", "retrieval", "both", "graph", "search"] = "model",
    name: str | None = None,
    description: str | None = None,
    base: str | None = None,
    method: Literal["full", "lora"] | None = None,
    objective: Literal["recite", "clm"] = "recite",
    domain: str = "general",
    licence: str = "unknown",
    language: str = "en",
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

    corpus          a file or folder of text, tables, triples or documents (.txt, .md, .jsonl, .csv, .tsv,
                    .parquet, .pdf, .html, .docx), or a data set: hf:owner/name[:split]
    kind            model: a model that learns the corpus; retrieval: an index of it, ready in seconds;
                    both: the two side by side, of which the selectors choose; graph: a corpus of triples, walked
                    from what a question names; search: what --corpus names is searched, such as wikipedia:de, and
                    questions leave the machine
    name            the card's name (default: the corpus' file or folder name)
    description     one line on what it knows (default: the corpus' top terms)
    base            the model to start from: "embedded" (a small one, from scratch or, with method lora, the one in
                    the package), a hub id or a folder
                    (default: facebook/opt-1.3b where a GPU and the hub are at hand, else embedded)
    method          full: all weights; lora: a small adapter (default: lora, with embedded full)
    objective       recite: question -> passage; clm: plain causal language modelling
    domain          where it belongs, such as biomedical/oncology
    licence         the corpus' licence, which the card inherits
    language        the corpus' language code
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
            "search", description or SEARCHES, domain, "search", language, licence, knowledge_date
        )
        return search.make(corpus, name, wanted, output)
    read = _read(Path(corpus), field, report)
    joined = Joined(read, 0) if before is None else _joined(before, read, name, knowledge_date, report)
    name = name or (name_from(read.path) if before is None else before.card.name)
    if description is None:
        description = _description(read, before, report)
    folder = Path(output).expanduser().absolute() if output else settings().drafts / name
    claim(folder, name)
    unmade = given.kind if given.kind in LOOKED_UP else "retrieval"
    manifest = Manifest(name, description, domain, unmade, language, licence, knowledge_date)
    manifest = replace(manifest, evidence=given.evidence, index=given.kind == "both")
    manifest = manifest if before is None else before.manifest(manifest)
    if given.kind in LOOKED_UP:
        return _finish(folder, manifest, None, unmodelled(joined.corpus, manifest.licence), joined)
    with one_thread() if given.base == EMBEDDED else nullcontext():
        prepared = _prepared(joined, before, given, report)
        outcome = run(prepared.job, folder / CHECKPOINT, resume=resume, report=report, remedy=remedy())
    record = trained(joined.corpus, given, prepared, outcome, manifest.licence)
    return _finish(folder, manifest, prepared, record, joined)


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


def _description(read: Corpus, before: Previous | None, report: Report) -> str:
    if before is not None:
        return before.card.manifest.description
    found = describe(read.texts)
    report(Note(f"description, from the corpus' top terms: {found}"))
    return found


def _with_base(given: Arguments, report: Report) -> Arguments:
    """The base and method that a card with a model will have, where they were left to us."""
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


def _prepared(joined: Joined, before: Previous | None, given: Arguments, report: Report) -> Preparation:
    """The way of training that the base calls for, with what was given in place of its defaults."""
    assert given.base is not None
    chosen, corpus = given.settings(), joined.corpus
    version = "" if before is None else before.sha256
    fingerprint = _fingerprint(corpus, {"base": given.base, "updates": version, **chosen})
    if given.base != EMBEDDED:
        from kcard.training import finetune

        options = finetune.Options(given.base, **chosen)
        onward = None if before is None else before.onward(joined)
        return finetune.prepare(corpus.texts[joined.known :], options, fingerprint, onward)
    from kcard.training import embedded
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
    return embedded.prepare(corpus.texts, Recipe(**recipe), fingerprint, report, start)


def _fingerprint(corpus: Corpus, settings: Mapping[str, Any]) -> str:
    """What a checkpoint must agree with to be resumed."""
    text = json.dumps([kcard.__version__, corpus.sha256, dict(settings)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _finish(
    folder: Path, manifest: Manifest, prepared: Preparation | None, record: Training, joined: Joined
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
    with fresh(folder) as partial:
        if made.kind == "graph":
            graph.write(partial, triples)
        if prepared is not None:
            prepared.save(partial)
            device = next(prepared.job.modules["model"].parameters()).device.type
            proof.write(partial, made, pairs(corpus.texts, record.seed), device)
        finished = cards.finish(partial, made, corpus.passages, joined.hashed)
    return cards.Card(folder, finished.manifest)
