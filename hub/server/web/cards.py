"""The contents of a card's page: charts of its figures, its exam, and commands that use it."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from kcard.errors import CardError, HubError, KcardError
from kcard.hub import card_metadata, search_index
from kcard.hub import versions as card_versions
from kcard.hub.accounts import Identity
from kcard.hub.db.models import Commit, Publication, Ref, Repository, RepositoryType, VersionRow
from kcard.hub.figures import EXAM_FILE, check_share
from kcard.hub.permissions import may_download
from kcard.hub.repositories import ListQuery
from kcard.hub.search import SearchQuery, SearchResults
from kcard.hub.server.caches import Caches
from kcard.hub.server.dependencies import get_repository, has_access
from kcard.hub.server.responses import Json, declared_results
from kcard.hub.services import HubServices
from kcard.hub.storage import Blobs
from kcard.hub.values import Entry
from kcard.manifest import Manifest

# Charts as SVG geometry: factuality and recall over versions, and the distribution of scores.

WIDTH, HEIGHT = 640.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 14.0, 12.0, 28.0
BINS = 10


@dataclass(frozen=True)
class HistoryPoint:
    """A point of a series: its place, its value in [0, 1] and the number of its version."""

    x: float
    y: float
    value: float
    number: int


@dataclass(frozen=True)
class HistorySeries:
    """A line; `name` is its class in the style sheet: verified, declared or recall."""

    name: str
    points: Sequence[HistoryPoint]

    @property
    def path(self) -> str:
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


@dataclass(frozen=True)
class History:
    """Series over versions; `labels` are x and number of versions, `lines` y and value of the grid."""

    series: Sequence[HistorySeries]
    labels: Sequence[tuple[float, int]]
    lines: Sequence[tuple[float, float]]
    width: float = WIDTH
    height: float = HEIGHT


@dataclass(frozen=True)
class ChartBar:
    """A bar of a histogram: its range, its count, and its rectangle."""

    low: float
    high: float
    count: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Histogram:
    """A histogram of scores in [0, 1]."""

    bars: Sequence[ChartBar]
    base: float
    width: float = WIDTH
    height: float = 138.0


def make_history(versions: Sequence[tuple[int, dict[str, float | None]]]) -> History | None:
    """Return the chart of values by series of each version, oldest first; None if fewer than two versions have any."""
    measured = [
        (number, values) for number, values in versions if any(v is not None for v in values.values())
    ]
    if len(measured) < 2:
        return None
    step = (WIDTH - LEFT - RIGHT - 40) / (len(measured) - 1)
    places = {number: LEFT + 20 + step * place for place, (number, _) in enumerate(measured)}
    names = [name for name in measured[0][1] if any(values[name] is not None for _, values in measured)]
    series = [
        HistorySeries(
            name,
            [
                HistoryPoint(places[number], _y_of(value), value, number)
                for number, values in measured
                if (value := values[name]) is not None
            ],
        )
        for name in names
    ]
    every = -(-len(measured) // 12)
    labels = [(places[number], number) for place, (number, _) in enumerate(measured) if place % every == 0]
    return History(series, labels, [(_y_of(value), value) for value in (0.0, 0.25, 0.5, 0.75, 1.0)])


def make_histogram(scores: Sequence[float]) -> Histogram | None:
    """Return how many of the scores are in each tenth; None without scores."""
    if not scores:
        return None
    counts = [0] * BINS
    for score in scores:
        counts[min(int(score * BINS), BINS - 1)] += 1
    most, base, room = max(counts), 112.0, 86.0
    width = (WIDTH - LEFT - RIGHT) / BINS
    bars = [
        ChartBar(
            place / BINS,
            (place + 1) / BINS,
            count,
            LEFT + place * width + 3,
            base - room * count / most,
            width - 6,
            room * count / most,
        )
        for place, count in enumerate(counts)
    ]
    return Histogram(bars, base)


def _y_of(value: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(max(value, 0.0), 1.0))


# Commands and code that use a card, for copying.
#
# Everything that comes from the card is quoted or checked, since people run what they copy.

KCARD = """\
kcard pull {name}{at} --hub {url}
kcard ask {shell_question} --cards {card}"""

PYTHON = """\
import kcard

