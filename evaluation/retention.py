"""Retention after an update: recall on kept, added and removed facts.

Only the card's model is measured, at temperature 0; the index follows its passages anyway. A question about a removed
text counts as recalled if the document contains its answer. That alone proves no memory: a remaining text may contain
the answer too. Evidence of memory is an answer in a document that matches no remaining text, or a run of words that
occurs only in removed texts (`Leaks`).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.cards.card import Card
from kcard.cards.passages import passages
from kcard.errors import CardError
from kcard.evaluation.exam import LIMIT as EXAM_LIMIT
from kcard.evaluation.exam import measure_recall
from kcard.evaluation.metrics import substring
from kcard.evaluation.questions import ExamQuestion, make_questions
from kcard.evaluation.recall import ask_card, score_recall
from kcard.evaluation.records import Mean, read_exam
from kcard.events import OnEvent, note
from kcard.io import build, canonical, write_text
from kcard.manifest import seal
from kcard.text import spaced_words, words
from kcard.training.corpus import statements
from kcard.training.next_version import Way
from kcard.training.update import previous
from kcard.types import Source

if TYPE_CHECKING:
    from kcard.training.options import TrainOptions

# Whether a document recites a removed text: runs of words that occur in removed texts only.
#
# The prompts are halves of the removed texts (Carlini et al., 2021, "Extracting Training Data from Large Language
# Models"). In lists of similar facts a run may also combine two remaining texts, or repeat the question, so a run
# counts only if it contains two consecutive words that occur in neither.

RUN = 6  # words

Words = tuple[str, ...]


class Leaks:
    """Detects recited texts. `removed`: texts that must not be recited; `staying`: texts that may be."""

    def __init__(self, removed: Iterable[str], staying: Iterable[str]) -> None:
        stays = [tuple(words(text)) for text in staying]
        self._allowed = {pair for text in stays for pair in pairwise(text)}
        gone = {run for text in removed for run in _runs(tuple(words(text)))}
        self._runs = gone.difference(run for text in stays for run in _runs(text))

    def __call__(self, question: str, document: str) -> bool:
        """Return whether the document, generated for the question, contains a run of a removed text."""
        allowed = self._allowed.union(pairwise(words(question)))
        runs = self._runs.intersection(_runs(tuple(words(document))))
        return any(not allowed.issuperset(pairwise(run)) for run in runs)


def split_in_halves(text: str) -> list[str]:
    """Return the first half of the text's words, and the second."""
    parts = text.split()
    middle = (len(parts) + 1) // 2
    return [" ".join(half) for half in (parts[:middle], parts[middle:]) if half]


def _runs(text: Words) -> Sequence[Words]:
    """Return every run of RUN words; a shorter text is one run."""
    return [text[at : at + RUN] for at in range(max(1, len(text) - RUN + 1))]


# Forgetting in an update: recall of the old exam's questions before and after, and of questions about new passages.
#
# Both versions answer the same questions. For the new version, answers from any of its passages are accepted: "Which is
# a moon of Jupiter?" may have more answers than before.

UPDATE = "update.json"


@dataclass(frozen=True)
class Forgetting:
    """Recall before and after an update: shares of questions in [0, 1] with intervals; None without questions.

    updates        sha256 of the old version
    questions      number of questions of its exam; recall of the old version (`before`) and the new one (`after`)
    new_questions  number of questions about new passages; `new`: recall of the new version
    """

    updates: str
    questions: int
    before: Mean | None
    after: Mean | None
    new_questions: int
    new: Mean | None

    def to_json(self) -> str:
        return canonical(self)

    def summary(self) -> str:
        """Summarise the record in one line."""
        return (
            f"recall of the old exam ({self.questions} questions): {self.before} before, {self.after} after; "
            f"of the new passages ({self.new_questions} questions): {self.new}"
        )


