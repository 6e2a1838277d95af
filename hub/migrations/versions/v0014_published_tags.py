"""What every published tag was, which outlives its repository."""

import sqlalchemy as sa
from alembic import op

__all__ = ["upgrade"]

revision = "0014"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "published_tags",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("tag", sa.String(250), primary_key=True),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
    )
    op.execute(
        "INSERT INTO published_tags (name, tag, sha256, number) "
        "SELECT repositories.folded, publications.tag, versions.sha256, versions.number FROM publications "
        "JOIN versions ON versions.id = publications.version_id "
        "JOIN repositories ON repositories.id = publications.repository_id"
    )
