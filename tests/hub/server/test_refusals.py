"""What is sent to be stored, and is refused: one test, with the attack in it, for each way."""

import hashlib
import io
import pickle
import struct
import time
import zipfile
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from safetensors.numpy import save

from kcard.hub.server.dependencies import ServerOptions
from tests.hub.server.attacks import Code, commit, deleted, inline, large, preupload, raw, request_upload
from tests.hub.shared_hub import Shared, running, shared_hub

NAME = "bob/target"
SMALL = ServerOptions(max_file_size=5_000, max_regular=1_000, max_commit=20_000)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        shared.create(NAME)
        yield shared


@pytest.fixture(scope="module")
def small(shared: Shared) -> Iterator[str]:
    """The same hub with small limits."""
    with running(shared.hub, SMALL) as url:
        yield url


@pytest.fixture(autouse=True)
def _unchanged(shared: Shared) -> Iterator[None]:
    """Whatever is tried, the repository that is attacked stays as it was, and nothing is left on the way."""
    before = shared.hub.repositories.get("model", NAME).head
    yield
    target = shared.hub.repositories.get("model", NAME)
    assert target.head == before
    assert list(shared.hub.commits.tree(target, before or "")) == [".gitattributes"]
    assert list(shared.hub.blobs.partial.glob("*")) == []


# --- path traversal -------------------------------------------------------------------------------------------------


# tests/hub/test_metadata.py has many more.
@pytest.mark.parametrize(
    "path",
    [
        *("../evil.json", "a/../../evil.json", "/etc/evil.json", "a//evil.json", "", "..\\evil.json"),
        *("C:evil.json", "evil\0.json", "evil\r\nX-Evil: 1.json", ".GIT/hooks/evil.json", "aux/evil.json"),
        *("evil.json ", "a" * 300 + ".json", "a/" * 600 + "evil.json"),
    ],
)
def test_paths_that_lead_elsewhere_are_refused(shared: Shared, path: str) -> None:
    sha256 = hashlib.sha256(b"x").hexdigest()
    for operation in (inline(path, b"1"), large(path, sha256, 1), deleted(path)):
        assert commit(shared, "bob", NAME, operation).status_code == 400
    assert preupload(shared, "bob", NAME, [(path, 1)]).status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        *(b"../../../../etc/passwd", b"..%2f..%2f..%2fetc%2fpasswd", b"%2e%2e/%2e%2e/etc/passwd"),
        *(b"%252e%252e%252f%252e%252e%252fetc%252fpasswd", b"..%5c..%5cetc%5cpasswd", b"%00/etc/passwd"),
        *(b"%c0%ae%c0%ae/etc/passwd", b"/etc/passwd", b"%2fetc%2fpasswd"),
    ],
)
def test_paths_that_lead_elsewhere_are_not_read_however_they_are_encoded(shared: Shared, path: bytes) -> None:
    answer = raw(
        shared,
        b"GET /bob/target/resolve/main/" + path + b" HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n",
    )
    assert answer.split()[1] in {b"400", b"404"}
    assert b"root:" not in answer


def test_paths_that_a_disk_takes_for_one_are_refused(shared: Shared) -> None:
    for other in ("CONFIG.json", "config.json/inside.json"):
        answer = commit(shared, "bob", NAME, inline("config.json", b"1"), inline(other, b"2"))
        assert answer.status_code == 400


# --- pickles and code -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["model.bin", "model.PT", "a/b/setup.PY", "run.html", "x.tar.gz", "noending"]
)
def test_pickles_programs_and_archives_are_refused_by_name(shared: Shared, path: str) -> None:
    assert commit(shared, "bob", NAME, inline(path, b"harmless")).status_code == 400
    assert preupload(shared, "bob", NAME, [(path, 8)]).status_code == 400


@pytest.mark.parametrize("path", ["model.safetensors", "notes.txt", "config.json", "README.md", "LICENSE"])
def test_pickles_are_refused_whatever_their_name(shared: Shared, path: str) -> None:
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:  # as torch.save writes them
        archive.writestr("archive/data.pkl", pickle.dumps(Code()))
    for content in (pickle.dumps(Code(), 0), pickle.dumps(Code()), zipped.getvalue()):
        assert commit(shared, "bob", NAME, inline(path, content)).status_code == 400


