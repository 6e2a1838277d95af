"""Writes the base revision of the migrations anew, from the tables: `python -m tests.hub.base_migration`.

Only while no hub of the last release needs to be kept: afterwards, a change of the tables is a revision of its own.
Give the base a new number (HEAD in hub/db/models.py), so that a hub made before it is refused.
"""

import re
from pathlib import Path

from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations.ops import UpgradeOps
from sqlalchemy import create_engine

from kcard.hub.db.models import HEAD, metadata

TARGET = Path(__file__).parents[2] / "hub" / "migrations" / "versions" / "base.py"
START, END = "def _create_tables() -> None:\n", "\n\ndef _order_by_bytes"


def code() -> str:
    """The operations that create all tables, in the order of their keys."""
    with create_engine("sqlite://").connect() as connection:
        operations = produce_migrations(MigrationContext.configure(connection), metadata).upgrade_ops
    assert isinstance(operations, UpgradeOps)
    text = render_python_code(operations)
    return re.sub(r"(?m)^ *# .*\n", "", text).replace("\n\n", "\n").rstrip() + "\n"


def main() -> None:
    """Replace the tables and the number in the file."""
    text = TARGET.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    body = "    " + code().strip() + "\n"
    text = before + START + body + END + rest.partition(END)[2]
    TARGET.write_text(re.sub(r'(?m)^revision = ".*"$', f'revision = "{HEAD}"', text), encoding="utf-8")


if __name__ == "__main__":
    main()
