"""API keys: who holds one, what files that change or are wrong."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kcard.errors import UsageError
from kcard.serve.auth import Keys, add_key
from kcard.serve.schema import Unauthorized

KEY = "kc_" + "a" * 43
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


def write(path: Path, name: str = "alice", digest: str = DIGEST) -> Path:
    path.write_text(f'[{name}]\nsha256 = "{digest}"\n', encoding="utf-8")
    os.utime(path, ns=(0, len(name + digest)))  # a change is seen, however fast it came
    return path


def test_a_key_is_known_by_its_digest_and_without_a_file_everyone_may_ask(tmp_path: Path) -> None:
    assert Keys(None).check(None) == "anonymous"
    assert Keys(write(tmp_path / "keys.toml")).check(f"Bearer {KEY}") == "alice"


@pytest.mark.parametrize("sent", [None, "", "Bearer", "Bearer wrong", f"Basic {KEY}", KEY, "Bearer \x00é"])
def test_a_wrong_or_missing_key_is_refused_without_naming_it(tmp_path: Path, sent: str | None) -> None:
    with pytest.raises(Unauthorized) as refused:
        Keys(write(tmp_path / "keys.toml")).check(sent)
    assert "wrong" in str(refused.value)
    assert KEY not in str(refused.value)


def test_a_key_that_is_added_or_removed_counts_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "keys.toml", digest="0" * 64)
    keys = Keys(path)
    with pytest.raises(Unauthorized):
        keys.check(f"Bearer {KEY}")
    write(path, name="bob")
    assert keys.check(f"Bearer {KEY}") == "bob"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (Path.unlink, "No such file"),
        (lambda path: path.write_text("[alice", encoding="utf-8"), "can't be read"),
        (lambda path: path.write_text("[alice]\n", encoding="utf-8"), "sha256 must be 64"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "can't be read"),
    ],
    ids=["deleted", "malformed", "without a digest", "not UTF-8"],
)
def test_a_file_that_is_deleted_or_becomes_malformed_lets_nobody_in_until_it_is_mended(
    tmp_path: Path, spoil: Callable[[Path], object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "keys.toml")
    keys = Keys(path)
    assert keys.check(f"Bearer {KEY}") == "alice"
    spoil(path)
    for _ in range(3):
        with pytest.raises(Unauthorized):
            keys.check(f"Bearer {KEY}")
    (line,) = [record.getMessage() for record in caplog.records]  # once, not for every request
    assert line.startswith("no key is accepted: ")
    assert why in line
    write(path)
    assert keys.check(f"Bearer {KEY}") == "alice"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"keys .*keys\.toml can't be read: No such file"),
        ("[alice", "can't be read"),
        ("[alice]\n", r"\[alice\]: sha256 must be 64 hexadecimal digits"),
        ("alice = 3\n", r"\[alice\]: sha256"),
        (f'[alice]\nsha256 = "{DIGEST}"\ntokens = 3\n', "tokens is unknown"),
    ],
)
def test_a_missing_or_malformed_file_is_told(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "keys.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        Keys(tmp_path / "keys.toml")


def test_a_key_that_is_added_to_a_file_works_and_the_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    first = add_key(path, "alice")
    second = add_key(path, "bob")
    assert path.stat().st_mode & 0o777 == 0o600
    keys = Keys(path)
    assert keys.check(f"Bearer {first}") == "alice"
    assert keys.check(f"Bearer {second}") == "bob"
    assert first not in path.read_text()


@pytest.mark.parametrize(("name", "message"), [("alice", "a key of 'alice' already"), ("a b", "use letters")])
def test_a_name_that_is_taken_or_unfit_is_refused_and_nothing_is_lost(
    tmp_path: Path, name: str, message: str
) -> None:
    path = write(tmp_path / "keys.toml")
    before = path.read_text()
    with pytest.raises(UsageError, match=message):
        add_key(path, name)
    assert path.read_text() == before
