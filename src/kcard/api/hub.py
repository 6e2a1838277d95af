"""Publish cards to a hub, pull them and LLMs, log in."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, overload

from kcard.config import settings
from kcard.errors import HubError, UnknownCard, UsageError
from kcard.events import OnEvent, ignore, note
from kcard.manifest import MANIFEST, Manifest
from kcard.options import Option, documented

if TYPE_CHECKING:
    from kcard.hub.client.connection import Credentials, HubUser
    from kcard.hub.client.transfer import ListedCard, PublishedVersion
    from kcard.hub.db.models import Version
    from kcard.hub.registry import Hub
    from kcard.llms.local_models import PulledModel

# Publish a draft as a version of the hub, once it has passed its checks.

# A larger model takes minutes to generate fifty documents on a CPU.
MAX_SCANNED_MODEL_BYTES = 200_000_000


class HasFolder(Protocol):
    """A card, or anything else with a folder."""

    @property
    def folder(self) -> Path: ...


@overload
def publish(
    card: "Path | str | HasFolder | None" = None,
    *,
    hub: "Hub | None" = None,
    aliases: Sequence[str] = (),
    min_recall: float | None = None,
    min_factuality: float | None = None,
    strict: bool = False,
    confirm: Callable[[str], bool] | None = None,
    on_event: OnEvent = ignore,
) -> "Version": ...


@overload
def publish(
    card: "Path | str | HasFolder | None" = None,
    *,
    hub: str,
    repository: str | None = None,
    private: bool | None = None,
    aliases: Sequence[str] = (),
    min_recall: float | None = None,
    min_factuality: float | None = None,
    strict: bool = False,
    confirm: Callable[[str], bool] | None = None,
    on_event: OnEvent = ignore,
    progress: bool = False,
) -> "PublishedVersion": ...


@documented
def publish(
    card: Annotated[
        "Path | str | HasFolder | None",
        Option(
            "A draft's name or a card folder.",
            default="the last one trained",
            argument=True,
            command_line=str | None,
            completes="drafts",
        ),
    ] = None,
    *,
    hub: Annotated[
        "Hub | str | None",
        Option("A hub's URL, or local.", default="the setting hub_url, else local", command_line=str | None),
    ] = None,
    repository: Annotated[
        str | None, Option("On a remote hub: namespace/name.", default="yours, the card's name")
    ] = None,
    private: Annotated[
        bool | None,
        Option(
            "On a remote hub: who sees a new repository.",
            default="as the hub's operator decided",
            flag="--private/--public",
        ),
    ] = None,
    aliases: Annotated[
        Sequence[str],
        Option(
            "A name for this version, such as stable. Repeatable.", flag="--alias", command_line=list[str]
        ),
    ] = (),
    min_recall: Annotated[
        float | None, Option("Publish only if its exam has at least this recall.", least=0, most=1)
    ] = None,
    min_factuality: Annotated[
        float | None,
        Option("Publish only if its exam has at least this factuality.", least=0, most=1),
    ] = None,
    strict: Annotated[
        bool,
        Option(
            "Refuse a card with private data, and scan the output of large models too.",
            negatable=True,
        ),
    ] = False,
    confirm: Callable[[str], bool] | None = None,
    on_event: OnEvent = ignore,
    progress: bool = False,
) -> "Version | PublishedVersion":
    """Publish a card as its next version, which is immutable and verified on every read.

    `on_event` is called with a note on the findings of the privacy scan, and one if the hub has this version already.
    A card is scanned only once: its findings are cached. A new remote repository is reported as public or private.
    `confirm` is called with a warning where the newest version of that name was made of other texts, and returns
    whether to publish; without it, the warning is a note. `progress`: whether to show the upload to a remote hub, which
    may be any with the Hugging Face Hub's protocol, as bars on stderr.

    Raises HubError if there is no such draft, if its exam is below `min_recall` or `min_factuality` (or was not taken),
    if `strict` finds private data, if `confirm` returns False, and if a remote hub refuses or does not answer; and what
    Hub.publish raises. Nothing is published then; finished uploads need not be repeated.
    """
    from kcard.cards.card import Card
    from kcard.evaluation.privacy import PROBE_DOCUMENTS, summarise_scan
    from kcard.hub.registry import Hub
    from kcard.hub.selection import find_card_folder

    if not isinstance(hub, str) and (repository is not None or private is not None):
        raise UsageError("repository and private need a remote hub: give it with --hub URL")
    name = card if card is None or isinstance(card, str | Path) else card.folder
    source = Card.open(find_card_folder(settings().drafts, name))
    if min_recall is not None or min_factuality is not None:
        from kcard.evaluation.exam import check_exam

        check_exam(source, {"recall": min_recall, "factuality": min_factuality})

    # Look for private data in its files and in the output of its model. Loading the card takes long if its weights are
    # large, or not in its folder (a base, a card by reference).
    size = 0
    for path in source.manifest.files:
        if path.endswith(".safetensors"):
            size += (source.folder / path).stat().st_size
    is_slow = source.manifest.has_model and (
        source.manifest.is_adapter or not 0 < size <= MAX_SCANNED_MODEL_BYTES
    )
    leaks = summarise_scan(source, documents=0 if is_slow and not strict else PROBE_DOCUMENTS)
    if leaks and strict:
        raise HubError(f"{source.name} is not published: it contains private data: {leaks}")
    if leaks:
        on_event(note(f"{source.name} contains private data: {leaks} (--strict refuses to publish it)"))
    if is_slow and not strict:
        on_event(
            note(
                f"{source.name}: its files were scanned for private data; the output of its model is scanned only "
                "with --strict"
            )
        )

    def check_newest(reference: str, newest: Manifest) -> None:
        warning = _warn_of_other_texts(source.manifest, newest, reference)
        if warning and confirm is None:
            on_event(note(warning))
        elif warning and confirm is not None and not confirm(warning):
            raise HubError(f"{source.name} is not published")

    if isinstance(hub, str):
        there = push(
            source.folder,
            hub,
            repository=repository,
            private=private,
            aliases=aliases,
            check_newest=check_newest,
            progress=progress,
        )
        if there.unchanged:
            on_event(note(f"{there.reference} is unchanged"))
        elif there.number == 1:
            visibility = "public: everyone who can reach the hub can see it"
            if there.private:
                visibility = "private: those who may read your namespace can see it"
            on_event(note(f"{there.repository} is {visibility}"))
        return there
    local = Hub() if hub is None else hub
    version = local.published(source.folder)
    if version is not None:
        on_event(note(f"{version.reference} is unchanged"))
    elif source.name in local:
        newest = local.get(source.name)
        check_newest(newest.reference, newest.manifest)
    return local.publish(source.folder, aliases=aliases)


def _warn_of_other_texts(manifest: Manifest, newest: Manifest, reference: str) -> str:
    """Return a warning where a card has the name of `newest` but was made of other texts and is no update of it."""
    same_corpus = manifest.training.corpus_sha256 == newest.training.corpus_sha256
    if manifest.updates is not None or same_corpus:
        return ""
    return (
        f"{reference} was made of other texts ({newest.training.passages} passages; this card has "
        f"{manifest.training.passages}), and this card is no update of it"
    )


TOKENS = "tokens.json"
DOWNLOADS = "downloads"


def credentials() -> "Credentials":
    """Return the tokens that are stored under KCARD_HOME."""
    from kcard.hub.client.connection import Credentials

    return Credentials(settings().home / TOKENS)


@documented
def login(hub: str, token: str) -> "HubUser":
    """Store a token for a hub, once the hub has accepted it; `kcard login` does the same.

    Raises UsageError for an invalid address or token, and for a token of another hub, which is not sent; HubError if
    the hub does not accept it or does not answer. Nothing is stored then.
    """
    from kcard.hub.client.connection import check_token, fetch_user, is_hugging_face, normalise_url

    url = normalise_url(hub)
    if not is_hugging_face(url):  # there `hf auth login` keeps the token; `store` says so
        check_token(url, token)
        user = fetch_user(url, token)
    credentials().store(url, token)
    return user


@documented
def logout(hub: str) -> bool:
    """Delete the stored token of a hub; return whether there was one. It stays valid until it is revoked on the hub."""
    from kcard.hub.client.connection import normalise_url

    return credentials().forget(normalise_url(hub))


@documented
def whoami(hub: str) -> "HubUser":
    """Return the user of the stored token of a hub. Raises HubError if nobody is logged in."""
    from kcard.hub.client.connection import fetch_user, normalise_url

    url = normalise_url(hub)
    return fetch_user(url, credentials().token(url))


@documented
def listed(hub: str, text: str | None = None, *, limit: int = 100) -> "list[ListedCard]":
    """List the cards of a hub that the user may see, latest change first. `text`: in their name or tags."""
    from kcard.hub.client.connection import normalise_url
    from kcard.hub.client.transfer import list_cards as listed_there

    url = normalise_url(hub)
    return listed_there(url, credentials().token(url), text, limit=limit)


@documented
def push(
    folder: Path,
    hub: str,
    *,
    repository: str | None = None,
    private: bool | None = None,
    aliases: Sequence[str] = (),
    check_newest: Callable[[str, Manifest], None] | None = None,
    progress: bool = False,
) -> "PublishedVersion":
    """Publish a card's folder on a remote hub, as `kcard.publish` does once the card has passed its checks.

    `check_newest` is called with the reference and the manifest of the newest version, and may raise.
    """
    from kcard.cards.model_card import readme
    from kcard.hub.checks.content import check_contents
    from kcard.hub.client.connection import normalise_url, require_login
    from kcard.hub.client.transfer import RemoteReference
    from kcard.hub.client.transfer import push_card as push_there
    from kcard.hub.versions import check_alias

    url = normalise_url(hub)
    for alias in aliases:
        check_alias(alias)
    if repository is not None and RemoteReference.parse(repository).revision is not None:
        raise UsageError(f"repository {repository!r}: use namespace/name; the hub numbers the version")
    token = credentials().token(url) or require_login(url)
    manifest = Manifest.read(folder)
    check_contents(manifest, lambda path: (folder / path).open("rb"))
    page = readme(manifest)
    return push_there(
        url,
        token,
        folder,
        page,
        repository=repository,
        private=private,
        aliases=aliases,
        check_newest=check_newest,
        progress=progress,
    )


@overload
def pull(
    card: str,
    folder: None = None,
    *,
    hub: str,
    local: "Hub | None" = None,
    progress: bool = False,
) -> "Version": ...


@overload
def pull(
    card: str,
    folder: Path | str,
    *,
    hub: str,
    local: "Hub | None" = None,
    progress: bool = False,
) -> Path: ...


@documented
def pull(
    card: str,
    folder: Path | str | None = None,
    *,
    hub: str,
    local: "Hub | None" = None,
    progress: bool = False,
) -> "Version | Path":
    """Fetch a card from a hub, atomically; `kcard pull ns/name --hub URL` does the same.

    card     namespace/name (its newest version), or namespace/name@ and a tag, a branch or a commit
    folder   a new folder for it; None: it becomes a version of the local hub, where `kcard ask` finds it
    local    the local hub (default: under KCARD_HOME)

    Every sha256 of its manifest is checked, and an interrupted download is resumed. Raises UsageError for an invalid
    reference or an existing folder, UnknownCard if the hub has no such card, HubError if it does not answer, refuses or
    exceeds a limit, or if the local hub has another card of that name, CardError for a file that no card may have,
    DamagedCard if a file differs from its manifest. Nothing is stored then.
    """
    from kcard.hub.client.connection import normalise_url
    from kcard.hub.client.transfer import RemoteReference, download_card, install_card
    from kcard.hub.registry import Hub
    from kcard.hub.storage import check_new_folder, explain_os_errors

    url, reference = normalise_url(hub), RemoteReference.parse(card)
    token = credentials().token(url)
    target = None if folder is None else check_new_folder(Path(folder))
    downloads = settings().home / DOWNLOADS
    with (
        explain_os_errors(f"can't pull {card}"),
        download_card(url, token, reference, downloads, progress=progress) as verified,
    ):
        if target is not None:
            return install_card(verified, target)
        if local is None:
            local = Hub()
        refuse_namesake(local, verified, url, token, reference.repository)
        return local.publish(verified)


def refuse_namesake(local: "Hub", folder: Path, url: str, token: str | None, repository: str) -> None:
    """Raise HubError if the local hub has a card of that name that never was in the repository.

    Somebody else's card must not become the newest version of a card that the user has used so far.
    """
    from kcard.hub.client.transfer import has_published_version

    name = Manifest.read(folder).name
    try:
        versions = local.versions(name)
    except UnknownCard:
        return
    mine = []
    for version in versions:
        with local.open(version.reference, MANIFEST) as stream:
            mine.append(stream.read())
    if (folder / MANIFEST).read_bytes() in mine or has_published_version(url, token, repository, set(mine)):
        return
    raise HubError(
        f"the local hub has another card named {name}: pull this one into a folder (`kcard pull {repository} DIR`), "
        f"or remove yours (`kcard remove {name}`)"
    )


# LLMs on a kcard hub, for machines that reach no other one.


@documented
def pull_llm(name: str, *, hub: str, on_event: OnEvent = ignore, progress: bool = False) -> "PulledModel":
    """Fetch kcard:OWNER/REPOSITORY/FILE.gguf from a hub; `kcard llm pull` does the same.

    Its sha256 is compared with the hub's, and an interrupted download is resumed. Raises UsageError for an invalid name
    or address, UnknownCard for an unknown repository, HubError if the hub does not answer or refuses, ModelUnavailable
    if the file is damaged or too large for the disk.
    """
    from kcard.hub.client.connection import connect, normalise_url
    from kcard.llms.local_models import pull as pull_file
    from kcard.system import free_disk

    url = normalise_url(hub)
    token = credentials().token(url)
    with connect(url, token, progress=progress, largest=free_disk(settings().home)) as api:
        return pull_file(name, on_event, api)
