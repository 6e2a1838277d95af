"""Signed versions: by SSH keys, checked by the hub, by who pulls them, and shown to everybody."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kcard
from kcard.api.remote import login, pull
from kcard.cli.main import app
from kcard.errors import HubError, MissingExtra, UsageError
from kcard.hub.checks import release
from kcard.hub.checks.release import Release, Signed, key_of, sign, signed, verify
from kcard.hub.registry import Hub
from tests.hub.client.cards import rivers
from tests.hub.shared_hub import Shared, shared_hub

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")

RELEASE = Release("bob/rivers", "v1", "ab" * 32)


@dataclass(frozen=True)
class Keys:
    """Private keys of bob and of eve, and files of allowed signers: bob's key for bob, and eve's for eve."""

    bob: Path
    eve: Path
    signers: Path
    of_eve: Path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    folder = tmp_path_factory.mktemp("keys")
    made = Keys(folder / "bob", folder / "eve", folder / "signers", folder / "of-eve")
    for name, key, target in (("bob", made.bob, made.signers), ("eve", made.eve, made.of_eve)):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        target.write_text(f"{name} {key.with_suffix('.pub').read_text()}")
    return made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[Shared]:
    """bob's versions: v1 signed with bob's key, v2 with eve's, v3 not at all."""
    folder = tmp_path_factory.mktemp("hub")
    with shared_hub(folder) as shared, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KCARD_HOME", str(folder / "bob"))
        login(shared.url, shared.tokens["bob"])
        for number, key in enumerate((keys.bob, keys.eve, None), 1):
            card = rivers(folder / str(number), f"The Rhine has {number} sources.")
            kcard.publish(card, hub=shared.url, sign=key)
        yield shared


def test_a_signature_fits_its_release_and_its_key_only(keys: Keys) -> None:
    made = sign(RELEASE, keys.bob)
    assert signed(made.message) == made
    assert signed(made.message.replace("\n", "\r\n")) == made
    known = verify(made, RELEASE, keys.signers)
    assert known.startswith("ED25519 SHA256:")
    assert known == key_of(made)
    for other in (Release("eve/rivers", "v1", "ab" * 32), Release("bob/rivers", "v2", "ab" * 32)):
        with pytest.raises(HubError, match="is for bob/rivers@v1"):
            verify(made, other, keys.signers)
        with pytest.raises(HubError, match="is wrong: the tag was forged or damaged"):
            verify(Signed(other, made.signature), other, keys.signers)
    with pytest.raises(HubError, match=r"signed with ED25519 SHA256:\S+, which .* does not have for bob"):
        verify(sign(RELEASE, keys.eve), RELEASE, keys.signers)
    with pytest.raises(HubError, match="does not have for bob"):
        verify(sign(RELEASE, keys.eve), RELEASE, keys.of_eve)  # eve may not sign for bob
    with pytest.raises(HubError, match="bob/rivers@v1 is not signed"):
        verify(None, RELEASE, keys.signers)


def test_a_signature_for_another_purpose_does_not_count(keys: Keys) -> None:
    command = ["ssh-keygen", "-Y", "sign", "-q", "-n", "git", "-f", str(keys.bob)]
    done = subprocess.run(command, input=RELEASE.text, capture_output=True, text=True, check=True)
    with pytest.raises(HubError, match="is wrong"):
        verify(Signed(RELEASE, done.stdout), RELEASE, keys.signers)


@pytest.mark.parametrize(
    "message", ["", "rivers abc", RELEASE.text, RELEASE.text + release.BEGIN + "x" * 20_000, "\0\n" * 50]
)
def test_other_messages_are_not_signatures(message: str) -> None:
    assert signed(message) is None


def test_what_is_missing_is_named(keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="give an SSH key"):
        sign(RELEASE, tmp_path / "none")
    (tmp_path / "no-key").write_text("no key")
    with pytest.raises(UsageError, match="can't sign with"):
        sign(RELEASE, tmp_path / "no-key")
    with pytest.raises(UsageError, match="give one with a line `bob ssh-ed25519"):
        verify(None, RELEASE, tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="install OpenSSH"):
        sign(RELEASE, keys.bob)
    with pytest.raises(UsageError, match="need a remote hub"):
        kcard.publish(rivers(tmp_path / "card"), sign=keys.bob)


