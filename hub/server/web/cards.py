"""The contents of a card's page: its exam, example questions, and commands that use it."""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice, zip_longest
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from kcard.errors import CardError, HubError, KcardError
from kcard.hub import card_metadata, search_index
from kcard.hub import versions as card_versions
from kcard.hub.accounts import Identity
from kcard.hub.db.models import Commit, Publication, Ref, Repository, RepositoryType, Version
from kcard.hub.figures import EXAM_FILE, check_share, read_figure
from kcard.hub.listing import ListQuery
from kcard.hub.permissions import may_download
from kcard.hub.search import SearchQuery, SearchResults
from kcard.hub.server.caches import Caches
from kcard.hub.server.dependencies import get_repository, has_access
from kcard.hub.server.responses import Json, declared_results
from kcard.hub.server.web.measurements import LARGEST, Trust, load_trust
from kcard.hub.services import HubServices
from kcard.hub.storage import Blobs
from kcard.hub.values import Entry, ScoreEstimate
from kcard.manifest import Manifest

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
        ways.append(Use("vllm", "vLLM", VLLM_ADAPTER.format(**values)))
    elif manifest.method == "full" if manifest is not None else repository.library == "transformers":
        ways.append(Use("transformers", "transformers", (DOWNLOAD + "\n" + MODEL).format(**values)))
        ways.append(Use("vllm", "vLLM", VLLM.format(**values)))
    else:
        ways.append(Use("download", "huggingface_hub", DOWNLOAD.format(**values)))
    ways.append(Use("hf", "hf", FETCH.format(**values)))
    if path:
        ways.append(Use("curl", "curl", CURL.format(**values)))
    return ways


# The exam of a card as pages show it. The file may contain anything; what can't be read is omitted.