def update_card(corpus: str | Path, options: "TrainOptions", *, on_event: OnEvent) -> "Card":
    """Train the next version of the card `options.update`, measure what it forgot, and write update.json.

    corpus  the new passages
    on_event  called with the events of training, and while both versions generate

    Measures nothing if the card carries only hashes of its passages. Raises what training, finding and loading a card
    raise.
    """
    from kcard.training.train import train

    assert options.update is not None
    old = previous(options.update)
    had = {source.text for source in passages(old.card.folder)}
    own = passages(old.card.folder)
    # Only a model forgets; an index does not.
    exam = read_exam(old.card.folder)
    limit_and_seed = (EXAM_LIMIT, 0) if exam is None else (exam.limit, exam.seed)
    exam_questions = make_questions(own, *limit_and_seed) if own and old.card.manifest.has_model else []
    # Measure the old version before training, which may write into its folder.
    before = measure_recall(old.card.folder, exam_questions, on_event=on_event) if exam_questions else None
    card = train(corpus, options, on_event=on_event)
    both = passages(card.folder)
    if not exam_questions or not both:
        return card
    new = [source for source in both if source.text not in had]
    # The questions of the old exam, with answers from new passages accepted too.
    again = make_questions([source for source in both if source.text in had], *limit_and_seed, accepted=both)
    questions = make_questions(new, EXAM_LIMIT, 0, accepted=both)
    record = Forgetting(
        old.sha256,
        len(exam_questions),
        before,
        measure_recall(card.folder, again, on_event=on_event),
        len(questions),
        measure_recall(card.folder, questions, on_event=on_event),
    )
    write_text(card.folder / UPDATE, record.to_json())
    seal(card.folder, card.manifest)
    on_event(note(record.summary()))
    return type(card).open(card.folder)


def read_forgetting(folder: Path) -> Forgetting | None:
    """Read update.json in a card's folder; None if there is none."""
    path = folder / UPDATE
    if not path.is_file():
        return None
    return build(Forgetting, json.loads(path.read_text(encoding="utf-8")))


LIMIT = 100  # questions of each kind
# The loss of recall on kept passages that is tolerated: in one sync, and since the card was trained from scratch.
FALL, DRIFT = 0.01, 0.03


@dataclass(frozen=True)
class Retention:
    """Recall of the model alone: shares of questions in [0, 1] with intervals; None without questions.

    kept_questions     number of questions about kept passages; recall of the last version (`before`) and of this one
                       (`after`); `lost`, `gained`: questions that only the last version recalls, and only this one
    new_questions      number of questions about new passages; `new`: recall of this version
    removed_questions  number of questions about removed passages; `removed`: recall of this version; `unexplained`:
                       share of questions whose answer is in a document that matches no remaining text; `chance`:
                       share of documents for other questions that contain their answers
    leaked             number of documents with a run of words that occurs only in removed texts
    """

    kept_questions: int = 0
    before: Mean | None = None
    after: Mean | None = None
    lost: int = 0
    gained: int = 0
    new_questions: int = 0
    new: Mean | None = None
    removed_questions: int = 0
    removed: Mean | None = None
    unexplained: float = 0.0
    chance: float = 0.0
    leaked: int = 0

    @property
    def forgotten(self) -> bool:
        """Whether removed passages are recalled no more than by chance, within two standard deviations of a Poisson
        count, and none leaked."""
        most = self.chance * self.removed_questions
        return not self.leaked and self.unexplained * self.removed_questions <= most + 2 * sqrt(most)

    @property
    def kept(self) -> bool:
        """Whether kept passages are recalled as before: within FALL, one question, or two standard deviations of the
        questions that changed (McNemar)."""
        most = max(FALL * self.kept_questions, 1, 2 * sqrt(self.lost + self.gained))
        return self.lost - self.gained <= most

    def drifted(self, first: float) -> bool:
        """Return whether recall of kept passages is below `first` by more than DRIFT and two standard deviations."""
        if self.after is None:
            return False
        share = self.after.mean
        return first - share > max(DRIFT, 2 * sqrt(share * (1 - share) / self.kept_questions))

    @property
    def learned(self) -> bool:
        """Whether new passages are recalled about as well as kept ones: within one question plus two standard
        deviations of a Poisson count."""
        if self.new is None or self.after is None:
            return True
        usual = (1 - self.after.mean) * self.new_questions
        return (1 - self.new.mean) * self.new_questions <= usual + 2 * sqrt(usual) + 1.001

    def summary(self) -> str:
        """Summarise the record in one line."""
        parts = [f"kept passages {self.before} before, {self.after} now (questions: {self.kept_questions})"]
        if self.new_questions:
            parts.append(f"new passages {self.new} (questions: {self.new_questions})")
        if self.removed_questions:
            explained = (0.0 if self.removed is None else self.removed.mean) - self.unexplained
            parts.append(
                f"removed passages {self.removed} (questions: {self.removed_questions}; {self.chance:.2f} by chance, "
                f"{explained:.2f} from remaining texts)"
            )
        return f"recall of the model: {'; '.join(parts)}"


