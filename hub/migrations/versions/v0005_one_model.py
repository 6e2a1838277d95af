"""Local cards become repositories, like cards of a shared hub.

Drops the tables cards, files and aliases: a card is a repository (in the hub's own namespace if it had none), a version
has the files of its commit, an alias is a branch. Versions without a tag get a commit and a tag.
"""

import hashlib
import json
import logging
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sqlalchemy as sa
from alembic import context, op

from kcard.errors import DamagedCard, HubError
from kcard.hub.migrations.columns import owner
from kcard.hub.migrations.versions.v0004_shared import order_by_bytes
from kcard.hub.refusals import Refused
from kcard.hub.repositories import card_metadata, terms, trees
from kcard.hub.repositories.card_metadata import README
from kcard.hub.repositories.file_entries import file_entry
from kcard.hub.repositories.trees import Tree
from kcard.hub.store.blobs import Blob
from kcard.manifest import Manifest

__all__ = ["downgrade", "upgrade"]

revision = "0005"
down_revision = "0004"

Row: TypeAlias = dict[str, Any]
NAMESPACE, LIBRARY, INSTEAD = "namespace", "library", "library-cards"
GOING = ("audits", "publications", "files", "aliases", "versions", "cards")

log = logging.getLogger("kcard.hub.migrations")


def upgrade() -> None:
    connection = op.get_bind()
    op.add_column("repositories", sa.Column("newest", sa.Integer(), nullable=False, server_default="0"))
    hub = _Hub(connection)
    own = hub.own_namespace()
    cards = {card["id"]: card for card in hub.rows("cards")}
    for card in sorted(
        cards.values(), key=lambda card: "/" in card["name"]
    ):  # the hub's own cards keep their numbers
        hub.to_repository(card, own)
    hub.versions_to_commits(cards, "" if own is None else own["name"])
    hub.aliases_to_branches(cards)
    kept = {name: hub.rows(name) for name in ("audits", "publications")}
    for table in GOING:
        op.drop_table(table)
    _create_tables()
    hub.write(kept)
    if connection.dialect.name == "postgresql":
        order_by_bytes()


def downgrade() -> None:
    raise HubError("downgrades are not supported: restore an older backup")


