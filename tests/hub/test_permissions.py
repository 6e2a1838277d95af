"""Rights: every identity against every kind of repository."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kcard.hub.accounts import Identity
from kcard.hub.errors import Forbidden, Gated, NotFound, Refused, Unauthenticated
from kcard.hub.permissions import (
    may_administer,
    may_create,
    may_download,
    may_read,
    may_write,
    repository_not_found,
    require_administer,
    require_administrator,
    require_create,
    require_download,
    require_read,
    require_write,
)
from kcard.hub.values import Repository

THEN = datetime(2026, 1, 1, tzinfo=UTC)
OPEN = Repository(1, "model", "Lab/card", False, "no", THEN, THEN)
PRIVATE = replace(OPEN, private=True)
GATED = replace(OPEN, gated="manual")

OWNER = Identity(1, "lab", scope="write")
READER = Identity(2, "rita", scope="write", organisations={"lab": "read"})
WRITER = Identity(3, "will", scope="write", organisations={"LAB": "write"})
BOSS = Identity(4, "bess", scope="write", organisations={"Lab": "admin"})
STRANGER = Identity(5, "sam", scope="admin", organisations={"other": "admin"})
ROOT = Identity(6, "root", admin=True, scope="admin")


# read private, files of gated, write, administer, create in the namespace
@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (None, "-----"),
        (STRANGER, "-----"),
        (READER, "rf---"),
        (WRITER, "rfw-c"),
        (BOSS, "rfwac"),
        (OWNER, "rfwac"),
        (ROOT, "rfwac"),
        (replace(OWNER, scope="read"), "rf---"),
        (replace(WRITER, scope="read"), "rf---"),
        (replace(ROOT, scope="write"), "-----"),  # an administrator's everyday token is an ordinary user's
        (replace(OWNER, repository_id=1), "rfwa-"),
        (replace(OWNER, repository_id=2), "-----"),
        (replace(ROOT, repository_id=1), "-----"),
    ],
)
def test_what_each_may_do_in_a_namespace(identity: Identity | None, expected: str) -> None:
    allowed = (
        may_read(identity, PRIVATE),
        may_download(identity, GATED, granted=False),
        may_write(identity, PRIVATE),
        may_administer(identity, PRIVATE),
        may_create(identity, "laB"),
    )
    assert "".join(letter if may else "-" for letter, may in zip("rfwac", allowed, strict=True)) == expected
    assert may_read(identity, OPEN)
    assert may_write(identity, OPEN) == may_write(identity, PRIVATE)


def test_files_of_a_gated_repository_are_given_to_whom_access_was_granted() -> None:
    assert may_download(STRANGER, GATED, granted=True)
    assert not may_download(None, GATED, granted=True)
    assert not may_download(replace(STRANGER, repository_id=2), GATED, granted=True)
    assert not may_download(STRANGER, replace(GATED, private=True), granted=True)


def test_everyone_has_a_namespace_of_their_own_and_nobody_makes_things_elsewhere() -> None:
    assert may_create(STRANGER, "SAM")
    assert may_create(STRANGER, "other")
    assert not may_create(STRANGER, "samson")


def refusal_of(call: object, *arguments: object) -> Refused:
    with pytest.raises(Refused) as refused:
        call(*arguments)  # type: ignore[operator]
    return refused.value


def test_a_private_repository_is_refused_word_for_word_as_one_that_is_not_there() -> None:
    for identity in (None, STRANGER):
        for require in (require_read, require_write, require_administer):
            refused = refusal_of(require, identity, PRIVATE)
            assert isinstance(refused, NotFound)
            assert (refused.what, refused.known) == ("repository", identity is not None)
            assert str(refused) == str(repository_not_found("Lab/card", identity))
        assert isinstance(refusal_of(require_download, identity, PRIVATE, True), NotFound)


def test_nobody_is_asked_to_log_in_and_somebody_is_told_that_they_may_not() -> None:
    for require in (require_write, require_administer):
        assert type(refusal_of(require, None, OPEN)) is Unauthenticated
        assert type(refusal_of(require, STRANGER, OPEN)) is Forbidden
    assert type(refusal_of(require_create, None, "lab")) is Unauthenticated
    assert type(refusal_of(require_create, STRANGER, "lab")) is Forbidden
    assert type(refusal_of(require_administrator, None)) is Unauthenticated
    assert type(refusal_of(require_administrator, replace(ROOT, scope="write"))) is Forbidden


def test_a_refusal_says_when_it_is_the_tokens_scope_that_is_too_small() -> None:
    assert "scope read" in str(refusal_of(require_write, replace(OWNER, scope="read"), OPEN))
    assert "scope read" in str(refusal_of(require_create, replace(OWNER, scope="read"), "lab"))
    assert "scope" not in str(refusal_of(require_write, STRANGER, OPEN))


def test_a_gated_repository_says_so_to_nobody_and_to_somebody() -> None:
    for identity in (None, STRANGER):
        refused = refusal_of(require_download, identity, GATED, False)
        assert isinstance(refused, Gated)
        assert refused.known == (identity is not None)