LONGEST = 1200  # characters of a shown text
MOST_SCORES, MOST_SHOWN = 5000, 10
FIGURES = ("recall", "lift", "faithfulness", "factuality")
T = TypeVar("T")


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

    scores      of its documents, in [0, 1]: factuality, else faithfulness; `scored` says which, and `unknown`, how
                many documents the evidence does not cover
    digest      sha256 of the questions, for comparing exams
    shown       the best and the worst documents, which travel with the card
    """

    recall: ScoreEstimate | None
    lift: ScoreEstimate | None
    faithfulness: ScoreEstimate | None
    factuality: ScoreEstimate | None
    scored: str
    scores: tuple[float, ...]
    unknown: int
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
    figures = {name: read_figure(record, name) for name in FIGURES}
    estimates = {name: None if figure is None else figure.estimate for name, figure in figures.items()}
    distribution = figures[scored]
    return ExamView(
        **estimates,
        scored=scored,
        scores=() if distribution is None else distribution.scores[:MOST_SCORES],
        unknown=0 if distribution is None else distribution.unknown,
        questions=_try(lambda: int(own["questions"])) or 0,
        digest=_read_text(own.get("questions_sha256")),
        base=_read_text(record.get("base")),
        checker=_read_text(record.get("checker")),
        evidence=_read_text(record.get("evidence")),
        shown=tuple(shown),
    )


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


# Example questions for a card that has neither a widget nor an exam: from the headings of its passages, or from what
# their first sentences speak of.

PASSAGES = "passages.jsonl"
READ_PASSAGES = 400_000  # bytes: enough for some hundred passages
SUBJECT = re.compile(r"((?:The |An? )?(?:[^\W\d_][\w'’.-]* ?){1,5}?) (?:is|was|are|were|has|have) ")
# Headings that every other document has, that are code, or that no question can take up.
COMMON = re.compile(
    r"(?:introduction|overview|contents|summary|notes?|see also|references?|licen[sc]e|name|synopsis|options"
    r"|description|examples?|usage|history|index|bugs|authors?|copyright)"
    r"|(?:in|on|with|from|to|for|by|at|as|if|when|where|after|before) .*(?<!\?)|.*[{}<>=$\\|`/_].*|[\W\d_]*",
    re.IGNORECASE,
)
PRONOUNS = re.compile(
    r"(?:it|he|she|they|this|that|these|those|there|here|what|which|who|you|we|i|one)\b", re.IGNORECASE
)


def example_questions(blobs: Blobs, files: Mapping[str, str], language: str = "en") -> tuple[str, ...]:
    """Return questions that a card answered in its exam, else such about its passages; at most MOST_SUGGESTIONS.

    files  the sha256 of the card's files, by name
    """
    exam = load_exam(blobs, files[EXAM_FILE]) if EXAM_FILE in files else None
    answered = [question.question for question in exam.shown if question.right] if exam is not None else []
    if answered or PASSAGES not in files:
        return tuple(answered[:MOST_SUGGESTIONS])
    return suggest_questions(blobs, files[PASSAGES], language)


@lru_cache(maxsize=512)
def suggest_questions(blobs: Blobs, sha256: str, language: str = "en") -> tuple[str, ...]:
    """Return example questions about the passages in a blob, at most MOST_SUGGESTIONS, from different files."""
    try:
        with blobs.open(sha256) as stream:
            lines = stream.read(READ_PASSAGES).decode(errors="replace").split("\n")
    except KcardError:
        return ()
    # The topics of each file, headings first.
    topics: dict[str, dict[str, bool]] = {}
    for line in lines:
        try:
            passage = json.loads(line)
            heading = passage.get("section", "").rpartition(" > ")[2].strip(" #:.")
            text = passage.get("text", "")
            subject = SUBJECT.match(text) if isinstance(text, str) else None
        except (ValueError, AttributeError, RecursionError):  # the last line is cut
            continue
        of_file = topics.setdefault(str(passage.get("file", "")), {})
        if 3 <= len(heading) <= 60 and not COMMON.fullmatch(heading):
            of_file.setdefault(heading, True)
        elif subject is not None and not PRONOUNS.match(subject[1].removeprefix("The ")):
            of_file.setdefault(subject[1].strip(), False)
    ranked = [sorted(of_file, key=lambda topic: not of_file[topic]) for of_file in topics.values()]
    rounds = chain.from_iterable(zip_longest(*ranked))
    chosen = islice(dict.fromkeys(topic for topic in rounds if topic), MOST_SUGGESTIONS)
    return tuple(_ask_about(topic, language) for topic in chosen)


def _ask_about(topic: str, language: str) -> str:
    if topic.endswith("?"):
        return topic
    if not language.startswith("en"):
        return f"{topic}?"
    lowered = topic.lower()
    if lowered.startswith("how to "):
        return f"How do I {topic[7:]}?"
    if lowered.startswith(("how ", "why ", "what ", "who ", "which ")):
        return f"{topic}?"
    first = topic.partition(" ")[0]
    if first in ("The", "A", "An") or first.endswith("ing"):  # "Serving cards" begins with no name
        topic = lowered[0] + topic[1:]
    return f"What is known about {topic}?"


MOST_FILES, MOST_REFS, MOST_SUGGESTIONS, MOST_BASES = 200, 50, 5, 5


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
    versions: Sequence[Version] = ()
    files: Sequence[Entry] = ()
    more: int = 0
    manifest: Manifest | None = None
    readme: str = ""
    note: str = ""
    exam: ExamView | None = None
    suggestions: Sequence[str] = ()
    updates: Version | None = None
    derived: Sequence[Version] = ()
    adapted: Sequence[Repository] = ()
    results: Sequence[Json] = ()

    @property
    def shown(self) -> Version | None:
        """The published version of this commit; on main, the newest one."""
        here = [version for version in self.versions if version.commit == self.commit.sha]
        if self.revision == "main":
            return self.versions[-1] if self.versions else None
        return here[-1] if here else None


def make_rows(hub: HubServices, repositories: Sequence[Repository]) -> list[RepositoryRow]:
    """Return repositories with the summaries of their newest versions, and how far these can be trusted."""
    summaries = hub.publications.summarize(repository.id for repository in repositories)
    trust = load_trust(hub, summaries)
    return [
        RepositoryRow(repository, summaries.get(repository.id), trust.get(repository.id))
        for repository in repositories
    ]


def search_rows(
    hub: HubServices, query: SearchQuery, identity: Identity | None
) -> tuple[list[RepositoryRow], SearchResults]:
    """Return a page of readable repositories, and the result of the search."""
    matches = hub.search.find(query, identity)
    return make_rows(hub, matches.repositories), matches


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
    readme, note, manifest = "", "", caches.manifest(tree)
    if card_metadata.README not in tree:
        note = "There is no README.md."
    else:
        try:
            files = page_address(repository, "resolve", sha)
            readme = caches.readme(tree[card_metadata.README], files, manifest)
        except (HubError, CardError) as error:
            note = f"README.md can't be shown: {error}"
    examined = load_exam(hub.blobs, tree[EXAM_FILE].sha256) if EXAM_FILE in tree else None
    before = manifest.updates if manifest is not None else None
    # Questions that the author suggests as `widget` on branch main, else the card's own.
    widget = repository.card.get("widget")
    texts = [one.get("text") for one in widget if isinstance(one, dict)] if isinstance(widget, list) else []
    suggestions = [text[:300] for text in texts if isinstance(text, str) and text.strip()]
    if not suggestions and manifest is not None:
        digests = {path: entry.sha256 for path, entry in tree.items()}
        suggestions = [*example_questions(hub.blobs, digests, manifest.language)]
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
