"""How many bytes an account may still upload to a namespace."""

from kcard.hub.accounts.quotas import limit_and_used
from kcard.hub.refusals import TooLarge
from kcard.hub.server.options import ServerOptions
from kcard.hub.shared import SharedHub

__all__ = ["remaining", "require_quota", "require_xorb_quota"]

# Xorbs are kept for weeks after their files were stored, while files may be deleted and uploaded again.
XORB_SHARE = 2


def remaining(hub: SharedHub, options: ServerOptions, namespace: str, account_id: int) -> int | None:
    """Bytes that the account may still upload; uncommitted uploads count. None: no limit."""
    limit, held = _limit_and_held(hub, options, namespace)
    return None if limit is None else limit - held - hub.uploads.pending(account_id)


def require_quota(hub: SharedHub, options: ServerOptions, namespace: str, account_id: int, more: int) -> None:
    """Raise TooLarge if the account may not upload `more` bytes to the namespace."""
    left = remaining(hub, options, namespace, account_id)
    if left is not None and more > left:
        raise TooLarge(f"quota of {namespace} exceeded: {more} bytes were sent, {max(0, left)} are left")


def require_xorb_quota(
    hub: SharedHub, options: ServerOptions, namespace: str, account_id: int, more: int
) -> None:
    """Raise TooLarge if the account's xorbs would exceed XORB_SHARE times the namespace's quota."""
    limit, _ = _limit_and_held(hub, options, namespace)
    if limit is not None and hub.ingest.xorbs.size(account_id) + more > XORB_SHARE * limit:
        raise TooLarge(
            f"too many recent uploads for a quota of {limit} bytes: set HF_HUB_DISABLE_XET=1, or try again later"
        )


def _limit_and_held(hub: SharedHub, options: ServerOptions, namespace: str) -> tuple[int | None, int]:
    owner = hub.accounts.get(namespace).id
    with hub.database.read() as connection:
        return limit_and_used(connection, owner, options.quota)
