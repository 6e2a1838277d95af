"""Whom a hub takes the user for."""

from dataclasses import dataclass

from kcard.errors import HubError
from kcard.hub.client.talk import talk

__all__ = ["Who", "who"]


@dataclass(frozen=True)
class Who:
    """A user as a hub knows them; `role` is what the token may do: read, write or admin."""

    hub: str
    name: str
    fullname: str
    organisations: tuple[str, ...]
    token: str
    role: str


def who(url: str, token: str | None) -> Who:
    """Who the token's owner is; HubError where there is none, the hub does not accept it or does not answer."""
    if token is None:
        raise HubError(f"nobody is logged in to {url}: `kcard login --hub {url}`")
    with talk(url, token) as api:
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
