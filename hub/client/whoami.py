"""The user's account on a hub."""

from dataclasses import dataclass

from kcard.errors import HubError
from kcard.hub.client.connection import connect

__all__ = ["Who", "who"]


@dataclass(frozen=True)
class Who:
    """A user of a hub; `role` is the scope of the token: read, write or admin."""

    hub: str
    name: str
    fullname: str
    organisations: tuple[str, ...]
    token: str
    role: str


def who(url: str, token: str | None) -> Who:
    """The owner of the token. Raises HubError if there is no token, or the hub rejects it or does not answer."""
    if token is None:
        raise HubError(f"not logged in to {url}: run `kcard login --hub {url}`")
    with connect(url, token) as api:
        found = api.whoami()
        shown = found.get("auth", {}).get("accessToken", {})
        return Who(
            hub=url,
            name=str(found["name"]),
            fullname=str(found.get("fullname") or ""),
            organisations=tuple(str(org["name"]) for org in found.get("orgs", [])),
            token=str(shown.get("displayName") or ""),
            role=str(shown.get("role") or ""),
        )
