"""A hub that mirrors another hub of ours, which real clients read."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from huggingface_hub.errors import EntryNotFoundError, RevisionNotFoundError

import kcard
from kcard.api.remote import login, pull
from kcard.hub.refusals import Conflict
from kcard.hub.server.mirror.options import MirrorOptions
from kcard.hub.server.options import ServerOptions
from tests.hub.client.cards import rivers
from tests.hub.server.browser_session import Browser
from tests.hub.server.test_read_clients import LOAD, tiny
from tests.hub.server.test_write_commits import tensors
from tests.hub.shared_hub import Shared, running, shared_hub

__all__ = ["tiny"]  # a fixture

README = b"---\nlicense: mit\ntags: [tiny]\n---\n# A model\n"
FILES = {"README.md": README, "config.json": b'{"model_type": "opt"}', "model.safetensors": tensors()}


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """The hub that is mirrored. Its organisation acme is not an account of the hub that mirrors it."""
    with shared_hub(tmp_path_factory.mktemp("there")) as there:
        there.hub.accounts.add_organisation("acme", owner="bob")
        yield there


@pytest.fixture(scope="module")
def here(there: Shared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A hub that mirrors it, and asks it again at each request."""
    with shared_hub(tmp_path_factory.mktemp("here"), mirroring(there)) as here:
        yield here


def mirroring(there: Shared, *, age: int = 0, limit: int = 1 << 30, anonymous: bool = False) -> ServerOptions:
    return ServerOptions(mirror=MirrorOptions(there.url, age, limit, anonymous))


def model(there: Shared, name: str, files: dict[str, bytes] = FILES) -> str:
    there.create(name)
    return there.put(name, files).sha


# --- what is read ----------------------------------------------------------------------------------------------------


def test_what_is_not_here_is_read_from_there_with_the_same_commit_and_hashes(
    there: Shared, here: Shared, tmp_path: Path
) -> None:
    sha = model(there, "acme/plain")
    mine = here.api("bob").model_info("acme/plain", files_metadata=True)
    theirs = there.api().model_info("acme/plain", files_metadata=True)
    assert mine.sha == sha
    assert mine.siblings == theirs.siblings
    assert (mine.tags, mine.card_data) == (theirs.tags, theirs.card_data)
    folder = Path(here.api("bob").snapshot_download("acme/plain", cache_dir=tmp_path))
    assert {path: (folder / path).read_bytes() for path in FILES} == FILES
    path = "/acme/plain/resolve/main/model.safetensors"
    mine_head, theirs_head = here.http("bob").head(path), there.http().head(path)
    for name in ("etag", "x-repo-commit", "x-linked-etag", "x-linked-size", "content-length"):
        assert mine_head.headers[name] == theirs_head.headers[name]
    assert mine_head.headers["x-mirrored-from"] == there.url


def test_trees_paths_and_branches_are_those_of_upstream(there: Shared, here: Shared) -> None:
    model(there, "acme/folders", {"a/b/c.txt": b"c", "d.txt": b"d"})
    there.api("bob").create_tag("acme/folders", tag="one")
    mine, theirs = here.api("bob"), there.api()
    tree = [*mine.list_repo_tree("acme/folders", recursive=True)]
    assert tree == [*theirs.list_repo_tree("acme/folders", recursive=True)]
    assert mine.list_repo_refs("acme/folders") == theirs.list_repo_refs("acme/folders")
    found = mine.get_paths_info("acme/folders", ["a", "d.txt", "none"])
    assert [item.path for item in found] == ["a", "d.txt"]


def test_a_file_or_revision_that_upstream_lacks_is_missing_here(there: Shared, here: Shared) -> None:
    model(there, "acme/lacking")
    with pytest.raises(EntryNotFoundError):
        here.api("bob").hf_hub_download("acme/lacking", "none.txt")
    with pytest.raises(RevisionNotFoundError):
        here.api("bob").model_info("acme/lacking", revision="none")
    assert here.http("bob").get("/api/models/acme/none").headers["x-error-code"] == "RepoNotFound"
    assert here.http("bob").get("/api/datasets/acme/lacking").status_code == 404
    assert here.http("bob").get("/api/spaces/acme/lacking").status_code == 404


