"""How many bytes a quota leaves to whoever uploads into a namespace."""

from kcard.hub.accounts.quotas import allowed, used
from kcard.hub.refusals import TooLarge
from kcard.hub.server.options import ServerOptions
from kcard.hub.shared import SharedHub

__all__ = ["require_room", "require_xorb_room", "room"]

# Xorbs stay for weeks after their files were stored, and files are deleted and uploaded anew meanwhile.
XORB_SHARE = 2


def room(hub: SharedHub, options: ServerOptions, namespace: str, account_id: int) -> int | None:
    """Bytes that an account may still send for a namespace; what it sent and nobody committed counts too."""
    limit, held = _limit_and_held(hub, options, namespace)
    return None if limit is None else limit - held - hub.uploads.pending(account_id)


def require_room(hub: SharedHub, options: ServerOptions, namespace: str, account_id: int, more: int) -> None:
    """TooLarge where an account may not send that many bytes more for a namespace."""
    left = room(hub, options, namespace, account_id)
    if left is not None and more > left:
        raise TooLarge(f"the quota of {namespace} leaves {max(0, left)} bytes: {more} are too many")


def require_xorb_room(
    hub: SharedHub, options: ServerOptions, namespace: str, account_id: int, more: int
) -> None:
    """TooLarge where the xorbs of an account would have more than XORB_SHARE times the namespace's quota."""
    limit, _ = _limit_and_held(hub, options, namespace)
    if limit is not None and hub.ingest.xorbs.size(account_id) + more > XORB_SHARE * limit:
        raise TooLarge(
            f"too much was uploaded lately for a quota of {limit} bytes: try with HF_HUB_DISABLE_XET=1, or later"
        )


def _limit_and_held(hub: SharedHub, options: ServerOptions, namespace: str) -> tuple[int | None, int]:
    owner = hub.accounts.get(namespace).id
    with hub.database.read() as connection:
        limit = allowed(connection, owner, options.quota)
        return limit, 0 if limit is None else used(connection, owner)
