"""Which cards a question of a visitor is asked of: the one that is named, or all that the visitor may download."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kcard.errors import UnknownCard
from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import Invalid, NotThere
from kcard.hub.repositories import newest
from kcard.hub.repositories.audits import measurable
from kcard.hub.repositories.figures import Reason
from kcard.hub.repositories.permissions import may_download
from kcard.hub.repositories.search import SearchQuery
from kcard.hub.repositories.search_rows import words
from kcard.hub.repositories.values import Repository
from kcard.hub.repositories.versions import Version
from kcard.hub.server.dependencies import get_repository, has_access, require_download
from kcard.hub.server.reading.card_reference import parse
from kcard.hub.shared import SharedHub

__all__ = ["Candidate", "Candidates", "all_cards", "one_card"]

MOST_CARDS = 200
MOST_BYTES = 4_000_000  # of their manifests
MOST_WORDS, FOR_WORD = 12, 50
SHORTEST_WORD = 3
TAG = "kcard"  # of every repository with a card


@dataclass(frozen=True)
class Candidate:
    """A version that may be asked, by a name that no other candidate has."""

    name: str
    repository: Repository
    version: Version

    @property
    def named(self) -> Version:
        """The version under that name."""
        return replace(self.version, name=self.name, manifest=replace(self.version.manifest, name=self.name))

    @property
    def shown(self) -> str:
        """Its reference on the hub's pages."""
        return f"{self.repository.name}@v{self.version.number}"


@dataclass(frozen=True)
class Candidates:
    """The cards that are asked.

    total        cards of the hub that the visitor may read
    quarantined  names of repositories that are left out for that reason
    unusable     likewise, of those whose card could not be opened
    held         why the card is quarantined that is asked because it is named
    """

    cards: Sequence[Candidate]
    total: int = 1
    quarantined: Sequence[str] = ()
    unusable: Sequence[str] = ()
    held: Reason | None = None

    def without(self, unusable: Candidate) -> "Candidates":
        """All but one that can't be opened."""
        others = [card for card in self.cards if card != unusable]
        return replace(self, cards=others, unusable=(*self.unusable, unusable.repository.name))

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.cards)


def one_card(hub: SharedHub, reference: str, identity: Identity | None) -> Candidates:
    """The version that `namespace/name` (the newest) or `namespace/name@v2` names, quarantined or not.

    Raises Invalid, also if its model is not on this hub, NotThere, Gated.
    """
    name, number = parse(reference)
    repository = get_repository(hub, "model", name, identity)
    require_download(hub, identity, repository)
    try:
        version = hub.registry.get(repository.name + ("" if number is None else f"@v{number}"))
    except UnknownCard:
        raise NotThere(
            "revision", f"{reference[:200]} is not a published version of a card: see its page"
        ) from None
    if not measurable(version.manifest):
        raise Invalid(
            f"{repository.name} can't be asked here: it is of kind {version.manifest.kind[:50]}, whose model is not "
            "among its files; use `kcard ask`"
        )
    held = hub.registry.quarantine.held([version])
    return Candidates(
        [Candidate(version.manifest.name, repository, version)], held=held.get(version.reference)
    )


def all_cards(hub: SharedHub, question: str, identity: Identity | None) -> Candidates:
    """The newest version of every card that the visitor may download, without quarantined ones.

    Of more than MOST_CARDS, those that a search for words of the question finds, rare words first, then those that
    were downloaded most. Raises Invalid if there are none.
    """
    repositories, total = _likely(hub, question, identity)
    allowed = [each for each in repositories if may_download(identity, each, has_access(hub, identity, each))]
    versions = newest.versions(hub.database, allowed)
    held = hub.registry.quarantine.held([*versions.values()])
    able, quarantined = [], []
    for repository in allowed:
        version = versions.get(repository.name)
        if version is not None and version.reference in held:
            quarantined.append(repository.name)
        elif version is not None and measurable(version.manifest):
            able.append((repository, version))
    if not able:
        raise Invalid("no card can be asked" + (": all are quarantined" if quarantined else ""))
    return Candidates([*_within(_distinct(able))], total, quarantined)


def _likely(hub: SharedHub, question: str, identity: Identity | None) -> tuple[Sequence[Repository], int]:
    """At most MOST_CARDS repositories with cards, and how many there are."""
    usual = SearchQuery(tags=[TAG], sort="downloads", size=MOST_CARDS)
    found = hub.search.find(usual, identity)
    if found.total <= MOST_CARDS:
        return found.repositories, found.total
    scores: dict[int, float] = {}
    known = {each.id: each for each in found.repositories}
    telling = [word for word in dict.fromkeys(words(question)) if len(word) >= SHORTEST_WORD]
    for word in telling[:MOST_WORDS]:
        having = hub.search.find(
            SearchQuery(text=word, tags=[TAG], sort="relevance", size=FOR_WORD), identity
        )
        for each in having.repositories:
            known[each.id] = each
            scores[each.id] = scores.get(each.id, 0.0) + 1 / having.total
    order = sorted(known.values(), key=lambda each: -scores.get(each.id, 0.0))
    return order[:MOST_CARDS], found.total


def _distinct(versions: Iterable[tuple[Repository, Version]]) -> Iterator[Candidate]:
    """The versions, with the names of their manifests, numbered where several have the same one."""
    taken: set[str] = set()
    for repository, version in versions:
        name, number = version.manifest.name, 1
        while name in taken:
            number += 1
            name = f"{version.manifest.name[:80]}--{number}"
        taken.add(name)
        yield Candidate(name, repository, version)


def _within(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """The first of them, whose manifests have MOST_BYTES together."""
    left = MOST_BYTES
    for each in candidates:
        left -= len(each.version.manifest.to_json())
        if left < 0:
            return
        yield each
