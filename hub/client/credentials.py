"""Stored tokens of hubs, in a file that only its owner can read.

The Hugging Face token stays where `hf auth login` stores it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kcard.errors import HubError, UsageError
from kcard.files import replacing
from kcard.hub.client.url import is_hugging_face

__all__ = ["Credentials", "check_token"]

OURS, THEIRS = "kc_", "hf_"
TOKEN = re.compile(r"[\x21-\x7e]{8,512}")
OWNER_ONLY = 0o600


@dataclass(frozen=True)
class Credentials:
    """The tokens in the JSON file `path`, by the URL of their hub."""

    path: Path

    def token(self, url: str) -> str | None:
        """The token for a hub; None if not logged in."""
        if not is_hugging_face(url):
            return self._read().get(url)
        from huggingface_hub import get_token

        token = get_token()
        if token is not None:
            check_token(url, token)  # HF_TOKEN may be for another hub
        return token

    def store(self, url: str, token: str) -> None:
        """Store a token. Raises UsageError if it belongs to another hub, or if `hf` stores that hub's token."""
        if is_hugging_face(url):
            raise UsageError(f"log in to {url} with `hf auth login`: kcard uses that token")
        check_token(url, token)
        self._write({**self._read(), url: token})

    def forget(self, url: str) -> bool:
        """Delete a token. Returns whether it existed."""
        if is_hugging_face(url):
            raise UsageError(f"log out of {url} with `hf auth logout`: kcard does not store its token")
        known = self._read()
        if url not in known:
            return False
        self._write({other: token for other, token in known.items() if other != url})
        return True

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise HubError(f"can't read {self.path} ({error}): delete it and log in again") from error
        if not isinstance(found, dict) or not all(isinstance(token, str) for token in found.values()):
            raise HubError(f"{self.path} is not a file of tokens by hub: delete it and log in again")
        return found

    def _write(self, tokens: Mapping[str, str]) -> None:
        with replacing(self.path, parents=True, mode=OWNER_ONLY) as stream:
            stream.write(json.dumps(dict(tokens), indent=2, sort_keys=True).encode())


def check_token(url: str, token: str) -> None:
    """Raise UsageError for a malformed token, or one that must not be sent to this hub."""
    if not TOKEN.fullmatch(token):
        raise UsageError("invalid token: expected one word of at least 8 printable characters")
    if is_hugging_face(url):
        if token.startswith(OURS):
            raise UsageError(f"tokens that begin with {OURS} belong to a kcard hub: not sent to {url}")
    elif token.startswith(THEIRS):
        raise UsageError(
            f"tokens that begin with {THEIRS} belong to the Hugging Face Hub: not sent to {url}; ask an administrator "
            "of that hub for a token"
        )