def test_who_pulls_decides_whose_signatures_count(shared: Shared, keys: Keys, tmp_path: Path) -> None:
    assert pull("bob/rivers@v1", tmp_path / "1", hub=shared.url, signers=keys.signers).is_dir()
    with pytest.raises(HubError, match="bob/rivers@v2 is signed with ED25519"):
        pull("bob/rivers@v2", tmp_path / "2", hub=shared.url, signers=keys.signers)
    with pytest.raises(HubError, match="bob/rivers@v3 is not signed"):
        pull("bob/rivers", tmp_path / "2", hub=shared.url, signers=keys.signers)
    assert not (tmp_path / "2").exists()
    assert pull("bob/rivers", tmp_path / "3", hub=shared.url).is_dir()
    commit = next(t for t in shared.api().list_repo_refs("bob/rivers").tags if t.name == "v1").target_commit
    by_commit = pull(f"bob/rivers@{commit}", tmp_path / "4", hub=shared.url, signers=keys.signers)
    assert by_commit.is_dir()


def test_the_local_hub_keeps_the_signature_and_shows_the_key(shared: Shared, keys: Keys, home: Path) -> None:
    version = pull("bob/rivers@v1", hub=shared.url)
    found = Hub(home).signature(version.reference)
    assert found is not None
    assert found.release == Release("bob/rivers", "v1", version.sha256)
    said = CliRunner().invoke(app, ["show", "rivers@v1"]).output
    assert f"{key_of(found)} for bob/rivers@v1" in " ".join(said.split())
    pull("bob/rivers@v3", hub=shared.url)
    assert Hub(home).signature("rivers") is None
    command = ["pull", "bob/rivers@v2", "--hub", shared.url, "--signers", str(keys.signers)]
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, HubError)
    assert Hub(home).get("rivers").number == 2


def test_the_hub_refuses_signatures_that_do_not_fit(shared: Shared, keys: Keys) -> None:
    api, version = shared.api("bob"), shared.hub.registry.get("bob/rivers@v1")
    commit = next(t for t in api.list_repo_refs("bob/rivers").tags if t.name == "v1").target_commit
    right = Release("bob/rivers", "again", version.sha256)
    wrong = [
        sign(Release("bob/rivers", "v9", version.sha256), keys.bob),
        sign(Release("bob/other", "again", version.sha256), keys.bob),
        sign(Release("bob/rivers", "again", "ab" * 32), keys.bob),
        Signed(right, sign(RELEASE, keys.bob).signature),
        Signed(right, f"{release.BEGIN}AAAA\n-----END SSH SIGNATURE-----\n"),
    ]
    with shared.http("bob") as http:
        for each in wrong:
            body = {"tag": "again", "message": each.message}
            answer = http.post(f"/api/models/bob/rivers/tag/{commit}", json=body)
            assert answer.status_code == 400, each
            assert "signature" in answer.json()["error"]
        body = {"tag": "again", "message": sign(right, keys.bob).message}
        assert http.post(f"/api/models/bob/rivers/tag/{commit}", json=body).status_code == 200
        assert http.get("/api/models/bob/rivers/tag/again").json()["message"] == body["message"]
        assert http.get("/api/models/bob/rivers/tag/none").status_code == 404


def test_a_published_version_is_not_signed_later(shared: Shared, keys: Keys, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KCARD_HOME", str(shared.folder / "bob"))
        card = rivers(tmp_path / "3", "The Rhine has 3 sources.")
        with pytest.raises(HubError, match="v3 is published already, not signed"):
            kcard.publish(card, hub=shared.url, sign=keys.bob)
        again = rivers(tmp_path / "1", "The Rhine has 1 sources.")
        assert kcard.publish(again, hub=shared.url, sign=keys.bob).number == 1


def test_the_page_of_a_card_shows_keys_and_changes_of_keys(shared: Shared) -> None:
    page = " ".join(shared.http().get("/bob/rivers", headers={"Accept": "text/html"}).text.split())
    v1, v2 = (shared.hub.registry.signature(f"bob/rivers@v{number}") for number in (1, 2))
    assert v1 is not None
    assert v2 is not None
    assert f"signed with {key_of(v1)}<" in page
    assert f"signed with {key_of(v2)}, another key than that of v1" in page
    assert "not signed, unlike v2" in page


def test_a_hub_without_ssh_keygen_keeps_signatures_unchecked_and_says_so(
    shared: Shared, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = shared.hub.registry.get("bob/rivers@v1")
    commit = next(
        t for t in shared.api("bob").list_repo_refs("bob/rivers").tags if t.name == "v1"
    ).target_commit
    body = {"tag": "blind", "message": sign(Release("bob/rivers", "blind", version.sha256), keys.eve).message}
    monkeypatch.setenv("PATH", str(tmp_path))
    with shared.http("bob") as http:
        assert http.post(f"/api/models/bob/rivers/tag/{commit}", json=body).status_code == 200
        page = http.get("/bob/rivers", headers={"Accept": "text/html"}).text
    assert "signed with a key that this hub can&#39;t check" in page
