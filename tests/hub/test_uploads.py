"""Who may use which blob and what it counts; gc takes none from under an upload."""

import hashlib
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select, update

from kcard.hub import quotas
from kcard.hub.accounts import Identity
from kcard.hub.checks.content import RULES, ContentVerdict
from kcard.hub.db.models import AccessRequest, Commit, Repository, Reservation, now
from kcard.hub.db.session import Database
from kcard.hub.errors import Dangerous, Invalid, TooLarge
from kcard.hub.garbage import find_referenced
from kcard.hub.history import MAX_MESSAGE_CHARACTERS
from kcard.hub.quotas import LIFETIME, Reservations
from kcard.hub.storage import BlobStore
from kcard.hub.uploads import Parts, Uploads, Verdicts, delete_committed
from kcard.hub.values import Delete
from tests.hub.postgres import on_both
from tests.hub.stand import QUOTA, Stand, counted, hold, pending_bytes, seal_card

CONTENT = b"weights that somebody sent"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SIZE = len(CONTENT)


def test_who_sent_a_blob_may_use_it_and_nobody_else(hub: Stand) -> None:
    blobs = hub.registry.blobs
    hub.sent("ada", "weights", CONTENT)
    assert hub.uploads.find_usable_size(hub.who("ada"), SHA256) == SIZE
    assert hub.uploads.find_usable_size(hub.who("eve"), SHA256) is None
    assert b"".join(blobs.read(SHA256)) == CONTENT
    assert list(blobs.partial.glob("*")) == []
    blobs.delete(SHA256)
    assert hub.uploads.find_usable_size(hub.who("ada"), SHA256) is None


@pytest.mark.parametrize(
    ("visibility", "gated", "who"),
    [
        ("public", "no", {"ada", "eve", "cleo"}),
        ("private", "no", {"ada"}),
        ("public", "manual", {"ada", "cleo"}),
        ("private", "manual", {"ada"}),
    ],
)
def test_who_may_read_a_repositorys_files_may_use_its_blobs(
    hub: Stand, visibility: str, gated: str, who: set[str]
) -> None:
    hub.sent("root", "weights", CONTENT)
    cleo = hub.accounts.add_user("cleo")
    hold(hub.registry.database, hub.who("ada").account_id, "ada/it", (SHA256, SIZE))
    granted = {"account_id": cleo.id, "state": "granted", "asked": now()}
    with hub.registry.database.write() as session:
        session.execute(update(Repository).values(visibility=visibility, gated=gated))
        session.execute(insert(AccessRequest).values(repository_id=1, **granted))

    def may_use(identity: Identity) -> bool:
        return hub.uploads.find_usable_size(identity, SHA256) == SIZE

    assert {name for name in ("ada", "eve", "cleo") if may_use(hub.who(name))} == who
    bound = replace(hub.who("ada"), repository_id=99)
    assert may_use(bound) == ((visibility, gated) == ("public", "no"))
    administrator = replace(hub.who("eve"), admin=True, scope="admin")
    assert may_use(administrator)
    assert may_use(replace(administrator, scope="write")) == ("eve" in who)


def test_members_may_use_what_their_organisation_holds(hub: Stand) -> None:
    hub.sent("root", "weights", CONTENT)
    lab = hub.accounts.add_organisation("lab", owner="ada")
    hold(hub.registry.database, lab.id, "lab/it", (SHA256, SIZE))
    with hub.registry.database.write() as session:
        session.execute(update(Repository).values(visibility="private"))
    assert hub.uploads.find_usable_size(hub.who("eve", lab="read"), SHA256) == SIZE
    assert hub.uploads.find_usable_size(hub.who("eve"), SHA256) is None


def test_gc_takes_no_blob_that_is_being_stored(hub: Stand) -> None:
    class Collected(BlobStore):
        """A store from which gc deletes what nothing names as soon as it is placed."""

        def place(self, path: Path, sha256: str, size: int) -> None:
            super().place(path, sha256, size)
            with hub.registry.database.write() as session:
                if not find_referenced(session, [sha256]):
                    self.delete(sha256)

    blobs = Collected(hub.registry.home / "hub" / "blobs", hub.registry.blobs.partial)
    replace(hub, uploads=Uploads(hub.registry.database, blobs)).sent("ada", "weights", CONTENT)
    assert b"".join(blobs.read(SHA256)) == CONTENT
    assert list(blobs.partial.glob("*")) == []


