"""The page of a user or an organisation: description, cards and datasets."""

from fastapi import APIRouter
from starlette.responses import Response

from kcard.hub.accounts.accounts import Account
from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import NotThere
from kcard.hub.repositories.listing import ListQuery
from kcard.hub.repositories.permissions import may_administer_namespace, may_create
from kcard.hub.repositories.values import Type
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.page.card_views import Row
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import VisitorDep
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

ROWS = 50


@router.get("/{account}")
def account_page(
    hub: HubDep, visitor: VisitorDep, account: Segment, cursor: str = "", datasets: str = ""
) -> Response:
    """What the client may read of it. Without a login, an account that has published nothing is not there."""
    type_: Type = "dataset" if datasets else "model"
    found = _found(hub, account)
    cards, next_cards = _listed(hub, found, "model", "" if datasets else cursor, visitor.identity)
    data, next_data = _listed(hub, found, "dataset", cursor if datasets else "", visitor.identity)
    if visitor.identity is None and not (cards or data or cursor):
        raise _absent(account)
    members = {}
    if found.kind == "organisation" and visitor.identity is not None:
        members = hub.accounts.members(found.name)
    return page(
        "account.html",
        account=found,
        lists=((("model", "Cards"), cards, next_cards), (("dataset", "Datasets"), data, next_data)),
        shown=type_ if cursor else None,
        members=members,
        creates=may_create(visitor.identity, found.name),
        administers=visitor.session is not None and may_administer_namespace(visitor.identity, found.name),
    )


def _found(hub: SharedHub, name: str) -> Account:
    try:
        return hub.accounts.get(name)
    except NotThere:
        raise _absent(name) from None


def _absent(name: str) -> NotThere:
    return NotThere("account", f"page {name[:100]!r} not found: check the address, or log in")


def _listed(
    hub: SharedHub, account: Account, type_: Type, cursor: str, identity: Identity | None
) -> tuple[list[Row], str | None]:
    query = ListQuery(type_, author=account.name, limit=ROWS, cursor=cursor or None)
    found, following = hub.listing.page(query, identity)
    marks = hub.publications.marks(repository.id for repository in found)
    return [Row(repository, marks.get(repository.id)) for repository in found], following
