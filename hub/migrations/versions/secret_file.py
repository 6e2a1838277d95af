"""The secret that signs tickets and forms is a file beside the database: no copy of the database has it."""

from alembic import op

revision = "0105"
down_revision = "0104"


def upgrade() -> None:
    op.execute("DELETE FROM settings WHERE name = 'secret'")