def test_a_dataset_is_mirrored_too(there: Shared, here: Shared, tmp_path: Path) -> None:
    there.create("acme/rows", "dataset")
    there.put("acme/rows", {"rows.csv": b"a,b\n1,2\n"}, "dataset")
    path = here.api("bob").hf_hub_download("acme/rows", "rows.csv", repo_type="dataset", cache_dir=tmp_path)
    assert Path(path).read_bytes() == b"a,b\n1,2\n"


def test_a_moved_branch_is_followed_and_its_old_commit_stays(
    there: Shared, here: Shared, tmp_path: Path
) -> None:
    first = model(there, "acme/moving", {"a.txt": b"one"})

    def read(revision: str) -> bytes:
        return Path(
            here.api("bob").hf_hub_download("acme/moving", "a.txt", revision=revision, cache_dir=tmp_path)
        ).read_bytes()

    assert read("main") == b"one"
    second = there.put("acme/moving", {"a.txt": b"two"}).sha
    assert read("main") == b"two"
    assert here.api("bob").model_info("acme/moving").sha == second
    assert read(first) == b"one"


def test_a_range_is_served_as_well_before_as_after_the_file_is_stored(there: Shared, here: Shared) -> None:
    content = b"".join(b"%d\n" % number for number in range(100_000))
    model(there, "acme/ranges", {"a.txt": content})
    for _ in range(2):
        answer = here.http("bob").get(
            "/acme/ranges/resolve/main/a.txt", headers={"Range": "bytes=100000-200000"}
        )
        assert (answer.status_code, answer.content) == (206, content[100_000:200_001])


def test_the_page_says_where_it_is_from_and_measures_nothing(there: Shared, here: Shared) -> None:
    results = b"""---
model-index:
- name: m
  results:
  - task: {type: text-generation}
    dataset: {type: d, name: d}
    metrics: [{type: accuracy, value: 1.0, verified: true, verifyToken: abc}]
---
"""
    model(there, "acme/shown", FILES | {"README.md": results})
    page = here.http("bob").get("/acme/shown", headers={"Accept": "text/html"})
    assert f'Mirrored from <a href="{there.url}/acme/shown"' in page.text
    assert "model.safetensors" in page.text
    told = here.http("bob").get("/api/models/acme/shown").json()
    assert told["kcard"] is None
    assert "evalResults" not in told
    assert "verif" not in str(told["cardData"]["model-index"]).replace("'verified': False", "")
    assert here.http("bob").get("/api/models?search=shown").json() == []


# --- when upstream does not answer -----------------------------------------------------------------------------------


def test_what_was_read_is_served_while_upstream_is_down_and_the_client_is_told(
    there: Shared, tmp_path: Path
) -> None:
    model(there, "acme/outage", {"a.txt": b"one", "b.txt": b"never fetched"})
    with shared_hub(tmp_path / "hub") as here:
        with running(there.hub) as url:
            options = ServerOptions(mirror=MirrorOptions(url, age=0))
            with running(here.hub, options) as mirror:
                assert get(mirror, "/acme/outage/resolve/main/a.txt", here).content == b"one"
        with running(here.hub, options) as mirror:
            again = get(mirror, "/acme/outage/resolve/main/a.txt", here)
            assert (again.status_code, again.content) == (200, b"one")
            assert again.headers["warning"].startswith("111")
            assert "does not answer" in get(mirror, "/acme/outage", here).text
            assert get(mirror, "/acme/outage/resolve/main/b.txt", here).status_code == 502
            assert get(mirror, "/api/models/acme/other", here).status_code == 502


def get(url: str, path: str, hub: Shared, who: str = "bob") -> httpx.Response:
    return httpx.get(url + path, headers={"Authorization": f"Bearer {hub.tokens[who]}"}, timeout=30)


def test_within_the_age_upstream_is_not_asked_again(there: Shared, tmp_path: Path) -> None:
    first = model(there, "acme/aged", {"a.txt": b"one"})
    with shared_hub(tmp_path / "hub", mirroring(there, age=3600)) as here:
        assert here.http("bob").get("/api/models/acme/aged").json()["sha"] == first
        there.put("acme/aged", {"a.txt": b"two"})
        assert here.http("bob").get("/api/models/acme/aged").json()["sha"] == first


