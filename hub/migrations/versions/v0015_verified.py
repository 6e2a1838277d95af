"""Who measured a verified result, and with which version of kcard. The queue of measurements is gone."""

import sqlalchemy as sa
from alembic import op

__all__ = ["upgrade"]

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.drop_table("jobs")
    op.execute("DELETE FROM settings WHERE name = 'measure'")
    op.add_column("audits", sa.Column("author", sa.String(96)))
    op.add_column("audits", sa.Column("kcard", sa.Text()))
