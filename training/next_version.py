"""The next version of a card by what has changed in its corpus, written into a folder.

A card without a model is indexed again. An embedded one rehearses (kcard.offline.incremental), and one made from
another base learns what has come with as many old passages (kcard.training.update); what these can't do, training
from scratch does.
"""

import dataclasses
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kcard.errors import TrainingInterrupted
from kcard.manifest import LOOKED_UP, Manifest, Training
from kcard.offline.docids import DocIds
from kcard.offline.incremental import Revision, obstacle, rehearsal
from kcard.offline.recipe import Recipe
from kcard.training.corpus import continuations, statements
from kcard.training.execution import Execution, Processes, one_thread
from kcard.training.loop import Preparation, run
from kcard.training.options import EMBEDDED_BASE, TrainOptions
from kcard.training.output import CHECKPOINT, index_record, training_record, write_card
from kcard.training.progress import Note
from kcard.training.study import StudyQueries
from kcard.training.train import make_plan, read_study_of
from kcard.training.update import Changes, CorpusUpdate, Previous
from kcard.training.workers import processes_of
from kcard.types import derive_seed

if TYPE_CHECKING:
    from kcard.cards.card import Card

__all__ = ["Onward", "Way", "recipe_of"]

Way = Literal["indexed", "continued", "trained"]


@dataclass(frozen=True)
class Onward:
    """What the next version is made from.

    options  how it is trained: as the last one was (Previous.arguments)
    """

    before: Previous
    changes: Changes
    given: TrainOptions
    manifest: Manifest
    report: Callable[[Any], None]

    @classmethod
    def of(
        cls, before: Previous, changes: Changes, options: TrainOptions, report: Callable[[Any], None]
    ) -> "Onward":
        old = before.card.manifest
        manifest = replace(old, updates=before.sha256, knowledge_date=options.knowledge_date, files={})
        return cls(before, changes, replace(options, seed=old.training.seed), manifest, report)

    @cached_property
    def revision(self) -> Revision:
        """The corpus' statements and those of the last version."""
        recipe, corpus = recipe_of(self.before.card.manifest), self.changes.corpus
        had, now = [*statements(self.before.passages)], [*corpus.texts]
        follows = recipe.recited > 1 and DocIds.for_passages(now, 0, recipe).count
        ways = (corpus.continuations, continuations(had)) if follows else ((), ())
        return Revision(now, [statement.text for statement in had], *ways)

    def foreseen(self, *, scratch: bool) -> tuple[Way, str]:
        """How `write` will make the card and why from scratch, as far as that shows before it begins."""
        if self.manifest.kind in LOOKED_UP:
            return "indexed", ""
        why = "" if scratch else self._obstacle()
        return ("trained" if scratch or why else "continued"), why

    def write(self, folder: Path, *, scratch: bool = False) -> "tuple[Card, Way, str]":
        """Write the card into an empty folder: (card, how it was made, why from scratch where that was not wanted).

        scratch  train it from scratch in any case
        """
        corpus = self.changes.corpus
        if self.manifest.kind in LOOKED_UP:
            record = index_record(corpus, self.manifest.licence)
            return self._written(folder, self.manifest, None, record), "indexed", ""
        alone = self.given.base == EMBEDDED_BASE
        execution = Execution() if alone else self.given.execution
        with one_thread() if alone else nullcontext(), processes_of(execution) as processes:
            going_on = "" if scratch else self._going_on(folder, processes)
            if isinstance(going_on, Preparation):
                return self._trained(folder, going_on), "continued", ""
            if going_on:
                self.report(Note(f"training from scratch: {going_on}"))
            joined = CorpusUpdate(corpus, 0, documents=corpus.documents)
            return self._trained(folder, self._planned(folder, joined, None, processes)), "trained", going_on

    def _obstacle(self) -> str:
        """Why the last version's weights can't be taken to the next ones; empty where nothing shows."""
        if self.before.embedded:
            return obstacle(self.revision, self.before.card.folder, recipe_of(self.before.card.manifest))
        if self.revision.removed:
            return "only an embedded card can take back a part of what it learned"
        return ""

    def _going_on(self, folder: Path, processes: Processes | None) -> Preparation | str:
        """What takes the last version's weights to the next ones; or why that can't be done."""
        if why_not := self._obstacle():
            return why_not
        if self.before.embedded:
            recipe, last = recipe_of(self.before.card.manifest), self.before.card.folder
            seed = derive_seed(self.given.seed, "sync", self.before.sha256)
            new = replace(self.changes.corpus, passages=self.changes.learned)
            studied = (
                read_study_of(self.given, CorpusUpdate(new, 0), self.report)[0]
                if new.passages
                else StudyQueries()
            )
            return rehearsal(self.revision, last, recipe, seed, studied.queries)
        had, corpus = set(self.revision.before), self.changes.corpus
        learned = {source.text for source in self.changes.learned}
        parts = [[p for p in corpus.passages if (p.text in learned) == new] for new in (False, True)]
        documents = None
        if corpus.documents is not None:
            documents = corpus.documents.of(lambda p: any(s.text not in had for s in statements([p])))
        joined = CorpusUpdate(
            replace(corpus, passages=[*parts[0], *parts[1]]), len(parts[0]), documents=documents
        )
        return self._planned(folder, joined, self.before, processes)

    def _planned(
        self, folder: Path, joined: CorpusUpdate, before: Previous | None, processes: Processes | None
    ) -> Preparation:
        """As kcard.training.train does it."""
        studied, distillation = read_study_of(self.given, joined, self.report)
        if distillation is not None:
            distillation = replace(distillation, folder=folder / CHECKPOINT)
        plan = make_plan(joined, before, self.given, self.report, processes, studied, distillation)
        if plan.estimate is not None:
            self.report(plan.estimate.note())
        prepared = plan.prepare()
        return replace(prepared, hyperparameters={**prepared.hyperparameters, **studied.record})

    def _trained(self, folder: Path, prepared: Preparation) -> "Card":
        corpus, checkpoint = self.changes.corpus, folder / CHECKPOINT
        try:
            outcome = run(prepared.job, checkpoint, report=self.report)
        except TrainingInterrupted:
            raise TrainingInterrupted(
                f"the sync of {self.manifest.name} was stopped; the card is as it was: sync it again"
            ) from None
        shutil.rmtree(checkpoint, ignore_errors=True)
        record = training_record(corpus, self.given, prepared, outcome, self.manifest.licence)
        manifest = replace(self.manifest, index=self.given.kind == "both")
        return self._written(folder, manifest, prepared, record)

    def _written(
        self, folder: Path, manifest: Manifest, prepared: Preparation | None, record: Training
    ) -> "Card":
        return write_card(
            folder, manifest, prepared, record, CorpusUpdate(self.changes.corpus, 0), self.report
        )


def recipe_of(manifest: Manifest) -> Recipe:
    """By which an embedded card was trained."""
    recorded: dict[str, Any] = dict(manifest.training.hyperparameters)
    recorded["docids"] = recorded.get("addresses", Recipe().docids)
    recorded.setdefault("recited", 1)
    for name in ("queries", "dropped"):
        recorded[name] = tuple(recorded.get(name, getattr(Recipe(), name)))
    names = {field.name for field in dataclasses.fields(Recipe)}
    return Recipe(**{name: value for name, value in recorded.items() if name in names})
