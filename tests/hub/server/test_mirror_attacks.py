"""A mirrored hub that lies, stalls or sends what is refused, and clients that want what they may not have."""

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from kcard.hub.server.mirror.options import MirrorOptions
from kcard.hub.server.options import ServerOptions
from tests.hub.server.lying_hub import SHA, Answer, LyingHub, Sent, lying_hub
from tests.hub.server.test_disk_full import disk
from tests.hub.shared_hub import Shared, running, shared_hub

__all__ = ["disk"]  # a fixture

TOKEN = "hk_token_of_bob_for_upstream"
LARGE = b"line\n" * 100_000
PATH = "/api/kcard/upstream-token"


@pytest.fixture(scope="module")
def liar() -> Iterator[LyingHub]:
    with lying_hub() as liar:
        yield liar


@pytest.fixture(scope="module")
def here(liar: LyingHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    options = ServerOptions(mirror=MirrorOptions(liar.url, age=0))
    with shared_hub(tmp_path_factory.mktemp("here"), options) as here:
        yield here


def status(here: Shared, path: str, who: str | None = "bob") -> int:
    return here.http(who).get(path).status_code


def broken(here: Shared, path: str) -> bool:
    """Whether bob gets no whole file: the connection is closed before its last byte, or it never starts."""
    try:
        return here.http("bob").get(path).status_code == 502
    except httpx.RemoteProtocolError:
        return True


def get(url: str, path: str, hub: Shared) -> httpx.Response:
    """What bob gets from a server of a hub."""
    return httpx.get(url + path, headers={"Authorization": f"Bearer {hub.tokens['bob']}"}, timeout=60)


# --- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(Sent(b"LINE\n" * 100_000), id="other bytes"),
        pytest.param(Sent(LARGE[:-5]), id="fewer bytes"),
        pytest.param(Sent(LARGE + b"more\n"), id="more bytes"),
        pytest.param(Sent(LARGE[:-5], declared=len(LARGE)), id="half of what it declares"),
        pytest.param(Sent(status=500), id="an error"),
        pytest.param(
            Sent(status=302, headers={"Location": "http://169.254.169.254/latest"}), id="inner network"
        ),
        pytest.param(Sent(status=302, headers={"Location": "https://elsewhere.example/x"}), id="other host"),
        pytest.param(Sent(status=302, headers={"Location": "file:///etc/passwd"}), id="a file"),
        pytest.param(Sent(LARGE, headers={"Content-Encoding": "gzip"}), id="compressed"),
    ],
)
def test_wrong_bytes_are_never_served_as_a_whole_file(
    liar: LyingHub, here: Shared, request: pytest.FixtureRequest, sent: Sent
) -> None:
    name = f"evil/{request.node.callspec.id.replace(' ', '-')}"
    liar.model(name, {"a.txt": LARGE})
    liar.file(name, "a.txt", sent)
    assert broken(here, f"/{name}/resolve/main/a.txt")
    assert status(here, f"/{name}/resolve/main/a.txt") == 502
    assert liar.times(f"{name}/resolve/{SHA}/a.txt") == 1  # not at once again


def test_small_files_are_held_back_until_they_are_verified(liar: LyingHub, here: Shared) -> None:
    liar.model("evil/small", {"a.txt": b"right"})
    liar.file("evil/small", "a.txt", Sent(b"wrong"))
    assert status(here, "/evil/small/resolve/main/a.txt") == 502


def test_a_range_of_an_unverified_file_is_not_completed(liar: LyingHub, here: Shared) -> None:
    rest = threading.Event()
    liar.model("evil/part", {"a.txt": LARGE})
    liar.file("evil/part", "a.txt", Sent(b"LINE\n" * 100_000, until=rest))
    path, part = "/evil/part/resolve/main/a.txt", {"Range": "bytes=0-7"}
    with here.http("bob").stream("GET", path, headers=part) as answer:
        assert answer.status_code == 206
        rest.set()
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()


