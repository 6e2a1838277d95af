"""Make the next version of a card from the changes of its corpus.

A card without a model is indexed again. An embedded one is updated incrementally
(kcard.offline.incremental_update); one made from another base learns the new passages with as many old ones
(kcard.training.update) and unlearns the removed ones (kcard.training.unlearning). Where that is not possible, it is
trained from scratch.
"""

import dataclasses
import itertools
import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kcard.cards.models.loader import base_digest
from kcard.errors import TrainingInterrupted
from kcard.events import OnEvent, note
from kcard.manifest import LOOKED_UP, Manifest
from kcard.offline.docids import DocIds
from kcard.offline.incremental_update import Revision, incremental_update, obstacle, too_many_changes
from kcard.offline.recipe import Recipe
from kcard.training.base_model import RemovedText
from kcard.training.corpus import continuations, statements
from kcard.training.execution import one_thread
from kcard.training.loop import Preparation, TrainingRun
from kcard.training.options import EMBEDDED_BASE, TrainOptions
from kcard.training.output import CHECKPOINT, index_record, training_record, write_card
from kcard.training.study import StudyQueries
from kcard.training.train import prepare_model, read_study_of
from kcard.training.update import Changes, CorpusUpdate, Previous
from kcard.types import derive_seed

if TYPE_CHECKING:
    from kcard.cards.card import Card

Way = Literal["indexed", "continued", "trained"]
BEFORE = 16_000  # characters before a removed statement that are kept, more than a block of tokens has


