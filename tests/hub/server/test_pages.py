"""The two pages: what a browser sees of a hub, and that nothing of what people upload runs in it."""

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update

from kcard.hub.db.models import Repository, VersionRow
from kcard.manifest import Manifest, seal
from tests.hub.shared_hub import Shared, shared_hub

BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
README = """---
license: mit
tags: [astronomy]
---
# Moons of the planets

<script>alert(1)</script><img src="https://evil.example/p.png" onerror="alert(1)">
![chart](img/chart.png)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub"), exam_required=False) as shared:
        yield shared


def sealed(folder: Path, name: str, description: str) -> dict[str, bytes]:
    """The files of a small card."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(README)
    (folder / "search.json").write_text('{"evidence": "wikipedia:en"}')
    seal(folder, Manifest(name=name, description=description, domain="science/astronomy", kind="search"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def moons(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """bob/moons has a version v1, factuality 0.31 by its exam and a branch; the hub's threshold is 0.5."""
    shared.create("bob/moons")
    folder = tmp_path_factory.mktemp("card")
    commit = shared.put("bob/moons", sealed(folder, "moons", "What <moons> are like."))
    repository = shared.hub.repositories.get("model", "bob/moons")
    shared.hub.publications.publish(repository, "v1", commit.sha, shared.identity("bob:admin"))
    shared.hub.refs.create_branch(repository, "try/out", commit.sha)
    with shared.hub.database.write() as connection:
        connection.execute(update(VersionRow).values(examined=True, declared_factuality=0.31))
    shared.hub.registry.quarantine.set(0.5)
    return shared


def get(shared: Shared, path: str, who: str | None = None, status: int = 200) -> str:
    answered = shared.http(who).get(path, headers=BROWSER)
    assert answered.status_code == status, answered.text
    assert answered.headers["content-type"] == "text/html; charset=utf-8"
    return answered.text


def test_list_shows_a_card_with_its_description_factuality_and_quarantine(moons: Shared) -> None:
    page = get(moons, "/")
    assert 'href="/bob/moons"' in page
    assert "What &lt;moons&gt; are like." in page
    assert re.search(r"<b>0\.31</b>.*<span>self-declared</span>", page, re.S)
    assert "quarantined" in page
    assert "science/astronomy" in page


def test_card_page_shows_readme_versions_files_and_threshold(moons: Shared) -> None:
    page = get(moons, "/bob/moons")
    sha = moons.hub.refs.resolve(moons.hub.repositories.get("model", "bob/moons"), "main")
    for part in (
        "<h1>Moons of the planets</h1>",
        f'src="/bob/moons/resolve/{sha}/img/chart.png"',
        f'href="/bob/moons/resolve/{sha}/search.json"',
        'href="/bob/moons/tree/v1"',
        'href="/bob/moons/tree/try%2Fout"',
        "factuality 0.31 (self-declared, by the card&#39;s own exam) is below the hub&#39;s threshold of 0.5",
        "<b>Self-declared:</b>",
        f"kcard pull bob/moons --hub {moons.url}",
    ):
        assert part in page
    assert "license: mit" not in page.split("readme")[-1].split("</article>")[0]


def test_links_of_the_pages_lead_somewhere(moons: Shared) -> None:
    missing = "img/chart.png"
    for page in ("/", "/bob/moons"):
        for link in set(re.findall(r'(?:href|src)="(/[^"]*)"', get(moons, page))):
            status = moons.http().get(link.replace("&amp;", "&"), headers=BROWSER).status_code
            assert status == (404 if link.endswith(missing) else 200), link


@pytest.mark.parametrize("path", ["/bob/moons/tree/v1", "/bob/moons/tree/try%2Fout", "/BOB/Moons"])
def test_card_is_shown_at_a_revision_and_whatever_the_case_of_its_name(moons: Shared, path: str) -> None:
    assert "Moons of the planets" in get(moons, path)


def test_readme_runs_nothing_and_fetches_nothing_from_elsewhere(moons: Shared) -> None:
    page = get(moons, "/bob/moons")
    for bad in ("alert(1)", "onerror", "evil.example"):
        assert bad not in page
    assert page.count("<script>") == 1  # the hub's own


def test_policy_allows_the_one_style_sheet_the_one_script_and_own_pictures_only(moons: Shared) -> None:
    for path in ("/", "/bob/moons", "/bob/none"):
        answered = moons.http().get(path, headers=BROWSER)
        policy = dict(part.split(" ", 1) for part in answered.headers["content-security-policy"].split("; "))
        digests = {}
        for name in ("style", "script"):
            match = re.search(rf"<{name}>(.*?)</{name}>", answered.text, re.DOTALL)
            assert match is not None
            digests[name] = base64.b64encode(hashlib.sha256(match[1].encode()).digest()).decode()
        assert policy == {
            "default-src": "'none'",
            "style-src": f"'sha256-{digests['style']}'",
            "script-src": f"'sha256-{digests['script']}'",
            "img-src": "'self'",
            "form-action": "'self'",
            "base-uri": "'none'",
            "frame-ancestors": "'none'",
        }
        assert "style=" not in answered.text


def test_list_is_searched_filtered_and_turned(moons: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    moons.create("lab/atlas")
    assert "bob/moons" not in get(moons, "/?q=atlas")
    assert "lab/atlas" in get(moons, "/?q=atlas")
    assert "lab/atlas" not in get(moons, "/?tag=domain:science&tag=kcard:kind:search")
    assert "bob/moons" in get(moons, "/?tag=domain:science&tag=kcard:kind:search")
    assert "bob/moons" not in get(moons, "/?author=lab")
    assert "Nothing matches" in get(moons, "/?q=%3Cscript%3Enothing")
    monkeypatch.setattr("kcard.hub.server.web.pages.ROWS", 1)
    seen, path = [], "/?sort=date"
    while path:
        page = get(moons, path)
        seen += re.findall(r'class="name" href="/([^"]+)"', page)
        match = re.search(r'rel="next" href="([^"]+)"', page)
        path = match[1].replace("&amp;", "&") if match else ""
    assert {"bob/moons", "lab/atlas"} <= set(seen)
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    "query",
    ["sort=nonsense", "page=nonsense", "page=0", "factuality=x", "q=" + "+".join(map(str, range(30)))],
)
def test_list_refuses_what_it_does_not_understand(shared: Shared, query: str) -> None:
    assert "This request is not valid" in get(shared, f"/?{query}", status=400)


def test_private_card_is_not_there_for_others(shared: Shared) -> None:
    shared.create("bob/secret", private=True)
    shared.put("bob/secret", {"README.md": b"# Hush"})
    for path in ("/bob/secret", "/bob/secret/tree/main"):
        assert "Hush" not in get(shared, path, status=401)
        assert "Hush" not in get(shared, path, "dan", status=404)
        assert "Hush" in get(shared, path, "bob")
    assert "secret" not in get(shared, "/")
    assert "bob/secret" in get(shared, "/", "bob")


def test_gated_card_shows_no_file_before_access_is_granted(shared: Shared) -> None:
    shared.create("bob/asked", gated="manual")
    shared.put("bob/asked", {"README.md": b"# Inside", "notes.txt": b"x"})
    page = get(shared, "/bob/asked")
    assert "request access to its files" in page
    assert "Inside" not in page
    assert "notes.txt" not in page
    assert "Inside" in get(shared, "/bob/asked", "bob")


def test_readme_that_is_gone_or_odd_leaves_the_page_standing(shared: Shared) -> None:
    shared.create("bob/bare")
    assert "There is no README.md" in get(shared, "/bob/bare")
    shared.put("bob/bare", {"README.md": b"# Lost"})
    sha256 = hashlib.sha256(b"# Lost").hexdigest()
    shared.hub.blobs.delete(sha256)
    assert "can&#39;t be shown" in get(shared, "/bob/bare")


def test_dataset_has_its_page(shared: Shared) -> None:
    shared.create("lab/corpus", "dataset")
    assert 'href="/datasets/lab/corpus"' in get(shared, "/datasets")
    assert "--repo-type dataset" in get(shared, "/datasets/lab/corpus")
    assert "lab/corpus" not in get(shared, "/")
    get(shared, "/lab/corpus", status=401)


def test_programs_get_an_error_they_can_read(shared: Shared) -> None:
    answered = shared.http("dan").get("/bob/none", headers={"Accept": "application/json"})
    assert answered.status_code == 404
    assert answered.headers["x-error-code"] == "RepoNotFound"
    assert "error" in answered.json()
    assert httpx.get(f"{shared.url}/api/nonsense").status_code in (401, 404)


def test_names_of_all_kinds_are_escaped(shared: Shared) -> None:
    shared.create("bob/odd")
    path = "a'b&c <b>.txt".replace("<b>", "(b)")
    shared.put("bob/odd", {path: b"x", "dir/ü#%.txt": b"y"}, title="<i>hello</i>")
    with shared.hub.database.write() as connection:
        connection.execute(update(Repository).where(Repository.name == "bob/odd").values(tags=["<u>", 'a"b']))
    page = get(shared, "/bob/odd")
    assert "&lt;i&gt;hello" in page
    assert "&lt;u&gt;" in page
    assert "<u>" not in page
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/bob/odd/resolve/[^"]*)"', page)]
    assert len(links) == 3
    assert all(shared.http().get(link).status_code == 200 for link in links)
