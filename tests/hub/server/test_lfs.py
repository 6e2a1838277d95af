"""Large files by LFS: with the real client, and those that are not what they claim, or not theirs who claim them."""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from safetensors.numpy import save

from kcard.hub.errors import Unauthenticated
from kcard.hub.server.dependencies import ServerOptions
from kcard.hub.server.routes.uploads import Claims, sign_ticket, verify_ticket
from tests.hub.server.attacks import (
    Code,
    commit,
    connect,
    digest,
    inline,
    large,
    request_batch,
    request_upload,
    wait_for,
)
from tests.hub.shared_hub import Shared, running, shared_hub

PART = 500_000
WEIGHTS = save({"weight": np.full((32, 32), 3.0, dtype=np.float32)})
SMALL = ServerOptions(part_size=PART, max_file_size=2_000_000)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        shared.create("bob/adapter")
        shared.create("bob/secret", private=True, files={"model.safetensors": WEIGHTS})
        shared.create("dan/own")
        yield shared


@pytest.fixture(scope="module")
def small(shared: Shared) -> Iterator[str]:
    """The same hub served by another process with small limits, as it were."""
    with running(shared.hub, SMALL) as url:
        yield url


def fresh(size: int = 1000) -> bytes:
    return os.urandom(size)


def href(client: httpx.Client, repository: str, content: bytes) -> str:
    return str(request_upload(client, repository, content)["href"])


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]


def partial(shared: Shared) -> list[Path]:
    return list(shared.hub.blobs.partial.glob("*"))


@pytest.mark.parametrize("parts", [False, True])
def test_the_client_uploads_by_lfs_and_gets_the_same_bytes_back(
    shared: Shared, small: str, tmp_path: Path, parts: bool
) -> None:
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(save({"weights": np.full(300_000, float(parts), dtype=np.float32)}))
    code = f"""
from huggingface_hub import HfApi, hf_hub_download
HfApi().upload_file(path_or_fileobj={str(path)!r}, path_in_repo={path.name!r}, repo_id="bob/adapter")
print(open(hf_hub_download("bob/adapter", {path.name!r}, cache_dir={str(tmp_path)!r}), "rb").read() ==
      open({str(path)!r}, "rb").read())
"""
    url = small if parts else shared.url
    assert shared.run(code, "bob", HF_ENDPOINT=url).split() == ["True"]
    assert (shared.hub.blobs.partial.parent / "parts").exists() == parts
    assert partial(shared) == []


def test_what_the_account_sent_need_not_be_sent_again(shared: Shared) -> None:
    content, bob = fresh(), shared.http("bob")
    assert httpx.put(href(bob, "bob/adapter", content), content=content).status_code == 200
    assert "href" not in request_upload(bob, "bob/adapter", content)
    verify = {"oid": digest(content), "size": len(content)}
    assert bob.post("/bob/adapter.git/info/lfs/objects/verify", json=verify).status_code == 200


def pieces(content: bytes) -> Iterator[bytes]:
    """Sent without saying how much it is."""
    yield from (content[at : at + 1000] for at in range(0, len(content), 1000))


def test_more_bytes_than_announced_are_refused_however_they_come(shared: Shared) -> None:
    content = fresh(20_000)
    to = href(shared.http("bob"), "bob/adapter", content)
    assert httpx.put(to, content=content + b"more").status_code == 413
    assert httpx.put(to, content=pieces(content + b"more")).status_code == 413
    assert refusal(httpx.put(to, content=content[:-1]))[0] == 400
    assert not shared.hub.blobs.holds(digest(content))
    assert httpx.put(to, content=pieces(content)).status_code == 200


def test_a_client_that_leaves_midway_leaves_nothing_behind(shared: Shared) -> None:
    content = fresh(100_000)
    to = httpx.URL(href(shared.http("bob"), "bob/adapter", content))
    with connect(str(to)) as line:
        line.sendall(b"PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" % to.raw_path)
        line.sendall(content[:60_000])
        wait_for(lambda: partial(shared) != [])
    wait_for(lambda: partial(shared) == [])
    assert not shared.hub.blobs.holds(digest(content))


