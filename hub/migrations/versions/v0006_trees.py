"""The trees of commits are stored compressed, and as differences from the parent's tree where that takes less.

Before, every commit had its whole tree as text.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from alembic import op

from kcard.errors import HubError
from kcard.hub.repositories import stored_trees, trees
from kcard.hub.repositories.stored_trees import Stored, StoredTree
from kcard.hub.repositories.trees import Tree

__all__ = ["downgrade", "upgrade"]

revision = "0006"
down_revision = "0005"

ROWS = 20  # commits that are read at once
CACHED = 50_000  # files in all trees that are kept, for the commits that follow

COMMITS = sa.table(
    "commits",
    sa.column("id", sa.Integer),
    sa.column("repository_id", sa.Integer),
    sa.column("sha", sa.String),
    sa.column("parent", sa.String),
    sa.column("tree", sa.Text),
    sa.column("content", sa.LargeBinary),
    sa.column("delta", sa.Boolean),
)


def upgrade() -> None:
    connection = op.get_bind()
    op.add_column("commits", sa.Column("content", sa.LargeBinary(), nullable=False, server_default=""))
    op.add_column("commits", sa.Column("delta", sa.Boolean(), nullable=False, server_default=sa.false()))
    _Trees(connection).store()
    op.drop_column("commits", "tree")
    op.alter_column("commits", "content", new_column_name="tree")


def downgrade() -> None:
    raise HubError("downgrades are not supported: restore an older backup")


@dataclass
class _Trees:
    """The commits of one repository after the other, parents before children."""

    connection: sa.Connection
    repository: int = 0
    recent: OrderedDict[str, Tree] = field(default_factory=OrderedDict)
    chains: dict[str, Sequence[tuple[str, Stored]]] = field(default_factory=dict)

    def store(self) -> None:
        order = sa.select(COMMITS.c.id).order_by(COMMITS.c.repository_id, COMMITS.c.id)
        ids = list(self.connection.scalars(order))
        columns = (COMMITS.c.id, COMMITS.c.repository_id, COMMITS.c.sha, COMMITS.c.parent, COMMITS.c.tree)
        query = sa.select(*columns).order_by(COMMITS.c.repository_id, COMMITS.c.id)
        change = sa.update(COMMITS).where(COMMITS.c.id == sa.bindparam("row"))
        for start in range(0, len(ids), ROWS):
            rows = self.connection.execute(query.where(COMMITS.c.id.in_(ids[start : start + ROWS]))).all()
            self.connection.execute(change, [{"row": row.id, **self._stored(row)} for row in rows])

    def _stored(self, row: Any) -> dict[str, Any]:
        if row.repository_id != self.repository:
            self.repository = row.repository_id
            self.recent.clear()
            self.chains.clear()
        try:
            tree = trees.loads(row.tree)
        except (ValueError, TypeError, IndexError):  # reading it is an error, as before
            return {"content": stored_trees.packed(row.tree), "delta": False}
        before = self._parent(row.parent)
        stored, rewritten = stored_trees.chosen(before, tree)
        if rewritten:  # commits that were stored before stay as they are
            stored = stored_trees.full(tree)
        chain = () if before is None or not stored.delta else before.chain
        self.chains[row.sha] = (*chain, (row.sha, stored))
        self._keep(row.sha, tree)
        return {"content": stored.content, "delta": stored.delta}

    def _parent(self, sha: str | None) -> StoredTree | None:
        if sha is None or (chain := self.chains.get(sha)) is None:
            return None
        tree = self.recent.get(sha)
        if tree is None:
            here = (COMMITS.c.repository_id == self.repository, COMMITS.c.sha == sha)
            tree = trees.loads(self.connection.execute(sa.select(COMMITS.c.tree).where(*here)).scalar_one())
        return StoredTree(sha, tree, chain)

    def _keep(self, sha: str, tree: Tree) -> None:
        self.recent[sha] = tree
        while len(self.recent) > 1 and sum(map(len, self.recent.values())) > CACHED:
            self.recent.popitem(last=False)
