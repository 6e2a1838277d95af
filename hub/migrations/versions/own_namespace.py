"""The hub's own cards are in the organisation `library`; before, they could be in another one."""

import sqlalchemy as sa
from alembic import op

from kcard.errors import HubError
from kcard.hub.accounts import OWN_NAMESPACE

revision = "0106"
down_revision = "0105"


def upgrade() -> None:
    connection = op.get_bind()
    chosen = connection.scalar(sa.text("SELECT value FROM settings WHERE name = 'namespace'"))
    accounts = sa.text("SELECT name FROM accounts WHERE folded = :name")
    account = connection.scalar(accounts, {"name": OWN_NAMESPACE})
    new_home = "set KCARD_HOME to another folder, and publish the cards again"
    if chosen is not None and chosen != OWN_NAMESPACE:
        raise HubError(
            f"the hub's own cards are in the organisation {chosen}, and this kcard keeps them in {OWN_NAMESPACE}: "
            f"run `kcard hub serve --namespace {OWN_NAMESPACE}` of the kcard that made the hub, or {new_home}"
        )
    if chosen is None and account is not None:
        raise HubError(
            f"the hub has an account {account}, and this kcard reserves that name for the hub's own cards: {new_home}"
        )
    op.execute("DELETE FROM settings WHERE name = 'namespace'")
