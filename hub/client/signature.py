"""The signatures of versions on a hub."""

from typing import Any
from urllib.parse import quote

from kcard.hub.checks.release import Signed, signed
from kcard.hub.client.connection import connect
from kcard.hub.client.repository import NUMBERED

__all__ = ["signature", "tag_of"]


def tag_of(url: str, token: str | None, repository: str, commit: str, revision: str | None) -> str | None:
    """The tag of a commit: `revision` if it is one, else of the version with the highest number; None without one."""
    with connect(url, token) as api:
        tags = {tag.name for tag in api.list_repo_refs(repository).tags if tag.target_commit == commit}
    if revision in tags:
        return revision
    numbers = [int(match[1]) for match in map(NUMBERED.fullmatch, tags) if match is not None]
    return f"v{max(numbers)}" if numbers else min(tags, default=None)


def signature(url: str, token: str | None, repository: str, tag: str) -> Signed | None:
    """The signature in the message of a tag, not checked; None without one, or on a hub that shows no messages."""
    from huggingface_hub import utils

    client: Any = utils  # its functions for requests are not exported for type checkers
    with connect(url, token):
        headers = client.build_hf_headers(token=token or False, library_name="kcard")
        path = f"{url}/api/models/{repository}/tag/{quote(tag, safe='')}"
        response = client.get_session().get(path, headers=headers)
        if response.status_code in (404, 405):
            return None
        client.hf_raise_for_status(response)
        message = response.json()["message"]
        return signed(message) if isinstance(message, str) else None