def test_what_a_commit_is_refused_for_is_not_served(liar: LyingHub, here: Shared) -> None:
    files = {
        "pytorch_model.bin": pickle.dumps({}),
        "modeling.py": b"import os\n",
        "notes.txt": pickle.dumps({"a": 1}, protocol=4),
        "config.json": b'{"auto_map": {"AutoModel": "modeling.Model"}}',
        "fine.txt": b"text\n",
    }
    liar.model("evil/code", files)
    listed = {file["rfilename"] for file in here.http("bob").get("/api/models/evil/code").json()["siblings"]}
    assert listed == {"notes.txt", "config.json", "fine.txt"}
    missing = here.http("bob").get("/evil/code/resolve/main/pytorch_model.bin")
    assert (missing.status_code, missing.headers["x-error-code"]) == (404, "EntryNotFound")
    assert ".bin files are not allowed" in missing.json()["error"]
    assert status(here, "/evil/code/resolve/main/notes.txt") == 403
    assert status(here, "/evil/code/resolve/main/config.json") == 403
    assert status(here, "/evil/code/resolve/main/fine.txt") == 200
    assert liar.times("pytorch_model.bin") == liar.times("modeling.py") == 0
    assert "modeling.py" in here.http("bob").get("/evil/code").text


@pytest.mark.parametrize(
    "said",
    [
        b"not JSON",
        b"[]",
        b"{}",
        json.dumps({"sha": "../../etc", "siblings": []}).encode(),
        json.dumps({"sha": SHA, "siblings": {}}).encode(),
        json.dumps({"sha": SHA, "siblings": [{"rfilename": "a.txt", "size": -1, "blobId": SHA}]}).encode(),
        json.dumps({"sha": SHA, "siblings": [{"rfilename": "a\nb", "size": 1, "blobId": SHA}]}).encode(),
        json.dumps({"sha": SHA, "siblings": [{"rfilename": "a.txt", "size": 1, "blobId": "../x"}]}).encode(),
        json.dumps(
            {"sha": SHA, "siblings": [{"rfilename": f"{n}", "size": 1} for n in range(10_001)]}
        ).encode(),
        b"[" * 100_000,
    ],
)
def test_descriptions_of_another_shape_are_refused(liar: LyingHub, here: Shared, said: bytes) -> None:
    liar.answers["/api/models/evil/shape/revision/main"] = Sent(said)
    assert status(here, "/api/models/evil/shape") == 502


def test_paths_that_lead_elsewhere_are_left_out(liar: LyingHub, here: Shared) -> None:
    liar.model("evil/paths", {"../a.txt": b"a", "/etc/a.txt": b"a", "b.txt": b"b", ".git/config": b"c"})
    told = here.http("bob").get("/api/models/evil/paths").json()
    assert [file["rfilename"] for file in told["siblings"]] == ["b.txt"]


def test_a_commit_that_was_read_never_changes(liar: LyingHub, here: Shared) -> None:
    liar.model("evil/changing", {"a.txt": b"one"})
    assert here.http("bob").get(f"/evil/changing/resolve/{SHA}/a.txt").content == b"one"
    liar.model("evil/changing", {"a.txt": b"two"})
    assert here.http("bob").get("/evil/changing/resolve/main/a.txt").content == b"one"


def test_all_mirrors_have_no_more_bytes_than_the_limit(liar: LyingHub, tmp_path: Path) -> None:
    liar.model("evil/big", {"a.txt": LARGE, "b.txt": b"b"})
    options = ServerOptions(mirror=MirrorOptions(liar.url, limit=100_000))
    with shared_hub(tmp_path, options) as here:
        answer = here.http("bob").get("/evil/big/resolve/main/a.txt")
        assert (answer.status_code, "as many bytes as it may" in answer.text) == (502, True)
        assert status(here, "/evil/big/resolve/main/b.txt") == 200
        assert liar.times("evil/big/resolve/" + SHA + "/a.txt") == 0


def test_a_file_that_the_disk_has_no_room_for_is_not_served_and_leaves_nothing(
    liar: LyingHub, disk: Path
) -> None:
    content = b"line\n" * 2_000_000
    liar.model("evil/large", {"a.txt": content, "b.txt": b"b"})
    with shared_hub(disk, ServerOptions(mirror=MirrorOptions(liar.url))) as here:
        assert broken(here, "/evil/large/resolve/main/a.txt")
        again = here.http("bob").get("/evil/large/resolve/main/a.txt")
        assert (again.status_code, "disk is full" in again.text) == (502, True)
        assert status(here, "/evil/large/resolve/main/b.txt") == 200
        deadline = time.monotonic() + 10
        while remains := list((disk / "home" / "hub" / "mirror").iterdir()):
            assert time.monotonic() < deadline, remains
            time.sleep(0.01)


# --- many at once ----------------------------------------------------------------------------------------------------