@dataclass
class _Hub:
    """The old rows, and what becomes of them."""

    connection: sa.Connection
    versions: dict[int, Row] = field(default_factory=dict)  # new rows by old id; two ids may have one row
    publications: list[Row] = field(default_factory=list)  # of versions that no tag had published

    def __post_init__(self) -> None:
        self._tables = sa.MetaData()
        self._tables.reflect(self.connection)
        self._refs = {(r["repository_id"], r["name"]): r for r in self.rows("refs")}
        self._published = {p["version_id"]: p for p in reversed(self.rows("publications"))}
        self._of_card = defaultdict(list)
        for version in sorted(self.rows("versions"), key=lambda version: version["number"]):
            self._of_card[version["card_id"]].append(version)

    def rows(self, table: str) -> list[Row]:
        return [
            dict(row) for row in self.connection.execute(sa.select(self._tables.tables[table])).mappings()
        ]

    def _insert(self, table: str, *rows: Row) -> None:
        if rows:
            self.connection.execute(sa.insert(self._tables.tables[table]), list(rows))

    def _made(self, table: str, row: Row) -> Row:
        new = self._tables.tables[table]
        made = self.connection.execute(sa.insert(new).values(row).returning(new.c.id)).scalar_one()
        return row | {"id": made}

    def own_namespace(self) -> Row | None:
        """The organisation for cards without a namespace; None if there are none."""
        own = [card["id"] for card in self.rows("cards") if "/" not in card["name"]]
        if not own:
            return None
        accounts = {account["id"]: account for account in self.rows("accounts")}
        owners = {repository["id"]: repository["namespace_id"] for repository in self.rows("repositories")}
        ids = [version["id"] for card in own for version in self._of_card[card]]
        adopted = [
            accounts[owners[self._published[id_]["repository_id"]]] for id_ in ids if id_ in self._published
        ]
        there = {account["folded"]: account for account in accounts.values()}
        library = there.get(LIBRARY)
        if adopted:
            namespace = adopted[-1]
        elif library is not None and library["kind"] == "organisation":
            namespace = library
        else:
            name = LIBRARY if library is None else INSTEAD
            row = {
                "name": name,
                "folded": name,
                "kind": "organisation",
                "fullname": "",
                "email": "",
                "admin": False,
            }
            namespace = self._made(
                "accounts", row | {"disabled": False, "created": sa.func.current_timestamp()}
            )
        self._insert("settings", {"name": NAMESPACE, "value": namespace["folded"]})
        return namespace

    def to_repository(self, card: Row, own: Row | None) -> None:
        """Find or create the repository of a card; adds its id and the number before the card's first to the row."""
        repositories = self._tables.tables["repositories"]
        ids = [version["id"] for version in self._of_card[card["id"]]]
        name = card["name"] if "/" in card["name"] or own is None else f"{own['name']}/{card['name']}"
        same = (repositories.c.type == "model", repositories.c.folded == name.lower())
        there = [self._published[id_]["repository_id"] for id_ in ids if id_ in self._published]
        repository = there[0] if there else self.connection.scalar(sa.select(repositories.c.id).where(*same))
        if repository is None:
            assert own is not None
            at = [version["published"] for version in self._of_card[card["id"]]] or [
                sa.func.current_timestamp()
            ]
            row = {
                "type": "model",
                "namespace_id": own["id"],
                "name": name,
                "folded": name.lower(),
                "newest": 0,
            }
            row |= {
                "visibility": "public",
                "gated": "no",
                "created": at[0],
                "modified": at[-1],
                "downloads": 0,
            }
            repository = self._made(
                "repositories", row | {"likes": 0, "card": "{}", "tags": "[]", "size": 0}
            )["id"]
        here = repositories.c.id == repository
        card["repository_id"] = repository
        card["before"] = self.connection.execute(sa.select(repositories.c.newest).where(here)).scalar_one()
        newest = card["before"] + card["newest"]
        self.connection.execute(sa.update(repositories).where(here).values(newest=newest))

    def versions_to_commits(self, cards: dict[int, Row], author: str) -> None:
        """Give every version a row of the new kind, and a commit and a tag where it has none."""
        files: defaultdict[int, dict[str, Blob]] = defaultdict(dict)
        for file in self.rows("files"):
            files[file["version_id"]][file["path"]] = Blob(file["sha256"], file["size"])
        there: dict[tuple[int, str], Row] = {}
        for card in cards.values():
            for version in self._of_card[card["id"]]:
                row = {key: value for key, value in version.items() if key != "card_id"}
                row |= {"repository_id": card["repository_id"], "number": card["before"] + version["number"]}
                row = there.setdefault((card["repository_id"], row["sha256"]), row)
                self.versions[version["id"]] = row
                if (published := self._published.get(version["id"])) is not None:
                    row |= {"sha": published["sha"], "factuality": published["factuality"]}
                elif "sha" not in row:
                    self._commit(row, card["name"], files[version["id"]], author)

    def _commit(self, version: Row, card: str, blobs: dict[str, Blob], author: str) -> None:
        def content(path: str) -> bytes:
            if (read := context.config.attributes.get("blob")) is None:
                raise DamagedCard("the files of the hub are not at hand")
            text: bytes = read(blobs[path].sha256)
            return text

        def text(path: str) -> bytes:
            try:
                return content(path) if path in blobs else b""
            except DamagedCard:  # whoever uses the card is told what is damaged
                return b""

        repository = version["repository_id"]
        tree = {path: file_entry(path, blob, content) for path, blob in sorted(blobs.items())}
        main = self._refs.get((repository, "main"))
        title, tag = f"{card} v{version['number']}", f"v{version['number']}"
        parent, listed = None if main is None else main["sha"], trees.dumps(tree)
        said = [
            str(repository),
            parent,
            listed,
            title,
            version["description"],
            author,
            str(version["published"]),
        ]
        sha = hashlib.sha1(json.dumps(said).encode(), usedforsecurity=False).hexdigest()
        commit = {"repository_id": repository, "sha": sha, "parent": parent, "title": title, "author": author}
        commit |= {"message": version["description"], "date": version["published"], "tree": listed}
        self._insert("commits", commit)
        self._point(repository, "branch", "main", sha)
        if self._point(repository, "tag", tag, sha):
            row = {"repository_id": repository, "tag": tag, "sha": sha, "version_id": version["id"]}
            self.publications.append(row | {"author": author, "at": version["published"]})
        version |= {"sha": sha, "factuality": None}  # read from the exam by a later migration
        self._hold(repository, tree)
        self._show(repository, sha, tree, text(README).decode(errors="replace"), version)

    def _hold(self, repository: int, tree: Tree) -> None:
        holdings = self._tables.tables["holdings"]
        query = sa.select(holdings.c.sha256).where(holdings.c.repository_id == repository)
        held = set(self.connection.scalars(query))
        sizes = {entry.sha256: entry.size for entry in tree.values() if entry.sha256 not in held}
        rows = [
            {"repository_id": repository, "sha256": sha256, "size": size} for sha256, size in sizes.items()
        ]
        self._insert("holdings", *rows)

    def _show(self, repository: int, sha: str, tree: Tree, readme: str, version: Row) -> None:
        manifest = Manifest.from_json(version["manifest"])
        try:
            shown = card_metadata.describe(tree, readme, manifest)
        except Refused:  # an invalid README.md
            shown = card_metadata.describe(tree, "", manifest)
        table = self._tables.tables["repositories"]
        values = {"head": sha, "modified": version["published"], "pipeline_tag": shown.pipeline_tag}
        values |= {
            "library": shown.library,
            "size": shown.size,
            "tags": json.dumps(shown.tags, ensure_ascii=False),
        }
        values["card"] = json.dumps(shown.card, default=str, ensure_ascii=False)
        here = table.c.id == repository
        self.connection.execute(sa.update(table).where(here).values(values))
        name = self.connection.execute(sa.select(table.c.name).where(here)).scalar_one()
        terms.put(self.connection, repository, name, shown.tags)

    def _point(self, repository: int, kind: str, name: str, sha: str) -> bool:
        """Point a branch or a tag there; False if the name is taken by something else."""
        there = self._refs.get((repository, name))
        if there is not None and (kind == "tag" or there["kind"] != kind):
            return False
        refs = self._tables.tables["refs"]
        row = {"repository_id": repository, "kind": kind, "name": name, "sha": sha, "message": ""}
        if there is None:
            self._insert("refs", row)
        else:
            here = (refs.c.repository_id == repository, refs.c.kind == kind, refs.c.name == name)
            self.connection.execute(sa.update(refs).where(*here).values(sha=sha))
        self._refs[repository, name] = row
        return True

    def aliases_to_branches(self, cards: dict[int, Row]) -> None:
        for alias in self.rows("aliases"):
            version, name = self.versions[alias["version_id"]], alias["alias"]
            if name == "main" or not self._point(version["repository_id"], "branch", name, version["sha"]):
                card = cards[alias["card_id"]]["name"]
                log.warning(
                    "dropped alias %s@%s of version %s: the name is taken", card, name, version["number"]
                )

    def write(self, kept: dict[str, list[Row]]) -> None:
        """Fill the new tables."""
        self._tables = sa.MetaData()
        self._tables.reflect(self.connection)
        self._insert("versions", *{row["id"]: row for row in self.versions.values()}.values())
        for name, rows in kept.items():
            for row in rows:
                row["version_id"] = self.versions[row["version_id"]]["id"]
                if name == "publications":
                    del row["factuality"]
            self._insert(name, *rows)
        last = max((row["id"] for row in kept["publications"]), default=0)
        self._insert(
            "publications", *({"id": id_, **row} for id_, row in enumerate(self.publications, last + 1))
        )
        if self.connection.dialect.name == "postgresql":
            for name in ("versions", "audits", "publications"):
                last_id = f"(SELECT coalesce(max(id), 1) FROM {name})"
                self.connection.execute(
                    sa.text(f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), {last_id})")
                )


