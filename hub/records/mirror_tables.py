"""Tables of repositories that are mirrored from another hub, and of the accounts' tokens there."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from kcard.hub.records.tables import metadata

__all__ = [
    "MIRROR_TABLES",
    "mirror_access",
    "mirror_commits",
    "mirror_files",
    "mirror_refs",
    "mirrors",
    "upstream_tokens",
]


def _mirror(*, key: bool = True) -> "Column[int]":
    mirror = ForeignKey("mirrors.id", ondelete="CASCADE")
    return Column("mirror_id", Integer, mirror, primary_key=key, nullable=False)


def _account() -> "Column[int]":
    account = ForeignKey("accounts.id", ondelete="CASCADE")
    return Column("account_id", Integer, account, primary_key=True)


# A repository of the hub `upstream`, its only source. `namespace` is in lower case, as is `folded`, the whole name.
# `open`: whether everyone may read it there, as of `checked`. `refs` is the JSON of its branches and tags, as of
# `listed`.
mirrors = Table(
    "mirrors",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("type", String(16), nullable=False),
    Column("name", String(200), nullable=False),
    Column("folded", String(200), nullable=False),
    Column("namespace", String(96), nullable=False, index=True),
    Column("upstream", Text, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("gated", String(16), nullable=False),
    Column("created", DateTime(timezone=True), nullable=False),
    Column("checked", DateTime(timezone=True), nullable=False),
    Column("refs", Text),
    Column("listed", DateTime(timezone=True)),
    UniqueConstraint("type", "folded"),
)

# `tree` is compressed JSON as in `commits`, in full; the sha256 of a regular file is empty. `about` is the JSON of what
# upstream says of the repository at that commit, `size` the bytes of both.
mirror_commits = Table(
    "mirror_commits",
    metadata,
    _mirror(),
    Column("sha", String(40), primary_key=True),
    Column("tree", LargeBinary, nullable=False),
    Column("about", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
)

# The commit of a revision (a branch, a tag or any other name of a commit), as of `checked`.
mirror_refs = Table(
    "mirror_refs",
    metadata,
    _mirror(),
    Column("revision", String(250), primary_key=True),
    Column("sha", String(40), nullable=False),
    Column("checked", DateTime(timezone=True), nullable=False),
)

# The accounts whose own token read a mirror that is not open, as of `checked`.
mirror_access = Table(
    "mirror_access",
    metadata,
    _mirror(),
    _account(),
    Column("checked", DateTime(timezone=True), nullable=False),
)

# Files by the oid that upstream names: the sha1 of git's blob, or the sha256 of a large file. `sha256` is set once the
# file is stored, verified and checked; until then `size` bytes are reserved for it. `error` says why it is not, with
# the HTTP `status`; it holds until `until`.
mirror_files = Table(
    "mirror_files",
    metadata,
    _mirror(),
    Column("oid", String(64), primary_key=True),
    Column("sha256", String(64), index=True),
    Column("size", BigInteger, nullable=False),
    Column("status", Integer),
    Column("error", Text),
    Column("until", DateTime(timezone=True)),
)

# The sha256 of an account's token for the hub `upstream`. The token itself is in a file of its own.
upstream_tokens = Table(
    "upstream_tokens",
    metadata,
    _account(),
    Column("upstream", Text, nullable=False),
    Column("digest", String(64), nullable=False),
)

MIRROR_TABLES = {mirrors, mirror_commits, mirror_refs, mirror_access, mirror_files, upstream_tokens}
