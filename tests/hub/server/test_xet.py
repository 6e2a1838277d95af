"""Uploads by Xet: with the real client as it comes, and what the hub says to those who try to get round it."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from safetensors.numpy import save

from kcard.hub.server.options import ServerOptions
from kcard.hub.server.writing.signing import sign
from kcard.hub.xet.xorbs import LARGEST_XORB
from tests.hub.shared_hub import Shared, running, shared_hub
from tests.hub.xet_packing import described, named, packed, shard

CODE = """
from huggingface_hub import HfApi, hf_hub_download
for path, repository in {uploads!r}:
    HfApi().upload_file(path_or_fileobj=path, path_in_repo="model.safetensors", repo_id=repository)
    got = hf_hub_download(repository, "model.safetensors", cache_dir={cache!r}, force_download=True)
    print(open(got, "rb").read() == open(path, "rb").read())
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        for name in ("bob/one", "bob/two", "cleo/one", "dan/one", "lab/one"):
            shared.create(name)
        yield shared


class Sender:
    """Somebody who speaks Xet by hand."""

    def __init__(self, shared: Shared, who: str, repository: str) -> None:
        answer = shared.http(who).get(f"/api/models/{repository}/xet-write-token/main")
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert answer.headers["X-Xet-Cas-Url"] == told["casUrl"]
        assert answer.headers["X-Xet-Access-Token"] == told["accessToken"]
        assert int(answer.headers["X-Xet-Token-Expiration"]) == told["exp"]
        self.url, self.token = told["casUrl"], told["accessToken"]

    def xorb(self, content: bytes, name: str) -> httpx.Response:
        return self._post(f"xorbs/default/{name}", content)

    def shard(self, content: bytes) -> httpx.Response:
        return self._post("shards", content)

    def _post(self, what: str, content: bytes) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.post(f"{self.url}/v1/{what}", content=content, headers=headers)


def weights(path: Path, *tensors: bytes) -> Path:
    import numpy as np

    arrays = {f"{number:02d}": np.frombuffer(tensor, dtype=np.uint8) for number, tensor in enumerate(tensors)}
    path.write_bytes(save(arrays))
    return path


def upload(shared: Shared, who: str, folder: Path, *uploads: tuple[Path, str]) -> list[str]:
    code = CODE.format(uploads=[(str(path), repository) for path, repository in uploads], cache=str(folder))
    return shared.run(code, who).split()


def test_a_default_client_uploads_large_files_by_xet(shared: Shared, tmp_path: Path) -> None:
    """And what it has sent before it sends no more, though it is another file in another repository."""
    first, second = os.urandom(3 << 20), os.urandom(3 << 20)
    one = weights(tmp_path / "one.safetensors", first, b"\0\0\1\1" * 50_000, first)
    two = weights(tmp_path / "two.safetensors", first, second)
    account = shared.identity("bob").account_id
    assert upload(shared, "bob", tmp_path, (one, "bob/one")) == ["True"]
    kept = shared.hub.ingest.xorbs.size(account)
    assert 3 << 20 < kept < 5 << 20, "the tensor that is there twice was sent twice"
    assert upload(shared, "bob", tmp_path, (two, "bob/two")) == ["True"]
    assert shared.hub.ingest.xorbs.size(account) - kept < 5 << 20, "old chunks were sent again"
    assert list(shared.hub.blobs.partial.glob("*")) == []


def test_two_accounts_on_one_machine_send_the_same_file(shared: Shared, tmp_path: Path) -> None:
    path = weights(tmp_path / "same.safetensors", os.urandom(5 << 20))
    assert upload(shared, "cleo", tmp_path, (path, "cleo/one")) == ["True"]
    assert upload(shared, "bob", tmp_path, (path, "lab/one")) == ["True"]


def test_a_client_sends_everything_again_when_the_hub_has_lost_the_xorbs(
    shared: Shared, tmp_path: Path
) -> None:
    """As after a restore from a backup: files are there, xorbs are not."""
    path = weights(tmp_path / "again.safetensors", os.urandom(5 << 20))
    assert upload(shared, "cleo", tmp_path, (path, "cleo/one")) == ["True"]
    xorbs = shared.hub.ingest.xorbs
    (shared.hub.blobs.partial.parent / "xorbs").rename(tmp_path / "lost")
    del xorbs.name  # as a server that is started anew would not know it
    other = weights(tmp_path / "other.safetensors", path.read_bytes())
    assert upload(shared, "cleo", tmp_path, (other, "cleo/one")) == ["True"]


def test_a_xorb_under_somebody_elses_hash_is_refused(shared: Shared) -> None:
    bob, dan = Sender(shared, "bob", "bob/one"), Sender(shared, "dan", "dan/one")
    content = os.urandom(9000)
    poison = dan.xorb(packed(b"x" + content[1:]), named([content]))
    assert poison.status_code == 400
    assert bob.xorb(packed(content), named([content])).json() == {"was_inserted": True}
    sha256 = hashlib.sha256(content).hexdigest()
    assert bob.shard(shard(described(sha256, (named([content]), 9000, 0, 1)))).json() == {"result": 1}
    assert b"".join(shared.hub.blobs.read(sha256)) == content