def test_uploads_are_pending_until_they_are_committed(hub: Stand) -> None:
    database, ada = hub.registry.database, hub.who("ada")
    hold(database, ada.account_id, "ada/it")
    hub.uploads.record(ada, {SHA256: SIZE, "0" * 64: 1000}, 1)
    assert pending_bytes(database, ada.account_id) == SIZE + 1000
    with database.write() as session:
        assert quotas.charged_bytes(session, ada.account_id) == SIZE + 1000
        delete_committed(session, ada.account_id, 1, [SHA256])
    assert pending_bytes(database, ada.account_id) == 1000
    assert pending_bytes(database, hub.who("eve").account_id) == 0


def part(folder: Path, content: bytes) -> Path:
    path = folder / "part"
    path.write_bytes(content)
    return path


def test_parts_are_joined_in_their_order(hub: Stand, tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts", hub.registry.database)
    parts.put("7", 2, part(tmp_path, CONTENT[10:]))
    parts.put("7", 1, part(tmp_path, b"a first try"))
    parts.drop("7", 1)
    parts.put("7", 1, part(tmp_path, CONTENT[:10]))
    assert parts.join("7", 2, SHA256, tmp_path / "whole") == SIZE
    assert (tmp_path / "whole").read_bytes() == CONTENT
    parts.discard("7")
    assert list((tmp_path / "parts").iterdir()) == []


@pytest.mark.parametrize(
    ("upload", "content", "why"),
    [("8", CONTENT[10:], "part 2"), ("7", b"something else", "sha256")],
)
def test_parts_of_another_account_or_of_something_else_are_not_joined(
    hub: Stand, tmp_path: Path, upload: str, content: bytes, why: str
) -> None:
    parts = Parts(tmp_path / "parts", hub.registry.database)
    parts.put("7", 1, part(tmp_path, CONTENT[:10]))
    parts.put(upload, 2, part(tmp_path, content))
    with pytest.raises(Invalid, match=why):
        parts.join("7", 2, SHA256, tmp_path / "whole")


# The counter of committed bytes is the sum of what is committed, whatever happens; reservations hold and end.


HALF = b"x" * 40_000


def test_messages_of_commits_and_tags_are_charged(hub: Stand) -> None:
    card, message = hub.make("ada/card"), "é" * MAX_MESSAGE_CHARACTERS
    main = hub.refs.resolve(card, "main")

    def commit(number: int) -> None:
        operations = [hub.sent("ada", f"{number}.txt", b"")]
        texts = {"title": "change", "message": message}
        hub.commits.add(card, "main", operations, parent=None, **texts, identity=hub.who("ada"))

    commit(1)
    hub.refs.create_tag(card, "v1", main, message)
    assert 4 * MAX_MESSAGE_CHARACTERS < counted(hub.registry.database)["ada"] < QUOTA
    with pytest.raises(TooLarge, match="quota of ada exceeded"):
        commit(2)
    with pytest.raises(TooLarge, match="quota of ada exceeded"):
        hub.refs.create_tag(card, "v2", main, message)
    hub.refs.delete_tag(card, "v1")
    hub.refs.create_tag(card, "v2", main, message)


@on_both
def test_the_counter_is_the_sum_after_commits_deletions_moves_gc_and_restore(
    hub: Stand, tmp_path: Path
) -> None:
    database = hub.registry.database
    one, two = hub.make("ada/one"), hub.make("ada/two")
    hub.commit(one, {"a.txt": HALF, "b.txt": b"b"})
    before = counted(database)["ada"]
    hub.commit(two, {"same.txt": HALF})
    assert counted(database)["ada"] - before < 1000, "a file of two repositories counts once"
    hub.commit(one, {}, Delete("a.txt"))
    for tag in ("v1", "v2"):
        hub.refs.create_tag(one, tag, hub.refs.resolve(one, "main"), "a message: één")
    hub.refs.delete_tag(one, "v1")
    counted(database)
    hub.repositories.delete(one)
    assert counted(database)["ada"] > len(HALF), "the other repository still has it"
    moved = hub.repositories.move(two, "eve/two")
    assert counted(database)["ada"] == 0
    assert counted(database)["eve"] > len(HALF)
    hub.registry.publish(seal_card(tmp_path / "draft", "rivers", "first"), aliases=["stable"])
    hub.registry.publish(seal_card(tmp_path / "draft", "rivers", "second"))
    library = counted(database)["library"]
    hub.registry.remove("rivers@v2")
    assert 0 < counted(database)["library"] < library
    hub.registry.gc()
    hub.repositories.delete(moved)
    hub.registry.remove("rivers")
    assert {name: used for name, used in counted(database).items() if used} == {}


def test_trees_of_commits_are_charged(hub: Stand) -> None:
    repository = hub.make("ada/trees")
    hub.accounts.update("ada", quota=20_000)
    refused = 0
    for turn in range(5):
        try:
            hub.commit(
                repository, {f"{turn}-{number}.txt": b"%d %d" % (turn, number) for number in range(60)}
            )
        except TooLarge:
            refused += 1
    assert refused > 0
    with hub.registry.database.read() as connection:
        stored = connection.scalar(select(func.sum(func.length(Commit.tree))))
    assert stored <= 20_000


@on_both
def test_what_is_reserved_is_charged_until_it_is_released_or_expires(hub: Stand) -> None:
    repository, database = hub.make("ada/one"), hub.registry.database
    hub.accounts.update("ada", quota=10_000)
    reservations = Reservations(database)
    first = reservations.reserve(repository.id, 6_000)
    assert first is not None
    with pytest.raises(TooLarge, match="quota of ada"):
        reservations.reserve(repository.id, 6_000)
    reservations.release(first)
    second = reservations.reserve(repository.id, 6_000)
    assert second is not None
    _age(database, LIFETIME - timedelta(seconds=30))
    reservations.renew(second)
    _age(database, LIFETIME - timedelta(seconds=30))
    with pytest.raises(TooLarge):
        reservations.reserve(repository.id, 6_000)
    _age(database, timedelta(seconds=60))  # its process has died
    assert reservations.reserve(repository.id, 6_000) is not None


def test_without_a_quota_nothing_is_written(hub: Stand) -> None:
    repository = hub.make("ada/one")
    assert Reservations(hub.registry.database).reserve(repository.id, 1 << 50) is None
    with hub.registry.database.read() as connection:
        assert connection.scalar(select(func.count()).select_from(Reservation)) == 0
    assert Reservations(hub.registry.database).remaining(repository.id) is None


def test_a_verdict_is_kept_by_content_form_and_rules_while_there_is_the_content(
    hub: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.commit(hub.make("ada/one"), {"a.txt": HALF})
    digest, gone = hashlib.sha256(HALF).hexdigest(), "ab" * 32
    verdicts = Verdicts(hub.registry.database)
    refused = ContentVerdict("Dangerous", "{path} is a pickle")
    verdicts.store({(digest, "text"): ContentVerdict(), (gone, "text"): ContentVerdict()})
    verdicts.store({(digest, "json"): ContentVerdict("Invalid", "not JSON")})
    verdicts.store({(digest, "json"): refused})
    both = {(digest, "text"), (gone, "text")}
    assert verdicts.find(both).keys() >= both
    with pytest.raises(Dangerous, match=re.escape("a.json is a pickle")):
        verdicts.find([(digest, "json")])[digest, "json"].enforce("a.json")
    hub.registry.gc()
    assert (gone, "text") not in verdicts.find(both)
    monkeypatch.setattr("kcard.hub.uploads.RULES", RULES + 1)
    assert verdicts.find([(digest, "text")]) == {}


def _age(database: Database, by: timedelta) -> None:
    with database.write() as connection:
        for reservation in connection.scalars(select(Reservation)):
            assert reservation.expires is not None
            reservation.expires -= by
