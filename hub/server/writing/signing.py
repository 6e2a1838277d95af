"""Signed tickets: short-lived claims that any worker can verify with the hub's secret. They are not encrypted."""

import base64
import binascii
import hmac
import json
import time
from collections.abc import Mapping
from typing import TypeAlias

from kcard.hub.refusals import Unknown

__all__ = ["Claims", "sign", "signed"]

# The contents of a ticket; "until" is in seconds since 1970.
Claims: TypeAlias = Mapping[str, str | int]

UNTIL = "until"


def sign(secret: bytes, purpose: str, claims: Claims, seconds: float) -> str:
    """A URL-safe ticket for one purpose."""
    payload = _encoded(json.dumps({**claims, UNTIL: int(time.time() + seconds)}, sort_keys=True).encode())
    return f"{payload}.{_encoded(_signature(secret, purpose, payload))}"


def signed(secret: bytes, purpose: str, ticket: str) -> Claims:
    """The claims of a ticket. Raises Unknown if it is not genuine, has another purpose, or has expired."""
    payload, _, signature = ticket.partition(".")
    try:
        genuine = hmac.compare_digest(_decoded(signature), _signature(secret, purpose, payload))
    except (binascii.Error, UnicodeEncodeError):
        genuine = False
    if not genuine:
        raise Unknown("invalid ticket: start the upload again")
    claims: Claims = json.loads(_decoded(payload))
    if int(claims[UNTIL]) < time.time():
        raise Unknown("expired ticket: start the upload again")
    return claims


def _signature(secret: bytes, purpose: str, payload: str) -> bytes:
    return hmac.digest(secret, f"{purpose}.{payload}".encode("ascii"), "sha256")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
