"""The data that the pages show, without HTML or HTTP."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal

from kcard.errors import CardError, HubError
from kcard.hub.accounts.identity import Identity
from kcard.hub.repositories import card_metadata
from kcard.hub.repositories.listing import ListQuery
from kcard.hub.repositories.permissions import may_download
from kcard.hub.repositories.values import Commit, Entry, Mark, Publication, Ref, Repository, Type
from kcard.hub.server.dependencies import get_repository, has_access
from kcard.hub.server.reading.recent import Recent
from kcard.hub.shared import SharedHub
from kcard.manifest import Manifest

__all__ = ["CardView", "Row", "address", "card", "listed"]

MAIN = "main"
MOST_FILES, MOST_REFS, MOST_BASES = 500, 50, 5
# Tags of a card. The longest domain is the card's own, the others contain it.
KIND, DOMAIN, BASE = "kcard:kind:", "domain:", "base_model:"


@dataclass(frozen=True)
class Row:
    """A repository in a list; `mark` is None if it has published no card."""

    repository: Repository
    mark: Mark | None

    @property
    def kind(self) -> str:
        """The kind of a knowledge card, otherwise the library."""
        return next(iter(_after(KIND, self.repository.tags)), "") or self.repository.library or ""

    @property
    def domain(self) -> str:
        return max(_after(DOMAIN, self.repository.tags), key=len, default="")

    @property
    def bases(self) -> list[str]:
        """The first base models."""
        return [name for name in _after(BASE, self.repository.tags) if ":" not in name][:MOST_BASES]


@dataclass(frozen=True)
class CardView:
    """A repository at a revision.

    released   whether the client may download the files; if not, there is no README and no manifest
    readme     safe HTML
    refs       branches, and tags that published nothing: at most MOST_REFS
    files      at most MOST_FILES; `more` are omitted
    threshold  of the hub's quarantine
    note       why the README is not shown, if so
    """

    row: Row
    revision: str
    commit: Commit
    released: bool
    threshold: float | None
    publications: Sequence[Publication]
    refs: Sequence[Ref]
    files: Sequence[Entry] = ()
    more: int = 0
    manifest: Manifest | None = None
    readme: str = ""
    note: str = ""


def listed(hub: SharedHub, query: ListQuery, identity: Identity | None) -> tuple[list[Row], str | None]:
    """A page of readable repositories, and the cursor of the next page. Raises Invalid."""
    page, following = hub.listing.page(query, identity)
    marks = hub.publications.marks(repository.id for repository in page)
    return [Row(repository, marks.get(repository.id)) for repository in page], following


def card(
    hub: SharedHub, recent: Recent, type_: Type, name: str, revision: str, identity: Identity | None
) -> CardView:
    """A repository at a revision. Raises NotThere if the client may not read it, or for an unknown revision."""
    repository = get_repository(hub, type_, name, identity)
    sha = hub.refs.resolve(repository, revision)
    publications = hub.publications.of(repository)[::-1]
    view = CardView(
        row=Row(repository, hub.publications.marks([repository.id]).get(repository.id)),
        revision=revision,
        commit=hub.commits.get(repository, sha),
        released=may_download(identity, repository, has_access(hub, identity, repository)),
        threshold=hub.registry.quarantine.threshold,
        publications=publications,
        refs=_refs(hub, repository, {publication.tag for publication in publications}),
    )
    return _opened(recent, view) if view.released else view


def _refs(hub: SharedHub, repository: Repository, published: Container[str]) -> list[Ref]:
    tags = (tag for tag in hub.refs.tags(repository) if tag.name not in published)
    return list(islice(chain(hub.refs.branches(repository), tags), MOST_REFS))


def _opened(recent: Recent, view: CardView) -> CardView:
    """The view with the contents of the files."""
    repository, sha = view.row.repository, view.commit.sha
    tree = recent.trees.get(repository, sha)
    readme, note = _readme(recent, tree.get(card_metadata.README), address(repository, "resolve", sha))
    return replace(
        view,
        files=list(islice(tree.values(), MOST_FILES)),
        more=max(0, len(tree) - MOST_FILES),
        manifest=recent.manifests.of(tree),
        readme=readme,
        note=note,
    )


def _readme(recent: Recent, entry: Entry | None, files: str) -> tuple[str, str]:
    """The README as HTML, or why it is not shown."""
    if entry is None:
        return "", "There is no README.md."
    try:
        return recent.readmes.html(entry, files), ""
    except (HubError, CardError) as error:  # the page is shown even if a file is damaged
        return "", f"README.md can't be shown: {error}"


def address(repository: Repository, *parts: str) -> str:
    """The path of a repository's page and of what is below it; the parts are not quoted."""
    kind: Literal["", "/datasets"] = "/datasets" if repository.type == "dataset" else ""
    return "/".join([f"{kind}/{repository.name}", *parts])


def _after(prefix: str, tags: Sequence[str]) -> list[str]:
    return [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]
