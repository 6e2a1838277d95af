"""Files as they are downloaded: headers, ranges, caches, interruptions."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcard.errors import HubError
from kcard.hub.db.models import Repository
from kcard.hub.server.routes.files import (
    Downloads,
    Unsatisfiable,
    resolve_range,
)
from kcard.hub.trees import git_oid
from tests.hub.server.attacks import connect, wait_for
from tests.hub.shared_hub import Shared, shared_hub

WEIGHTS = bytes(range(256)) * 12_000  # 3 MB: several blocks
CONFIG = b'{"model_type": "llama"}'
PAGE = b"<script>alert(1)</script>"
FILES = {
    "config.json": CONFIG,
    "model.safetensors": WEIGHTS,
    "empty.txt": b"",
    "in/a folder/größe.json": b"{}",
    "page.svg": PAGE,
}
URL = "/bob/files/resolve/main/model.safetensors"
ETAG = f'"{hashlib.sha256(WEIGHTS).hexdigest()}"'


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kcard.hub.server.routes.files.FLUSH_SECONDS", 0.1)
        with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
            shared.create("bob/files", files=FILES)
            yield shared


def repository(shared: Shared) -> Repository:
    return shared.hub.repositories.get("model", "bob/files")


def test_head_tells_size_hash_and_commit(shared: Shared) -> None:
    headers = shared.http().head(URL).headers
    assert headers["content-length"] == headers["x-linked-size"] == str(len(WEIGHTS))
    assert headers["etag"] == headers["x-linked-etag"] == ETAG
    assert headers["x-repo-commit"] == repository(shared).head
    small = shared.http().head("/bob/files/resolve/main/config.json").headers
    assert small["etag"] == f'"{git_oid(CONFIG)}"'
    assert "x-linked-etag" not in small


def test_what_people_uploaded_is_never_shown_as_a_page(shared: Shared) -> None:
    answer = shared.http().get("/bob/files/resolve/main/page.svg", headers={"Accept-Encoding": "gzip, br"})
    assert answer.content == PAGE
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert "content-encoding" not in answer.headers
    assert "x-xet-hash" not in answer.headers
    config = shared.http().get("/bob/files/resolve/main/config.json")
    assert config.headers["content-type"] == "text/plain; charset=utf-8"


def test_paths_are_decoded_once(shared: Shared) -> None:
    http = shared.http()
    for path in ("in/a%20folder/gr%C3%B6%C3%9Fe.json", "in%2Fa%20folder%2Fgr%C3%B6%C3%9Fe.json"):
        answer = http.get(f"/bob/files/resolve/main/{path}")
        assert answer.content == b"{}"
        assert answer.headers["content-disposition"].isascii()
    twice = http.get("/bob/files/resolve/main/in%252Fa%2520folder%252Fgr%25C3%25B6%25C3%259Fe.json")
    assert twice.status_code == 404


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=100-199", 100, 200),
        ("bytes=2999990-", 2_999_990, len(WEIGHTS)),
        ("bytes=-7", len(WEIGHTS) - 7, len(WEIGHTS)),
        ("bytes=5-99999999999", 5, len(WEIGHTS)),
    ],
)
def test_a_range_is_a_part_of_the_file(shared: Shared, header: str, start: int, stop: int) -> None:
    answer = shared.http().get(URL, headers={"Range": header})
    assert answer.status_code == 206
    assert answer.content == WEIGHTS[start:stop]
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(WEIGHTS)}"


def test_a_range_outside_of_the_file_is_refused(shared: Shared) -> None:
    answer = shared.http().get(URL, headers={"Range": f"bytes={len(WEIGHTS)}-"})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(WEIGHTS)}"


def test_a_range_of_another_state_of_the_file_is_answered_with_all_of_it(shared: Shared) -> None:
    http = shared.http()
    same = http.get(URL, headers={"Range": "bytes=1-2", "If-Range": ETAG})
    other = http.get(URL, headers={"Range": "bytes=1-2", "If-Range": '"other"'})
    assert (same.status_code, other.status_code) == (206, 200)
    assert other.content == WEIGHTS


def test_a_file_that_the_client_has_is_not_sent_again(shared: Shared) -> None:
    for tags in (f'"other", W/{ETAG}', "*"):
        answer = shared.http().get(URL, headers={"If-None-Match": tags})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == ETAG
    assert shared.http().get(URL, headers={"If-None-Match": '"other"'}).status_code == 200


def test_an_empty_file_is_a_file(shared: Shared) -> None:
    answer = shared.http().get("/bob/files/resolve/main/empty.txt")
    assert (answer.status_code, answer.content) == (200, b"")


def test_raw_is_what_git_keeps(shared: Shared) -> None:
    http = shared.http()
    assert http.get("/bob/files/raw/main/config.json").content == CONFIG
    assert f"oid sha256:{ETAG[1:-1]}" in http.get("/bob/files/raw/main/model.safetensors").text


def test_a_file_that_the_store_lost_is_an_error_and_no_broken_answer(shared: Shared) -> None:
    shared.create("bob/lost", files={"a.txt": b"only here"})
    shared.hub.blobs.delete(hashlib.sha256(b"only here").hexdigest())
    assert shared.http().get("/bob/lost/resolve/main/a.txt").status_code == 500


def test_a_client_that_hangs_up_harms_nobody(shared: Shared) -> None:
    for _ in range(3):
        with connect(shared.url) as connection:
            connection.sendall(f"GET {URL} HTTP/1.1\r\nHost: hub\r\n\r\n".encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert shared.http().get(URL).content == WEIGHTS


def test_downloads_are_counted_by_one_small_file(shared: Shared, tmp_path: Path) -> None:
    shared.create(
        "bob/counted", files={"config.json": CONFIG, "adapter_config.json": b"{}", "other.json": b"{}"}
    )
    api, http = shared.api(), shared.http()
    api.snapshot_download("bob/counted", cache_dir=tmp_path)
    http.head("/bob/counted/resolve/main/config.json")
    http.get("/bob/counted/resolve/main/config.json", headers={"Range": "bytes=3-"})
    for other in ("other.json", "adapter_config.json"):
        http.get(f"/bob/counted/resolve/main/{other}")
    wait_for(lambda: api.model_info("bob/counted").downloads != 0)
    assert api.model_info("bob/counted").downloads == 1


def test_counts_survive_a_database_that_is_busy() -> None:
    written: list[dict[int, int]] = []

    def write(counts: Mapping[int, int]) -> None:
        if is_busy:
            raise HubError(f"busy: {counts}")
        written.append(dict(counts))

    is_busy = True
    downloads = Downloads(write)
    downloads.add(7)
    downloads.flush()
    downloads.add(7)
    is_busy = False
    downloads.flush()
    downloads.flush()
    assert written == [{7: 2}]


@given(st.integers(0, 50), st.integers(0, 60), st.none() | st.integers(0, 60))
def test_a_range_is_what_python_would_slice(size: int, first: int, last: int | None) -> None:
    content = bytes(range(size))
    try:
        part = resolve_range(size, '"e"', f"bytes={first}-{'' if last is None else last}")
    except Unsatisfiable:
        assert not content[first:]
        return
    if last is not None and last < first:
        assert part is None
    else:
        assert part is not None
        assert content[slice(*part)] == content[first : None if last is None else last + 1]


@pytest.mark.parametrize(
    "odd", ["bytes", "bytes=", "bytes=a-b", "lines=0-1", "bytes=0-1,3-4", "bytes=--1", "bytes=٣-"]
)
def test_what_is_no_single_range_is_answered_with_the_whole_file(odd: str) -> None:
    assert resolve_range(10, '"e"', odd) is None
