"""HEAD answers wherever GET does, with the same headers and no body."""

from collections.abc import Iterator

import pytest

from tests.hub.shared_hub import Shared, shared_hub

CARD = "/api/models/bob/card"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as hub:
        hub.create("bob/card")
        hub.put("bob/card", {"README.md": b"# Card\n", "w.safetensors": b"x"})
        yield hub


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/datasets",
        "/docs",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/bob/card",
        "/bob/card/tree/main",
        "/bob/none",
        "/api/models",
        CARD,
        f"{CARD}/tree/main",
        f"{CARD}/commits/main",
        f"{CARD}/refs",
        "/api/whoami-v2",
        "/bob/card/raw/main/README.md",
        "/bob/card/resolve/main/README.md",
        "/nothing/at/all/here",
    ],
)
def test_head_is_get_without_its_body(shared: Shared, path: str) -> None:
    client = shared.http("bob")
    got, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    for name in ("content-type", "content-length", "etag", "x-error-code", "x-repo-commit"):
        assert head.headers.get(name) == got.headers.get(name), name


def test_what_has_no_get_has_no_head(shared: Shared) -> None:
    assert shared.http("bob").head("/api/repos/create").status_code in {404, 405}
    answer = shared.http("bob").head(f"{CARD}/commit/main")
    assert answer.status_code == 405


def test_head_is_logged_as_head(shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kcard.hub.server")
    shared.http().head("/bob/card")
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    assert ("HEAD", "/bob/card", 200) in [(f.get("method"), f.get("path"), f.get("status")) for f in fields]