def _create_tables() -> None:
    op.create_table(
        "versions",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("repository_id", "repositories.id"),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("sha", sa.String(40), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False, index=True),
        sa.Column("base", sa.Text(), nullable=False, index=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("published", sa.DateTime(timezone=True), nullable=False),
        sa.Column("factuality", sa.Float()),
        sa.UniqueConstraint("repository_id", "number"),
        sa.UniqueConstraint("repository_id", "sha256"),
    )
    op.create_table(
        "publications",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("repository_id", "repositories.id"),
        sa.Column("tag", sa.String(250), nullable=False),
        sa.Column("sha", sa.String(40), nullable=False),
        owner("version_id", "versions.id", index=True),
        sa.Column("author", sa.String(96), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("repository_id", "tag"),
    )
    op.create_table(
        "audits",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("version_id", "versions.id", index=True),
        sa.Column("taken", sa.DateTime(timezone=True), nullable=False),
        sa.Column("checker", sa.Text(), nullable=False),
        sa.Column("checker_sha256", sa.String(64)),
        sa.Column("evidence", sa.Text()),
        sa.Column("evidence_sha256", sa.String(64)),
        sa.Column("queries", sa.Text(), nullable=False),
        sa.Column("queries_sha256", sa.String(64), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("faithfulness", sa.Float()),
        sa.Column("factuality", sa.Float()),
        sa.Column("record", sa.Text(), nullable=False),
    )