def test_chunks_that_somebody_else_sent_can_not_be_used(shared: Shared) -> None:
    bob, dan = Sender(shared, "bob", "bob/one"), Sender(shared, "dan", "dan/one")
    secret = os.urandom(9000)
    sha256 = hashlib.sha256(secret).hexdigest()
    claim = shard(described(sha256, (named([secret]), 9000, 0, 1)))
    assert bob.xorb(packed(secret), named([secret])).status_code == 200
    assert bob.shard(claim).status_code == 200
    answer = dan.shard(claim)
    assert answer.status_code == 400
    assert "HF_HUB_DISABLE_XET" in answer.json()["error"]
    assert shared.hub.uploads.usable(shared.identity("dan"), sha256) is None


def test_a_token_works_for_its_account_and_purpose(shared: Shared) -> None:
    bob, dan = Sender(shared, "bob", "bob/one"), Sender(shared, "dan", "dan/one")
    content = packed(b"content"), named([b"content"])
    stolen = bob.url
    bob.url = dan.url
    assert bob.xorb(*content).status_code == 404, "at the address of another account"
    bob.url = stolen
    for purpose, seconds in (("lfs", 60), ("xet", -1)):
        bob.token = sign(shared.hub.secret, purpose, {"account": 2, "namespace": "bob"}, seconds)
        assert bob.xorb(*content).status_code == 401
    bob.token = shared.tokens["bob"]
    assert bob.shard(shard()).status_code == 401
    assert httpx.post(f"{bob.url}/v1/shards", content=shard()).status_code == 401


def test_who_may_not_write_gets_no_token(shared: Shared) -> None:
    path = "/api/models/bob/one/xet-write-token/main"
    assert shared.http().get(path).status_code == 401
    assert shared.http("dan").get(path).status_code == 403
    assert shared.http("bob:read").get(path).status_code == 403
    assert shared.http("bob").get(path.replace("one", "none")).status_code == 404
    assert shared.http("bob").get(path.replace("write", "read")).status_code == 404


def test_what_a_client_may_do_without_is_not_there(shared: Shared) -> None:
    bob = Sender(shared, "bob", "bob/one")
    headers = {"Authorization": f"Bearer {bob.token}"}
    for method, path in (
        ("GET", f"v1/chunks/default-merkledb/{'0' * 64}"),
        ("POST", "v1/xorb-grants"),
        ("POST", "v2/shards"),
        ("POST", "v1/telemetry"),
    ):
        assert httpx.request(method, f"{bob.url}/{path}", headers=headers).status_code == 404


def test_malformed_and_oversized_requests_are_refused(shared: Shared) -> None:
    bob = Sender(shared, "bob", "bob/one")
    assert bob.xorb(b"no xorb", "0" * 64).status_code == 400
    assert bob.xorb(b"", "no hash").status_code == 400
    assert bob.xorb(packed(b"x"), "0" * 64).status_code == 400
    assert bob.shard(b"no shard").status_code == 400
    assert bob.xorb(bytes(LARGEST_XORB + 1), "0" * 64).status_code == 413
    assert list(shared.hub.blobs.partial.glob("*")) == []


def test_a_quota_holds_for_files_and_for_what_they_are_made_of(shared: Shared) -> None:
    shared.hub.accounts.update("dan", quota=50_000)
    dan = Sender(shared, "dan", "dan/one")
    chunk = bytes(60_000)
    assert dan.xorb(packed(chunk, 1), named([chunk])).status_code == 200, "packed it is small"
    answer = dan.shard(shard(described(hashlib.sha256(chunk).hexdigest(), (named([chunk]), 60_000, 0, 1))))
    assert answer.status_code == 413
    content = os.urandom(120_000)
    assert dan.xorb(packed(content), named([content])).status_code == 413
    answers = [
        dan.xorb(packed(content), named([content])) for content in (os.urandom(30_000), os.urandom(30_000))
    ]
    assert [answer.status_code for answer in answers] == [200, 413]
    assert "HF_HUB_DISABLE_XET" in answers[1].json()["error"]
    shared.hub.accounts.update("dan", quota=None)


def test_a_hub_may_take_no_xet_at_all(shared: Shared) -> None:
    with running(shared.hub, ServerOptions(xet=False)) as url:
        bob = shared.http("bob")
        bob.base_url = httpx.URL(url)
        answer = bob.get("/api/models/bob/one/xet-write-token/main")
    assert answer.status_code == 501
    assert "HF_HUB_DISABLE_XET=1" in answer.headers["X-Error-Message"]
