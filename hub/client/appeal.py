"""Appeals against the quarantine of a card on another hub."""

from typing import Any

from kcard.errors import UsageError
from kcard.hub.client.connection import connect
from kcard.hub.client.repository import RemoteReference
from kcard.hub.repositories.versions import NUMBER

__all__ = ["appeal"]


def appeal(url: str, token: str | None, reference: RemoteReference, note: str) -> dict[str, Any]:
    """Appeal, and return the appeal as the hub describes it. Raises UsageError for a revision that is not v1, v2, …"""
    from huggingface_hub import utils

    client: Any = utils  # its functions for requests are not exported for type checkers
    body: dict[str, Any] = {"note": note}
    if reference.revision is not None:
        if (number := NUMBER.fullmatch(reference.revision)) is None:
            raise UsageError(
                f"version {reference.revision!r}: use {reference.repository} or {reference.repository}@v2"
            )
        body["version"] = int(number[1])
    with connect(url, token):
        path = f"{url}/api/models/{reference.repository}/appeals"
        headers = client.build_hf_headers(token=token or False, library_name="kcard")
        response = client.get_session().post(path, json=body, headers=headers)
        client.hf_raise_for_status(response)
        made: dict[str, Any] = response.json()
        return made
