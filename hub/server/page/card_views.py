"""The data that the pages of repositories show, without HTML or HTTP."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Literal

from kcard.errors import CardError, HubError
from kcard.hub.accounts.identity import Identity
from kcard.hub.repositories import card_metadata, facets, version_figures
from kcard.hub.repositories.exams import EXAM
from kcard.hub.repositories.listing import ListQuery
from kcard.hub.repositories.permissions import may_download
from kcard.hub.repositories.search import Found, SearchQuery
from kcard.hub.repositories.values import Commit, Entry, Mark, Publication, Ref, Repository, Type
from kcard.hub.repositories.version_figures import VersionFigures, VersionLink
from kcard.hub.server.dependencies import get_repository, has_access
from kcard.hub.server.page.exam_views import ExamView, exam
from kcard.hub.server.reading.eval_results import declared_results
from kcard.hub.server.reading.recent import Recent
from kcard.hub.server.reading.repository_json import Json
from kcard.hub.shared import SharedHub
from kcard.manifest import Manifest

__all__ = ["CardView", "Row", "address", "card", "listed", "row"]

MOST_FILES, MOST_REFS, MOST_SUGGESTIONS, MOST_BASES = 200, 50, 5, 5


@dataclass(frozen=True)
class Row:
    """A repository in a list; `mark` is None if it has published no card."""

    repository: Repository
    mark: Mark | None

    @property
    def kind(self) -> str:
        """The kind of a knowledge card, otherwise the library."""
        return facets.kind(self.repository.tags, self.repository.library)

    @property
    def domain(self) -> str:
        return facets.domain(self.repository.tags)

    @property
    def bases(self) -> list[str]:
        """The first base models."""
        return facets.bases(self.repository.tags)[:MOST_BASES]


@dataclass(frozen=True)
class CardView:
    """A repository at a revision.

    released   whether the client may download the files; if not, there is no README, manifest or exam
    readme     safe HTML
    refs       branches, and tags that published nothing: at most MOST_REFS
    files      at most MOST_FILES; `more` are omitted
    threshold  of the hub's quarantine
    note       why the README is not shown, if so
    versions   the newest ones, oldest first; `shown` is the one of this revision
    updates    the version that this one was trained on from, if this hub has it
    derived    cards that were trained on from this one, or name it as their base model
    results    evaluation results that the repository declares, as the API has them
    """

    row: Row
    revision: str
    commit: Commit
    released: bool
    threshold: float | None
    publications: Sequence[Publication]
    refs: Sequence[Ref]
    versions: Sequence[VersionFigures] = ()
    files: Sequence[Entry] = ()
    more: int = 0
    manifest: Manifest | None = None
    readme: str = ""
    note: str = ""
    exam: ExamView | None = None
    suggestions: Sequence[str] = ()
    updates: VersionLink | None = None
    derived: Sequence[VersionLink] = ()
    adapted: Sequence[Repository] = ()
    results: Sequence[Json] = ()

    @property
    def shown(self) -> VersionFigures | None:
        """The published version of this commit; on main, the newest one."""
        here = [version for version in self.versions if version.commit == self.commit.sha]
        if self.revision == "main":
            return self.versions[-1] if self.versions else None
        return here[-1] if here else None


def listed(hub: SharedHub, query: SearchQuery, identity: Identity | None) -> tuple[list[Row], Found]:
    """A page of readable repositories, and what else was found."""
    found = hub.search.find(query, identity)
    marks = hub.publications.marks(repository.id for repository in found.repositories)
    return [Row(repository, marks.get(repository.id)) for repository in found.repositories], found


def row(hub: SharedHub, repository: Repository) -> Row:
    """A repository with its mark."""
    return Row(repository, hub.publications.marks([repository.id]).get(repository.id))


def card(
    hub: SharedHub, recent: Recent, type_: Type, name: str, revision: str, identity: Identity | None
) -> CardView:
    """A repository at a revision. Raises NotThere if the client may not read it, or for an unknown revision."""
    repository = get_repository(hub, type_, name, identity)
    sha = hub.refs.resolve(repository, revision)
    publications = hub.publications.of(repository)[::-1]
    versions = version_figures.figures(hub.database, repository)
    adapting = ListQuery(type="model", filters=[f"base_model:{repository.name}"], limit=10)
    tags = hub.refs.tags(repository)
    view = CardView(
        row=row(hub, repository),
        revision=revision,
        commit=hub.commits.get(repository, sha),
        released=may_download(identity, repository, has_access(hub, identity, repository)),
        threshold=hub.registry.quarantine.threshold,
        publications=publications,
        refs=_refs(hub, repository, tags, {publication.tag for publication in publications}),
        versions=versions,
        derived=[
            link
            for link in version_figures.derived(hub.database, [v.sha256 for v in versions], identity)
            if link.card != repository.name
        ],
        adapted=hub.listing.page(adapting, identity)[0] if type_ == "model" else (),
    )
    return _opened(hub, recent, view, identity) if view.released else view


def _refs(
    hub: SharedHub, repository: Repository, tags: Sequence[Ref], published: Container[str]
) -> list[Ref]:
    others = (tag for tag in tags if tag.name not in published)
    return list(islice(chain(hub.refs.branches(repository), others), MOST_REFS))


def _opened(hub: SharedHub, recent: Recent, view: CardView, identity: Identity | None) -> CardView:
    """The view with the contents of the files."""
    repository, sha = view.row.repository, view.commit.sha
    tree = recent.trees.get(repository, sha)
    readme, note = _readme(recent, tree.get(card_metadata.README), address(repository, "resolve", sha))
    manifest = recent.manifests.of(tree)
    examined = exam(hub.blobs, tree[EXAM].sha256) if EXAM in tree else None
    before = manifest.updates if manifest is not None else None
    return replace(
        view,
        files=list(islice(tree.values(), MOST_FILES)),
        more=max(0, len(tree) - MOST_FILES),
        manifest=manifest,
        readme=readme,
        note=note,
        exam=examined,
        suggestions=_suggestions(repository.card, examined),
        updates=None if before is None else version_figures.version_of(hub.database, before, identity),
        results=declared_results(hub.blobs, tree),
    )


def _readme(recent: Recent, entry: Entry | None, files: str) -> tuple[str, str]:
    """The README as HTML, or why it is not shown."""
    if entry is None:
        return "", "There is no README.md."
    try:
        return recent.readmes.html(entry, files), ""
    except (HubError, CardError) as error:  # the page is shown even if a file is damaged
        return "", f"README.md can't be shown: {error}"


def _suggestions(metadata: Mapping[str, Any], examined: ExamView | None) -> list[str]:
    """Questions that the author suggests as `widget` on branch main, else those that the card answered in its exam."""
    widget = metadata.get("widget")
    texts = [one.get("text") for one in widget if isinstance(one, dict)] if isinstance(widget, list) else []
    named = [text[:300] for text in texts if isinstance(text, str) and text.strip()]
    answered = [one.question for one in examined.shown if one.right] if examined is not None else []
    return (named or answered)[:MOST_SUGGESTIONS]


def address(repository: Repository, *parts: str) -> str:
    """The path of a repository's page and of what is below it; the parts are not quoted."""
    kind: Literal["", "/datasets"] = "/datasets" if repository.type == "dataset" else ""
    return "/".join([f"{kind}/{repository.name}", *parts])
