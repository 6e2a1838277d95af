"""Tickets: what the hub hands out for a short time and believes when it comes back.

A ticket says in plain sight what its holder may do, and is signed with the hub's secret: it lets through exactly that,
until it expires, whichever worker it is shown to.
"""

import base64
import binascii
import hmac
import json
import time
from collections.abc import Mapping
from typing import TypeAlias

from kcard.hub.refusals import Unknown

__all__ = ["Claims", "sign", "signed"]

# What a ticket says; with "until", in seconds since 1970.
Claims: TypeAlias = Mapping[str, str | int]

UNTIL = "until"


def sign(secret: bytes, purpose: str, claims: Claims, seconds: float) -> str:
    """A ticket for one purpose, of characters that need no quoting in a URL."""
    payload = _encoded(json.dumps({**claims, UNTIL: int(time.time() + seconds)}, sort_keys=True).encode())
    return f"{payload}.{_encoded(_signature(secret, purpose, payload))}"


def signed(secret: bytes, purpose: str, ticket: str) -> Claims:
    """What a ticket of this hub for that purpose says; Unknown where it was not made so, or has expired."""
    payload, _, signature = ticket.partition(".")
    try:
        genuine = hmac.compare_digest(_decoded(signature), _signature(secret, purpose, payload))
    except (binascii.Error, UnicodeEncodeError):
        genuine = False
    if not genuine:
        raise Unknown("the ticket was not made by this hub for that: begin the upload anew")
    claims: Claims = json.loads(_decoded(payload))
    if int(claims[UNTIL]) < time.time():
        raise Unknown("the ticket has expired: begin the upload anew")
    return claims


def _signature(secret: bytes, purpose: str, payload: str) -> bytes:
    return hmac.digest(secret, f"{purpose}.{payload}".encode("ascii"), "sha256")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
