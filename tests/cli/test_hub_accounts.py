"""kcard hub user, organisation, token, log: what scripts read is on stdout and nothing else."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kcard.cli.main import app
from kcard.errors import UsageError
from kcard.hub.accounts.tokens import Tokens
from kcard.hub.registry import Hub
from kcard.sizes import parse_size

TOKEN = re.compile(r"kc_[A-Za-z0-9_-]{40}\n")


def kcard(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """stdout and stderr of a command that succeeds."""
    app(["hub", *words], standalone_mode=False)
    return capsys.readouterr()


def test_a_user_is_added_with_a_token_that_writes_and_nothing_else_is_on_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, err = kcard(capsys, "user", "add", "ada", "--quota", "10GB")
    assert TOKEN.fullmatch(out)
    assert "shown only once" in err
    tokens = Tokens(Hub().database)
    found = tokens.identify(out.strip())
    assert found is not None
    assert (found.name, found.scope, found.admin) == ("ada", "write", False)
    root = tokens.identify(kcard(capsys, "user", "add", "root", "--admin")[0].strip())
    assert root is not None
    assert (root.scope, root.admin) == ("admin", True)
    shown = json.loads(kcard(capsys, "user", "show", "ADA", "--json")[0])
    assert (shown["quota"], shown["used"], [t["name"] for t in shown["tokens"]]) == (10**10, 0, ["cli"])


def test_tokens_are_made_one_a_line_listed_by_name_and_revoked(capsys: pytest.CaptureFixture[str]) -> None:
    kcard(capsys, "user", "add", "ada")
    made = {}
    for scope in ("read", "write", "admin"):
        out, err = kcard(
            capsys, "token", "create", "--user", "ada", "--scope", scope, "--name", scope, "--days", "1"
        )
        assert TOKEN.fullmatch(out)
        assert err == ""
        made[scope] = out.strip()
    data = json.loads(kcard(capsys, "token", "create", "--user", "ada", "--json")[0])
    assert (data["user"], data["scope"], TOKEN.fullmatch(data["token"] + "\n") is not None) == (
        "ada",
        "write",
        True,
    )
    listed = kcard(capsys, "token", "list")[0]
    assert [line.split()[1] for line in listed.splitlines()] == ["cli", "read", "write", "admin", "cli-2"]
    assert not any(token in listed for token in made.values())
    kcard(capsys, "token", "revoke", "--user", "ada", "read")
    tokens = Tokens(Hub().database)
    assert tokens.identify(made["read"]) is None
    assert tokens.identify(made["write"]) is not None


def test_members_of_an_organisation_come_and_go(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("ada", "bob"):
        kcard(capsys, "user", "add", name)
    kcard(capsys, "organisation", "add", "lab", "--owner", "ada")
    assert kcard(capsys, "organisation", "member", "lab", "bob", "read")[0] == "admin  ada\nread   bob\n"
    kcard(capsys, "organisation", "member", "lab", "bob", "none")
    assert json.loads(kcard(capsys, "organisation", "member", "lab", "--json")[0]) == {"ada": "admin"}
    assert [row["name"] for row in json.loads(kcard(capsys, "organisation", "list", "--json")[0])] == ["lab"]
    with pytest.raises(UsageError, match="no role given"):
        kcard(capsys, "organisation", "member", "lab", "bob")


def test_a_disabled_user_is_let_in_no_more_until_enabled(capsys: pytest.CaptureFixture[str]) -> None:
    kcard(capsys, "user", "add", "ada")
    kcard(capsys, "user", "disable", "ada")
    assert "disabled" in kcard(capsys, "user", "list")[0]
    kcard(capsys, "user", "enable", "ada")
    kcard(capsys, "user", "change", "ada", "--quota", "none", "--admin")
    [row] = json.loads(kcard(capsys, "user", "list", "--json")[0])
    assert (row["disabled"], row["admin"], row["quota"]) == (False, True, None)


def test_the_log_tells_what_was_done_and_never_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    token = kcard(capsys, "user", "add", "ada")[0].strip()
    kcard(capsys, "threshold", "0.5")
    log = json.loads(kcard(capsys, "log", "--json")[0])
    assert [event["action"] for event in log] == ["quarantine.set", "token.created", "account.created"]
    assert log[0]["detail"] == {"threshold": 0.5}
    assert token[3:] not in json.dumps(log)
    assert [e["number"] for e in json.loads(kcard(capsys, "log", "--json", "--limit", "1")[0])] == [3]
    assert kcard(capsys, "log", "--action", "token.created")[0].split()[3] == "token.created"


def test_another_database_may_be_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    kcard(capsys, "user", "add", "ada", "--database-url", url)
    assert kcard(capsys, "user", "list", "--database-url", url)[0].startswith("ada ")
    assert kcard(capsys, "user", "list")[0] == ""


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["user", "add", "api"], 1, "reserved"),
        (["user", "add", "ada", "--quota", "much"], 2, "size 'much'"),
        (["token", "create", "--user", "nobody"], 1, "account 'nobody' not found"),
        (["token", "create", "--user", "nobody", "--scope", "all"], 2, "scope 'all'"),
        (["user", "list", "--database-url", "ftp://x"], 2, "database"),
    ],
)
def test_errors_are_one_line_on_stderr(words: list[str], code: int, told: str) -> None:
    command = [sys.executable, "-m", "kcard", "hub", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1)
    assert told in done.stderr


def test_sizes_are_read_as_people_write_them() -> None:
    assert [parse_size(t) for t in ("0", "1000", "10GB", "1.5 mb", "2KiB")] == [
        0, 1000, 10**10, 1_500_000, 2048,
    ]  # fmt: skip
    for wrong in ("", "-1", "GB", "1 XB", "1e3", "٣", "1ib", "1g"):
        with pytest.raises(UsageError, match="give a number of bytes"):
            parse_size(wrong)
