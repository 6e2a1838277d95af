"""The card that an exam or audit examines: a draft, a card in a folder, or a published (immutable) version."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.cards.card import README, Card
from kcard.cards.passages import hashes, passages
from kcard.cards.profile import ROUTING
from kcard.config import settings
from kcard.errors import CorpusError, HubError, UnknownCard, UsageError
from kcard.evaluation.records import EXAM, Exam
from kcard.io import write_text
from kcard.manifest import Manifest, check_files, file_digest, seal
from kcard.text import passage_digest
from kcard.types import Source

if TYPE_CHECKING:
    from kcard.hub.registry import Hub
    from kcard.interfaces import Evidence

# The files that an exam writes. They may be damaged if an exam was interrupted, so a new exam does not verify them.
WRITTEN_FILES = (EXAM, README, ROUTING)


@dataclass(frozen=True)
class Target:
    """A card, the text of its corpus (empty if it is not available), and its reference if it is published."""

    card: Card
    corpus: Sequence[Source]
    reference: str | None = None

    @property
    def digests(self) -> Iterator[str]:
        """Digests of the corpus' passages (kcard.text.passage_digest), available even without their text."""
        if self.corpus:
            for source in self.corpus:
                yield passage_digest(source.text)
        else:
            yield from hashes(self.card.folder)

    @property
    def shares_text(self) -> bool:
        """Whether the card carries its corpus' text, so that an exam may quote it."""
        return self.card.manifest.evidence == "passages"

    @property
    def own_evidence(self) -> "Evidence":
        """The card's own corpus as evidence, searched by the card's index if it has one."""
        from kcard.cards.passages import load_index
        from kcard.selectors.evidence import CorpusEvidence, Statements

        own_index = None
        if self.shares_text:
            own_index = load_index(self.card)
        corpus = CorpusEvidence(self.corpus, self.card.name, own_index)
        if self.card.manifest.kind == "graph":
            return Statements(corpus)
        return corpus

    def keep(self, exam: Exam, answered: Sequence[str] = ()) -> None:
        """Write the exam into the folder, its results into README.md, and the `answered` questions into the card's
        profile, and seal the folder again.

        A Ctrl-C while files are written takes effect after the last one.
        """
        from kcard.cards.model_card import readme
        from kcard.cards.profile import write_profile
        from kcard.evaluation.records import with_results
        from kcard.training.run import Interrupt

        # README.md as it was sealed; if it is missing, or damaged by an interrupted exam, a new one.
        manifest, path = self.card.manifest, self.card.folder / README
        page = readme(manifest)
        if path.is_file() and file_digest(path) == manifest.files.get(README):
            page = path.read_text(encoding="utf-8")
        page = with_results(page, exam)
        with Interrupt() as interrupt:
            write_text(self.card.folder / EXAM, exam.to_json())
            write_text(self.card.folder / README, page)
            write_profile(self.card.folder, self.card.manifest, answered)
            seal(self.card.folder, self.card.manifest)
        if interrupt.is_requested:
            raise KeyboardInterrupt


def find_target(card: Path | str, corpus: Path | str | None = None, field: str | None = None) -> Target:
    """Find a card by the name of a draft, a folder or a reference (name, name@v2, namespace/name), in this order.

    corpus  the text that the card was made from, if it carries only hashes; every hashed passage must be in it
    field   the field or column of the corpus that holds the text, as in training

    Raises CardError, UnknownCard, DamagedCard, UsageError and, for a different corpus, CorpusError.
    """
    folder, reference = _find_folder(card)
    # Verify the card, except for the files that an exam writes.
    manifest = Manifest.read(folder)
    sealed = {path: digest for path, digest in manifest.files.items() if path not in WRITTEN_FILES}
    check_files(folder, replace(manifest, files=sealed))
    whole = Card(folder, manifest)
    if corpus is None:
        return Target(whole, passages(folder), reference)
    digests = hashes(folder)
    if not digests:
        raise UsageError(
            f"--corpus applies only to cards that carry hashes of their passages; {whole.name} has none: leave it out"
        )
    from kcard.training.corpus import read_corpus

    # The card's passages, found in the corpus by their digests; the rest of the corpus is ignored.
    texts = read_corpus(corpus, field)
    sources = {}
    for source in chain(texts.passages, texts.statements):
        digest = passage_digest(source.text)
        if digest in digests:
            sources[digest] = source
    missing = [place for digest, place in digests.items() if digest not in sources]
    if missing:
        raise CorpusError(
            f"{corpus} is not the corpus of {whole.name}: {len(missing)} of its {len(digests)} passages are missing, "
            f"such as {missing[0].file}, line {missing[0].line}: pass the corpus that it was trained on"
        )
    return Target(whole, list(sources.values()), reference)


def find_published_target(card: Path | str, hub: "Hub | None" = None) -> Target:
    """Find a published card by its reference; if there is none, what `find_target` finds.

    `hub`: None is the local hub. Raises what `find_target` raises.
    """
    from kcard.hub.registry import Hub
    from kcard.hub.selection import is_hub_name

    if not is_hub_name(card):
        return find_target(card)
    if hub is None:
        hub = Hub()
    try:
        version = hub.get(str(card))
    except UnknownCard:
        return find_target(card)
    folder = hub.folder(version.reference)
    return Target(Card(folder, version.manifest), passages(folder), version.reference)


def _find_folder(card: Path | str) -> tuple[Path, str | None]:
    from kcard.hub.registry import Hub
    from kcard.hub.selection import find_card_folder, is_hub_name

    name = str(card)
    try:
        folder = find_card_folder(settings().drafts, card)
        if folder.is_dir() or not is_hub_name(card):
            return folder, None
        none = f"there is no folder {folder} either"
    except HubError as error:
        none = str(error)
    hub = Hub()
    try:
        reference = hub.get(name).reference
    except UnknownCard as error:
        raise UnknownCard(f"{error} ({none})") from error
    return hub.folder(reference), reference
