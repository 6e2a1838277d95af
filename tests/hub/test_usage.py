"""The counter of committed bytes is the sum of what is committed, whatever happens; reservations hold and end."""

import hashlib
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from kcard.hub import quotas, uploads
from kcard.hub.checks.content import RULES, ContentVerdict
from kcard.hub.db.models import Account, Commit, Reservation
from kcard.hub.db.session import Database
from kcard.hub.errors import Dangerous, TooLarge
from kcard.hub.quotas import LIFETIME, Reservations
from kcard.hub.registry import Hub
from kcard.hub.uploads import Verdicts
from kcard.hub.values import Delete
from kcard.manifest import Manifest, seal
from tests.hub.rows import counted
from tests.hub.stand import Stand, stand

HALF = b"x" * 40_000


@pytest.fixture
def hub(tmp_path: Path, any_database: str | None) -> Iterator[Stand]:
    with stand(tmp_path / "home", any_database) as hub:
        yield hub


def card(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(f'{{"text": "{text}"}}', encoding="utf-8")
    seal(folder, Manifest(name="rivers", description=text, domain="earth"))
    return folder


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
    hub.repositories.delete(one)
    assert counted(database)["ada"] > len(HALF), "the other repository still has it"
    moved = hub.repositories.move(two, "eve/two")
    assert counted(database)["ada"] == 0
    assert counted(database)["eve"] > len(HALF)
    hub.registry.publish(card(tmp_path / "draft", "first"), aliases=["stable"])
    hub.registry.publish(card(tmp_path / "draft", "second"))
    library = counted(database)["library"]
    hub.registry.remove("rivers@v2")
    assert 0 < counted(database)["library"] < library
    hub.registry.gc()
    everyone = counted(database)
    hub.registry.backup(tmp_path / "hub.tar")
    restored = Hub(tmp_path / "restored")
    restored.restore(tmp_path / "hub.tar")
    assert counted(restored.database) == everyone
    hub.repositories.delete(moved)
    hub.registry.remove("rivers")
    assert {name: used for name, used in counted(database).items() if used} == {}


def test_a_backup_can_not_lower_the_counter(hub: Stand, tmp_path: Path) -> None:
    hub.commit(hub.make("ada/one"), {"a.txt": HALF})
    used = counted(hub.registry.database)["ada"]
    with hub.registry.database.write() as connection:
        connection.execute(update(Account).values(used=-1_000_000))
    hub.registry.backup(tmp_path / "hub.tar")
    restored = Hub(tmp_path / "restored")
    restored.restore(tmp_path / "hub.tar")
    assert counted(restored.database)["ada"] == used


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


def test_what_is_reserved_is_charged_until_it_is_released_or_expires(hub: Stand) -> None:
    repository, database = hub.make("ada/one"), hub.registry.database
    hub.accounts.update("ada", quota=10_000)
    reservations_ = Reservations(database)
    first = reservations_.reserve(repository.id, 6_000)
    assert first is not None
    with pytest.raises(TooLarge, match="quota of ada"):
        reservations_.reserve(repository.id, 6_000)
    reservations_.release(first)
    second = reservations_.reserve(repository.id, 6_000)
    assert second is not None
    _age(database, LIFETIME - timedelta(seconds=30))
    reservations_.renew(second)
    _age(database, LIFETIME - timedelta(seconds=30))
    with pytest.raises(TooLarge):
        reservations_.reserve(repository.id, 6_000)
    _age(database, timedelta(seconds=60))  # its process has died
    assert reservations_.reserve(repository.id, 6_000) is not None


def test_without_a_quota_nothing_is_written(hub: Stand) -> None:
    repository = hub.make("ada/one")
    assert Reservations(hub.registry.database).reserve(repository.id, 1 << 50) is None
    with hub.registry.database.read() as connection:
        assert connection.scalar(select(func.count()).select_from(Reservation)) == 0
        assert quotas.remaining_quota(connection, hub.accounts.get("ada").id, None) is None


def test_a_verdict_is_kept_by_content_form_and_rules_while_there_is_the_content(
    hub: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.commit(hub.make("ada/one"), {"a.txt": HALF})
    digest, gone = hashlib.sha256(HALF).hexdigest(), "ab" * 32
    known_verdicts = Verdicts(hub.registry.database)
    refused = ContentVerdict("Dangerous", "{path} is a pickle")
    known_verdicts.store({(digest, "text"): ContentVerdict(), (gone, "text"): ContentVerdict()})
    known_verdicts.store({(digest, "json"): ContentVerdict("Invalid", "not JSON")})
    known_verdicts.store({(digest, "json"): refused})
    assert known_verdicts.find([(digest, "text"), (gone, "text")]).keys() >= {
        (digest, "text"),
        (gone, "text"),
    }
    with pytest.raises(Dangerous, match=re.escape("a.json is a pickle")):
        known_verdicts.find([(digest, "json")])[digest, "json"].enforce("a.json")
    hub.registry.gc()
    assert (gone, "text") not in known_verdicts.find([(digest, "text"), (gone, "text")])
    monkeypatch.setattr(uploads, "RULES", RULES + 1)
    assert known_verdicts.find([(digest, "text")]) == {}


def _age(database: Database, by: timedelta) -> None:
    with database.write() as connection:
        for reservation in connection.scalars(select(Reservation)):
            assert reservation.expires is not None
            reservation.expires -= by
