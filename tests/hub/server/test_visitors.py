"""What a visitor without a token can cost a hub: pages, descriptions and texts have a limit, whatever is stored."""

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from huggingface_hub import CommitOperationAdd
from huggingface_hub.errors import HfHubHTTPError
from sqlalchemy import update
from starlette.types import Message

from kcard.hub.checks.metadata import MAX_DESCRIPTION_CHARACTERS, MAX_YAML_NODES
from kcard.hub.db.models import Repository, Version
from kcard.hub.server.app import create_app
from kcard.hub.server.caches import OVERHEAD, SizedCache
from kcard.hub.server.concurrency import MAX_READS
from kcard.hub.server.routes.models import MAX_PAGE_BYTES
from tests.hub.server.attacks import connect
from tests.hub.shared_hub import Shared, shared_hub
from tests.hub.stand import sealed

BROWSER = {"Accept": "text/html"}
FILES = {"search.json": b'{"evidence": "wikipedia:en"}'}
NUMBERS = "---\na: [" + "1," * MAX_YAML_NODES + "]\n---\n# Numbers\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub"), exam_required=False) as shared:
        yield shared


@pytest.mark.parametrize(
    ("field", "length"), [("description", MAX_DESCRIPTION_CHARACTERS + 1), ("licence", 201), ("domain", 201)]
)
def test_a_manifest_with_a_text_that_is_too_long_is_neither_committed_nor_published(
    shared: Shared, field: str, length: int
) -> None:
    name, api = f"bob/long-{field}", shared.api("bob")
    shared.create(name)
    files = sealed(FILES, kind="search", **{field: "x" * length})
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    with pytest.raises(
        HfHubHTTPError, match=rf"the {field} has {length} characters, the limit is .*shorten"
    ) as error:
        api.create_commit(name, operations, commit_message="A card")
    assert error.value.response.status_code == 413
    repository = shared.hub.repositories.get("model", name)
    shared.hub.refs.create_branch(repository, "side", repository.head or "")
    shared.put(name, files, branch="side")  # checked when it is published
    with pytest.raises(HfHubHTTPError, match=f"the {field} has {length} characters") as error:
        api.create_tag(name, tag="v1", revision="side")
    assert error.value.response.status_code == 413
    assert shared.http().get(f"/{name}/tree/side", headers=BROWSER).text.count("x" * length) == 0


def test_descriptions_that_are_stored_already_are_cut_in_lists_and_on_pages(shared: Shared) -> None:
    shared.publish("bob/wordy", sealed(FILES, kind="search"))
    with shared.hub.database.write() as connection:
        connection.execute(update(Version).values(description="y" * 20_000))
    (listed,) = shared.http().get("/api/models?search=wordy").json()
    info = shared.http().get("/api/models/bob/wordy").json()
    assert listed["kcard"]["description"] == info["kcard"]["description"] == "y" * MAX_DESCRIPTION_CHARACTERS
    page = shared.http().get("/?q=wordy", headers=BROWSER).text
    assert "y" * 100 in page
    assert "y" * (MAX_DESCRIPTION_CHARACTERS + 1) not in page


@pytest.fixture(scope="module")
def wide(shared: Shared) -> list[str]:
    """Six repositories of 2,000 files with long paths, half a megabyte each when listed."""
    files = {f"{number:04d}/{'p' * 200}.txt": b"x" for number in range(2000)}
    names = [f"lab/wide-{number}" for number in range(6)]
    for name in names:
        shared.create(name)
        shared.put(name, files)
    return names


def pages(shared: Shared, path: str) -> list[httpx.Response]:
    answers, url = [], path
    while url:
        answers.append(shared.http().get(url))
        url = answers[-1].links.get("next", {}).get("url", "")
    return answers