kcard.pull("{name}{at}", hub="{url}")
print(kcard.ask({python_question}, cards=["{card}"]).answer)"""

DOWNLOAD = """\
from huggingface_hub import snapshot_download

folder = snapshot_download("{name}"{kind}, revision="{revision}", endpoint="{url}")"""

ADAPTER = """
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained("{base}")
model = PeftModel.from_pretrained(base, folder)
tokenizer = AutoTokenizer.from_pretrained(folder)"""

MODEL = """
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)"""

FETCH = "HF_ENDPOINT={url} hf download {name}{option} --revision {revision} --local-dir {folder}"
VLLM_ADAPTER = (
    FETCH + "\nvllm serve {base} --enable-lora --max-lora-rank 64 --lora-modules {folder}=./{folder}"
)
VLLM = FETCH + "\nvllm serve ./{folder}"
CURL = "curl -LO {url}{prefix}/{name}/resolve/{revision}/{path}"
BASE = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
QUESTION = "…"
MAIN = "main"


@dataclass(frozen=True)
class Use:
    """A way to use a card: its title, and the command or code."""

    key: str
    title: str
    text: str


def list_uses(
    repository: Repository,
    manifest: Manifest | None,
    *,
    url: str,
    revision: str,
    path: str,
    published: bool,
    question: str = "",
) -> list[Use]:
    """Return ways to use a repository at a revision; `path` is one of its files, `question` suits its card."""
    dataset = repository.type == "dataset"
    line = " ".join(question.split()) or QUESTION
    base = manifest.base.name if manifest is not None and BASE.fullmatch(manifest.base.name) else ""
    values = {
        "name": repository.name,
        "at": "" if revision == MAIN else f"@{revision}",
        "url": url,
        "revision": revision,
        "shell_question": shlex.quote(line),
        "python_question": json.dumps(line, ensure_ascii=False),
        "card": manifest.name if manifest is not None else "",
        "base": base,
        "folder": repository.name.partition("/")[2],
        "kind": ', repo_type="dataset"' if dataset else "",
        "option": " --repo-type dataset" if dataset else "",
        "prefix": "/datasets" if dataset else "",
        "path": shlex.quote(quote(path)),
    }
    # With kcard, with the library that loads the model, by download.
    ways: list[Use] = []
    if manifest is not None and published:
        ways.append(Use("kcard", "kcard", KCARD.format(**values)))
        ways.append(Use("python", "Python", PYTHON.format(**values)))
    if base and manifest is not None and manifest.is_adapter:
        ways.append(Use("transformers", "transformers + peft", (DOWNLOAD + "\n" + ADAPTER).format(**values)))
        if manifest.kind == "lora":
            ways.append(Use("vllm", "vLLM", VLLM_ADAPTER.format(**values)))
    elif manifest.kind == "full" if manifest is not None else repository.library == "transformers":
        ways.append(Use("transformers", "transformers", (DOWNLOAD + "\n" + MODEL).format(**values)))
        ways.append(Use("vllm", "vLLM", VLLM.format(**values)))
    else:
        ways.append(Use("download", "huggingface_hub", DOWNLOAD.format(**values)))
    ways.append(Use("hf", "hf", FETCH.format(**values)))
    if path:
        ways.append(Use("curl", "curl", CURL.format(**values)))
    return ways


# The exam of a card as pages show it. The file may contain anything; what can't be read is omitted.

LARGEST = 2_000_000  # bytes
LONGEST = 1200  # characters of a shown text
MOST_SCORES, MOST_SHOWN = 5000, 10
T = TypeVar("T")


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class ExamQuestionView:
    """A question of an exam: an accepted answer, what the card generated, and whether that contains the answer."""

    question: str
    answer: str
    text: str
    right: bool
    score: float | None


@dataclass(frozen=True)
class ExamView:
    """An exam about the card's own corpus.

    scores      of its documents, in [0, 1]: factuality, else faithfulness; `scored` says which
    digest      sha256 of the questions, for comparing exams
    shown       the best and the worst documents, which travel with the card
    """

    recall: Interval | None
    lift: Interval | None
    faithfulness: Interval | None
    factuality: Interval | None
    scored: str
    scores: tuple[float, ...]
    questions: int
    digest: str
    base: str
    checker: str
    evidence: str
    shown: tuple[ExamQuestionView, ...]


def load_exam(blobs: Blobs, sha256: str) -> ExamView | None:
    """Return the exam in a blob; None if it can't be read or has nothing about the card's own corpus."""
    try:
        return _read_exam(blobs, sha256)
    except (KcardError, ValueError, AttributeError, RecursionError):
        return None


@lru_cache(maxsize=64)
def _read_exam(blobs: Blobs, sha256: str) -> ExamView | None:
    with blobs.open(sha256) as stream:
        text = stream.read(LARGEST + 1)
    record = json.loads(text) if len(text) <= LARGEST else {}
    own = record.get("own")
    if not isinstance(own, dict):
        return None
    # The best and the worst documents.
    scored = "factuality" if _try(lambda: own["factuality"]["scores"]) else "faithfulness"
    judged = [*_read_list(record.get("best")), *_read_list(record.get("worst"))]
    shown: dict[ExamQuestionView, None] = {}
    for item in judged:
        if isinstance(item, dict) and _read_text(item.get("question")):
            question = ExamQuestionView(
                question=_read_text(item["question"]),
                answer=_read_text(item.get("answer")),
                text=_read_text(item.get("text")),
                right=item.get("recalled") is True,
                score=_try(lambda item=item: check_share(float(item[scored]))),  # type: ignore[misc]
            )
            shown[question] = None
    # Each figure by itself, since any may be missing or malformed.
    return ExamView(
        recall=_read_interval(own.get("recall"), -1),
        lift=_read_interval(own.get("lift"), -1),
        faithfulness=_read_interval(_try(lambda: own["faithfulness"]["mean"]), 0),
        factuality=_read_interval(_try(lambda: own["factuality"]["mean"]), 0),
        scored=scored,
        scores=tuple(
            _try(lambda: [check_share(float(s)) for s in own[scored]["scores"][:MOST_SCORES]]) or ()
        ),
        questions=_try(lambda: int(own["questions"])) or 0,
        digest=_read_text(own.get("questions_sha256")),
        base=_read_text(record.get("base")),
        checker=_read_text(record.get("checker")),
        evidence=_read_text(record.get("evidence")),
        shown=tuple(shown),
    )


def _read_interval(value: Any, least: float) -> Interval | None:
    def read() -> Interval:
        mean, low, high = (float(value[key]) for key in ("mean", "low", "high"))
        if not least <= mean <= 1:
            raise ValueError(mean)
        return Interval(mean, low, high)

    return _try(read)


def _try(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (KcardError, ValueError, TypeError, KeyError, IndexError, OverflowError):
        return None


def _read_list(value: object) -> list[Any]:
    return value[:MOST_SHOWN] if isinstance(value, list) else []


def _read_text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


MOST_FILES, MOST_REFS, MOST_SUGGESTIONS, MOST_BASES = 200, 50, 5, 5


@dataclass(frozen=True)
class RepositoryRow:
    """A repository in a list; `summary` is None if it has published no card."""

    repository: Repository
    summary: VersionRow | None

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
        return search_index.find_bases(self.repository.tags)[:MOST_BASES]


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
    updates    the version that this one is an update of, if this hub has it
    derived    cards that are updates of one of these versions
    adapted    models that name this one as their base model
    results    evaluation results that the repository declares, as the API has them
    """

    row: RepositoryRow
    revision: str
    commit: Commit
    released: bool
    threshold: float | None
    publications: Sequence[Publication]
    refs: Sequence[Ref]
    versions: Sequence[VersionRow] = ()
    files: Sequence[Entry] = ()
    more: int = 0
    manifest: Manifest | None = None
    readme: str = ""
    note: str = ""
    exam: ExamView | None = None
    suggestions: Sequence[str] = ()
    updates: VersionRow | None = None
    derived: Sequence[VersionRow] = ()
    adapted: Sequence[Repository] = ()
    results: Sequence[Json] = ()

    @property
    def shown(self) -> VersionRow | None:
        """The published version of this commit; on main, the newest one."""
        here = [version for version in self.versions if version.commit == self.commit.sha]
        if self.revision == "main":
            return self.versions[-1] if self.versions else None
        return here[-1] if here else None