@pytest.mark.parametrize(
    "config",
    [
        b'{"auto_map": {"AutoModel": "evil--modeling.Evil"}}',
        b'{"nested": [{"auto_map": {"AutoModel": "modeling.Evil"}}]}',
        rb'{"\u0061uto_map": {"AutoModel": "modeling.Evil"}}',
    ],
)
def test_code_named_by_auto_map_is_refused(shared: Shared, config: bytes) -> None:
    assert commit(shared, "bob", NAME, inline("a/config.json", config)).status_code == 400


# --- oversize -------------------------------------------------------------------------------------------------------


def test_what_is_declared_too_large_is_refused_before_it_is_sent(shared: Shared, small: str) -> None:
    assert preupload(shared, "bob", NAME, [("a.txt", 5_001)], url=small).status_code == 413
    bob = shared.http("bob")
    bob.base_url = httpx.URL(small)
    assert request_upload(bob, NAME, bytes(5_001))["error"]["code"] == 413


def test_a_file_that_is_too_large_for_a_commit_is_refused(shared: Shared, small: str) -> None:
    assert commit(shared, "bob", NAME, inline("a.txt", b"a" * 1_001), url=small).status_code == 413


@pytest.mark.parametrize("declared", [True, False])
def test_a_commit_that_is_too_large_is_refused_with_and_without_a_length(
    shared: Shared, small: str, declared: bool
) -> None:
    body = b" " * 20_001
    content = body if declared else iter([body[:15_000], body[15_000:]])
    answer = shared.http("bob").post(f"{small}/api/models/{NAME}/commit/main", content=content)
    assert answer.status_code == 413


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    "path",
    [
        *("/api/validate-yaml", "/api/repos/create", f"/api/models/{NAME}/preupload/main"),
        f"/{NAME}.git/info/lfs/objects/batch",
    ],
)
def test_a_body_that_is_too_large_is_refused_with_and_without_a_length(
    shared: Shared, path: str, declared: bool
) -> None:
    body = b'{"content": "' + b"a" * (5 << 20) + b'"}'
    content = body if declared else (body[at : at + 65536] for at in range(0, len(body), 65536))
    assert shared.http("bob").post(path, content=content).status_code == 413


def test_a_length_that_is_a_lie_ends_nowhere(shared: Shared) -> None:
    request = (
        f"POST /api/models/{NAME}/commit/main HTTP/1.1\r\nHost: hub\r\nContent-Length: 999999999999\r\n"
        f"Authorization: Bearer {shared.tokens['bob']}\r\n\r\n"
    )
    assert raw(shared, request.encode()).split()[1] == b"413"


def test_a_namespace_holds_no_more_than_its_quota(shared: Shared) -> None:
    shared.create("cleo/full")
    shared.hub.accounts.update("cleo", quota=2_000)
    assert commit(shared, "cleo", "cleo/full", inline("a.txt", b"a" * 1_500)).status_code == 200
    assert commit(shared, "cleo", "cleo/full", inline("b.txt", b"b" * 1_500)).status_code == 413
    assert "b.txt" not in shared.api().list_repo_files("cleo/full")


# --- bombs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"1234567", struct.pack("<Q", 1 << 62) + b"{}", save({"a": np.ones(8, np.uint8)})[:-4]]
)
def test_safetensors_that_do_not_add_up_are_refused(shared: Shared, content: bytes) -> None:
    assert commit(shared, "bob", NAME, inline("model.safetensors", content)).status_code == 400


def test_archives_are_not_unpacked(shared: Shared) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.json", b"0" * (32 << 20))
    started = time.monotonic()
    for path in ("bomb.zip", "bomb.json", "bomb.txt", "bomb.safetensors", "bomb.model"):
        assert commit(shared, "bob", NAME, inline(path, buffer.getvalue())).status_code == 400
    assert time.monotonic() - started < 20


LAUGHS = "\n".join(
    ["---", "a: &a [x, x, x, x, x, x, x, x, x]"]
    + [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    + ["---", ""]
)


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        "---\na: !!python/object/apply:os.system [echo attacked]\n---\n",
        "---\na: &b 1\n---\n",
        "---\na: " + "[" * 50_000 + "\n---\n",
        "---\n" + "a: 1\n" * 200_000 + "---\n",
        "---\n? " + "{" * 2_000 + "\n---\n",
    ],
)
def test_yaml_bombs_are_refused_before_and_in_the_commit(shared: Shared, text: str) -> None:
    started = time.monotonic()
    assert commit(shared, "bob", NAME, inline("README.md", text.encode())).status_code in {400, 413}
    answer = shared.http().post("/api/validate-yaml", json={"content": text})
    assert answer.status_code == 400
    assert answer.json()["errors"]
    assert time.monotonic() - started < 20
