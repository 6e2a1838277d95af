"""A trained card written into a folder: its model, passages, fingerprint and page, and the manifest last."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.manifest import Manifest, Training
from kcard.training.fingerprint_pairs import pairs
from kcard.training.preparation import Preparation
from kcard.training.progress import EmbeddingProgress, Report
from kcard.training.update import Joined

if TYPE_CHECKING:
    from kcard.cards.format.folder import Card

__all__ = ["write_card"]


def write_card(
    folder: Path,
    manifest: Manifest,
    prepared: Preparation | None,
    record: Training,
    joined: Joined,
    report: Report,
    last: Path | None = None,
) -> "Card":
    """Write the card whole into an empty folder.

    prepared  what was trained; None for a card that looks things up
    last      folder of the card's last version
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
        folder, made, kept, joined.hashed, lambda done: report(EmbeddingProgress(done, count)), last
    )