def test_thirty_two_readers_cause_one_fetch_and_all_get_the_file(liar: LyingHub, tmp_path: Path) -> None:
    rest = threading.Event()
    liar.model("many/readers", {"a.txt": LARGE})
    liar.file("many/readers", "a.txt", Sent(LARGE, until=rest))
    options = ServerOptions(mirror=MirrorOptions(liar.url))
    with (
        shared_hub(tmp_path, options) as here,
        running(here.hub, options) as second,  # as another worker
        ThreadPoolExecutor(32) as readers,
    ):
        for url in (
            here.url,
            second,
        ):  # FastAPI prepares routes at their first request, and not thread-safely
            assert get(url, "/lab/none/resolve/main/a.txt", here).status_code == 404
        start = threading.Barrier(32)

        def read(number: int) -> bytes:
            start.wait()
            url = here.url if number % 2 else second
            threading.Timer(1.0, rest.set).start()
            return get(url, "/many/readers/resolve/main/a.txt", here).content

        assert all(content == LARGE for content in readers.map(read, range(32)))
        assert liar.times(f"many/readers/resolve/{SHA}/a.txt") == 1
        assert liar.times("many/readers/revision/main") <= 2  # one of each worker


def test_the_first_bytes_arrive_before_the_last_ones_are_fetched(liar: LyingHub, here: Shared) -> None:
    rest = threading.Event()
    liar.model("many/streams", {"a.txt": LARGE})
    liar.file("many/streams", "a.txt", Sent(LARGE, until=rest))
    with here.http("bob").stream("GET", "/many/streams/resolve/main/a.txt") as answer:
        parts = answer.iter_bytes(1000)
        first = next(parts)
        rest.set()
        assert first + b"".join(parts) == LARGE


# --- tokens ----------------------------------------------------------------------------------------------------------


def private(liar: LyingHub, name: str, *, gated: bool = False) -> None:
    """A model that only TOKEN may read."""
    liar.model(name, {"a.txt": b"secret"}, gated="manual" if gated else False, private=not gated)
    absent = Sent(b"{}", 404, {"X-Error-Code": "RepoNotFound"})
    paths = [f"/{name}/resolve/{SHA}/a.txt", *([] if gated else [f"/api/models/{name}/revision/main"])]
    for path in paths:
        liar.answers[path] = with_token(liar.answers[path], absent)
    refused = Sent(b"{}", 403, {"X-Error-Code": "GatedRepo"})
    liar.answers[f"/api/models/{name}/auth-check"] = with_token(Sent(b"{}"), refused)


def with_token(sent: Answer, otherwise: Sent) -> Callable[[str | None], Sent]:
    assert isinstance(sent, Sent)
    return lambda token: sent if token == f"Bearer {TOKEN}" else otherwise


def test_a_private_repository_is_for_those_whose_own_token_upstream_accepts(
    liar: LyingHub, here: Shared
) -> None:
    private(liar, "inner/model")
    path = "/inner/model/resolve/main/a.txt"
    assert status(here, path) == 404
    assert here.http("bob").put(PATH, json={"token": TOKEN}).status_code == 200
    assert here.http("bob").get(PATH).json() == {"upstream": liar.url, "stored": True}
    assert here.http("bob").get(path).content == b"secret"
    assert [status(here, path, who) for who in ("cleo", "ada:admin", None)] == [404, 404, 401]
    assert status(here, "/inner/model", "cleo") == 404
    here.http("cleo").put(PATH, json={"token": "hk_another_token"})
    assert status(here, path, "cleo") == 404
    here.http("bob").delete(PATH)
    assert status(here, path) == 404


def test_a_gated_repository_names_the_remedy(liar: LyingHub, here: Shared) -> None:
    private(liar, "inner/gated", gated=True)
    refused = here.http("dan").get("/inner/gated/resolve/main/a.txt")
    assert (refused.status_code, refused.headers["x-error-code"]) == (403, "GatedRepo")
    assert "/settings/upstream" in refused.json()["error"]
    here.http("bob").put(PATH, json={"token": TOKEN})
    assert here.http("bob").get("/inner/gated/resolve/main/a.txt").content == b"secret"
    assert status(here, "/inner/gated/resolve/main/a.txt", "dan") == 403


