"""Hubs elsewhere: log in, fetch a card from one, look at what one lists. Publishing there is kcard.publish's."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from kcard.config import settings
from kcard.errors import HubError, UnknownCard, UsageError
from kcard.manifest import MANIFEST, Manifest

if TYPE_CHECKING:
    from kcard.hub.client.credentials import Credentials
    from kcard.hub.client.listing import Listed
    from kcard.hub.client.push import Published
    from kcard.hub.client.whoami import Who
    from kcard.hub.registry import Hub
    from kcard.hub.repositories.versions import Version

__all__ = ["credentials", "listed", "login", "logout", "pull", "push", "whoami"]

TOKENS = "tokens.json"
DOWNLOADS = "downloads"


def credentials() -> "Credentials":
    """The tokens that were stored under KCARD_HOME."""
    from kcard.hub.client.credentials import Credentials

    return Credentials(settings().home / TOKENS)


def login(hub: str, token: str) -> "Who":
    """Keep a token for a hub, once the hub has accepted it: the Python twin of `kcard login`.

    Raises UsageError for what is no address or no token, or a token of another hub, which is not sent; HubError
    where the hub does not accept it or does not answer. Nothing is stored then.
    """
    from kcard.hub.client.credentials import check_token
    from kcard.hub.client.url import address, is_hugging_face
    from kcard.hub.client.whoami import who

    url = address(hub)
    if not is_hugging_face(url):  # there `hf auth login` keeps the token; `store` says so
        check_token(url, token)
        found = who(url, token)
    credentials().store(url, token)
    return found


def logout(hub: str) -> bool:
    """Forget the token for a hub; whether there was one. The hub still accepts it: revoke it there."""
    from kcard.hub.client.url import address

    return credentials().forget(address(hub))


def whoami(hub: str) -> "Who":
    """Whom a hub takes the user for; HubError where nobody is logged in there."""
    from kcard.hub.client.url import address
    from kcard.hub.client.whoami import who

    url = address(hub)
    return who(url, credentials().token(url))


def listed(hub: str, text: str | None = None, *, limit: int = 100) -> "list[Listed]":
    """The cards of a hub that the user may see, the last changed first; `text` in their name or tags."""
    from kcard.hub.client.listing import listed as listed_there
    from kcard.hub.client.url import address

    url = address(hub)
    return listed_there(url, credentials().token(url), text, limit=limit)


def push(
    folder: Path,
    hub: str,
    *,
    repository: str | None = None,
    private: bool = False,
    aliases: Sequence[str] = (),
    progress: bool = False,
) -> "Published":
    """Publish a card's folder, which was checked, to a hub; what `kcard.publish` does once a card has passed."""
    from kcard.cards.format.model_card import readme
    from kcard.hub.checks.card import check_contents
    from kcard.hub.client.push import push as push_there
    from kcard.hub.client.repository import RemoteReference
    from kcard.hub.client.url import address
    from kcard.hub.repositories.versions import check_alias

    url = address(hub)
    for alias in aliases:
        check_alias(alias)
        if alias == "main":
            raise UsageError("alias 'main': that branch is the newest version; choose another name")
    if repository is not None and RemoteReference.parse(repository).revision is not None:
        raise UsageError(f"repository {repository!r}: use namespace/name; the hub numbers the version")
    token = credentials().token(url)
    if token is None:
        raise HubError(f"not logged in to {url}: run `kcard login --hub {url}`")
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


def pull(
    card: str,
    folder: Path | str | None = None,
    *,
    hub: str,
    local: "Hub | None" = None,
    progress: bool = False,
) -> "Version | Path":
    """Fetch a card from a hub, whole or not at all: the Python twin of `kcard pull ns/name --hub URL`.

    card     namespace/name (its newest version), or namespace/name@ and a tag, a branch or a commit
    folder   a new folder for it; None: it becomes a version of the local hub, where `kcard ask` finds it
    local    the local hub (default: under KCARD_HOME)

    Every sha256 of its manifest is checked. A download that broke off goes on with the files that it lacks. Raises
    UsageError for a reference that can't be one or a folder that is there, UnknownCard where the hub has no such
    card, HubError where it does not answer, refuses or exceeds a limit, or the local hub has another card of that name,
    CardError for a file that no card may have, DamagedCard where it sends something else than its manifest says.
    Nothing is placed then.
    """
    from kcard.hub.client.pull import fetched, install
    from kcard.hub.client.repository import RemoteReference
    from kcard.hub.client.url import address
    from kcard.hub.registry import Hub
    from kcard.hub.store.disk import explained
    from kcard.hub.store.new_folder import check_new

    url, reference = address(hub), RemoteReference.parse(card)
    token = credentials().token(url)
    target = None if folder is None else check_new(Path(folder))
    downloads = settings().home / DOWNLOADS
    with (
        explained(f"can't pull {card}"),
        fetched(url, token, reference, downloads, progress=progress) as verified,
    ):
        if target is not None:
            return install(verified, target)
        kept = local or Hub()
        _refuse_namesake(kept, verified, url, token, reference.repository)
        return kept.publish(verified)


def _refuse_namesake(local: "Hub", folder: Path, url: str, token: str | None, repository: str) -> None:
    """Raise HubError where the local hub has a card of that name which never was in the repository.

    A card of somebody else must not become the newest version of one that the user has asked so far.
    """
    from kcard.hub.client.pull import published_there

    name = Manifest.read(folder).name
    try:
        versions = local.versions(name)
    except UnknownCard:
        return
    mine = []
    for version in versions:
        with local.open(version.reference, MANIFEST) as stream:
            mine.append(stream.read())
    if (folder / MANIFEST).read_bytes() in mine or published_there(url, token, repository, set(mine)):
        return
    raise HubError(
        f"the local hub has another card named {name}: pull this one into a folder (`kcard pull {repository} DIR`), "
        f"or remove yours (`kcard remove {name}`)"
    )
