"""Search, card pages, files, comparisons and errors as a browser gets them, without a browser."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kcard.hub.audits import AuditFinding
from kcard.hub.server.dependencies import ServerOptions
from kcard.hub.server.web.cards import load_exam
from kcard.hub.server.web.files import view_file
from tests.hub.server.sample_cards import exam, fill, publish
from tests.hub.server.test_pages import BROWSER, get
from tests.hub.shared_hub import Shared, shared_hub

ATOM = "{http://www.w3.org/2005/Atom}"
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("hub")
    with shared_hub(folder, exam_required=False) as shared:
        fill(shared, folder / "cards")
        yield shared


@pytest.fixture(scope="module")
def hidden(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """bob/secret is private, bob/asked is gated."""
    folder = tmp_path_factory.mktemp("hidden")
    shared.create("bob/secret", private=True)
    publish(shared, folder / "secret", "bob/secret", "Hush hush.", "secrets/own", licence="other-secret")
    shared.create("bob/asked", gated="manual")
    publish(shared, folder / "asked", "bob/asked", "On request.", "gated")
    return shared


def test_an_empty_hub_says_how_to_publish_a_card(tmp_path: Path) -> None:
    with shared_hub(tmp_path) as empty:
        page = get(empty, "/")
        assert "There are no public cards yet" in page
        assert f"kcard publish capitals --hub {empty.url}" in page
        assert "No card is verified yet" in get(empty, "/leaderboard")
        assert get(empty, "/compare")


def test_counts_of_facets_are_links_that_keep_the_rest_of_the_query(shared: Shared) -> None:
    page = get(shared, "/?q=what&language=en")
    assert 'href="/?q=what&amp;kind=full&amp;language=en"' in page
    assert 'aria-current="true"><span>en</span><span>2</span>' in page


@pytest.mark.parametrize("path", ["/?q=hush", "/?domain=secrets", "/", "/leaderboard", "/feed.atom"])
def test_a_private_card_is_in_no_list_count_or_feed(hidden: Shared, path: str) -> None:
    page = hidden.http().get(path, headers=BROWSER).text
    assert "bob/secret" not in page
    assert "other-secret" not in page


def test_a_private_card_is_not_compared_or_shown_by_its_files(hidden: Shared) -> None:
    for path in (
        "/compare?a=bob/secret&b=lab/moons",
        "/bob/secret/blob/main/notes.txt",
        "/bob/secret/commits/main",
    ):
        assert "Hush" not in get(hidden, path, status=401)
        assert get(hidden, path, "bob")


@pytest.mark.parametrize("path", ["blob/main/notes.txt", "blob/main/exam.json", "commit/v1"])
def test_a_gated_card_shows_no_content_of_its_files(hidden: Shared, path: str) -> None:
    assert "Mars" not in get(hidden, f"/bob/asked/{path}", status=401)
    assert "Mars" in get(hidden, f"/bob/asked/{path}", "bob")


def test_a_gated_card_shows_neither_its_exam_nor_its_provenance(hidden: Shared) -> None:
    for path in ("/bob/asked", "/compare?a=bob/asked&b=bob/asked"):
        page = get(hidden, path)
        assert "Who discovered the moon Phoebe?" not in page
        assert "kcard train" not in page


def test_figures_say_whether_this_hub_verified_them(shared: Shared) -> None:
    moons = get(shared, "/lab/moons")
    assert "<b>Verified:</b> measured by an audit of this hub on 20" in moons
    assert "by minilm against wikipedia:en" in moons
    assert '<p class="figure">0.81</p>' in moons
    first = get(shared, "/lab/moons/tree/v1")
    assert '<p class="figure">0.62</p>' in first  # of the version that is shown
    assert "Of v1;" in first
    oncology = get(shared, "/cleo/oncology")
    assert "<b>Self-declared:</b> by the exam of the card" in oncology
    assert "Not measured" in get(shared, "/cleo/rheinland")
    assert "<b>Quarantined:</b> factuality" in get(shared, "/bob/nobel-prizes")


def test_versions_questions_and_provenance_are_on_the_card(shared: Shared) -> None:
    page = get(shared, "/lab/moons")
    assert page.count("<circle") == 4 + 2  # three declared, one verified; the legend
    assert "✓ right" in page
    assert "✗ wrong" in page
    assert "lab/moons v2</a>" in page  # what it updates
    assert "learning_rate" in page
    assert 'href="/?tag=dataset%3Acorpus-c0c0c0c0c0c0"' in page
    same = get(shared, "/?tag=dataset%3Acorpus-c0c0c0c0c0c0")
    assert "lab/planets" in same


def test_a_card_lists_those_that_were_made_from_it(shared: Shared, tmp_path: Path) -> None:
    sha256 = shared.hub.registry.get("lab/planets").sha256
    shared.create("dan/planets-next")
    publish(shared, tmp_path / "next", "dan/planets-next", "Planets, continued.", "science", updates=sha256)
    assert 'href="/dan/planets-next"' in get(shared, "/lab/planets")
    assert "lab/planets v1</a>" in get(shared, "/dan/planets-next")


def test_what_comes_from_a_card_runs_neither_on_its_page_nor_when_it_is_copied(
    shared: Shared, tmp_path: Path
) -> None:
    shared.create("dan/evil")
    publish(shared, tmp_path / "evil", "dan/evil", "Evil <script>alert(1)</script>.", "evil")
    record = json.loads(exam("evil", 0.5, 0.5, seed="evil"))
    record["best"][0] |= {
        "question": "'; rm -rf ~ #\n" + EVIL,
        "text": EVIL,
        "answer": EVIL,
        "recalled": True,
    }
    record["checker"] = EVIL
    shared.put("dan/evil", {"exam.json": json.dumps(record).encode(), f"{EVIL[:4]}.txt".strip("<"): b"x"})
    for path in (
        "/dan/evil",
        "/dan/evil/blob/main/exam.json",
        "/dan/evil/commit/main",
        "/?q=evil",
        "/compare?a=dan/evil&b=dan/evil",
    ):
        page = get(shared, path)
        assert EVIL not in page
        assert "<script>alert" not in page
    page = get(shared, "/dan/evil")
    # The shell gets one argument.
    assert "kcard ask &#39;&#39;&#34;&#39;&#34;&#39;; rm -rf ~ # &lt;img" in page


def test_what_is_odd_in_an_exam_is_left_out(shared: Shared) -> None:
    odd = [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"own": []}',
        b'{"own": {"recall": {"mean": "x"}, "factuality": {"scores": [2, "a"]}}, "best": {}}',
        b'{"own": {"questions": 1e400, "recall": {"mean": 9}}, "best": [1, {"question": 3}], "worst": {}}',
        b"[" * 100_000,
    ]
    repository = shared.create("dan/odd")
    sha = shared.put("dan/odd", {f"{place}.txt": text for place, text in enumerate(odd)}).sha
    for path, entry in shared.hub.commits.tree(repository, sha).items():
        view = load_exam(shared.hub.blobs, entry.sha256)
        assert view is None or (view.recall, view.scores, view.shown) == (None, (), ()), path


def test_a_file_is_shown_as_text_json_or_tensors(shared: Shared) -> None:
    assert "Mars has two moons." in get(shared, "/lab/moons/blob/main/notes.txt")
    assert "&#34;format&#34;: 2,\n" in get(shared, "/lab/moons/blob/main/exam.json")  # indented
    tensors = get(shared, "/lab/moons/blob/main/adapter_model.safetensors")
    assert "self_attn.q_proj.lora_A.weight" in tensors
    assert "8 × 4" in tensors
    assert "F16" in tensors
    assert "v1" in get(shared, "/lab/moons/blob/v1/notes.txt")
    assert "Not found" in get(shared, "/lab/moons/blob/main/none.txt", status=404)


def test_a_long_or_binary_file_is_cut_or_offered_for_download(shared: Shared) -> None:
    shared.create("dan/files")
    files = {"long.txt": "ü".encode() * 500_000, "bytes.txt": b"\xff\xfe" * 10, "empty.txt": b""}
    shared.put("dan/files", files)
    page = get(shared, "/dan/files/blob/main/long.txt")
    assert len(page.encode()) < 150_000
    assert "The file continues" in page
    assert "This file can&#39;t be shown" in get(shared, "/dan/files/blob/main/bytes.txt").replace(
        "'", "&#39;"
    )
    assert "The file is empty" in get(shared, "/dan/files/blob/main/empty.txt")
    repository = shared.hub.repositories.get("model", "dan/files")
    entry = shared.hub.commits.tree(repository, shared.hub.refs.resolve(repository, "main"))["long.txt"]
    assert view_file(shared.hub.blobs, entry).cut


def test_a_commit_shows_what_it_changed(shared: Shared) -> None:
    page = get(shared, "/lab/moons/commit/v2")
    assert '<span class="dropped">-v1</span>' in page
    assert '<span class="added">+v2</span>' in page
    assert "adapter_model.safetensors</a>" not in page  # unchanged
    first = get(shared, "/lab/moons/commits/main")
    assert first.count("/lab/moons/commit/") == 4


def test_a_large_commit_is_a_small_page(shared: Shared) -> None:
    shared.create("dan/many")
    shared.put("dan/many", {f"{place}.txt": b"line of text\n" * 900 for place in range(40)})
    page = get(shared, "/dan/many/commit/main")
    assert len(page.encode()) < 150_000
    assert "39.txt" in page


def test_two_cards_are_compared_on_the_same_questions(shared: Shared) -> None:
    page = get(shared, "/compare?a=lab/moons&b=lab/planets@v1")
    assert "Both exams asked the same 200 questions" in page
    assert page.count("✓ right") == 6
    assert "not a published version" in get(shared, "/compare?a=lab/moons@v9&b=lab/moons", status=404)
    assert "use NAMESPACE/NAME" in get(shared, "/compare?a=moons&b=lab/moons", status=400)


def test_the_leaderboard_counts_what_was_verified_only(shared: Shared) -> None:
    page = get(shared, "/leaderboard?domain=science")
    assert page.index("lab/moons") < page.index("lab/planets") < page.index("bob/nobel-prizes")
    assert "bob/midterms" not in page
    assert "cleo/oncology" not in get(shared, "/leaderboard")  # declared 0.88


def test_a_figure_by_evidence_with_the_cards_own_corpus_is_told_and_not_ranked(shared: Shared) -> None:
    version, audits = shared.hub.registry.get("cleo/oncology"), shared.hub.registry.audits
    finding = AuditFinding("minilm", None, "atlas", "ab" * 32, "own", "cd" * 32, 0, 0.9, 0.99, "{}")
    audits.add(version, replace(finding, coverage=0.8, judged=40, overlap=0.3))
    assert "cleo/oncology" not in get(shared, "/leaderboard")
    assert "not independent:" in get(shared, "/cleo/oncology")
    audits.add(version, replace(finding, coverage=0.8, judged=40, overlap=0.0))
    page = get(shared, "/leaderboard")
    assert page.index("cleo/oncology") < page.index("lab/moons")
    assert '0.80 <span class="soft">(n = 40)</span>' in page


def test_the_feed_has_the_newest_versions_with_links_that_lead_there(shared: Shared) -> None:
    answered = shared.http().get("/feed.atom")
    assert answered.headers["content-type"].startswith("application/atom+xml")
    feed = ET.fromstring(answered.text)
    titles = [entry.findtext(f"{ATOM}title") for entry in feed.findall(f"{ATOM}entry")]
    assert {"lab/moons v1", "lab/moons v3"} <= set(titles)
    for link in feed.findall(f"{ATOM}entry/{ATOM}link"):
        assert shared.http().get(link.get("href", "").removeprefix(shared.url)).status_code == 200


@pytest.mark.parametrize("path", ["/bob/none", "/nonsense", "/lab/moons/tree/none", "/a/b/c/d/e", "/?page=x"])
def test_an_error_is_a_page_for_browsers_and_json_for_programs(shared: Shared, path: str) -> None:
    status = shared.http().get(path).status_code
    assert "error" in shared.http().get(path, headers={"Accept": "*/*"}).json()
    page = get(shared, path, status=status)
    assert "Search all cards" in page
    assert (
        shared.http().get("/api/models/bob/none", headers=BROWSER).headers["content-type"]
        == "application/json"
    )


def test_a_text_of_any_length_makes_no_large_page(shared: Shared, tmp_path: Path) -> None:
    shared.create("dan/wordy")
    publish(shared, tmp_path / "wordy", "dan/wordy", "Wordy \uffff" + "x " * 990, "wordy", licence="w" * 200)
    for path in ("/dan/wordy", "/?q=wordy", "/compare?a=dan/wordy&b=dan/wordy"):
        assert len(get(shared, path).encode()) < 150_000
    assert ET.fromstring(shared.http().get("/feed.atom").text).find(f"{ATOM}entry") is not None


def test_an_unexpected_error_is_a_page_that_names_the_request(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcard.hub.server.web.pages.render_template", lambda *_args, **_values: 1 / 0)
    answered = shared.http().get("/feed.atom", headers=BROWSER)
    assert answered.status_code == 500
    assert f"log for request {answered.headers['x-request-id']}" in answered.text.replace("&#39;", "'")
    assert "Search all cards" in answered.text
    assert "error" in shared.http().get("/feed.atom").json()


def test_too_many_requests_are_a_page_for_browsers(tmp_path: Path) -> None:
    with shared_hub(tmp_path, ServerOptions(rate=1, url="http://hub.test")) as limited:
        assert limited.http().get("/", headers=BROWSER).status_code == 200
        assert "Too many requests" in get(limited, "/", status=429)
        answered = limited.http().get("/")
        assert answered.json()["error"]
        assert int(answered.headers["retry-after"]) > 0