# --- what is refused -------------------------------------------------------------------------------------------------


def test_nothing_can_be_written_to_a_mirror(there: Shared, here: Shared) -> None:
    model(there, "acme/fixed")
    here.api("bob").model_info("acme/fixed")
    refused = here.http("bob").post("/api/models/acme/fixed/branch/new", json={})
    assert refused.status_code == 403
    assert f"mirrored from {there.url}" in refused.json()["error"]
    assert here.http("ada:admin").post("/api/models/acme/fixed/commit/main", content=b"{}").status_code == 403


def test_a_namespace_that_is_mirrored_can_not_become_an_account(there: Shared, here: Shared) -> None:
    model(there, "acme/bound")
    here.api("bob").model_info("acme/bound")
    with pytest.raises(Conflict, match="is mirrored from"):
        here.hub.accounts.add_organisation("Acme", owner="bob")


def test_a_name_of_this_hub_is_never_asked_for(there: Shared, here: Shared) -> None:
    there.create("lab/theirs")
    here.create("lab/mine", private=True)
    there.create("lab/mine")
    assert here.http("bob").get("/api/models/lab/theirs").status_code == 404
    assert here.http("dan").get("/api/models/lab/mine").status_code == 404
    assert here.http("bob").get("/api/models/lab/mine").json()["private"]


def test_visitors_without_an_account_read_only_what_is_here(there: Shared, here: Shared) -> None:
    model(there, "acme/visited")
    there.create("acme/unvisited")
    assert here.http().get("/api/models/acme/unvisited").status_code == 401
    here.http("bob").get("/acme/visited/resolve/main/config.json")
    assert here.http().get("/acme/visited/resolve/main/config.json").content == FILES["config.json"]
    assert here.http().get("/acme/visited/resolve/main/README.md").status_code == 401
    assert here.http().head("/acme/visited/resolve/main/README.md").status_code == 200


def test_visitors_may_have_repositories_fetched_where_the_owner_allows_it(
    there: Shared, tmp_path: Path
) -> None:
    model(there, "acme/allowed")
    with shared_hub(tmp_path, mirroring(there, anonymous=True)) as here:
        assert here.http().get("/acme/allowed/resolve/main/config.json").content == FILES["config.json"]


# --- whole programs --------------------------------------------------------------------------------------------------


def test_a_card_of_another_hub_is_pulled_through(
    there: Shared, here: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCARD_HOME", str(tmp_path / "home"))
    login(there.url, there.tokens["bob"])
    login(here.url, here.tokens["bob"])
    there.create("acme/rivers")
    kcard.publish(rivers(tmp_path / "card"), hub=there.url, repository="acme/rivers")
    pulled = pull("acme/rivers@v1", tmp_path / "pulled", hub=here.url)
    assert (pulled / "kcard.json").read_bytes() == (tmp_path / "card" / "kcard.json").read_bytes()


def test_a_person_stores_and_deletes_a_token_in_the_browser(there: Shared, here: Shared) -> None:
    browser, path = Browser(here).log_in("bob"), "/acme/closed/resolve/main/a.txt"
    there.create("acme/closed", private=True)
    there.put("acme/closed", {"a.txt": b"closed"})
    assert there.url in browser.open("/settings/upstream")
    assert "not sent to" in browser.send("/settings/upstream", {"token": "hf_of_another_hub"}).text
    browser.send("/settings/upstream", {"token": there.tokens["bob"]})
    page = browser.open("/settings/upstream")
    assert "A token of yours is stored" in page
    assert there.tokens["bob"] not in page
    assert here.http("bob").get(path).content == b"closed"
    browser.send("/settings/upstream", {"token": ""})
    assert here.http("bob").get(path).status_code == 404


@pytest.mark.slow
def test_transformers_loads_a_model_and_its_tokenizer_through_the_mirror(
    there: Shared, here: Shared, tiny: dict[str, bytes]
) -> None:
    model(there, "acme/tiny", tiny)
    parameters, _, ids = here.run(LOAD.format(name="acme/tiny"), "bob").strip().partition(" ")
    assert int(parameters) > 0
    assert json.loads(ids) == [1, 2]