@pytest.mark.parametrize("query", ["full=1", "expand=config"])
def test_pages_with_files_end_at_a_size_and_nothing_is_left_out(
    shared: Shared, wide: list[str], query: str
) -> None:
    listing = pages(shared, f"/api/models?author=lab&search=wide&{query}")
    assert all(len(page.content) <= MAX_PAGE_BYTES for page in listing)
    assert [item["id"] for page in listing for item in page.json()] == wide[::-1]
    assert len(listing) == 3


def test_a_repository_that_is_larger_than_a_page_has_a_page_of_its_own(
    shared: Shared, wide: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcard.hub.server.routes.models.MAX_PAGE_BYTES", 1000)
    listing = pages(shared, "/api/models?author=lab&search=wide&full=1")
    assert [[item["id"] for item in page.json()] for page in listing] == [[name] for name in wide[::-1]]


def test_a_description_of_many_long_paths_ends_at_a_size_and_clients_get_the_files_from_the_tree(
    shared: Shared, tmp_path: Path
) -> None:
    name = "bob/long-paths"
    files = {f"{number:04d}/{'p' * 250}/{'q' * 250}/{'r' * 250}.txt": b"x" for number in range(2500)}
    shared.create(name, files=files)
    for query in ("", "?blobs=True"):
        info = shared.http().get(f"/api/models/{name}{query}")
        assert len(info.content) <= MAX_PAGE_BYTES
        assert info.json()["siblings"] is None
    listing = pages(shared, f"/api/models/{name}/tree/main?recursive=1")
    assert all(len(page.content) <= MAX_PAGE_BYTES for page in listing)
    paths = [item["path"] for page in listing for item in page.json() if item["type"] == "file"]
    assert sorted(paths) == sorted([*files, ".gitattributes"])
    assert shared.api().model_info(name, files_metadata=True).siblings is None
    folder = shared.api().snapshot_download(name, allow_patterns="0007/*", cache_dir=tmp_path)
    assert len([path for path in Path(folder).rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize(("column", "query"), [("card", "cardData=1"), ("tags", "limit=1000")])
def test_pages_with_long_metadata_end_at_a_size(shared: Shared, column: str, query: str) -> None:
    names = [f"bob/{column}-{number:02d}" for number in range(30)]
    for name in names:
        shared.create(name)
    long = {"card": {"a": "z" * 100_000}, "tags": ["z" * 100_000]}[column]
    with shared.hub.database.write() as connection:
        here = Repository.name.in_(names)
        connection.execute(update(Repository).where(here).values({column: long}))
    listing = pages(shared, f"/api/models?search={column}&author=bob&{query}")
    assert [item["id"] for page in listing for item in page.json()] == names[::-1]
    assert max(len(page.content) for page in listing) < 1.2 * MAX_PAGE_BYTES
    assert len(listing) == 3


def test_metadata_of_many_values_is_refused_before_and_in_the_commit(shared: Shared) -> None:
    shared.create("bob/numbers")
    began = time.process_time()
    answer = shared.http().post("/api/validate-yaml", json={"content": NUMBERS})
    assert time.process_time() - began < 1
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["message"] == (
        f"README.md has more than {MAX_YAML_NODES} keys and values of YAML: move data to a file of its own"
    )
    with pytest.raises(Exception, match="more than 30000 keys and values"):
        shared.put("bob/numbers", {"README.md": NUMBERS.encode()})


def test_metadata_that_was_committed_before_it_had_a_limit_stays(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.create("bob/before")
    with monkeypatch.context() as limits:
        limits.setattr("kcard.hub.card_metadata.MAX_YAML_NODES", None)
        shared.put("bob/before", {"README.md": NUMBERS.encode()})
    shared.put("bob/before", {"a.txt": b"another file"})
    info = shared.http().get("/api/models/bob/before").json()
    assert len(info["cardData"]["a"]) == MAX_YAML_NODES


def test_a_readme_that_takes_quadratic_time_is_shown_as_it_is_and_rendered_once(shared: Shared) -> None:
    shared.create("bob/pictures", files={"README.md": b"![" * 50_000})
    client = shared.http()
    client.get("/healthz")
    began = time.process_time()
    first = client.get("/bob/pictures", headers=BROWSER).text
    assert time.process_time() - began < 1
    assert "This text takes too long to format." in first
    assert "![" * 50_000 in first
    seconds = []
    for _ in range(3):
        began = time.process_time()
        assert client.get("/bob/pictures", headers=BROWSER).text == first
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.15


def test_the_same_readme_in_two_repositories_has_the_links_of_each(shared: Shared) -> None:
    for name in ("bob/one", "bob/two"):
        shared.create(name)
        sha = shared.put(
            name, {"README.md": b"---\ntags: [a]\n---\n![m](moon.png)\n" + b"word " * 30_000}
        ).sha
        page = shared.http().get(f"/{name}", headers=BROWSER).text
        assert f'src="/{name}/resolve/{sha}/moon.png"' in page
        assert f'continues in <a href="/{name}/resolve/{sha}/README.md"' in page


def test_descriptions_of_a_commit_are_made_once(shared: Shared) -> None:
    shared.create("bob/kept")
    files = {f"{number:03d}.txt": b"x" for number in range(100)}
    readme = {"README.md": b"---\nlicense: mit\n---\n", "config.json": b'{"model_type": "opt"}'}
    old = shared.put("bob/kept", files | readme).sha
    shared.put("bob/kept", {"README.md": b"---\nlicense: gpl\n---\n"})
    path = f"/api/models/bob/kept/revision/{old}"
    first = shared.http().get(path).json()
    assert (first["cardData"], first["config"]) == ({"license": "mit"}, {"model_type": "opt"})
    tree = shared.hub.commits.tree(shared.hub.repositories.get("model", "bob/kept"), old)
    shared.hub.blobs.delete(*(tree[path].sha256 for path in readme))
    assert shared.http().get(path).json() == first


def test_names_in_a_config_are_few_and_short(shared: Shared) -> None:
    shared.create("bob/config")
    config = {"architectures": ["A" * 400] * 2000, "model_type": "x" * 100_000}
    adapter = {"peft_type": "LORA", "task_type": float("nan")}
    shared.put(
        "bob/config",
        {"config.json": json.dumps(config).encode(), "adapter_config.json": json.dumps(adapter).encode()},
    )
    info = shared.http().get("/api/models/bob/config").json()
    assert info["config"] == {"peft": {"peft_type": "LORA"}}


def test_a_card_page_shows_the_first_of_many_tags(shared: Shared) -> None:
    shared.create("bob/tagged")
    sha = shared.put("bob/tagged", {"a.txt": b"x"}).sha
    repository = shared.hub.repositories.get("model", "bob/tagged")
    for number in range(60):
        shared.hub.refs.create_tag(repository, f"t{number:03d}", sha)
    page = shared.http().get("/bob/tagged", headers=BROWSER).text
    assert page.count("/bob/tagged/tree/t") == 49
    assert "/bob/tagged/tree/main" in page


def test_pages_of_a_history_with_long_messages_end_at_a_size(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcard.hub.server.routes.refs.MAX_PAGE_CHARACTERS", 1000)
    shared.create("bob/messages")
    shas = [shared.put("bob/messages", {"a.txt": b"%d" % number}, title="t" * 400).sha for number in range(5)]
    assert len(pages(shared, "/api/models/bob/messages/commits/main?limit=1")) == 6
    listing = pages(shared, "/api/models/bob/messages/commits/main?limit=1000")
    assert [item["id"] for page in listing for item in page.json()][:5] == shas[::-1]
    assert [len(page.json()) for page in listing] == [2, 2, 2]


def test_a_repository_has_a_limited_number_of_branches_and_tags(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcard.hub.history.MAX_REFS", 3)
    shared.create("bob/refs")
    api = shared.api("bob")
    api.create_branch("bob/refs", branch="a")
    api.create_tag("bob/refs", tag="b")
    with pytest.raises(HfHubHTTPError, match="has 3 branches and tags, the limit: delete some"):
        api.create_tag("bob/refs", tag="c")
    api.delete_tag("bob/refs", tag="b")
    api.create_branch("bob/refs", branch="d")


def test_a_list_shows_the_first_of_many_base_models(shared: Shared) -> None:
    shared.create("bob/bases")
    bases = "".join(f"- org/base-{number}\n" for number in range(200))
    shared.put("bob/bases", {"README.md": f"---\nbase_model:\n{bases}---\n".encode()})
    page = shared.http().get("/?q=bases", headers=BROWSER).text
    assert 1 <= page.count("org/base-") <= 5


@pytest.mark.parametrize(
    "path",
    ["/api/validate-yaml", "/api/models/lab/slow/paths-info/main", "/lab/slow.git/info/lfs/objects/batch"],
)
def test_bodies_that_arrive_slowly_hold_up_nobody(shared: Shared, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: hub\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    with ExitStack() as stack:
        for _ in range(3 * MAX_READS):
            slow = stack.enter_context(connect(shared.url))
            slow.sendall(head.encode())
        time.sleep(0.2)
        assert shared.http().get("/api/models?limit=1", timeout=30).status_code == 200


def test_clients_that_do_not_take_their_responses_hold_up_nobody(shared: Shared) -> None:
    async def run() -> int:
        app, waiting = create_app(shared.hub), asyncio.Event()
        started: list[Message] = []

        async def ask() -> None:
            async def send(message: Message) -> None:
                started.append(message)
                await waiting.wait()

            async def receive() -> Message:
                return {"type": "http.request", "body": b"", "more_body": False}

            place = {"client": ("127.0.0.1", 1), "server": ("hub", 80), "scheme": "http"}
            what = {
                "type": "http",
                "method": "GET",
                "path": "/api/models",
                "query_string": b"",
                "headers": [],
            }
            await app(what | place, receive, send)

        tasks = [asyncio.create_task(ask()) for _ in range(3 * MAX_READS)]
        deadline = time.monotonic() + 20
        while len(started) < len(tasks) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        count = len(started)
        waiting.set()
        await asyncio.gather(*tasks)
        return count

    assert asyncio.run(run()) == 3 * MAX_READS


def test_many_requests_at_once_are_all_answered_in_their_turn(shared: Shared, wide: list[str]) -> None:
    def ask(_number: int) -> int:
        return shared.http().get(f"/api/models/{wide[0]}?blobs=1").status_code

    with ThreadPoolExecutor(5 * MAX_READS) as pool:
        assert list(pool.map(ask, range(5 * MAX_READS))) == [200] * 5 * MAX_READS


def test_the_largest_readme_may_be_validated(shared: Shared) -> None:
    answer = shared.http().post("/api/validate-yaml", json={"content": "# Long\n" + "x" * 3_900_000})
    assert answer.status_code == 200


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b"{}", b'{"content": 1}', b"[" * 100_000, b"\xff"])
def test_what_is_no_readme_is_no_server_error(shared: Shared, body: bytes) -> None:
    answer = shared.http().post("/api/validate-yaml", content=body)
    assert answer.status_code == 400
    assert "send the README as JSON" in answer.json()["error"]


def test_a_cache_keeps_what_was_used_last_up_to_its_size() -> None:
    cache, made = SizedCache(3 * OVERHEAD), []

    def fetch(key: str, size: int = OVERHEAD // 2) -> str:
        def make() -> str:
            made.append(key)
            return key

        return cache.fetch(key, make, lambda _: size)

    for key in ("a", "b", "a", "c", "a", "b"):  # two fit
        assert fetch(key) == key
    fetch("large", 4 * OVERHEAD)
    fetch("large", 4 * OVERHEAD)
    fetch("a")
    assert made == ["a", "b", "c", "b", "large", "large"]