def search_rows(
    hub: HubServices, query: SearchQuery, identity: Identity | None
) -> tuple[list[RepositoryRow], SearchResults]:
    """Return a page of readable repositories, and the result of the search."""
    matches = hub.search.find(query, identity)
    summaries = hub.publications.summarize(repository.id for repository in matches.repositories)
    return [
        RepositoryRow(repository, summaries.get(repository.id)) for repository in matches.repositories
    ], matches


def load_row(hub: HubServices, repository: Repository) -> RepositoryRow:
    """Return a repository with the summary of its newest version."""
    return RepositoryRow(repository, hub.publications.summarize([repository.id]).get(repository.id))


def load_card(
    hub: HubServices,
    caches: Caches,
    type_: RepositoryType,
    name: str,
    revision: str,
    identity: Identity | None,
) -> CardView:
    """Return a repository at a revision. Raises NotFound if the client may not read it, or for an unknown revision."""
    repository = get_repository(hub, type_, name, identity)
    sha = hub.refs.resolve(repository, revision)
    publications = hub.publications.list(repository)[::-1]
    versions = card_versions.list_versions(hub.database, repository)
    adapting = ListQuery(type="model", filters=[f"base_model:{repository.name}"], limit=10)
    published = {publication.tag for publication in publications}
    other_tags = (tag for tag in hub.refs.tags(repository) if tag.name not in published)
    view = CardView(
        row=load_row(hub, repository),
        revision=revision,
        commit=hub.commits.get(repository, sha),
        released=may_download(identity, repository, has_access(hub, identity, repository)),
        threshold=hub.registry.quarantine.threshold,
        publications=publications,
        refs=list(islice(chain(hub.refs.branches(repository), other_tags), MOST_REFS)),
        versions=versions,
        derived=[
            link
            for link in card_versions.list_derived(hub.database, [v.sha256 for v in versions], identity)
            if link.repository_id != repository.id
        ],
        adapted=hub.listing.page(adapting, identity)[0] if type_ == "model" else (),
    )
    if not view.released:
        return view

    # The contents of the files.
    tree = caches.tree(repository, sha)
    # The README as HTML, or why it is not shown. The page is shown even if a file is damaged.
    readme, note = "", ""
    if card_metadata.README not in tree:
        note = "There is no README.md."
    else:
        try:
            readme = caches.readme(tree[card_metadata.README], page_address(repository, "resolve", sha))
        except (HubError, CardError) as error:
            note = f"README.md can't be shown: {error}"
    manifest = caches.manifest(tree)
    examined = load_exam(hub.blobs, tree[EXAM_FILE].sha256) if EXAM_FILE in tree else None
    before = manifest.updates if manifest is not None else None
    # Questions that the author suggests as `widget` on branch main, else those that the card answered in its exam.
    widget = repository.card.get("widget")
    texts = [one.get("text") for one in widget if isinstance(one, dict)] if isinstance(widget, list) else []
    suggestions = [text[:300] for text in texts if isinstance(text, str) and text.strip()]
    if not suggestions and examined is not None:
        suggestions = [question.question for question in examined.shown if question.right]
    return replace(
        view,
        files=list(islice(tree.values(), MOST_FILES)),
        more=max(0, len(tree) - MOST_FILES),
        manifest=manifest,
        readme=readme,
        note=note,
        exam=examined,
        suggestions=suggestions[:MOST_SUGGESTIONS],
        updates=None if before is None else card_versions.find_version(hub.database, before, identity),
        results=declared_results(hub.blobs, tree),
    )


def page_address(repository: Repository, *parts: str) -> str:
    """Return the path of a repository's page, or of a page below it; the parts are not quoted."""
    kind: Literal["", "/datasets"] = "/datasets" if repository.type == "dataset" else ""
    return "/".join([f"{kind}/{repository.name}", *parts])
