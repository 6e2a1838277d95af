"""Two cards, or two versions of one, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import NotThere
from kcard.hub.repositories import version_figures
from kcard.hub.repositories.permissions import may_download
from kcard.hub.repositories.values import Repository
from kcard.hub.repositories.version_figures import VersionFigures
from kcard.hub.server.dependencies import get_repository, has_access
from kcard.hub.server.page.exam_views import ExamView, Question, exam
from kcard.hub.server.reading.card_reference import parse
from kcard.hub.shared import SharedHub

__all__ = ["Compared", "Figure", "SameQuestion", "compared", "figures", "same_questions", "versions"]


@dataclass(frozen=True)
class Compared:
    """A version of a card; `exam` is None if it has none or its files are gated."""

    repository: Repository
    version: VersionFigures
    exam: ExamView | None

    @property
    def reference(self) -> str:
        return f"{self.repository.name}@v{self.version.number}"


@dataclass(frozen=True)
class Figure:
    """A number of both; `better` is the side with the higher one: 0, 1 or None."""

    title: str
    values: tuple[float | None, float | None]
    note: str = ""

    @property
    def better(self) -> int | None:
        left, right = self.values
        if left is None or right is None or left == right:
            return None
        return 0 if left > right else 1


@dataclass(frozen=True)
class SameQuestion:
    """A question in both exams."""

    question: str
    answer: str
    sides: tuple[Question, Question]


def compared(hub: SharedHub, reference: str, identity: Identity | None) -> Compared:
    """The version that `namespace/name` (the newest) or `namespace/name@v2` names. Raises Invalid, NotThere."""
    name, number = parse(reference)
    repository = get_repository(hub, "model", name, identity)
    known = version_figures.figures(hub.database, repository)
    found = [version for version in known if number in (None, version.number)]
    if not found:
        raise NotThere("revision", f"{reference[:200]} is not a published version of a card: see its page")
    version = found[-1]
    released = may_download(identity, repository, has_access(hub, identity, repository))
    examined = exam(hub.blobs, version.exam) if version.exam and released else None
    return Compared(repository, version, examined)


def versions(hub: SharedHub, side: Compared) -> list[str]:
    """References of all known versions of a card, newest first."""
    known = version_figures.figures(hub.database, side.repository)
    return [f"{side.repository.name}@v{version.number}" for version in reversed(known)]


def figures(left: Compared, right: Compared) -> list[Figure]:
    """The numbers that at least one of them has."""
    sides = (left, right)

    def mean(name: str) -> tuple[float | None, float | None]:
        found = [getattr(side.exam, name) if side.exam is not None else None for side in sides]
        return tuple(None if value is None else value.mean for value in found)  # type: ignore[return-value]

    verified = tuple(None if s.version.verified is None else s.version.verified.factuality for s in sides)
    declared = (left.version.declared, right.version.declared)
    rows = [
        Figure("Factuality, verified", verified, "measured by audits of this hub"),  # type: ignore[arg-type]
        Figure("Factuality, self-declared", declared, "by the exams of the cards"),
        Figure("Recall", mean("recall"), "self-declared"),
        Figure("Lift", mean("lift"), "self-declared"),
        Figure("Faithfulness", mean("faithfulness"), "self-declared"),
    ]
    return [row for row in rows if row.values != (None, None)]


def same_questions(left: Compared, right: Compared) -> Sequence[SameQuestion]:
    """The questions that both exams show."""
    if left.exam is None or right.exam is None:
        return []
    others = {question.question: question for question in right.exam.shown}
    return [
        SameQuestion(question.question, question.answer, (question, others[question.question]))
        for question in left.exam.shown
        if question.question in others
    ]