def test_what_became_private_upstream_is_no_longer_served(liar: LyingHub, here: Shared) -> None:
    liar.model("inner/changes", {"a.txt": b"secret"})
    assert status(here, "/inner/changes/resolve/main/a.txt", "dan") == 200
    private(liar, "inner/changes")
    assert status(here, "/inner/changes/resolve/main/a.txt", "dan") == 404
    assert status(here, "/inner/changes/resolve/main/a.txt", None) == 401


def test_a_hash_of_a_private_file_gives_nobody_the_file(liar: LyingHub, here: Shared) -> None:
    private(liar, "inner/hash")
    here.http("bob").put(PATH, json={"token": TOKEN})
    assert here.http("bob").get("/inner/hash/resolve/main/a.txt").content == b"secret"
    liar.model("evil/hash", {"a.txt": b"secret"})  # names the same sha256, but does not have the file
    liar.file("evil/hash", "a.txt", Sent(status=404))
    assert status(here, "/evil/hash/resolve/main/a.txt", "dan") == 502


def test_the_token_goes_to_its_own_hub_only_and_is_in_no_database_log_or_answer(
    liar: LyingHub, here: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    private(liar, "inner/leads")
    here.http("bob").put(PATH, json={"token": TOKEN})
    with lying_hub() as other:
        away = Sent(status=302, headers={"Location": f"{other.url}/file"})
        liar.file("inner/leads", "a.txt", away)
        answer = here.http("bob").get("/inner/leads/resolve/main/a.txt")
        assert answer.status_code == 502
        assert TOKEN not in answer.text
        assert other.asked == []
    liar.model("open/model", {"a.txt": b"open"})
    liar.asked.clear()
    assert here.http("bob").get("/open/model/resolve/main/a.txt").content == b"open"
    assert {token for _, token in liar.asked} == {None}
    assert TOKEN not in caplog.text
    hub = here.folder / "home" / "hub"
    having = [path for path in hub.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert [path.parent.name for path in having] == ["upstream-tokens"]
    assert having[0].stat().st_mode & 0o077 == 0


def test_a_token_is_not_sent_to_another_hub_that_is_mirrored_later(here: Shared) -> None:
    here.http("bob").put(PATH, json={"token": TOKEN})
    with lying_hub() as other:
        options = replace(ServerOptions(), mirror=MirrorOptions(other.url))
        with running(here.hub, options) as url:
            assert get(url, "/api/models/open/other", here).status_code == 404
        assert {token for _, token in other.asked} == {None}


def test_a_mirror_stays_bound_to_its_source(liar: LyingHub, here: Shared) -> None:
    liar.model("open/bound", {"a.txt": b"one", "b.txt": b"two"})
    assert here.http("bob").get("/open/bound/resolve/main/a.txt").content == b"one"
    with lying_hub() as other:
        other.model("open/bound", {"a.txt": b"other"})
        with running(here.hub, ServerOptions(mirror=MirrorOptions(other.url, age=0))) as url:
            assert get(url, "/open/bound/resolve/main/a.txt", here).content == b"one"
            assert get(url, "/open/bound/resolve/main/b.txt", here).status_code == 502
        assert other.asked == []


def test_a_hub_that_mirrors_this_one_makes_it_ask_nobody(liar: LyingHub, here: Shared) -> None:
    liar.model("open/chain", {"a.txt": b"a"})
    answer = here.http("bob").get("/api/models/open/chain", headers={"X-Kcard-Mirroring": "1"})
    assert answer.status_code == 404
    assert liar.times("open/chain/revision/main") == 0


def test_unknown_names_are_not_asked_for_again_at_once(liar: LyingHub, here: Shared) -> None:
    for _ in range(3):
        assert status(here, "/api/models/open/nothing", "dan") == 404
    assert liar.times("open/nothing/revision/main") == 1


def test_gc_keeps_mirrored_files_and_removing_a_mirror_deletes_them(liar: LyingHub, here: Shared) -> None:
    liar.model("open/kept", {"a.txt": b"only in this mirror"})
    content = here.http("bob").get("/open/kept/resolve/main/a.txt").content
    here.hub.registry.gc()
    assert here.http("bob").get("/open/kept/resolve/main/a.txt").content == content
    mirrors = here.hub.registry.mirrors
    before = {size.mirror.name: size.size for size in mirrors.list()}
    assert before["open/kept"] == len(content)
    mirrors.remove("model", "open/kept")
    assert "open/kept" not in {size.mirror.name for size in mirrors.list()}
    assert here.hub.registry.gc() == []