def test_a_ticket_is_good_for_one_file_of_one_size_and_for_a_while(shared: Shared) -> None:
    content, other, bob = fresh(), fresh(), shared.http("bob")
    to = href(bob, "bob/adapter", content)
    ticket = httpx.URL(to).params["ticket"]
    elsewhere = f"{shared.url}/lfs/{digest(other)}"
    assert httpx.put(elsewhere, params={"ticket": ticket}, content=other).status_code == 403
    assert httpx.put(elsewhere, params={"ticket": "a.b"}, content=other).status_code == 401
    assert httpx.put(elsewhere, content=other).status_code == 400
    assert httpx.put(to.replace(ticket, "f" + ticket[1:]), content=content).status_code == 401
    claims: Claims = {"oid": digest(content), "size": len(content), "account": 1}
    old = sign_ticket(shared.hub.secret, "lfs", claims, -1)
    assert "expired" in refusal(httpx.put(to.replace(ticket, old), content=content))[1]
    without_token = sign_ticket(shared.hub.secret, "lfs", claims, 60)  # as of an earlier version
    assert httpx.put(to.replace(ticket, without_token), content=content).status_code == 401
    foreign = sign_ticket(b"another hub", "lfs", claims, 60)
    assert httpx.put(to.replace(ticket, foreign), content=content).status_code == 401
    join, done = f"{shared.url}/lfs/{digest(content)}/parts", {"oid": digest(content)}
    assert httpx.post(join, params={"ticket": ticket}, json=done).status_code == 401


@pytest.mark.parametrize("ticket", ["", ".", "a", "a.", ".b", "ä.ö", "a.b.c", "e30.e30", "x" * 1999])
def test_whatever_was_not_signed_is_no_ticket(ticket: str) -> None:
    with pytest.raises(Unauthenticated):
        verify_ticket(b"secret", "lfs", ticket)


def test_a_part_is_good_for_its_place_only(shared: Shared, small: str) -> None:
    content = fresh(PART + 10)
    bob = shared.http("bob")
    bob.base_url = httpx.URL(small)
    action = request_upload(bob, "bob/adapter", content)
    first, second = action["header"]["00001"], action["header"]["00002"]
    assert httpx.put(first.replace("/parts/1", "/parts/2"), content=content[:PART]).status_code == 403
    assert httpx.put(second, content=content[:PART]).status_code == 413
    assert httpx.put(first, content=content[: PART - 1]).status_code == 400
    assert httpx.put(second, content=content[PART:]).status_code == 200
    done = {"oid": digest(content), "parts": []}
    assert "part 1" in refusal(httpx.post(action["href"], json=done))[1]
    assert httpx.put(first, content=content[:PART]).status_code == 200
    assert httpx.put(second, content=content[PART:]).status_code == 200
    assert httpx.post(action["href"], json=done).status_code == 200
    assert httpx.post(action["href"], json=done).status_code == 200, "again, where the answer was lost"
    assert shared.hub.uploads.find_usable_size(shared.identity("bob"), digest(content)) == len(content)


def test_what_is_too_large_is_refused_before_it_is_sent(shared: Shared, small: str) -> None:
    bob = shared.http("bob")
    bob.base_url = httpx.URL(small)
    error = request_upload(bob, "bob/adapter", bytes(2_000_001))["error"]
    assert error["code"] == 413
    objects = [{"oid": "0" * 64, "size": 1}] * 1001
    body = {"operation": "upload", "objects": objects}
    assert bob.post("/bob/adapter.git/info/lfs/objects/batch", json=body).status_code == 400


def test_a_quota_counts_all_files_of_a_batch_and_what_was_never_committed(shared: Shared) -> None:
    shared.hub.accounts.update("dan", quota=5000)
    dan = shared.http("dan")
    batch = [fresh(2000) for _ in range(3)]
    early = [href(dan, "dan/own", content) for content in batch]
    answers = request_batch(dan, "dan/own", *batch).json()["objects"]
    assert ["error" in answer for answer in answers] == [False, False, True]
    for answer, content in zip(answers[:2], batch, strict=False):
        assert httpx.put(answer["actions"]["upload"]["href"], content=content).status_code == 200
    error = request_upload(dan, "dan/own", batch[2])["error"]
    assert error["code"] == 413
    assert "quota of dan exceeded" in error["message"]
    assert httpx.put(early[2], content=batch[2]).status_code == 413, (
        "though there was room when it was asked for"
    )
    shared.hub.accounts.update("dan", quota=None)


