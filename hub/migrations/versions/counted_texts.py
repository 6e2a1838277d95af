"""Quotas count the titles and messages of commits and tags."""

from alembic import op
from sqlalchemy.orm import Session

from kcard.hub.quotas import recount

revision = "0104"
down_revision = "0103"


def upgrade() -> None:
    with Session(bind=op.get_bind()) as session:
        recount(session)
        session.flush()
