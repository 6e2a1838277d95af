"""kcard hub user, organisation, token, log: what scripts read is on stdout and nothing else."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kcard.errors import UsageError
from kcard.hub.registry import Hub
from kcard.hub.tokens import TokenStore
from kcard.io import parse_size
from tests.command import Kcard

Command = Callable[..., tuple[str, str]]
TOKEN = re.compile(r"kc_[A-Za-z0-9_-]{40}\n")


@pytest.fixture
def hub(kcard: Kcard) -> Command:
    """`kcard hub`, which must succeed: its stdout and stderr."""

    def succeeds(*words: str) -> tuple[str, str]:
        done = kcard("hub", *words)
        assert done.code == 0, done.err
        return done.out, done.err

    return succeeds


def test_a_user_is_added_with_a_token_that_writes_and_nothing_else_is_on_stdout(
    hub: Command,
) -> None:
    out, err = hub("user", "add", "ada", "--quota", "10GB")
    assert TOKEN.fullmatch(out)
    assert "shown only once" in err
    tokens = TokenStore(Hub().database)
    identity = tokens.identify(out.strip())
    assert identity is not None
    assert (identity.name, identity.scope, identity.admin) == ("ada", "write", False)
    root = tokens.identify(hub("user", "add", "root", "--admin")[0].strip())
    assert root is not None
    assert (root.scope, root.admin) == ("admin", True)
    shown = json.loads(hub("user", "show", "ADA", "--json")[0])
    assert (shown["quota"], shown["used"], [t["name"] for t in shown["tokens"]]) == (10**10, 0, ["cli"])


def test_tokens_are_made_one_a_line_listed_by_name_and_revoked(hub: Command) -> None:
    hub("user", "add", "ada")
    created = {}
    for scope in ("read", "write", "admin"):
        scoped = ("--scope", scope, "--name", scope, "--days", "1")
        out, err = hub("token", "create", "--user", "ada", *scoped)
        assert TOKEN.fullmatch(out)
        assert err == ""
        created[scope] = out.strip()
    data = json.loads(hub("token", "create", "--user", "ada", "--json")[0])
    assert (data["user"], data["scope"], TOKEN.fullmatch(data["token"] + "\n") is not None) == (
        "ada",
        "write",
        True,
    )
    listed = hub("token", "list")[0]
    assert [line.split()[1] for line in listed.splitlines()] == ["cli", "read", "write", "admin", "cli-2"]
    assert not any(token in listed for token in created.values())
    hub("token", "revoke", "--user", "ada", "read")
    tokens = TokenStore(Hub().database)
    assert tokens.identify(created["read"]) is None
    assert tokens.identify(created["write"]) is not None


def test_members_of_an_organisation_come_and_go(hub: Command) -> None:
    for name in ("ada", "bob"):
        hub("user", "add", name)
    hub("organisation", "add", "lab", "--owner", "ada")
    assert hub("organisation", "member", "lab", "bob", "read")[0] == "admin  ada\nread   bob\n"
    hub("organisation", "member", "lab", "bob", "none")
    assert json.loads(hub("organisation", "member", "lab", "--json")[0]) == {"ada": "admin"}
    assert [row["name"] for row in json.loads(hub("organisation", "list", "--json")[0])] == ["lab"]


def test_a_disabled_user_is_let_in_no_more_until_enabled(hub: Command) -> None:
    hub("user", "add", "ada")
    hub("user", "disable", "ada")
    assert "disabled" in hub("user", "list")[0]
    hub("user", "enable", "ada")
    hub("user", "change", "ada", "--quota", "none", "--admin")
    [row] = json.loads(hub("user", "list", "--json")[0])
    assert (row["disabled"], row["admin"], row["quota"]) == (False, True, None)


def test_another_database_may_be_named(hub: Command, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    hub("user", "add", "ada", "--database-url", url)
    assert hub("user", "list", "--database-url", url)[0].startswith("ada ")
    assert hub("user", "list")[0] == ""


def test_the_log_tells_what_was_done_and_never_a_token(hub: Command) -> None:
    token = hub("user", "add", "ada")[0].strip()
    hub("threshold", "0.5")
    log = json.loads(hub("log", "--json")[0])
    assert [event["action"] for event in log] == ["quarantine.set", "token.created", "account.created"]
    assert log[0]["detail"] == {"threshold": 0.5}
    assert token[3:] not in json.dumps(log)
    assert [e["number"] for e in json.loads(hub("log", "--json", "--limit", "1")[0])] == [3]
    assert hub("log", "--action", "token.created")[0].split()[3] == "token.created"


def test_sizes_are_read_as_people_write_them() -> None:
    assert [parse_size(t) for t in ("0", "1000", "10GB", "1.5 mb", "2KiB")] == [
        0, 1000, 10**10, 1_500_000, 2048,
    ]  # fmt: skip
    for wrong in ("", "-1", "GB", "1 XB", "1e3", "٣", "1ib", "1g"):
        with pytest.raises(UsageError, match="give a number of bytes"):
            parse_size(wrong)
