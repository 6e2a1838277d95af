"""What a card remembers once its corpus has changed: what stayed, what has come, and what it was to forget.

Its model alone is asked, greedily: what its index finds is what its passages say. A question about a removed text
counts as recalled where the document holds its answer; the document may still be a text that stays, which a card that
never learned the removed one might give as well. What counts against it is an answer in any other document, and a run
of words that only removed texts have (kcard.evaluation.leaks).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import sqrt

from kcard.answer import Source
from kcard.cards.format.folder import Card, passages
from kcard.evaluation.asking import ask
from kcard.evaluation.leaks import Leaks, halves
from kcard.evaluation.metrics import substring
from kcard.evaluation.progress import Report
from kcard.evaluation.questions import Question, about
from kcard.evaluation.recall import recalled
from kcard.evaluation.record import Mean
from kcard.training.corpus import statements
from kcard.words import words

__all__ = ["Remembered", "remembered"]

LIMIT = 100  # questions of each kind
FALL, DRIFT = 0.01, 0.03  # of the recall of what stays: in one sync, and since training from scratch


@dataclass(frozen=True)
class Remembered:
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
        """Whether what stayed is recalled by more than DRIFT, and two standard deviations, less than `first`."""
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
        """One line for people."""
        parts = [
            f"of {self.kept_questions} questions about what stayed {self.before} before, {self.after} now"
        ]
        if self.new_questions:
            parts.append(f"of {self.new_questions} about what has come {self.new}")
        if self.removed_questions:
            known = f"{self.removed} (by chance {self.chance:.2f}, by what stays {self._explained:.2f})"
            parts.append(f"of {self.removed_questions} about what was removed {known}")
        return f"recall by the model: {'; '.join(parts)}"

    @property
    def _explained(self) -> float:
        return (0.0 if self.removed is None else self.removed.mean) - self.unexplained


def remembered(
    now: Card,
    before: Card,
    staying: Sequence[Source],
    new: Sequence[Source],
    removed: Sequence[str],
    *,
    seed: int,
    device: str,
    report: Report,
) -> Remembered:
    """Ask both versions.

    staying  passages that both have
    new      what this version has learned, and the last one had not
    removed  texts that the last version had learned, and this one is to forget
    """
    has = passages(now.folder)
    kept = about(staying, LIMIT, seed, accepted=has)
    come = about(new, LIMIT, seed, accepted=has)
    gone = about([Source(text, "", 0) for text in removed], LIMIT, seed)
    extracts = [Question(half, ()) for text in removed[:LIMIT] for half in halves(text)]
    asked = [*kept, *come, *gone, *extracts]
    written = [row[0].text for row in ask(_model(now), asked, seed, device, report)]
    last = [row[0].text for row in ask(_model(before), kept, seed, device, report)]
    at = len(kept) + len(come)
    of_gone = written[at : at + len(gone)]
    stays = [source.text for source in chain(has, statements(has))]
    plain = [_plain(text) for text in stays]
    wrong = [
        substring(text, question.answers) and not any(_plain(text) in known for known in plain)
        for question, text in zip(gone, of_gone, strict=True)
    ]
    by_chance = [_share(written[: len(kept)], question) for question in gone]
    leaks = Leaks(removed, stays)
    was, now_is = (recalled(kept, [[text] for text in texts]) for texts in (last, written[: len(kept)]))
    return Remembered(
        kept_questions=len(kept),
        before=Mean.of(was, seed),
        after=Mean.of(now_is, seed),
        lost=sum(old > new for old, new in zip(was, now_is, strict=True)),
        gained=sum(old < new for old, new in zip(was, now_is, strict=True)),
        new_questions=len(come),
        new=_mean(come, written[len(kept) : at], seed),
        removed_questions=len(gone),
        removed=_mean(gone, of_gone, seed),
        unexplained=sum(wrong) / max(1, len(wrong)),
        chance=round(sum(by_chance) / max(1, len(by_chance)), 4),
        leaked=sum(leaks(question.text, text) for question, text in zip(asked, written, strict=True)),
    )


def _model(card: Card) -> Card:
    """The card without its index."""
    return Card(card.folder, replace(card.manifest, index=False))


def _mean(questions: Sequence[Question], texts: Sequence[str], seed: int) -> Mean | None:
    return Mean.of(recalled(questions, [[text] for text in texts]), seed)


def _share(texts: Sequence[str], question: Question) -> float:
    return sum(substring(text, question.answers) for text in texts) / max(1, len(texts))


def _plain(text: str) -> str:
    return f" {' '.join(words(text))} "
