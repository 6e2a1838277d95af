"""What Xet ingest makes of what clients send, and what it makes of attacks."""

import hashlib
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from kcard.hub.accounts.accounts import Accounts
from kcard.hub.accounts.identity import Identity
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import xorb_uploads
from kcard.hub.records.utc import now
from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.repositories.uploads import Uploads
from kcard.hub.shared import SharedHub
from kcard.hub.store.local_store import BlobStore
from kcard.hub.xet import ingest as ingest_module
from kcard.hub.xet.ingest import Ingest
from kcard.hub.xet.xorbs import KEPT, Sender
from tests.hub.xet_packing import described, named, packed, shard

CHUNKS = [b"a" * 9000, bytes(range(256)) * 40, b"the end"]
WHOLE = b"".join(CHUNKS)
SHA256 = hashlib.sha256(WHOLE).hexdigest()
XORB = named(CHUNKS)
SENT = packed(CHUNKS[0], 1) + packed(CHUNKS[1], 2) + packed(CHUNKS[2]) + b"XETBLOB and a footer"
ADA, BOB = 1, 2
LARGEST = 1 << 20


@pytest.fixture(scope="module")
def peopled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with ada and bob, made once: making it takes longer than any test."""
    path = tmp_path_factory.mktemp("peopled") / "hub.db"
    accounts = Accounts(Database(path))
    assert [accounts.add_user(name).id for name in ("ada", "bob")] == [ADA, BOB]
    return path


@pytest.fixture
def database(tmp_path: Path, peopled: Path) -> Database:
    shutil.copyfile(peopled, tmp_path / "hub.db")
    return Database(tmp_path / "hub.db")


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", tmp_path / "partial")


@pytest.fixture
def ingest(database: Database, blobs: BlobStore) -> Ingest:
    return Ingest(database, blobs, Uploads(database, blobs))


def spooled(ingest: Ingest, content: bytes) -> Path:
    path = ingest.xorbs._root.parent / "spooled"
    path.write_bytes(content)
    return path


def send_xorb(ingest: Ingest, who: int, content: bytes = SENT, name: str = XORB) -> bool:
    return ingest.put_xorb(Sender(who), name, spooled(ingest, content))


def send_shard(ingest: Ingest, who: int, content: bytes) -> list[tuple[str, int]]:
    return ingest.put_shard(Identity(who, "somebody"), spooled(ingest, content), largest=LARGEST)


def test_a_file_is_put_together_from_its_chunks(ingest: Ingest, blobs: BlobStore) -> None:
    assert send_xorb(ingest, ADA)
    assert send_shard(ingest, ADA, shard(described(SHA256, (XORB, len(WHOLE), 0, 3)))) == [
        (SHA256, len(WHOLE))
    ]
    assert b"".join(blobs.read(SHA256)) == WHOLE
    assert list(blobs.partial.glob("*")) == []


def test_a_later_file_is_made_of_old_xorbs(ingest: Ingest, blobs: BlobStore) -> None:
    send_xorb(ingest, ADA)
    other = CHUNKS[2] + CHUNKS[0] + CHUNKS[2] + CHUNKS[1]
    sha256 = hashlib.sha256(other).hexdigest()
    segments = [(XORB, 7, 2, 3), (XORB, 9000, 0, 1), (XORB, 7, 2, 3), (XORB, len(CHUNKS[1]), 1, 2)]
    send_shard(ingest, ADA, shard(described(sha256, *segments)))
    assert b"".join(blobs.read(sha256)) == other


def test_a_xorb_under_another_hash_is_refused(ingest: Ingest) -> None:
    victim = named([b"what somebody else is going to send"])
    with pytest.raises(Invalid, match="expected " + victim[:12]):
        send_xorb(ingest, ADA, SENT, victim)
    with pytest.raises(Invalid, match="empty xorb"):
        send_xorb(ingest, ADA, b"", XORB)
    assert list(ingest.xorbs._root.glob("??/*")) == []


def test_the_same_xorb_packed_otherwise_does_not_replace_the_first(ingest: Ingest, blobs: BlobStore) -> None:
    send_xorb(ingest, ADA)
    kept = ingest.xorbs.size(ADA)
    assert send_xorb(ingest, BOB, b"".join(map(packed, CHUNKS))), "that others sent it is not told"
    assert not send_xorb(ingest, BOB)
    assert ingest.xorbs.size(ADA) == ingest.xorbs.size(BOB) == kept < len(WHOLE)
    send_shard(ingest, BOB, shard(described(SHA256, (XORB, len(WHOLE), 0, 3))))
    assert blobs.holds(SHA256)


def test_a_shard_can_not_use_a_xorb_that_only_another_account_sent(ingest: Ingest, blobs: BlobStore) -> None:
    send_xorb(ingest, ADA)
    with pytest.raises(Invalid, match="was not uploaded by this account"):
        send_shard(ingest, BOB, shard(described(SHA256, (XORB, len(WHOLE), 0, 3))))
    assert not blobs.holds(SHA256)


def test_a_sha256_that_somebody_else_sent_is_not_had_for_the_asking(
    ingest: Ingest, database: Database, blobs: BlobStore
) -> None:
    send_xorb(ingest, ADA)
    send_shard(ingest, ADA, shard(described(SHA256, (XORB, len(WHOLE), 0, 3))))
    send_xorb(ingest, BOB, packed(b"mine"), named([b"mine"]))
    with pytest.raises(Invalid, match="sha256"):
        send_shard(ingest, BOB, shard(described(SHA256, (named([b"mine"]), 4, 0, 1))))
    assert Uploads(database, blobs).usable(Identity(BOB, "bob"), SHA256) is None


@pytest.mark.parametrize(
    "segments",
    [
        [(XORB, len(WHOLE), 0, 4)],
        [(XORB, len(WHOLE) - 1, 0, 3)],
        [(XORB, len(WHOLE) + 1, 0, 3)],
        [(XORB, len(WHOLE) - 7, 0, 2)],
        [("f" * 63 + "0", 1, 0, 1)],
    ],
)
def test_a_shard_that_does_not_fit_its_xorbs_is_refused(
    ingest: Ingest, blobs: BlobStore, segments: list[tuple[str, int, int, int]]
) -> None:
    send_xorb(ingest, ADA)
    with pytest.raises(Invalid):
        send_shard(ingest, ADA, shard(described(SHA256, *segments)))
    assert list(blobs) == []
    assert list(blobs.partial.glob("*")) == []


def test_what_is_too_large_is_refused_before_it_is_put_together(ingest: Ingest, blobs: BlobStore) -> None:
    send_xorb(ingest, ADA)
    many = [(XORB, len(WHOLE), 0, 3)] * (LARGEST // len(WHOLE) + 1)
    with pytest.raises(TooLarge, match="the limit is"):
        send_shard(ingest, ADA, shard(described(SHA256, *many)))
    assert list(blobs) == []


def test_a_file_that_is_described_many_times_is_put_together_once(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = ingest_module._joined
    times: list[Any] = []

    def counted(*given: Any) -> Any:
        times.append(given)
        return joined(*given)

    monkeypatch.setattr(ingest_module, "_joined", counted)
    send_xorb(ingest, ADA)
    one = described(SHA256, (XORB, len(WHOLE), 0, 3))
    assert send_shard(ingest, ADA, shard(*[one] * 16)) == [(SHA256, len(WHOLE))]
    assert len(times) == 1
    with pytest.raises(Invalid, match="two sizes"):
        send_shard(ingest, ADA, shard(one, described(SHA256, (XORB, 7, 2, 3))))


def test_a_shard_of_more_than_a_few_of_the_largest_files_is_refused(ingest: Ingest, blobs: BlobStore) -> None:
    send_xorb(ingest, ADA)
    many = [(XORB, len(WHOLE), 0, 3)] * (LARGEST // len(WHOLE))
    files = [described(f"{number:064x}", *many) for number in range(5)]
    with pytest.raises(TooLarge, match="upload fewer files"):
        send_shard(ingest, ADA, shard(*files))
    assert list(blobs) == []


def test_a_file_of_countless_tiny_chunks_is_refused(ingest: Ingest) -> None:
    tiny = [bytes([number]) for number in range(200)]
    send_xorb(ingest, ADA, b"".join(map(packed, tiny)), named(tiny))
    with pytest.raises(TooLarge, match="too many chunks"):
        send_shard(ingest, ADA, shard(described(SHA256, (named(tiny), 200, 0, 200))))


def test_a_shard_of_too_many_xorbs_is_refused(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "MOST_XORBS", 2)
    segments = [(f"{number:064x}", 2000, 0, 1) for number in range(3)]
    with pytest.raises(TooLarge, match="too many xorbs"):
        send_shard(ingest, ADA, shard(described(SHA256, *segments)))


def test_a_xorb_of_too_many_bytes_or_chunks_is_refused(ingest: Ingest) -> None:
    zeros = packed(bytes(128 * 1024), 1)
    with pytest.raises(TooLarge):
        send_xorb(ingest, ADA, zeros * 513)
    with pytest.raises(TooLarge):
        send_xorb(ingest, ADA, packed(b"x") * 8193)


def test_xorbs_stay_while_a_client_may_refer_to_them_and_go_later(ingest: Ingest, database: Database) -> None:
    send_xorb(ingest, ADA)
    assert ingest.xorbs.collect(at=now() + KEPT - timedelta(minutes=1)) == []
    later = now() + KEPT + timedelta(minutes=1)
    assert [path.name for path, _ in ingest.xorbs.collect(dry_run=True, at=later)] == [XORB]
    assert ingest.xorbs.size(ADA) > 0
    assert [path.name for path, _ in ingest.xorbs.collect(at=later)] == [XORB]
    with database.read() as connection:
        assert connection.scalars(select(xorb_uploads.c.hash)).all() == []
    with pytest.raises(Invalid, match="was not uploaded"):
        send_shard(ingest, ADA, shard(described(SHA256, (XORB, len(WHOLE), 0, 3))))
    assert send_xorb(ingest, ADA)


def test_a_file_that_no_row_names_goes_at_once(ingest: Ingest) -> None:
    send_xorb(ingest, ADA)
    stray = ingest.xorbs._root / "ab" / "abcd"
    stray.parent.mkdir()
    stray.write_bytes(b"left by a killed process")
    assert [path for path, _ in ingest.xorbs.collect()] == [stray]


def test_many_xorbs_are_read_with_few_open(
    ingest: Ingest, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_module, "MOST_OPEN", 2)
    pieces = [bytes([number]) * 2000 for number in range(5)]
    for piece in pieces:
        send_xorb(ingest, ADA, packed(piece), named([piece]))
    whole = b"".join(pieces * 2)
    segments = [(named([piece]), 2000, 0, 1) for piece in pieces * 2]
    sha256 = hashlib.sha256(whole).hexdigest()
    send_shard(ingest, ADA, shard(described(sha256, *segments)))
    assert b"".join(blobs.read(sha256)) == whole


def test_the_collection_keeps_its_name_until_it_is_made_anew(ingest: Ingest, database: Database) -> None:
    name = ingest.xorbs.name
    again = Ingest(database, ingest._blobs, ingest._uploads)
    assert again.xorbs.name == name
    (ingest.xorbs._root / "name").unlink()
    fresh = Ingest(database, ingest._blobs, ingest._uploads)
    assert fresh.xorbs.name != name


def test_both_homes_of_a_hub_take_xorbs_and_shards(tmp_path: Path, any_database: str | None) -> None:
    hub = SharedHub.open(tmp_path, database_url=any_database)
    ada, bob = (hub.accounts.add_user(name).id for name in ("ada", "bob"))
    assert send_xorb(hub.ingest, ada)
    assert send_xorb(hub.ingest, bob)
    assert not send_xorb(hub.ingest, ada)
    claim = shard(described(SHA256, (XORB, len(WHOLE), 0, 3)))
    assert send_shard(hub.ingest, ada, claim) == send_shard(hub.ingest, ada, claim)
    assert hub.uploads.usable(Identity(ada, "ada"), SHA256) == len(WHOLE)
    assert hub.uploads.usable(Identity(bob, "bob"), SHA256) is None
    assert (hub.uploads.pending(ada), hub.uploads.pending(bob)) == (len(WHOLE), 0)
    assert hub.ingest.xorbs.size(ada) > 0
    assert len(hub.ingest.xorbs.collect(at=now() + KEPT + timedelta(minutes=1))) == 1
    assert hub.ingest.xorbs.size(ada) == 0
