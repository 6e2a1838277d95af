"""Large files that are not what they claim, or not theirs who claim them: one test for each way."""

import hashlib
import os
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
from safetensors.numpy import save

from tests.hub.server.attacks import Code, commit, inline, large
from tests.hub.shared_hub import Shared, shared_hub

NAME = "bob/target"
WEIGHTS = save({"weight": np.full((32, 32), 3.0, dtype=np.float32)})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        shared.create(NAME)
        shared.create("dan/own")
        shared.create("bob/secret", private=True)
        shared.put("bob/secret", {"model.safetensors": WEIGHTS})
        yield shared


def upload(shared: Shared, who: str, name: str, content: bytes, sent: bytes | None = None) -> str:
    """The sha256 of content that was uploaded by LFS; `sent` in its place, where that is given."""
    sha256 = hashlib.sha256(content).hexdigest()
    objects = [{"oid": sha256, "size": len(content)}]
    body = {"operation": "upload", "transfers": ["basic"], "objects": objects}
    answer = shared.http(who).post(f"/{name}.git/info/lfs/objects/batch", json=body).json()
    href = answer["objects"][0]["actions"]["upload"]["href"]
    put = shared.http().put(href, content=content if sent is None else sent)
    assert put.is_success == (sent is None), put.text
    return sha256


def test_a_pickle_that_came_by_lfs_is_refused_where_it_is_committed(shared: Shared) -> None:
    sha256 = upload(shared, "bob", NAME, pickle.dumps(Code(), 4))
    assert commit(shared, "bob", NAME, large("model.safetensors", sha256)).status_code == 400
    assert commit(shared, "bob", NAME, large("model.bin", sha256)).status_code == 400


# --- tampered content -----------------------------------------------------------------------------------------------


def test_other_bytes_than_their_sha256_are_refused_and_not_stored(shared: Shared) -> None:
    honest = os.urandom(1000)
    for sent in (os.urandom(1000), honest[:-1], honest + b"x", b""):
        sha256 = upload(shared, "bob", NAME, honest, sent)
        assert not shared.hub.blobs.holds(sha256)
        assert commit(shared, "bob", NAME, large("a.txt", sha256, 1000)).status_code == 400


# --- possession of a hash -------------------------------------------------------------------------------------------

SECRET = hashlib.sha256(WEIGHTS).hexdigest()
NEVER = hashlib.sha256(b"nobody ever had this").hexdigest()


def test_a_batch_does_not_tell_that_somebody_else_has_a_file(shared: Shared) -> None:
    objects = [{"oid": oid, "size": len(WEIGHTS)} for oid in (SECRET, NEVER)]
    body = {"operation": "upload", "transfers": ["basic"], "objects": objects}
    answer = shared.http("dan").post("/dan/own.git/info/lfs/objects/batch", json=body).json()
    assert all("upload" in each["actions"] for each in answer["objects"])
    body["operation"] = "download"
    answer = shared.http("dan").post("/dan/own.git/info/lfs/objects/batch", json=body).json()
    assert [each["error"]["code"] for each in answer["objects"]] == [404, 404]
    answers = [
        shared.http("dan").post(
            "/dan/own.git/info/lfs/objects/verify", json={"oid": oid, "size": len(WEIGHTS)}
        )
        for oid in (SECRET, NEVER)
    ]
    assert [each.status_code for each in answers] == [404, 404]


@pytest.mark.parametrize("size", [len(WEIGHTS), len(WEIGHTS) + 1, None])
def test_a_hash_gives_no_file_to_a_commit_nor_to_a_copy(shared: Shared, size: int | None) -> None:
    answers = [
        commit(shared, "dan", "dan/own", large("model.safetensors", oid, size)) for oid in (SECRET, NEVER)
    ]
    assert [each.status_code for each in answers] == [400, 400]
    assert answers[0].text.replace(SECRET, "") == answers[1].text.replace(NEVER, "")
    assert "model.safetensors" not in shared.api("dan").list_repo_files("dan/own")


def test_what_may_be_read_may_be_copied(shared: Shared) -> None:
    """The other side of it: or the tests above would pass where nothing can ever be copied."""
    shared.create("dan/copies")
    shared.create("bob/shown")
    content = save({"shown": np.ones(4, dtype=np.float32)})
    shared.put("bob/shown", {"model.safetensors": content})
    copy = large("model.safetensors", hashlib.sha256(content).hexdigest())
    assert commit(shared, "dan", "dan/copies", copy).status_code == 200
    shared.hub.repositories.update(shared.hub.repositories.get("model", "bob/shown"), gated="manual")
    shared.create("cleo/copies")
    assert commit(shared, "cleo", "cleo/copies", copy).status_code == 200, "dan's copy is public"
    shared.hub.repositories.delete(shared.hub.repositories.get("model", "dan/copies"))
    shared.create("ada/copies")
    assert commit(shared, "cleo", "cleo/copies", inline("a.json", b"1")).status_code == 200
    shared.hub.repositories.delete(shared.hub.repositories.get("model", "cleo/copies"))
    assert commit(shared, "dan", "dan/own", copy).status_code == 400, "gated files are not to be copied"