@dataclass(frozen=True)
class NextVersion:
    """What the next version is made from.

    options  how it is trained: as the last version was (Previous.arguments)
    """

    before: Previous
    changes: Changes
    options: TrainOptions
    manifest: Manifest
    on_event: OnEvent

    @classmethod
    def of(
        cls, before: Previous, changes: Changes, options: TrainOptions, on_event: OnEvent
    ) -> "NextVersion":
        last = before.card.manifest
        manifest = replace(last, updates=before.sha256, knowledge_date=options.knowledge_date, files={})
        return cls(before, changes, replace(options, seed=last.training.seed), manifest, on_event)

    @cached_property
    def revision(self) -> Revision:
        """The corpus' statements and those of the last version."""
        recipe, corpus = recipe_of(self.before.card.manifest), self.changes.corpus
        old, now = [*statements(self.before.passages)], [*corpus.texts]
        follows = recipe.recited > 1 and DocIds.for_passages(now, 0, recipe).count
        orders = (corpus.continuations, continuations(old)) if follows else ((), ())
        return Revision(now, [statement.text for statement in old], *orders)

    def forecast(self, *, scratch: bool) -> tuple[Way, str]:
        """Predict how `write` will make the card, and why from scratch, as far as that is known in advance."""
        if self.manifest.kind in LOOKED_UP:
            return "indexed", ""
        why = "" if scratch else self._obstacle()
        return ("trained" if scratch or why else "continued"), why

    def write(self, folder: Path, *, scratch: bool = False) -> "tuple[Card, Way, str]":
        """Write the card into an empty folder; return (card, how it was made, why from scratch although `scratch` was
        not set).

        scratch  train it from scratch in any case
        """
        corpus = self.changes.corpus
        if self.manifest.kind in LOOKED_UP:
            record, update = index_record(corpus, self.manifest.licence), CorpusUpdate(corpus, 0)
            return write_card(folder, self.manifest, None, record, update, self.on_event), "indexed", ""
        with one_thread(self.options.base == EMBEDDED_BASE):
            continuation = "" if scratch else self._continue(folder)
            if isinstance(continuation, Preparation):
                return self._train(folder, continuation), "continued", ""
            if continuation:
                self.on_event(note(f"training from scratch: {continuation}"))
            update = CorpusUpdate(corpus, 0, documents=corpus.documents)
            return self._train(folder, self._prepare(folder, update, None)), "trained", continuation

    def _obstacle(self) -> str:
        """Return why the last version's weights can't be trained further; "" if no reason is known."""
        if self.before.is_embedded:
            return obstacle(self.revision, recipe_of(self.before.card.manifest))
        if not self.revision.removed:
            return ""
        base = self.before.card.manifest.base
        if not base.name:
            return "removed passages are unlearned by its base, which it does not name"
        if base.sha256 is not None and base_digest(base.name, base.revision) not in (None, base.sha256):
            return f"removed passages are unlearned by its base, and {base.name} has changed since"
        return too_many_changes(self.revision)

    def _continue(self, folder: Path) -> Preparation[TrainingRun] | str:
        """Prepare training from the last version's weights, or return why that can't be done."""
        if why_not := self._obstacle():
            return why_not
        if self.before.is_embedded:
            recipe, last = recipe_of(self.before.card.manifest), self.before.card.folder
            seed = derive_seed(self.options.seed, "sync", self.before.sha256)
            new = replace(self.changes.corpus, passages=self.changes.learned)
            studied = (
                read_study_of(self.options, CorpusUpdate(new, 0), self.on_event)[0]
                if new.passages
                else StudyQueries()
            )
            return incremental_update(self.revision, last, recipe, seed, studied.queries)
        old, corpus = set(self.revision.before), self.changes.corpus
        learned = {source.text for source in self.changes.learned}
        parts = [[p for p in corpus.passages if (p.text in learned) == new] for new in (False, True)]
        documents = None
        if corpus.documents is not None:
            documents = corpus.documents.select(lambda p: any(s.text not in old for s in statements([p])))
        update = CorpusUpdate(
            replace(corpus, passages=[*parts[0], *parts[1]]),
            len(parts[0]),
            documents=documents,
            removed=self._removed_texts(),
        )
        return self._prepare(folder, update, self.before)

    def _removed_texts(self) -> list[RemovedText]:
        """Return the removed statements, each with what was before it in its document."""
        removed, texts = set(self.revision.removed), list[RemovedText]()
        for _, document in itertools.groupby(statements(self.before.passages), key=lambda each: each.file):
            before, last = "", None
            for statement in document:
                if last is not None:
                    before += "\n" if statement.line > last.line else " "
                if statement.text in removed:
                    texts.append(RemovedText(statement.text, before))
                before, last = (before + statement.text)[-BEFORE:], statement
        return texts

    def _prepare(
        self, folder: Path, update: CorpusUpdate, before: Previous | None
    ) -> Preparation[TrainingRun]:
        """Prepare training as kcard.training.train does, without a limit on its minutes."""
        prepared = prepare_model(
            update, before, self.options, self.manifest.name, folder / CHECKPOINT, self.on_event
        )
        assert prepared is not None
        return prepared

    def _train(self, folder: Path, prepared: Preparation[TrainingRun]) -> "Card":
        """Train the model and write the card."""
        corpus, checkpoint = self.changes.corpus, folder / CHECKPOINT
        try:
            outcome = prepared.job.run(checkpoint, on_event=self.on_event)
        except TrainingInterrupted:
            raise TrainingInterrupted(
                f"the sync of {self.manifest.name} was stopped; the card is as it was: sync it again"
            ) from None
        shutil.rmtree(checkpoint, ignore_errors=True)
        record = training_record(corpus, self.options, prepared, outcome, self.manifest.licence)
        manifest = replace(self.manifest, kind=self.options.kind or "model")
        return write_card(folder, manifest, prepared, record, CorpusUpdate(corpus, 0), self.on_event)


def recipe_of(manifest: Manifest) -> Recipe:
    """Return the recipe with which an embedded card was trained."""
    recorded: dict[str, Any] = dict(manifest.training.hyperparameters)
    recorded["docids"] = recorded.get("addresses", Recipe().docids)
    recorded.setdefault("recited", 1)
    for name in ("queries", "dropped"):
        recorded[name] = tuple(recorded.get(name, getattr(Recipe(), name)))
    names = {field.name for field in dataclasses.fields(Recipe)}
    return Recipe(**{name: value for name, value in recorded.items() if name in names})
