"""Retention after an update: recall on kept, added and removed facts.

Only the card's model is asked, greedily: what its index finds is what its passages say. A question about a removed text
counts as recalled where the document holds its answer; the document may still be a text that stays, which a card that
never learned the removed one might give as well. What counts against it is an answer in any other document, and a run
of words that only removed texts have (`Leaks`).
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.card import Card
from kcard.cards.passages import passages
from kcard.errors import CardError
from kcard.evaluation.exam import LIMIT as EXAM_LIMIT
from kcard.evaluation.exam import recall
from kcard.evaluation.metrics import substring
from kcard.evaluation.questions import ExamQuestion, make_questions
from kcard.evaluation.recall import Report, ask, score_recall
from kcard.evaluation.records import Mean, read_exam
from kcard.io import build, canonical, write_text
from kcard.manifest import seal
from kcard.text import words
from kcard.training.corpus import statements
from kcard.training.next_version import Way
from kcard.training.progress import Note
from kcard.training.update import previous
from kcard.types import Source

if TYPE_CHECKING:
    from kcard.training.options import TrainOptions

__all__ = [
    "SYNC",
    "UPDATE",
    "Forgetting",
    "Leaks",
    "Retention",
    "SyncRecord",
    "halves",
    "measure_retention",
    "read_forgetting",
    "read_sync",
    "update",
]


# Whether a document recites a text that it should not know: runs of words that only such texts have.
#
# To make a card recite one, it is asked with one half of it (Carlini et al., 2021, "Extracting Training Data from Large
# Language Models"). In lists of like facts a run may also come from two texts that stay, or from the question, so a run
# counts only if it has two words in a row that none of these has.

RUN = 6  # words

Words = tuple[str, ...]


class Leaks:
    """`removed`: texts that are not to be recited; `staying`: those that may be."""

    def __init__(self, removed: Iterable[str], staying: Iterable[str]) -> None:
        stays = [tuple(words(text)) for text in staying]
        self._allowed = {pair for text in stays for pair in pairwise(text)}
        gone = {run for text in removed for run in _runs(tuple(words(text)))}
        self._runs = gone.difference(run for text in stays for run in _runs(text))

    def __call__(self, question: str, document: str) -> bool:
        """Return whether the document, written for the question, has such a run."""
        allowed = self._allowed.union(pairwise(words(question)))
        runs = self._runs.intersection(_runs(tuple(words(document))))
        return any(not allowed.issuperset(pairwise(run)) for run in runs)


def halves(text: str) -> list[str]:
    """Return the first half of the text's words, and the second."""
    read = text.split()
    middle = (len(read) + 1) // 2
    return [" ".join(half) for half in (read[:middle], read[middle:]) if half]


def _runs(read: Words) -> Sequence[Words]:
    """Return every run of RUN words; a shorter text is one run."""
    return [read[at : at + RUN] for at in range(max(1, len(read) - RUN + 1))]


# What an update cost and what it brought: recall of the old exam before and after, and of the new passages.
#
# The same questions are asked of both versions. Of the next one an answer is accepted that any of its passages
# makes right, new ones too: "which is a moon of Jupiter?" may have more answers than it had.

UPDATE = "update.json"


