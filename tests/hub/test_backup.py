"""Backup and restore: a hub in one file and back, whole or not at all."""

import hashlib
import io
import os
import shutil
import sys
import tarfile
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from kcard.errors import DamagedCard, HubError, UsageError
from kcard.hub import trees
from kcard.hub.db.session import Database
from kcard.hub.registry import Hub
from kcard.hub.services import HubServices
from tests.hub.stand import refused_by_the_disk, seal_card


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a hub: two versions of one card, with a gap and an alias, and one of another; a pool."""
    folder = tmp_path_factory.mktemp("template")
    hub = Hub(folder / "home")
    for number in range(3):
        hub.publish(seal_card(folder / "a", "oncology", str(number)))
    hub.remove("oncology@v2")
    hub.alias("oncology@v1", "stable")
    hub.publish(seal_card(folder / "b", "hearts"))
    hub.pools.create("clinic", ["oncology@v1", "hearts"])
    hub.database.close()
    return hub.home


@pytest.fixture
def hub(home: Path, template: Path) -> Hub:
    shutil.copytree(template, home)
    return Hub(home)


@pytest.fixture
def other(tmp_path: Path) -> Hub:
    return Hub(tmp_path / "other")


def seen(hub: Hub) -> object:
    return [hub.versions(card.name) for card in hub.list()], hub.pools.list()


def empty(hub: Hub) -> bool:
    return hub.list() == [] and hub.pools.list() == [] and hub.gc() == []


def test_a_restored_hub_is_the_one_that_was_backed_up(hub: Hub, other: Hub, tmp_path: Path) -> None:
    done: list[int] = []
    hub.backup(tmp_path / "hub.tar", done.append)
    assert done == sorted(done)
    assert done[-1] > 0
    assert [v.reference for v in other.restore(tmp_path / "hub.tar")] == [
        "hearts@v1",
        "oncology@v1",
        "oncology@v3",
    ]
    assert seen(other) == seen(hub)
    assert other.verify() == []
    assert other.publish(seal_card(tmp_path / "a", "oncology", "new")).number == 4
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "other/hub/blobs").glob("*/*")} == {0o444}


def test_a_backup_has_no_secret_and_the_restored_hub_one_of_its_own(
    hub: Hub, other: Hub, tmp_path: Path
) -> None:
    serving = HubServices(hub.home)
    hub.backup(tmp_path / "hub.tar")
    with tarfile.open(tmp_path / "hub.tar") as tar:
        database = tar.extractfile("hub/hub.db")
        assert database is not None
        content = database.read()
    assert serving.secret.hex().encode() not in content
    other.restore(tmp_path / "hub.tar")
    restored = HubServices(other.home)
    assert restored.secret != serving.secret
    assert HubServices(other.home).secret == restored.secret


def test_a_hub_whose_cards_were_all_removed_takes_a_backup(hub: Hub, other: Hub, tmp_path: Path) -> None:
    other.publish(seal_card(tmp_path / "c", "lungs"))
    other.remove("lungs@v1")
    other.restore(hub.backup(tmp_path / "hub.tar").path)
    assert seen(other) == seen(hub)


def test_a_backup_tells_what_it_has(hub: Hub, tmp_path: Path) -> None:
    backup = hub.backup(tmp_path / "hub.tar")
    assert backup.path == tmp_path / "hub.tar"
    assert (backup.cards, backup.versions, backup.repositories) == (2, 3, 2)
    sizes = dict(hub.blobs.sizes())
    assert (backup.blobs, backup.size) == (len(sizes), sum(sizes.values()))


def test_sha256sum_can_check_an_unpacked_backup(hub: Hub, tmp_path: Path) -> None:
    hub.backup(tmp_path / "hub.tar")
    with tarfile.open(tmp_path / "hub.tar") as tar:
        tar.extractall(tmp_path / "out", filter="data")
    lines = (tmp_path / "out/SHA256SUMS").read_text(encoding="utf-8").splitlines()
    listed = {path: sha256 for sha256, path in (line.split("  ") for line in lines)}
    files = [p for p in (tmp_path / "out/hub").rglob("*") if p.is_file()]
    assert {p.relative_to(tmp_path / "out").as_posix() for p in files} == set(listed)
    for path, sha256 in listed.items():
        assert hashlib.sha256((tmp_path / "out" / path).read_bytes()).hexdigest() == sha256


def test_a_backup_is_one_moment_while_others_publish_and_remove(hub: Hub, other: Hub, tmp_path: Path) -> None:
    def come_and_go() -> None:
        busy = Hub(hub.home)
        for number in range(12):
            busy.publish(seal_card(tmp_path / "busy", "busy", str(number)))
            if number % 3 == 2:
                busy.remove("busy")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    backups = 0
    while thread.is_alive() and backups < 5:
        hub.backup(tmp_path / f"{backups}.tar")
        backups += 1
    thread.join()
    assert backups > 1
    for number in range(backups):
        restored = Hub(tmp_path / f"restored{number}")
        versions = restored.restore(tmp_path / f"{number}.tar")
        assert {"hearts@v1", "oncology@v1", "oncology@v3"} <= {v.reference for v in versions}
        assert restored.verify() == []
    assert empty(other)


def test_nothing_is_overwritten(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="exists"):
        hub.backup(tmp_path / "mine")
    assert (tmp_path / "mine").read_text(encoding="utf-8") == "mine"
    before = seen(hub)
    with pytest.raises(HubError, match=r"not empty \(2 cards and 1 pools\)"):
        hub.restore(hub.backup(tmp_path / "hub.tar"))
    assert seen(hub) == before


def test_a_damaged_hub_is_not_backed_up(hub: Hub, tmp_path: Path) -> None:
    blob = next((hub.home / "hub" / "blobs").glob("*/*"))
    blob.chmod(0o644)
    blob.write_bytes(b"something else")
    with pytest.raises(DamagedCard, match="kcard verify"):
        hub.backup(tmp_path / "hub.tar")
    blob.unlink()
    with pytest.raises(DamagedCard, match=r"missing.*kcard verify"):
        hub.backup(tmp_path / "hub.tar")
    assert [path.name for path in tmp_path.glob("*hub.tar*")] == []
    assert list((hub.home / "hub" / "partial").iterdir()) == []


Members = dict[str, bytes]


def remade(path: Path, change: Callable[[Members], None], sums: bool = True) -> Path:
    """The backup with its members changed, and SHA256SUMS made to fit."""
    with tarfile.open(path) as tar:
        members = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    change(members)
    if sums:
        lines = [
            f"{hashlib.sha256(data).hexdigest()}  {name}\n"
            for name, data in members.items()
            if name != "SHA256SUMS"
        ]
        members["SHA256SUMS"] = "".join(lines).encode()
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def blob(members: Members, containing: bytes) -> str:
    return next(n for n, data in members.items() if n.startswith("hub/blobs/") and containing in data)


def changed_blob(members: Members) -> None:
    members[blob(members, b"hearts ")] = b"something else"


def lost_blob(members: Members) -> None:
    del members[blob(members, b"hearts ")]


def outside(members: Members) -> None:
    members["../../outside"] = b"x"


def no_database(members: Members) -> None:
    del members["hub/hub.db"]


def no_database_at_all(members: Members) -> None:
    members["hub/hub.db"] = b"not a database, but long enough to be taken for one" * 100


def sql(members: Members, tmp: Path, *statements: str) -> None:
    (tmp / "hub.db").write_bytes(members["hub/hub.db"])
    engine = sa.create_engine(f"sqlite:///{tmp}/hub.db", poolclass=sa.NullPool)
    with engine.begin() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.create_function("packed", 1, trees.compress_tree)
        raw.create_function("unpacked", 1, lambda content: zlib.decompress(content).decode())
        for statement in statements:
            connection.exec_driver_sql(statement)
    members["hub/hub.db"] = (tmp / "hub.db").read_bytes()


def test_the_secret_in_an_old_backup_is_not_restored(hub: Hub, other: Hub, tmp_path: Path) -> None:
    before = HubServices(other.home).secret
    statement = "INSERT INTO settings (name, value) VALUES ('secret', 'ab')"
    hub.backup(tmp_path / "hub.tar")
    other.restore(remade(tmp_path / "hub.tar", lambda members: sql(members, tmp_path, statement)))
    assert HubServices(other.home).secret == before


@pytest.mark.parametrize(
    "change", [changed_blob, lost_blob, outside, no_database, no_database_at_all], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("sums", [True, False])
def test_a_backup_that_was_changed_is_refused_and_leaves_nothing(
    hub: Hub, other: Hub, tmp_path: Path, change: Callable[[Members], None], sums: bool
) -> None:
    path = remade(hub.backup(tmp_path / "hub.tar").path, change, sums)
    with pytest.raises(HubError) as caught:
        other.restore(path)
    assert "\n" not in str(caught.value)
    assert empty(other)
    assert not (tmp_path.parent / "outside").exists()


def test_a_link_in_a_backup_is_not_followed(hub: Hub, other: Hub, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hearts ", encoding="utf-8")
    path = hub.backup(tmp_path / "hub.tar")
    with tarfile.open(path) as tar:
        members = [(m, tar.extractfile(m).read()) for m in tar]  # type: ignore[union-attr]
    with tarfile.open(path, "w") as tar:
        for info, data in members:
            if data == b"hearts ":
                info.type, info.linkname, info.size, data = tarfile.SYMTYPE, str(secret), 0, b""
            tar.addfile(info, io.BytesIO(data))
    with pytest.raises(HubError, match="not a file"):
        other.restore(path)
    assert empty(other)


def test_a_manifest_in_a_backup_passes_what_a_published_one_must(
    hub: Hub, other: Hub, tmp_path: Path
) -> None:
    (tmp_path / "db").mkdir()
    config = hub.get("hearts").files["config.json"]
    evil = '{"name":"hearts","description":"x","format":1,"files":{"../x":"' + "0" * 64 + '"}}'
    attacks = {
        "plain path": f"UPDATE versions SET manifest = '{evil}' WHERE description = 'Tumours'",
        "does not match its manifest": "UPDATE versions SET manifest = replace(manifest, 'Tumours', 'Hearts')",
        "manifest format": "UPDATE versions SET manifest = replace(manifest, '\"format\": 1', '\"format\": 9')",
        "not listed": "UPDATE holdings SET sha256 = '" + "0" * 64 + f"' WHERE sha256 = '{config}'",
        "unlisted files": f"UPDATE commits SET tree = packed(replace(unpacked(tree), '{config}', '{'0' * 64}'))",
        "commit .*Expecting value": "UPDATE commits SET tree = packed('no JSON')",
        "commit .*incorrect header check": "UPDATE commits SET tree = CAST('not compressed' AS BLOB)",
        "commit .*a commit before it is missing": "UPDATE commits SET delta = 1",
        r"commit .*unsafe path": "UPDATE commits SET tree = packed(replace(unpacked(tree), '[[', "
        """'[["../x","","",0,false],['))""",
    }
    for number, (words, statement) in enumerate(attacks.items()):
        path = hub.backup(tmp_path / f"{number}.tar").path
        remade(path, lambda members, s=statement: sql(members, tmp_path / "db", s))  # type: ignore[misc]
        with pytest.raises(HubError, match=words):
            other.restore(path)
        assert empty(other)


def test_a_pickle_does_not_come_in_by_a_backup(hub: Hub, other: Hub, tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    pickled = b"\x80\x04half a pickle"
    sha256 = hashlib.sha256(pickled).hexdigest()
    version = hub.get("hearts")
    text = version.manifest.to_json().replace(version.files["config.json"], sha256)
    new = hashlib.sha256(text.encode()).hexdigest()

    def swap(members: Members) -> None:
        for old, data in {version.files["config.json"]: pickled, version.sha256: text.encode()}.items():
            del members[f"hub/blobs/{old[:2]}/{old}"]
            digest = hashlib.sha256(data).hexdigest()
            members[f"hub/blobs/{digest[:2]}/{digest}"] = data
        quoted = text.replace("'", "''")
        swapped = {version.sha256: new, version.files["config.json"]: sha256}
        sql(
            members,
            tmp_path / "db",
            f"UPDATE versions SET manifest = '{quoted}', sha256 = '{new}' WHERE sha256 = '{version.sha256}'",
            *(f"UPDATE holdings SET sha256 = '{b}' WHERE sha256 = '{a}'" for a, b in swapped.items()),
            *(
                f"UPDATE commits SET tree = packed(replace(unpacked(tree), '{a}', '{b}'))"
                for a, b in swapped.items()
            ),
        )

    with pytest.raises(HubError, match="contains a pickle"):
        other.restore(remade(hub.backup(tmp_path / "hub.tar").path, swap))
    assert empty(other)


def test_what_is_no_backup_is_one_clear_error(hub: Hub, other: Hub, tmp_path: Path) -> None:
    whole = hub.backup(tmp_path / "hub.tar").path.read_bytes()
    (tmp_path / "text").write_text("no tar", encoding="utf-8")
    (tmp_path / "none").write_bytes(b"")
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    with tarfile.open(tmp_path / "tar", "w") as tar:
        tar.add(tmp_path / "text", "text")
    for name in ("text", "none", "half", "tar"):
        with pytest.raises(HubError, match=f"{name} is not a (complete )?kcard backup"):
            other.restore(tmp_path / name)
    with pytest.raises(HubError, match="can't restore"):
        other.restore(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        other.restore(tmp_path / "nowhere")
    assert empty(other)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on a file's size")
@pytest.mark.parametrize("deed", ["backup", "restore", "pull"])
def test_a_disk_that_refuses_leaves_everything_as_it_was(
    hub: Hub, other: Hub, tmp_path: Path, deed: str
) -> None:
    hub.publish(seal_card(tmp_path / "large", "large", "x" * 1_200_000))
    whole = hub.backup(tmp_path / "whole.tar").path
    calls = {
        "backup": lambda: Hub(hub.home).backup(tmp_path / "new"),
        "restore": lambda: Hub(other.home).restore(whole),
        "pull": lambda: Hub(hub.home).pull("large", tmp_path / "new"),
    }
    before = seen(hub)
    message = refused_by_the_disk(calls[deed], 1_000_000)
    assert message.count("\n") == 0
    assert "File too large" in message
    assert "free some space" in message
    assert not (tmp_path / "new").exists()
    assert list(tmp_path.glob(".*kcard-*")) == []
    assert seen(hub) == before
    assert hub.gc() == []
    assert empty(other)


# Who may read the files of a hub on its disk: its owner, whatever the umask says.


@pytest.fixture
def open_umask() -> Iterator[None]:
    if sys.platform == "win32":
        pytest.skip("Windows has no such modes")
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("open_umask")
def test_a_new_hub_is_for_its_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    hub = Hub(home)
    with hub.database.write():  # the files beside it exist while it is in use
        modes = {path.name: mode(path) for path in (home / "hub").glob("hub.db*")}
    assert modes.keys() >= {"hub.db", "hub.db-wal", "hub.db-shm"}
    assert {*modes.values()} == {0o600}
    assert mode(home / "hub") == 0o700


@pytest.mark.usefixtures("open_umask")
def test_a_mode_that_the_owner_chose_stays(tmp_path: Path) -> None:
    Database(tmp_path / "hub.db").close()
    (tmp_path / "hub.db").chmod(0o640)
    Database(tmp_path / "hub.db").close()
    assert mode(tmp_path / "hub.db") == 0o640


@pytest.mark.usefixtures("open_umask")
def test_a_backup_is_for_its_owner_only_also_unpacked(tmp_path: Path) -> None:
    backup = Hub(tmp_path / "home").backup(tmp_path / "hub.tar")
    assert mode(backup.path) == 0o600
    with tarfile.open(backup) as tar:
        assert {member.mode for member in tar} == {0o400}
