"""Storage by account, for administrators of the hub."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from kcard.hub.accounts.accounts import Account
from kcard.hub.server.dependencies import HubDep, OptionsDep
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import AdministratorDep

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

MOST = 200


@dataclass(frozen=True)
class Storage:
    """What an account holds, in bytes; `limit` None: no limit."""

    account: Account
    used: int
    limit: int | None

    @property
    def share(self) -> float | None:
        """Of the limit; None without one."""
        if self.limit is None:
            return None
        return self.used / self.limit if self.limit else 1.0


@router.get("/settings/hub/quotas")
def quotas_page(hub: HubDep, options: OptionsDep, _: AdministratorDep) -> Response:
    """The accounts that hold most."""
    used = hub.accounts.all_used()
    stored = [
        Storage(account, used.get(account.id, 0), options.quota if account.quota is None else account.quota)
        for account in hub.accounts.list()
        if account.id in used or account.quota is not None
    ]
    largest = sorted(stored, key=lambda storage: (-storage.used, storage.account.name))
    return page(
        "hub_quotas.html",
        rows=largest[:MOST],
        more=max(0, len(largest) - MOST),
        total=sum(used.values()),
        default=options.quota,
    )