@dataclass(frozen=True)
class Forgetting:
    """Recall around an update: shares of questions in [0, 1] with their intervals, None of no questions.

    updates        sha256 of the version that was trained on from
    questions      how many its exam has; recall of them `before` by that version and `after` by the next
    new_questions  how many were asked about passages that it has not; recall of them by the next version
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


def update(corpus: str | Path, options: "TrainOptions", *, report: Callable[[Any], None]) -> "Card":
    """Train the next version of the card `options.update`, measure what it forgot, and write that to update.json.

    corpus  the new passages
    report  called with the events of training, and with Progress while both versions are asked

    Nothing is measured where only hashes of the passages travel: there is nothing to ask about. Raises what training,
    finding and loading a card raise.
    """
    from kcard.training.train import train

    assert options.update is not None
    old = previous(options.update)
    had = {source.text for source in passages(old.card.folder)}
    own = passages(old.card.folder)
    # What is looked up is not forgotten.
    taken = read_exam(old.card.folder)
    drawn = (EXAM_LIMIT, 0) if taken is None else (taken.limit, taken.seed)
    exam_questions = make_questions(own, *drawn) if own and old.card.manifest.has_model else []
    # The next version may take the folder of this one, so this one is asked first.
    before = recall(old.card.folder, exam_questions, report=report) if exam_questions else None
    card = train(corpus, options, report=report)
    both = passages(card.folder)
    if not exam_questions or not both:
        return card
    new = [source for source in both if source.text not in had]
    again = make_questions([source for source in both if source.text in had], *drawn, accepted=both)
    questions = make_questions(new, EXAM_LIMIT, 0, accepted=both)
    record = Forgetting(
        old.sha256,
        len(exam_questions),
        before,
        recall(card.folder, again, report=report),
        len(questions),
        recall(card.folder, questions, report=report),
    )
    write_text(card.folder / UPDATE, record.to_json())
    seal(card.folder, card.manifest)
    report(Note(record.summary()))
    return type(card).open(card.folder)


def read_forgetting(folder: Path) -> Forgetting | None:
    """Read update.json in a card's folder; None where there is none."""
    path = folder / UPDATE
    if not path.is_file():
        return None
    return build(Forgetting, json.loads(path.read_text(encoding="utf-8")))


LIMIT = 100  # questions of each kind
FALL, DRIFT = 0.01, 0.03  # of the recall of what stays: in one sync, and since training from scratch