def test_who_may_not_write_gets_no_address(shared: Shared) -> None:
    assert request_batch(shared.http(), "bob/adapter", b"x").status_code == 401
    assert request_batch(shared.http("dan"), "bob/adapter", b"x").status_code == 403
    assert request_batch(shared.http("bob:read"), "bob/adapter", b"x").status_code == 403
    assert request_batch(shared.http("dan"), "bob/secret", b"x").status_code == 404
    assert request_batch(shared.http("bob"), "bob/nothing", b"x").status_code == 404


def test_files_are_fetched_by_lfs_by_those_who_may_read_them(shared: Shared) -> None:
    content = fresh()
    for kind, prefix in (("model", ""), ("dataset", "datasets/")):
        name = f"bob/fetched-{kind}"
        shared.create(name, kind, private=True)  # type: ignore[arg-type]
        shared.put(name, {"data.parquet": content}, kind)  # type: ignore[arg-type]
        bob = shared.http("bob:read")
        item = request_upload(
            bob, prefix + name, content, operation="download", ref={"name": "refs/heads/main"}
        )
        assert bob.get(item["actions"]["download"]["href"]).content == content
        other = request_upload(bob, prefix + name, b"not there", operation="download")
        assert other["error"]["code"] == 404
        assert (
            request_batch(shared.http("dan"), prefix + name, content, operation="download").status_code == 404
        )


def upload(shared: Shared, who: str, name: str, content: bytes, sent: bytes | None = None) -> str:
    """The sha256 of content that was uploaded by LFS; `sent` in its place, where that is given."""
    put = httpx.put(href(shared.http(who), name, content), content=content if sent is None else sent)
    assert put.is_success == (sent is None), put.text
    return digest(content)


def test_a_pickle_that_came_by_lfs_is_refused_where_it_is_committed(shared: Shared) -> None:
    sha256 = upload(shared, "bob", "bob/adapter", pickle.dumps(Code(), 4))
    assert commit(shared, "bob", "bob/adapter", large("model.safetensors", sha256)).status_code == 400
    assert commit(shared, "bob", "bob/adapter", large("model.bin", sha256)).status_code == 400


# Bytes that are not what they claim to be, or not theirs who claim them.


def test_other_bytes_than_their_sha256_are_refused_and_not_stored(shared: Shared) -> None:
    honest = os.urandom(1000)
    for sent in (os.urandom(1000), honest[:-1], honest + b"x", b""):
        sha256 = upload(shared, "bob", "bob/adapter", honest, sent)
        assert not shared.hub.blobs.holds(sha256)
        assert commit(shared, "bob", "bob/adapter", large("a.txt", sha256, 1000)).status_code == 400


SECRET = digest(WEIGHTS)
NEVER = digest(b"nobody ever had this")


def test_a_batch_does_not_tell_that_somebody_else_has_a_file(shared: Shared) -> None:
    objects = [{"oid": oid, "size": len(WEIGHTS)} for oid in (SECRET, NEVER)]
    body = {"operation": "upload", "transfers": ["basic"], "objects": objects}
    answer = shared.http("dan").post("/dan/own.git/info/lfs/objects/batch", json=body).json()
    assert all("upload" in each["actions"] for each in answer["objects"])
    body["operation"] = "download"
    answer = shared.http("dan").post("/dan/own.git/info/lfs/objects/batch", json=body).json()
    assert [each["error"]["code"] for each in answer["objects"]] == [404, 404]
    for oid in (SECRET, NEVER):
        verify = {"oid": oid, "size": len(WEIGHTS)}
        answer = shared.http("dan").post("/dan/own.git/info/lfs/objects/verify", json=verify)
        assert answer.status_code == 404


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
    copy = large("model.safetensors", digest(content))
    assert commit(shared, "dan", "dan/copies", copy).status_code == 200
    shared.hub.repositories.update(shared.hub.repositories.get("model", "bob/shown"), gated="manual")
    shared.create("cleo/copies")
    assert commit(shared, "cleo", "cleo/copies", copy).status_code == 200, "dan's copy is public"
    shared.hub.repositories.delete(shared.hub.repositories.get("model", "dan/copies"))
    shared.create("ada/copies")
    assert commit(shared, "cleo", "cleo/copies", inline("a.json", b"1")).status_code == 200
    shared.hub.repositories.delete(shared.hub.repositories.get("model", "cleo/copies"))
    assert commit(shared, "dan", "dan/own", copy).status_code == 400, "gated files are not to be copied"
