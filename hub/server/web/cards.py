"""The page of a repository, with what the client may read, and rows of repositories in lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from kcard.errors import CardError, HubError
from kcard.hub import card_metadata, search_index
from kcard.hub import versions as card_versions
from kcard.hub.accounts import Identity
from kcard.hub.db.models import Repository, Version
from kcard.hub.figures import EXAM_FILE
from kcard.hub.listing import ListQuery
from kcard.hub.permissions import may_download
from kcard.hub.server.caches import Caches, CachesDep
from kcard.hub.server.concurrency import EXPENSIVE
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    Segment,
    WebRepository,
    base_url,
    has_access,
)
from kcard.hub.server.results import declared_results
from kcard.hub.server.web.exams import MAX_QUESTIONS, example_questions, load_exam
from kcard.hub.server.web.measurements import Trust, count_scores, find_recall, load_history, load_trust
from kcard.hub.server.web.render import page, page_address
from kcard.hub.server.web.snippets import list_uses
from kcard.hub.services import HubServices
from kcard.hub.values import MAIN
from kcard.manifest import MANIFEST

router = APIRouter(include_in_schema=False)

MAX_FILES, MAX_REFS, MAX_ADAPTED, MAX_BASES, MAX_TAGS = 200, 50, 10, 5, 24
# Tags that the page shows as properties.
SHOWN_ELSEWHERE = ("kcard", "domain:", "base_model:", "license:", "dataset:corpus-")


@dataclass(frozen=True)
class RepositoryRow:
    """A repository in a list; `summary` and `trust` are None if it has published no card."""

    repository: Repository
    summary: Version | None
    trust: Trust | None = None

    @property
    def kind(self) -> str:
        """The kind of a knowledge card, otherwise the library."""
        return search_index.find_kind(self.repository.tags, self.repository.library)

    @property
    def domain(self) -> str:
        return search_index.find_domain(self.repository.tags)

    @property
    def bases(self) -> list[str]:
        """The first base models."""
        return search_index.find_bases(self.repository.tags)[:MAX_BASES]


def make_rows(hub: HubServices, repositories: Sequence[Repository]) -> list[RepositoryRow]:
    """Return repositories with the summaries of their newest versions, and how far these can be trusted."""
    summaries = hub.publications.summarize(repository.id for repository in repositories)
    trust = load_trust(hub, summaries)
    rows = []
    for repository in repositories:
        rows.append(RepositoryRow(repository, summaries.get(repository.id), trust.get(repository.id)))
    return rows


def load_row(hub: HubServices, repository: Repository) -> RepositoryRow:
    """Return a repository with the summary of its newest version."""
    return RepositoryRow(repository, hub.publications.summarize([repository.id]).get(repository.id))


def load_card(
    hub: HubServices, caches: Caches, repository: Repository, revision: str, identity: Identity | None
) -> dict[str, Any]:
    """Return what the page of a repository, which the client may read, shows at a revision.

    If the client may not download the files (`released`), there is no README, manifest or exam. `shown` is the
    published version of this commit, on main the newest one; `note` says why a README is not shown; `more` files are
    omitted; `updates` is the version that this one updates, `derived` are those that update one of its versions.
    Raises NotFound for an unknown revision.
    """
    sha = hub.refs.resolve(repository, revision)
    publications = hub.publications.list(repository)[::-1]
    published = {publication.tag for publication in publications}
    other_tags = (tag for tag in hub.refs.tags(repository) if tag.name not in published)
    versions = card_versions.list_versions(hub.database, repository)
    shown = [version for version in versions if revision == MAIN or version.commit == sha]
    derived = card_versions.list_derived(hub.database, [version.sha256 for version in versions], identity)
    adapted: Sequence[Repository] = ()
    if repository.type == "model":
        filters = [f"base_model:{repository.name}"]
        adapted, _ = hub.listing.page(ListQuery(type="model", filters=filters, limit=MAX_ADAPTED), identity)
    view: dict[str, Any] = {
        "row": load_row(hub, repository),
        "revision": revision,
        "commit": hub.commits.get(repository, sha),
        "released": may_download(identity, repository, has_access(hub, identity, repository)),
        "threshold": hub.registry.quarantine.threshold,
        "publications": publications,
        "refs": list(islice(chain(hub.refs.branches(repository), other_tags), MAX_REFS)),
        "versions": versions,
        "shown": shown[-1] if shown else None,
        "derived": [version for version in derived if version.repository_id != repository.id],
        "adapted": adapted,
        **{"manifest": None, "readme": "", "note": "", "exam": None, "suggestions": [], "updates": None},
        **{"files": [], "more": 0, "results": []},
    }
    if not view["released"]:
        return view

    # The README as HTML, or why it is not shown. The page is shown even if a file is damaged.
    tree = caches.tree(repository, sha)
    digests = {path: entry.sha256 for path, entry in tree.items()}
    manifest = caches.manifest(tree)
    if card_metadata.README not in tree:
        view["note"] = "There is no README.md."
    else:
        try:
            files = page_address(repository, "resolve", sha)
            view["readme"] = caches.readme(tree[card_metadata.README], files, manifest)
        except (HubError, CardError) as error:
            view["note"] = f"README.md can't be shown: {error}"
    suggestions = _read_widget(repository.card)
    if manifest is not None:
        suggestions = suggestions or [*example_questions(hub.blobs, digests, manifest.language)]
        if manifest.updates is not None:
            view["updates"] = card_versions.find_version(hub.database, manifest.updates, identity)
    return view | {
        "manifest": manifest,
        "exam": load_exam(hub.blobs, digests.get(EXAM_FILE)),
        "suggestions": suggestions[:MAX_QUESTIONS],
        "files": list(islice(tree.values(), MAX_FILES)),
        "more": max(0, len(tree) - MAX_FILES),
        "results": declared_results(hub.blobs, tree),
    }


def _read_widget(card: Mapping[str, Any]) -> list[str]:
    """Return the questions that the author suggests as `widget` in README.md on branch main."""
    widget = card.get("widget")
    questions = []
    for item in widget if isinstance(widget, list) else []:
        text = item.get("text") if isinstance(item, dict) else None
        if isinstance(text, str) and text.strip():
            questions.append(text[:300])
    return questions


@router.get("/{namespace}/{name}", dependencies=[EXPENSIVE])
@router.get("/datasets/{namespace}/{name}", dependencies=[EXPENSIVE])
@router.get("/{namespace}/{name}/tree/{revision}", dependencies=[EXPENSIVE])
@router.get("/datasets/{namespace}/{name}/tree/{revision}", dependencies=[EXPENSIVE])
@router.get("/{namespace}/{name}/commit/{revision}", dependencies=[EXPENSIVE])
@router.get("/datasets/{namespace}/{name}/commit/{revision}", dependencies=[EXPENSIVE])
def repository_page(
    request: Request,
    hub: HubDep,
    caches: CachesDep,
    identity: OptionalIdentity,
    options: OptionsDep,
    repository: WebRepository,
    revision: Segment = MAIN,
) -> Response:
    """Show a card, model or dataset at a revision."""
    view = load_card(hub, caches, repository, revision, identity)
    # The state of the visitor's request for access to a gated repository.
    access = None
    if identity is not None and repository.gated != "no":
        access = hub.repositories.access_state(repository, identity.account_id)
    # On main, a version that is not measured yet shows the figure of the one before it.
    versions = view["versions"]
    shown = view["shown"] or (versions[-1] if versions else None)
    trust, recall = None, None
    if shown is not None:
        trust = load_trust(hub, {shown.repository_id: shown}, earlier=revision == MAIN)[shown.repository_id]
        recall = find_recall(hub, shown)
    # The file that commands name: of a card its manifest, of an LLM the first of its files.
    paths = [file.path for file in view["files"]]
    llms = [path for path in paths if path.endswith(".gguf")]
    uses = list_uses(
        repository,
        view["manifest"],
        url=base_url(request, options),
        revision=revision,
        path=MANIFEST if MANIFEST in paths else next(iter([*llms, *paths]), ""),
        published=view["row"].summary is not None,
        question=next(iter(view["suggestions"]), ""),
    )
    return page(
        "card.html",
        view=view,
        tags=[tag for tag in repository.tags if not tag.startswith(SHOWN_ELSEWHERE)][:MAX_TAGS],
        here="datasets" if repository.type == "dataset" else "cards",
        history=load_history(hub, versions, with_exams=view["released"]),
        counts=count_scores(view["exam"]),
        trust=trust,
        recall=recall,
        uses=uses,
        access=access,
    )
