"""The settings database_url and blobs_url: where a hub keeps what it holds; hub_evidence: what it audits against.

Passwords are not shown.
"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kcard.cli.main import app
from kcard.config import settings
from kcard.config_file import concealed
from kcard.errors import UsageError
from kcard.hub.registry import Hub

SECRET = "postgresql://ada:gehe/im@example.org:5432/hub"


def test_the_hub_in_kcard_home_is_where_the_settings_say(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCARD_DATABASE_URL", f"sqlite:///{tmp_path}/elsewhere.db")
    monkeypatch.setenv("KCARD_BLOBS_URL", f"file://{tmp_path}/store")
    for hub in (Hub(), Hub(home)):
        assert hub.database.path == tmp_path / "elsewhere.db"
        assert hub.blobs.where() == f"file://{tmp_path}/store"
    assert Hub(database_url=f"sqlite:///{tmp_path}/third.db").database.path == tmp_path / "third.db"


def test_a_home_that_is_named_is_a_hub_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCARD_DATABASE_URL", f"sqlite:///{tmp_path}/elsewhere.db")
    monkeypatch.setenv("KCARD_BLOBS_URL", f"file://{tmp_path}/store")
    hub = Hub(tmp_path / "other")
    assert hub.database.path == tmp_path / "other" / "hub" / "hub.db"
    assert hub.blobs.where() == str(tmp_path / "other" / "hub" / "blobs")


def test_the_users_file_may_set_them_and_a_project_may_not(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "config.toml").write_text(f'database_url = "{SECRET}"\n', encoding="utf-8")
    assert settings().database_url == SECRET
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "kcard.toml").write_text('blobs_url = "s3://theirs/x"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")
    with pytest.raises(UsageError, match="blobs_url can't be set in a project file"):
        settings()


@pytest.mark.parametrize(
    "command",
    [["config"], ["config", "--json"], ["config", "get", "database_url"], ["doctor"], ["hub", "info"]],
)
def test_no_command_shows_a_password(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCARD_DATABASE_URL", SECRET.replace("example.org:5432", "127.0.0.1:1"))
    done = CliRunner().invoke(app, command)
    assert "127.0.0.1" in done.output + str(done.exception)
    assert "gehe" not in done.output + str(done.exception)


def test_setting_a_password_does_not_show_it(home: Path) -> None:
    done = CliRunner().invoke(app, ["config", "set", "database_url", SECRET])
    assert "postgresql://ada:***@example.org" in done.output
    assert "gehe" not in done.output
    assert SECRET in (home / "config.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (SECRET, "postgresql://ada:***@example.org:5432/hub"),
        ("postgresql://h/d?user=ada&password=x&a=b", "postgresql://h/d?user=ada&password=***&a=b"),
        ("sqlite:////srv/hub.db", "sqlite:////srv/hub.db"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
    ],
)
def test_what_is_a_password_and_what_not(text: str, shown: str) -> None:
    assert concealed(text) == shown


def test_info_says_where_everything_is(home: Path) -> None:
    done = CliRunner().invoke(app, ["hub", "info", "--json"])
    assert json.loads(done.stdout)["database"] == str(home / "hub" / "hub.db")
    assert json.loads(done.stdout)["blobs"] == str(home / "hub" / "blobs")


def test_evidence_of_the_hub_s_audits_is_the_user_s_choice_alone(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings().hub_evidence == ()
    (home / "atlas").mkdir(parents=True)
    (home / "config.toml").write_text('hub_evidence = ["atlas", "wikipedia:de"]\n', encoding="utf-8")
    assert settings().hub_evidence == (str(home / "atlas"), "wikipedia:de")
    monkeypatch.setenv("KCARD_HUB_EVIDENCE", "one.txt, wikipedia")
    assert settings().hub_evidence == ("one.txt", "wikipedia")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "kcard.toml").write_text('hub_evidence = ["theirs"]\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")
    with pytest.raises(UsageError, match="hub_evidence can't be set in a project file"):
        settings()
