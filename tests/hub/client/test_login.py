"""Logging in to a hub: which token is sent where, and how it is kept."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcard.api.hub import credentials, login, logout, whoami
from kcard.errors import HubError, UsageError
from kcard.hub.client.connection import Credentials, address
from tests.hub.shared_hub import Shared, shared_hub


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        yield shared


def test_a_token_is_kept_once_the_hub_has_accepted_it(shared: Shared, home: Path) -> None:
    who = login(shared.url, shared.tokens["bob"])
    assert (who.name, who.role, who.organisations) == ("bob", "write", ("lab",))
    assert whoami(shared.url + "/") == who
    assert json.loads((home / "tokens.json").read_text()) == {shared.url: shared.tokens["bob"]}


def test_nobody_but_its_owner_reads_the_file_of_tokens(shared: Shared, home: Path) -> None:
    login(shared.url, shared.tokens["bob"])
    assert stat.S_IMODE((home / "tokens.json").stat().st_mode) == 0o600


def test_a_token_that_the_hub_does_not_accept_is_not_kept(shared: Shared, home: Path) -> None:
    with pytest.raises(HubError, match="rejected your token"):
        login(shared.url, "kc_" + "x" * 40)
    assert not (home / "tokens.json").exists()


def test_a_hugging_face_token_is_not_sent_to_another_hub(shared: Shared) -> None:
    with pytest.raises(UsageError, match=r"not sent to http://127\.0\.0\.1"):
        login(shared.url, "hf_" + "x" * 34)


def test_a_token_of_a_kcard_hub_is_not_sent_to_the_hugging_face_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "kc_" + "x" * 40)
    with pytest.raises(UsageError, match=r"not sent to https://huggingface\.co"):
        credentials().token("https://huggingface.co")


def test_the_hugging_face_hubs_own_token_is_used_where_it_lies(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 34)
    assert credentials().token("https://huggingface.co") == "hf_" + "x" * 34
    with pytest.raises(UsageError, match="hf auth login"):
        login("https://huggingface.co", "hf_" + "x" * 34)
    assert not home.exists()


def test_logging_out_of_one_hub_leaves_the_others(home: Path) -> None:
    credentials = Credentials(home / "tokens.json")
    credentials.store("https://one.org", "kc_one_token")
    credentials.store("https://two.org", "kc_two_token")
    assert logout("https://one.org/")
    assert not logout("https://one.org/")
    assert (credentials.token("https://one.org"), credentials.token("https://two.org")) == (
        None,
        "kc_two_token",
    )


def test_a_hub_that_is_down_is_one_line() -> None:
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, False
    try:
        with pytest.raises(HubError, match=r"http://127\.0\.0\.1:9 does not answer \(.*refused") as error:
            login("http://127.0.0.1:9", "kc_" + "x" * 40)
    finally:
        constants.HF_HUB_OFFLINE = before
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("HTTPS://Hub.Example.ORG:443/", "https://hub.example.org"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:80/kcard/", "http://[::1]/kcard"),
    ],
)
def test_a_hub_has_one_address_however_it_is_written(url: str, meant: str) -> None:
    assert address(url) == meant


@pytest.mark.parametrize(
    "url", ["hub.example.org", "ftp://hub", "https://ada:pw@hub.org", "http://hub/?a=1", "http://hub:99999"]
)
def test_what_is_no_address_of_a_hub_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="invalid hub URL"):
        address(url)


def test_the_command_reads_the_token_from_standard_input_or_a_file(shared: Shared, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(shared.tokens["bob"] + "\n")
    output = shared.start(
        ["kcard", "login", "--hub", shared.url, "--token-file", str(tmp_path / "token"), "--json"]
    )
    assert json.loads(output)["name"] == "bob"
    assert (
        json.loads(shared.start(["kcard", "whoami", "--json"], KCARD_HUB_URL=shared.url))["role"] == "write"
    )
    shared.start(["kcard", "logout", "--hub", shared.url])
    assert "not logged in" in shared.start(["kcard", "whoami", "--hub", shared.url], fails=True)
    shared.start(["sh", "-c", f"echo {shared.tokens['dan']} | kcard login --hub {shared.url}"])
    assert shared.start(["kcard", "whoami", "--hub", shared.url]) == "dan\n"


def test_no_command_prints_a_token(shared: Shared) -> None:
    output = shared.start(["sh", "-c", f"echo {shared.tokens['dan']} | kcard login --hub {shared.url} 2>&1"])
    assert shared.tokens["dan"] not in output
