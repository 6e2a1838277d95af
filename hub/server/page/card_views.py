"""The data that the pages show, without HTML or HTTP."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kcard.errors import CardError, HubError
from kcard.hub.accounts.identity import Identity
from kcard.hub.checks.metadata import read
from kcard.hub.checks.readme_html import render
from kcard.hub.repositories import card_metadata
from kcard.hub.repositories.listing import ListQuery
from kcard.hub.repositories.permissions import may_download
from kcard.hub.repositories.values import Commit, Entry, Mark, Publication, Ref, Repository, Type
from kcard.hub.server.dependencies import get_repository, has_access
from kcard.hub.server.reading.eval_results import eval_results
from kcard.hub.server.reading.repository_json import Json
from kcard.hub.shared import SharedHub
from kcard.manifest import Manifest

__all__ = ["CardView", "Row", "address", "card", "listed"]

MAIN = "main"
MOST_FILES = 500
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
        """The base models."""
        return [name for name in _after(BASE, self.repository.tags) if ":" not in name]


@dataclass(frozen=True)
class CardView:
    """A repository at a revision.

    released   whether the client may download the files; if not, there is no README and no manifest
    readme     safe HTML
    files      at most MOST_FILES; `more` are omitted
    threshold  of the hub's quarantine
    note       why the README is not shown, if so
    results    evaluation results, as the API has them: `verified` or self-declared
    """

    row: Row
    revision: str
    commit: Commit
    released: bool
    threshold: float | None
    publications: Sequence[Publication]
    branches: Sequence[Ref]
    tags: Sequence[Ref]
    files: Sequence[Entry] = ()
    more: int = 0
    manifest: Manifest | None = None
    readme: str = ""
    note: str = ""
    results: Sequence[Json] = ()


def listed(hub: SharedHub, query: ListQuery, identity: Identity | None) -> tuple[list[Row], str | None]:
    """A page of readable repositories, and the cursor of the next page. Raises Invalid."""
    page, following = hub.listing.page(query, identity)
    marks = hub.publications.marks(repository.id for repository in page)
    return [Row(repository, marks.get(repository.id)) for repository in page], following


def card(hub: SharedHub, type_: Type, name: str, revision: str, identity: Identity | None) -> CardView:
    """A repository at a revision. Raises NotThere if the client may not read it, or for an unknown revision."""
    repository = get_repository(hub, type_, name, identity)
    sha = hub.refs.resolve(repository, revision)
    view = CardView(
        row=Row(repository, hub.publications.marks([repository.id]).get(repository.id)),
        revision=revision,
        commit=hub.commits.get(repository, sha),
        released=may_download(identity, repository, has_access(hub, identity, repository)),
        threshold=hub.registry.quarantine.threshold,
        publications=hub.publications.of(repository)[::-1],
        branches=hub.refs.branches(repository),
        tags=hub.refs.tags(repository),
    )
    return _opened(hub, view) if view.released else view


def _opened(hub: SharedHub, view: CardView) -> CardView:
    """The view with the contents of the files."""
    repository, sha = view.row.repository, view.commit.sha
    tree = hub.commits.tree(repository, sha)
    readme, note = _readme(hub, tree.get(card_metadata.README), address(repository, "resolve", sha))
    files = list(tree.values())
    return replace(
        view,
        files=files[:MOST_FILES],
        more=max(0, len(files) - MOST_FILES),
        manifest=card_metadata.manifest(tree, hub.blobs),
        readme=readme,
        note=note,
        results=eval_results(hub.blobs, tree, view.row.mark),
    )


def _readme(hub: SharedHub, entry: Entry | None, files: str) -> tuple[str, str]:
    """The README as HTML, or why it is not shown."""
    if entry is None:
        return "", "There is no README.md."
    try:
        return render(read(card_metadata.text(hub.blobs, entry))[1], files), ""
    except (HubError, CardError) as error:  # the page is shown even if a file is damaged
        return "", f"README.md can't be shown: {error}"


def address(repository: Repository, *parts: str) -> str:
    """The path of a repository's page and of what is below it; the parts are not quoted."""
    kind: Literal["", "/datasets"] = "/datasets" if repository.type == "dataset" else ""
    return "/".join([f"{kind}/{repository.name}", *parts])


def _after(prefix: str, tags: Sequence[str]) -> list[str]:
    return [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]
