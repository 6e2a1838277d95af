"""Audits and exams say how much their evidence covers, audits also how far it repeats the card's corpus."""

import sqlalchemy as sa
from alembic import op

revision = "0102"
down_revision = "0101"


def upgrade() -> None:
    op.add_column("versions", sa.Column("coverage", sa.Float(), nullable=True))
    op.add_column("audits", sa.Column("coverage", sa.Float(), nullable=True))
    op.add_column("audits", sa.Column("overlap", sa.Float(), nullable=True))
    op.add_column("audits", sa.Column("judged", sa.Integer(), nullable=True))
