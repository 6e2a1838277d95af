"""What people do in a browser with repositories: create, publish, edit, hide, move, delete."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from kcard.hub.server.dependencies import ServerOptions
from kcard.manifest import Manifest, seal
from tests.hub.rows import pending_bytes
from tests.hub.server.browser_session import Browser, hub_for_browsers, text
from tests.hub.shared_hub import Shared, running

HEADER = b'{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + b"x" * 8


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with hub_for_browsers(tmp_path_factory.mktemp("hub"), exam_required=False) as shared:
        yield shared


# --- repositories ---------------------------------------------------------------------------------------------------


def test_repository_is_created_hidden_moved_and_deleted(shared: Shared, bob: Browser) -> None:
    sent = {"owner": "bob", "name": "fresh", "type": "dataset", "visibility": "private"}
    assert bob.send("/new", sent).headers["location"] == "/datasets/bob/fresh/upload"
    assert shared.hub.repositories.get("dataset", "bob/fresh").private
    here = "/datasets/bob/fresh/settings"
    bob.open(here)
    bob.send(here, {"visibility": "public", "gated": "auto"})
    changed = shared.hub.repositories.get("dataset", "bob/fresh")
    assert (changed.private, changed.gated) == (False, "auto")
    answer = bob.send(here + "/move", {"to": "lab/renamed"})
    assert answer.headers["location"] == "/datasets/lab/renamed/settings?saved=1"
    there = "/datasets/lab/renamed/settings"
    answer = bob.send(there + "/delete", {"confirm": "renamed"})
    assert answer.status_code == 400
    assert 'value="renamed"' in answer.text
    assert bob.send(there + "/delete", {"confirm": "lab/renamed"}).headers["location"] == "/lab"
    bob.open("/datasets/lab/renamed", 404)


@pytest.mark.parametrize(
    ("sent", "field", "status"),
    [
        ({"owner": "bob", "name": "taken", "visibility": "public"}, "name", 409),
        ({"owner": "bob", "name": "not a name", "visibility": "public"}, "name", 400),
        ({"owner": "ada", "name": "mine", "visibility": "public"}, "name", 403),
    ],
)
def test_repository_that_can_not_be_created_is_explained(
    shared: Shared, bob: Browser, sent: dict[str, str], field: str, status: int
) -> None:
    if sent["name"] == "taken":
        shared.create("bob/taken")
    answer = bob.send("/new", sent)
    assert answer.status_code == status
    assert f'id="{field}-error"' in answer.text
    assert f'value="{sent["name"]}"' in answer.text


# --- publishing -----------------------------------------------------------------------------------------------------


def card(folder: Path, name: str) -> dict[str, bytes]:
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Moons\n")
    (folder / "search.json").write_text('{"evidence": "wikipedia:en"}')
    seal(folder, Manifest(name=name, description="Moons of the planets", domain="science", kind="search"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def upload(
    browser: Browser, path: str, files: dict[str, bytes], field: str = "files", **data: str
) -> httpx.Response:
    sent = [(field, (name, content)) for name, content in files.items()]
    return browser.send(path, data, files=sent)


def test_card_is_published_by_form(shared: Shared, bob: Browser, tmp_path: Path) -> None:
    shared.create("bob/moons")
    answer = upload(bob, "/bob/moons/upload", card(tmp_path / "card", "moons"), title="First", tag="v1")
    assert answer.headers["location"] == "/bob/moons", text(answer)
    page = bob.open("/bob/moons")
    assert "Moons of the planets" in page
    assert 'href="/bob/moons/tree/v1"' in page
    repository = shared.hub.repositories.get("model", "bob/moons")
    assert [(found.tag, found.author) for found in shared.hub.publications.list(repository)] == [
        ("v1", "bob")
    ]
    assert shared.hub.events.list(1, action="card.published")[0].actor == "bob"


def test_folder_is_uploaded_without_its_own_name(shared: Shared, bob: Browser) -> None:
    shared.create("bob/folder")
    files = {"draft/a.txt": b"a", "draft/index/b.json": b"{}"}
    assert upload(bob, "/bob/folder/upload", files, "folder", into="/deep/").status_code == 303
    repository = shared.hub.repositories.get("model", "bob/folder")
    tree = shared.hub.commits.tree(repository, shared.hub.refs.resolve(repository, "main"))
    assert set(tree) == {".gitattributes", "deep/a.txt", "deep/index/b.json"}


def test_large_and_binary_files_become_large_files(shared: Shared, bob: Browser) -> None:
    shared.create("bob/large")
    files = {"model.safetensors": WEIGHTS, "big.txt": b"line\n" * 1_000_000, "small.txt": b"x"}
    assert upload(bob, "/bob/large/upload", files).status_code == 303
    repository = shared.hub.repositories.get("model", "bob/large")
    tree = shared.hub.commits.tree(repository, shared.hub.refs.resolve(repository, "main"))
    assert {path: entry.lfs for path, entry in tree.items() if path[0] != "."} == {
        "model.safetensors": True,
        "big.txt": True,
        "small.txt": False,
    }
    assert shared.http().get("/bob/large/resolve/main/big.txt").content == files["big.txt"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.bin", b"x"),
        ("run.py", b"print()"),
        ("page.html", b"<script>"),
        ("../up.txt", b"x"),
        ("/etc/passwd.txt", b"x"),
        ("a\\b.txt", b"x"),
        ("notes.txt", b"\x80\x04\x95" + b"x" * 100),
        ("config.json", b'{"auto_map": {"AutoModel": "x.Y"}}'),
    ],
)
def test_form_refuses_what_a_commit_refuses(shared: Shared, bob: Browser, name: str, content: bytes) -> None:
    repository = shared.create(f"bob/refuses-{hashlib.sha256(name.encode()).hexdigest()[:8]}")
    answer = upload(
        bob, f"/{repository.name}/upload", {name: content, "ok.txt": b"y"}, title="Kept title", tag="v7"
    )
    assert answer.status_code == 400
    assert 'id="files-error"' in answer.text
    assert 'value="Kept title"' in answer.text
    assert 'value="v7"' in answer.text
    assert shared.hub.refs.resolve(repository, "main") == repository.head


def test_form_that_is_too_large_is_refused_before_it_is_read(shared: Shared) -> None:
    shared.create("bob/small")
    with running(shared.hub, ServerOptions(max_form=10_000)) as url:
        browser = Browser(replace(shared, url=url))
        browser.log_in("bob")
        browser.open("/bob/small/upload")
        answer = upload(browser, "/bob/small/upload", {"a.txt": b"x" * 20_000})
        assert answer.status_code == 413
        assert "the limit is 10000" in text(answer)
        assert upload(browser, "/bob/small/upload", {"a.txt": b"x" * 5_000}).status_code == 303


def test_form_with_too_many_files_stores_nothing(shared: Shared, bob: Browser) -> None:
    repository = shared.create("bob/many")
    answer = upload(bob, "/bob/many/upload", {f"{number}.txt": b"x" for number in range(101)})
    assert answer.status_code == 400
    assert "Maximum number of files is 100" in text(answer)
    assert shared.hub.refs.resolve(repository, "main") == repository.head


def test_form_over_the_quota_stores_nothing(shared: Shared, bob: Browser) -> None:
    shared.hub.accounts.add_organisation("tiny", owner="bob", quota=3_000)
    shared.create("tiny/full")
    answer = upload(bob, "/tiny/full/upload", {"big.safetensors": b"x" * 4_000})
    assert answer.status_code == 413
    assert "Quota of tiny exceeded" in text(answer)
    account = shared.hub.accounts.get("bob").id
    assert pending_bytes(shared.hub.database, account) == 0


def test_large_file_that_is_refused_is_not_stored(shared: Shared, bob: Browser) -> None:
    shared.create("bob/broken")
    account, content = shared.hub.accounts.get("bob").id, b"no tensors" * 100
    before = pending_bytes(shared.hub.database, account)
    answer = upload(bob, "/bob/broken/upload", {"ok.safetensors": WEIGHTS, "model.safetensors": content})
    assert answer.status_code == 400
    assert pending_bytes(shared.hub.database, account) == before
    assert not shared.hub.blobs.holds(hashlib.sha256(content).hexdigest())


def test_card_without_an_exam_is_committed_and_the_reason_is_shown(shared: Shared, bob: Browser) -> None:
    shared.create("bob/draft")
    manifest = {"kcard.json": json.dumps({"name": "draft"}).encode(), "README.md": b"# Draft"}
    answer = upload(bob, "/bob/draft/upload", manifest, tag="v1")
    assert answer.status_code == 400
    assert "2 files committed, not published" in text(answer)
    assert 'id="tag-error"' in answer.text
    assert "Draft" in bob.open("/bob/draft")


def test_form_without_a_file_and_malformed_forms_are_explained(shared: Shared, bob: Browser) -> None:
    shared.create("bob/empty")
    answer = bob.send("/bob/empty/upload", files=[("files", ("", b""))])
    assert answer.status_code == 400
    assert "no file was chosen" in text(answer)
    headers = {"Origin": shared.url, "Content-Type": "multipart/form-data; boundary=x"}
    for body in (
        b"",
        b"--x\r\n",
        b"--y\r\n\r\n",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1',
    ):
        assert bob.http.post("/bob/empty/upload", content=body, headers=headers).status_code in {400, 403}
    headers["Content-Type"] = "text/plain"
    assert bob.http.post("/bob/empty/upload", content=b"x", headers=headers).status_code == 403


def test_readme_is_edited_as_a_commit(shared: Shared, bob: Browser) -> None:
    shared.create("bob/readme")
    shared.put("bob/readme", {"README.md": b"---\nlicense: mit\n---\n# Old & <b>bold</b>\n"})
    page = bob.open("/bob/readme/edit")
    assert "# Old &amp; &lt;b&gt;bold&lt;/b&gt;" in page
    parent = re.search(r'name="parent" value="([0-9a-f]{40})"', page)
    assert parent is not None
    sent = {
        "text": "---\r\nlicense: apache-2.0\r\n---\r\n# New\r\n",
        "title": "Say more",
        "parent": parent[1],
    }
    assert bob.send("/bob/readme/edit", sent).headers["location"] == "/bob/readme"
    assert (
        shared.http().get("/bob/readme/resolve/main/README.md").text
        == "---\nlicense: apache-2.0\n---\n# New\n"
    )
    assert "Say more" in bob.open("/bob/readme")
    late = bob.send("/bob/readme/edit", sent | {"text": "# Mine"})
    assert late.status_code == 412
    assert "# Mine" in late.text
    head = re.search(r'name="parent" value="([0-9a-f]{40})"', late.text)
    assert head is not None
    assert head[1] != parent[1]
    assert bob.send("/bob/readme/edit", {"text": "# Mine", "parent": head[1]}).status_code == 303
    wrong = bob.send("/bob/readme/edit", {"text": "---\nlicense: [\n---\n"})
    assert wrong.status_code == 400
    assert "license: [" in wrong.text
    assert 'id="text-error"' in wrong.text


def test_readers_publish_nothing(shared: Shared) -> None:
    shared.create("bob/public")
    shared.hub.accounts.set_member("lab", "dan", "read")
    shared.create("lab/public")
    dan = Browser(shared).log_in("dan")
    for name in ("bob/public", "lab/public"):
        page = dan.open(f"/{name}")
        for path in ("upload", "edit", "settings"):
            assert f'href="/{name}/{path}"' not in page
            dan.open(f"/{name}/{path}", 403)
        assert upload(dan, f"/{name}/upload", {"a.txt": b"x"}).status_code == 403
        assert dan.send(f"/{name}/edit", {"text": "x"}).status_code == 403
        assert dan.send(f"/{name}/publish", {"tag": "v1"}).status_code == 403
        assert dan.send(f"/{name}/settings/delete", {"confirm": name}).status_code == 403
    shared.hub.accounts.set_member("lab", "dan", None)