@dataclass(frozen=True)
class Retention:
    """Recall by the model alone: shares of questions in [0, 1] with their intervals, None of no questions.

    kept     about passages that stayed, `before` by the last version and `after` by this one; `lost` and `gained`: the
             questions that only the last one recalls, and only this one
    new      about what has come
    removed  about what was removed; `unexplained`: the share of them that no text that stays explains; `chance`: the
             share that would hold their answers of documents about other questions
    leaked   documents with a run of words that only removed texts have
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
        """Whether what was removed is recalled no more than by chance (two standard deviations of a Poisson count)."""
        most = self.chance * self.removed_questions
        return not self.leaked and self.unexplained * self.removed_questions <= most + 2 * sqrt(most)

    @property
    def kept(self) -> bool:
        """Whether what stayed is recalled as by the last version: by FALL less, by one question, or within two standard
        deviations of what differs (McNemar)."""
        most = max(FALL * self.kept_questions, 1, 2 * sqrt(self.lost + self.gained))
        return self.lost - self.gained <= most

    def drifted(self, first: float) -> bool:
        """Return whether what stayed is recalled by more than DRIFT, and two standard deviations, less than `first`."""
        if self.after is None:
            return False
        share = self.after.mean
        return first - share > max(DRIFT, 2 * sqrt(share * (1 - share) / self.kept_questions))

    @property
    def learned(self) -> bool:
        """Whether what has come is recalled about as well as what stays: one question less, and two standard deviations
        of a Poisson count."""
        if self.new is None or self.after is None:
            return True
        usual = (1 - self.after.mean) * self.new_questions
        return (1 - self.new.mean) * self.new_questions <= usual + 2 * sqrt(usual) + 1.001

    def summary(self) -> str:
        """Summarise the record in one line."""
        parts = [
            f"of {self.kept_questions} questions about what stayed {self.before} before, {self.after} now"
        ]
        if self.new_questions:
            parts.append(f"of {self.new_questions} about what has come {self.new}")
        if self.removed_questions:
            explained = (0.0 if self.removed is None else self.removed.mean) - self.unexplained
            figures = f"{self.removed} (by chance {self.chance:.2f}, by what stays {explained:.2f})"
            parts.append(f"of {self.removed_questions} about what was removed {figures}")
        return f"recall by the model: {'; '.join(parts)}"


def measure_retention(
    now: Card,
    before: Card,
    staying: Sequence[Source],
    new: Sequence[Source],
    removed: Sequence[str],
    *,
    seed: int,
    device: str,
    report: Report,
) -> Retention:
    """Ask both versions.

    staying  passages that both have
    new      what this version has learned, and the last one had not
    removed  texts that the last version had learned, and this one is to forget
    """
    has = passages(now.folder)
    stayed = make_questions(staying, LIMIT, seed, accepted=has)
    come = make_questions(new, LIMIT, seed, accepted=has)
    gone = make_questions([Source(text, "", 0) for text in removed], LIMIT, seed)
    extracts = [ExamQuestion(half, ()) for text in removed[:LIMIT] for half in halves(text)]
    questions = [*stayed, *come, *gone, *extracts]
    written = [row[0].text for row in ask(_without_index(now), questions, seed, device, report)]
    last = [row[0].text for row in ask(_without_index(before), stayed, seed, device, report)]
    at = len(stayed) + len(come)
    of_gone = written[at : at + len(gone)]
    stays = [source.text for source in chain(has, statements(has))]

    def plain(text: str) -> str:
        return f" {' '.join(words(text))} "

    explaining = [plain(text) for text in stays]
    wrong = [
        substring(text, question.answers) and not any(plain(text) in other for other in explaining)
        for question, text in zip(gone, of_gone, strict=True)
    ]
    about_others = written[: len(stayed)]
    by_chance = [
        sum(substring(text, question.answers) for text in about_others) / max(1, len(about_others))
        for question in gone
    ]
    leaks = Leaks(removed, stays)
    was, now_is = (
        score_recall(stayed, [[text] for text in texts]) for texts in (last, written[: len(stayed)])
    )
    return Retention(
        kept_questions=len(stayed),
        before=Mean.of(was, seed),
        after=Mean.of(now_is, seed),
        lost=sum(old > new for old, new in zip(was, now_is, strict=True)),
        gained=sum(old < new for old, new in zip(was, now_is, strict=True)),
        new_questions=len(come),
        new=_mean(come, written[len(stayed) : at], seed),
        removed_questions=len(gone),
        removed=_mean(gone, of_gone, seed),
        unexplained=sum(wrong) / max(1, len(wrong)),
        chance=round(sum(by_chance) / max(1, len(by_chance)), 4),
        leaked=sum(leaks(question.text, text) for question, text in zip(questions, written, strict=True)),
    )


def _without_index(card: Card) -> Card:
    """Return the card without its index."""
    return Card(card.folder, replace(card.manifest, index=False))


def _mean(questions: Sequence[ExamQuestion], texts: Sequence[str], seed: int) -> Mean | None:
    return Mean.of(score_recall(questions, [[text] for text in texts]), seed)


# sync.json: what a sync changed in a card, how, and what the card remembers; no text, and nothing of the folder.

SYNC = "sync.json"


@dataclass(frozen=True)
class SyncRecord:
    """date      of the sync, ISO in UTC
    updates   sha256 of the version before
    way       how the card was made
    why       it was trained from scratch, where that was not asked for
    added, changed, removed, moved  numbers of passages
    seconds   wall time, without the exam
    recall    None for a card without a model
    first     recall of what stayed when the card was last trained from scratch: what drift is measured against
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
    """Read sync.json in a card's folder; None where there is none. Raises CardError for a malformed one."""
    path = folder / SYNC
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if "best" in data:  # instead of `first`, as the first ones have it
            data["first"] = data.pop("best")
        return build(SyncRecord, data)
    except (OSError, ValueError, TypeError) as error:
        raise CardError(
            f"{path} can't be read: {error}: delete it, and sync the card with --retrain"
        ) from error
