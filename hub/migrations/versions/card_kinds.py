"""Tags and the search name the kind of a card in the words of `kcard train --kind`, and the method apart from it."""

import json

import sqlalchemy as sa
from alembic import op
from sqlalchemy.orm import Session

from kcard.hub.search_index import KIND, METHOD, replace_terms, update_rows
from kcard.manifest import BOTH, METHODS, MODEL

revision = "0103"
down_revision = "0102"

NEWEST = """
SELECT repositories.id, repositories.name, repositories.tags, versions.manifest FROM repositories
LEFT JOIN versions ON versions.repository_id = repositories.id AND versions.number =
    (SELECT max(number) FROM versions AS other WHERE other.repository_id = repositories.id)
"""


def upgrade() -> None:
    with Session(bind=op.get_bind()) as session:
        for number, name, stored, manifest in session.execute(sa.text(NEWEST)).tuples().all():
            tags = json.loads(stored)
            method = next((method for method in METHODS if f"{KIND}{method}" in tags), None)
            if method is None:
                continue
            has_index = bool(manifest and json.loads(manifest).get("index"))
            place = tags.index(f"{KIND}{method}")
            tags[place : place + 1] = [f"{KIND}{BOTH if has_index else MODEL}", f"{METHOD}{method}"]
            values = {"tags": json.dumps(tags), "id": number}
            session.execute(sa.text("UPDATE repositories SET tags = :tags WHERE id = :id"), values)
            replace_terms(session, number, name, tags)
            update_rows(session, number)
        session.flush()
