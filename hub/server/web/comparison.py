"""Pages that compare cards: two side by side, and the leaderboard of measured factuality."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fastapi import APIRouter
from starlette.responses import Response

from kcard.hub import versions as card_versions
from kcard.hub.accounts import Identity
from kcard.hub.db.models import Repository, Version
from kcard.hub.errors import NotFound
from kcard.hub.permissions import may_download
from kcard.hub.search import SearchQuery
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, get_repository, has_access
from kcard.hub.server.limits import EXPENSIVE
from kcard.hub.server.responses import parse_reference
from kcard.hub.server.web.cards import ExamQuestionView, ExamView, RepositoryRow, load_exam, make_rows
from kcard.hub.server.web.measurements import Trust, declared_factuality, load_trust, measured_estimates
from kcard.hub.server.web.render import page
from kcard.hub.services import HubServices
from kcard.hub.values import ScoreEstimate

# Two cards, or two versions of one, side by side.


@dataclass(frozen=True)
class ComparedVersion:
    """A version of a card; `exam` is None if it has none or its files are gated."""

    repository: Repository
    version: Version
    exam: ExamView | None

    @property
    def reference(self) -> str:
        return self.version.reference


@dataclass(frozen=True)
class Figure:
    """A figure of both sides, with its samples."""

    title: str
    values: tuple[ScoreEstimate | None, ScoreEstimate | None]
    note: str = ""

    @property
    def better(self) -> int | None:
        """The side whose interval lies above that of the other: 0, 1, or None if they overlap or one is unknown."""
        for place, upper in enumerate(self.values):
            lower = self.values[1 - place]
            if upper is None or lower is None or upper.low is None or lower.high is None:
                return None
            if upper.low > lower.high:
                return place
        return None

    @property
    def overlaps(self) -> bool:
        """Whether both sides have an interval, and these overlap: their difference may be chance."""
        intervals = [value for value in self.values if value is not None and value.low is not None]
        return len(intervals) == 2 and self.better is None


@dataclass(frozen=True)
class SameQuestion:
    """A question in both exams."""

    question: str
    answer: str
    sides: tuple[ExamQuestionView, ExamQuestionView]


def load_compared_version(hub: HubServices, reference: str, identity: Identity | None) -> ComparedVersion:
    """Return the version that `namespace/name` (the newest) or `namespace/name@v2` names. Raises Invalid, NotFound."""
    name, number = parse_reference(reference)
    repository = get_repository(hub, "model", name, identity)
    published = card_versions.list_versions(hub.database, repository)
    matching = [version for version in published if number in (None, version.number)]
    if not matching:
        raise NotFound("revision", f"{reference[:200]} is not a published version of a card: see its page")
    version = matching[-1]
    released = may_download(identity, repository, has_access(hub, identity, repository))
    examined = load_exam(hub.blobs, version.exam) if version.exam and released else None
    return ComparedVersion(repository, version, examined)


@dataclass(frozen=True)
class Choices:
    """What a page lets somebody pick from: references, and pairs of successive versions of some cards."""

    references: Sequence[str]
    pairs: Sequence[tuple[str, str]]


def list_choices(
    hub: HubServices, sides: Iterable[ComparedVersion | None], identity: Identity | None
) -> Choices | None:
    """Return the references that a page lets somebody pick from; None if the hub has too many cards for a list.

    First all versions of the cards that are compared already, newest first, then every other card.
    """
    matches = hub.search.find(SearchQuery(sort="downloads", size=MOST_CHOICES), identity)
    if matches.total > MOST_CHOICES:
        return None
    chosen = {side.repository.name: side.repository for side in sides if side is not None}
    references: dict[str, None] = {}
    for name, repository in chosen.items():
        published = card_versions.list_versions(hub.database, repository)
        references |= dict.fromkeys([name, *(f"{name}@v{row.number}" for row in reversed(published))])
    newest = hub.publications.summarize(repository.id for repository in matches.repositories)
    cards = {each.name: newest[each.id].number for each in matches.repositories if each.id in newest}
    pairs = [(f"{name}@v{number - 1}", f"{name}@v{number}") for name, number in cards.items() if number > 1]
    return Choices([*references, *(name for name in sorted(cards) if name not in chosen)], pairs[:MOST_PAIRS])


def compare_figures(hub: HubServices, left: ComparedVersion, right: ComparedVersion) -> list[Figure]:
    """Return the figures that at least one side has."""
    sides = (left, right)

    def of_exams(name: str) -> tuple[ScoreEstimate | None, ScoreEstimate | None]:
        first, second = (None if side.exam is None else getattr(side.exam, name) for side in sides)
        return first, second

    first, second = (measured_estimates(hub, [side.version]).get(side.version.number) for side in sides)
    claims = [declared_factuality(hub.blobs, side.version, side.version.exam) for side in sides]
    rows = [
        Figure("Factuality, measured", (first, second), "by audits of this hub"),
        Figure("Factuality, declared", (claims[0], claims[1]), "by the exams of the cards"),
        Figure("Recall", of_exams("recall"), "declared"),
        Figure("Lift", of_exams("lift"), "declared"),
        Figure("Faithfulness", of_exams("faithfulness"), "declared"),
    ]
    return [row for row in rows if row.values != (None, None)]


def match_questions(left: ComparedVersion, right: ComparedVersion) -> Sequence[SameQuestion]:
    """Return the questions that both exams show."""
    if left.exam is None or right.exam is None:
        return []
    others = {question.question: question for question in right.exam.shown}
    return [
        SameQuestion(question.question, question.answer, (question, others[question.question]))
        for question in left.exam.shown
        if question.question in others
    ]


compare_router = APIRouter(include_in_schema=False)

LEADERS, MOST_UNRANKED = 100, 20
MIN_LEADER_DOCUMENTS = 30
MOST_CHOICES, MOST_PAIRS = 200, 8


@compare_router.get("/compare", dependencies=[EXPENSIVE])
def compare(hub: HubDep, identity: OptionalIdentity, a: str = "", b: str = "") -> Response:
    """Show two versions side by side, or a form without them."""
    left, right = (
        load_compared_version(hub, reference, identity) if reference.strip() else None for reference in (a, b)
    )
    both = left is not None and right is not None
    choices = list_choices(hub, (left, right), identity)
    return page(
        "compare.html",
        a=a,
        b=b,
        sides=[left, right],
        choices=None if choices is None else choices.references,
        pairs=() if choices is None else choices.pairs,
        figures=compare_figures(hub, left, right) if left is not None and right is not None else [],
        questions=match_questions(left, right) if left is not None and right is not None else [],
        both=both,
        here="compare",
    )


@dataclass(frozen=True)
class Leader:
    """A card of the leaderboard with its newest version and its factuality, which may be of an older one.

    `copies`: names under which the same content was published again.
    """

    version: Version
    trust: Trust
    copies: Sequence[str] = ()

    @property
    def has_few_documents(self) -> bool:
        """Whether its factuality is the mean of so few documents that its place says little."""
        count = None if self.trust.estimate is None else self.trust.estimate.count
        return count is None or count < MIN_LEADER_DOCUMENTS


def merge_copies(hub: HubServices, leaders: Sequence[Leader]) -> list[Leader]:
    """Return the leaders with the same content once, at the place of the first of them."""
    contents = card_versions.find_contents(hub.database, [leader.version.id for leader in leaders])
    by_content: dict[str, list[Leader]] = {}
    for leader in leaders:
        by_content.setdefault(contents[leader.version.id], []).append(leader)
    return [
        replace(first, copies=[copy.version.name for copy in others])
        for first, *others in by_content.values()
    ]


@compare_router.get("/leaderboard", dependencies=[EXPENSIVE])
def leaderboard(hub: HubDep, domain: str = "") -> Response:
    """Rank cards by the factuality that audits of this hub measured."""
    ranking = hub.search.find(
        SearchQuery(facets={"domain": domain}, verified=True, sort="factuality", size=LEADERS)
    )
    counts = ranking.counts.facets["domain"]
    parts = domain.split("/") if domain else []
    below = [name for name in counts if name.rpartition("/")[0] == domain and name.count("/") == len(parts)]
    rows: list[RepositoryRow] = make_rows(hub, ranking.repositories)
    leaders = [
        Leader(row.summary, row.trust)
        for row in rows
        if row.summary is not None and row.trust is not None and row.trust.audit is not None
    ]
    # Cards that are measured only by evidence which repeats their own corpus: shown, but not ranked.
    overlapping = card_versions.list_overlapping(hub.database, domain, MOST_UNRANKED)
    trust = load_trust(hub, {version.repository_id: version for version in overlapping})
    return page(
        "leaderboard.html",
        domain=domain,
        above=["/".join(parts[: place + 1]) for place in range(len(parts))],
        below=below[:30],
        counts=counts,
        leaders=merge_copies(hub, leaders),
        unranked=merge_copies(
            hub, [Leader(version, trust[version.repository_id]) for version in overlapping]
        ),
        least=MIN_LEADER_DOCUMENTS,
        here="leaderboard",
    )