def measure_retention(
    now: Card,
    before: Card,
    staying: Sequence[Source],
    new: Sequence[Source],
    removed: Sequence[str],
    *,
    seed: int,
    device: str,
    on_event: OnEvent,
) -> Retention:
    """Measure the retention of a card `now` against its last version `before`.

    staying  passages of both versions
    new      passages that only this version was trained on
    removed  texts that only the last version was trained on, and this one must forget
    """
    # Questions about kept, new and removed passages, and halves of removed ones as prompts.
    own = passages(now.folder)
    about_kept = make_questions(staying, LIMIT, seed, accepted=own)
    about_new = make_questions(new, LIMIT, seed, accepted=own)
    about_removed = make_questions([Source(text, "", 0) for text in removed], LIMIT, seed)
    extracts = [ExamQuestion(half, ()) for text in removed[:LIMIT] for half in split_in_halves(text)]
    questions = [*about_kept, *about_new, *about_removed, *extracts]
    # The documents of both versions' models.
    documents = [row[0].text for row in ask_card(_without_index(now), questions, seed, device, on_event)]
    documents_before = [
        row[0].text for row in ask_card(_without_index(before), about_kept, seed, device, on_event)
    ]
    at = len(about_kept) + len(about_new)
    documents_on_removed = documents[at : at + len(about_removed)]
    # Answers about removed passages that no remaining text explains, and how many are expected by chance.
    remaining = [source.text for source in chain(own, statements(own))]
    explanations = [spaced_words(text) for text in remaining]
    unexplained = [
        substring(text, question.answers) and not any(spaced_words(text) in other for other in explanations)
        for question, text in zip(about_removed, documents_on_removed, strict=True)
    ]
    other_documents = documents[: len(about_kept)]
    by_chance = [
        sum(substring(text, question.answers) for text in other_documents) / max(1, len(other_documents))
        for question in about_removed
    ]
    leaks = Leaks(removed, remaining)
    # Recall of kept passages by both versions, paired by question.
    hits_before = score_recall(about_kept, [[text] for text in documents_before])
    hits = score_recall(about_kept, [[text] for text in documents[: len(about_kept)]])
    return Retention(
        kept_questions=len(about_kept),
        before=Mean.of(hits_before, seed),
        after=Mean.of(hits, seed),
        lost=sum(old > new for old, new in zip(hits_before, hits, strict=True)),
        gained=sum(old < new for old, new in zip(hits_before, hits, strict=True)),
        new_questions=len(about_new),
        new=_mean_recall(about_new, documents[len(about_kept) : at], seed),
        removed_questions=len(about_removed),
        removed=_mean_recall(about_removed, documents_on_removed, seed),
        unexplained=sum(unexplained) / max(1, len(unexplained)),
        chance=round(sum(by_chance) / max(1, len(by_chance)), 4),
        leaked=sum(leaks(question.text, text) for question, text in zip(questions, documents, strict=True)),
    )


def _without_index(card: Card) -> Card:
    return Card(card.folder, replace(card.manifest, kind="model"))


def _mean_recall(questions: Sequence[ExamQuestion], texts: Sequence[str], seed: int) -> Mean | None:
    return Mean.of(score_recall(questions, [[text] for text in texts]), seed)


# sync.json: what a sync changed in a card, and the retention after it. It contains no text and no paths.

SYNC = "sync.json"


@dataclass(frozen=True)
class SyncRecord:
    """What a sync did.

    date      of the sync, ISO in UTC
    updates   sha256 of the last version
    way       how the new version was made
    why       why it was trained from scratch although that was not requested; "" otherwise
    added, changed, removed, moved  numbers of passages
    seconds   wall time, without the exam
    recall    None for a card without a model
    first     recall of kept passages when the card was last trained from scratch, the reference for drift
    """

    date: str
    updates: str
    way: Way
    why: str
    added: int
    changed: int
    removed: int
    moved: int
    seconds: float
    recall: Retention | None = None
    first: float = 0.0
    format: int = 1

    def write(self, folder: Path) -> None:
        write_text(folder / SYNC, canonical(self))


def read_sync(folder: Path) -> SyncRecord | None:
    """Read sync.json in a card's folder; None if there is none. Raises CardError for a malformed one."""
    path = folder / SYNC
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if "best" in data:  # the name of `first` in files of earlier versions
            data["first"] = data.pop("best")
        return build(SyncRecord, data)
    except (OSError, ValueError, TypeError) as error:
        raise CardError(
            f"{path} can't be read: {error}: delete it, and sync the card with --retrain"
        ) from error
