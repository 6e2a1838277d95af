"""A trained card written into a folder: its model, passages, fingerprint and page, and the manifest last."""

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import kcard
from kcard.manifest import Base, Manifest, Prompt, Training
from kcard.training.fingerprint_pairs import pairs
from kcard.training.output import fresh
from kcard.training.preparation import Preparation
from kcard.training.progress import EmbeddingProgress, Report
from kcard.training.update import Joined

if TYPE_CHECKING:
    from kcard.cards.format.folder import Card

__all__ = ["without_model", "write_card"]


def write_card(
    folder: Path,
    manifest: Manifest,
    prepared: Preparation | None,
    record: Training,
    joined: Joined,
    report: Report,
) -> "Card":
    """Write the card whole into an empty folder.

    prepared  what was trained; None for a card that looks things up
    """
    from kcard.cards.format import folder as cards
    from kcard.cards.kinds import graph
    from kcard.cards.lm import fingerprinting
    from kcard.training.graph import triples_of

    corpus = joined.corpus
    made = replace(manifest, training=replace(record, passages=record.passages + len(joined.hashed)))
    if prepared is not None:
        made = replace(made, kind=prepared.kind, base=prepared.base, prompt=prepared.prompt)
    count = len(corpus.passages)
    if made.kind == "graph":
        graph.write(folder, triples_of(corpus))
    if prepared is not None:
        prepared.save(folder)
        fingerprinting.write(folder, made, pairs(corpus.sample, record.seed), prepared.device)
    kept = corpus.statements if made.evidence == "hashes" else corpus.passages
    return cards.finish(
        folder, made, kept, joined.hashed, lambda done: report(EmbeddingProgress(done, count))
    )


def without_model(card: "Card") -> "Card":
    """Put the index of a card of both in the place of the card: the same passages and embeddings, no model."""
    from kcard.cards.format import folder as cards

    was = card.manifest.training
    record = Training(
        command=was.command,
        objective="index",
        method="bm25",
        corpus_sha256=was.corpus_sha256,
        corpus_licence=was.corpus_licence,
        passages=was.passages,
        libraries={"kcard": kcard.__version__, "bm25s": version("bm25s")},
    )
    manifest = replace(
        card.manifest, kind="retrieval", index=False, base=Base(), prompt=Prompt(), training=record, files={}
    )
    with fresh(card.folder) as partial:
        made = cards.finish(partial, manifest, cards.passages(card.folder))
    return cards.Card(card.folder, made.manifest)
