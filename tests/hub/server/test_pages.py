"""The pages: what a browser sees of a hub, and that nothing of what people upload runs in it."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update

from kcard.hub.audits import AuditFinding
from kcard.hub.card_metadata import abridge_readme
from kcard.hub.db.models import Repository, Version
from kcard.hub.server.dependencies import ServerOptions
from kcard.hub.server.web.exams import load_exam, suggest_questions
from kcard.hub.server.web.files import view_file
from kcard.manifest import Manifest
from tests.hub.server.sample_cards import OVERLAPPING, WAITING, audit, exam, fill, publish, publish_unranked
from tests.hub.shared_hub import Shared, running, shared_hub
from tests.hub.stand import sealed

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


@pytest.fixture(scope="module")
def moons(shared: Shared) -> Shared:
    """bob/moons has a version v1, factuality 0.31 by its exam and a branch; the hub's threshold is 0.5."""
    shared.create("bob/moons")
    files = {"README.md": README.encode(), "search.json": b'{"evidence": "wikipedia:en"}'}
    about = "What <moons> are like."
    card = sealed(files, name="moons", description=about, domain="science/astronomy", kind="search")
    shared.publish("bob/moons", card)
    repository = shared.hub.repositories.get("model", "bob/moons")
    shared.hub.refs.create_branch(repository, "try/out", repository.head or "")
    with shared.hub.database.write() as connection:
        connection.execute(update(Version).values(examined=True, declared_factuality=0.31))
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
    assert re.search(
        r'<b class="tone-poor">\.31</b>.*<span>n unknown</span>.*declared by its author', page, re.S
    )
    assert "quarantined" in page
    assert "science/astronomy" in page


def test_card_page_shows_readme_versions_files_and_threshold(moons: Shared) -> None:
    page = get(moons, "/bob/moons")
    sha = moons.hub.refs.resolve(moons.hub.repositories.get("model", "bob/moons"), "main")
    for part in (
        "<h1>Moons of the planets</h1>",
        f'src="/bob/moons/resolve/{sha}/img/chart.png"',
        'href="/bob/moons/files/main"',
        'href="/bob/moons/tree/v1"',
        'href="/bob/moons/tree/try%2Fout"',
        "factuality 0.31 (self-declared, by the card&#39;s own exam) is below the hub&#39;s threshold of 0.5",
        '<span class="badge">declared by its author</span>',
        f"kcard pull bob/moons --hub {moons.url}",
    ):
        assert part in page
    assert "license: mit" not in page.split("readme")[-1].split("</article>")[0]
    assert f'href="/bob/moons/resolve/{sha}/search.json"' in get(moons, "/bob/moons/files/main")


def test_links_of_the_pages_lead_somewhere(moons: Shared) -> None:
    missing = "img/chart.png"
    for page in ("/", "/bob/moons"):
        for link in set(re.findall(r'(?:href|src)="(/[^"]*)"', get(moons, page))):
            status = moons.http().get(link.replace("&amp;", "&"), headers=BROWSER).status_code
            assert status == (404 if link.endswith(missing) else 200), link


@pytest.mark.parametrize(
    "path", ["/bob/moons/tree/v1", "/bob/moons/tree/try%2Fout", "/bob/moons/commit/v1", "/BOB/Moons"]
)
def test_card_is_shown_at_a_revision_and_whatever_the_case_of_its_name(moons: Shared, path: str) -> None:
    assert "Moons of the planets" in get(moons, path)


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
    nothing = get(moons, "/?q=%3Cscript%3Enothing")
    assert "Nothing matches" in nothing
    assert "kcard publish capitals --hub" in nothing
    monkeypatch.setattr("kcard.hub.server.web.home.ROWS", 1)
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


def test_names_of_all_kinds_are_escaped(shared: Shared) -> None:
    shared.create("bob/odd")
    path = "a'b&c (b).txt"
    shared.put("bob/odd", {path: b"x", "dir/ü#%.txt": b"y"}, title="<i>hello</i>")
    with shared.hub.database.write() as connection:
        connection.execute(update(Repository).where(Repository.name == "bob/odd").values(tags=["<u>", 'a"b']))
    page = get(shared, "/bob/odd")
    assert "&lt;i&gt;hello" in page
    assert "&lt;u&gt;" in page
    assert "<u>" not in page
    listed = get(shared, "/bob/odd/files/main")
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/bob/odd/resolve/[^"]*)"', listed)]
    assert len(links) == 3
    assert all(shared.http().get(link).status_code == 200 for link in links)


EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("hub")
    with shared_hub(folder, exam_required=False) as shared:
        fill(shared)
        publish_unranked(shared)
        yield shared


@pytest.fixture(scope="module")
def hidden(samples: Shared) -> Shared:
    """bob/secret is private, bob/asked is gated."""
    samples.create("bob/secret", private=True)
    publish(samples, "bob/secret", "Hush hush.", "secrets/own", licence="other-secret")
    samples.create("bob/asked", gated="manual")
    publish(samples, "bob/asked", "On request.", "gated")
    return samples


def test_an_empty_hub_says_how_to_publish_a_card(tmp_path: Path) -> None:
    with shared_hub(tmp_path) as empty:
        page = get(empty, "/")
        assert "There are no public cards yet" in page
        assert f"kcard publish capitals --hub {empty.url}" in page
        assert "No card is measured yet" in get(empty, "/leaderboard")


def test_counts_of_facets_are_links_that_keep_the_rest_of_the_query(samples: Shared) -> None:
    page = get(samples, "/?q=what&language=en")
    assert 'href="/?q=what&amp;kind=model&amp;language=en"' in page
    assert 'aria-current="true"><span>en</span><span>2</span>' in page


@pytest.mark.parametrize("path", ["/?q=hush", "/?domain=secrets", "/", "/leaderboard"])
def test_a_private_card_is_in_no_list_or_count(hidden: Shared, path: str) -> None:
    page = hidden.http().get(path, headers=BROWSER).text
    assert "bob/secret" not in page
    assert "other-secret" not in page


def test_a_private_card_is_not_shown_by_its_files(hidden: Shared) -> None:
    path = "/bob/secret/blob/main/notes.txt"
    assert "Hush" not in get(hidden, path, status=401)
    assert get(hidden, path, "bob")


@pytest.mark.parametrize("path", ["blob/main/notes.txt", "blob/main/exam.json"])
def test_a_gated_card_shows_no_content_of_its_files(hidden: Shared, path: str) -> None:
    assert "Mars" not in get(hidden, f"/bob/asked/{path}", status=401)
    assert "Mars" in get(hidden, f"/bob/asked/{path}", "bob")


def test_a_gated_card_shows_neither_its_exam_nor_its_provenance(hidden: Shared) -> None:
    page = get(hidden, "/bob/asked")
    assert "Who discovered the moon Phoebe?" not in page
    assert "kcard train" not in page


def test_figures_say_who_measured_them_with_their_sample_in_the_colour_of_the_value(samples: Shared) -> None:
    moons = get(samples, "/lab/moons")
    assert '<p class="figure tone-good">.81</p>' in moons
    assert re.search(r'n 120, \.73–\.87<br><span class="badge">measured by this hub</span>', moons)
    assert "by minilm against wikipedia:en, 200 questions" in moons
    assert "Its author declares .84 (n 200, .78–.89)." in moons
    first = get(samples, "/lab/moons/tree/v1")
    assert '<p class="figure tone-fair">.62</p>' in first  # of the version that is shown
    assert "Of v1, by the exam" in first
    oncology = get(samples, "/cleo/oncology")
    assert re.search(r'n 200, \.82–\.93<br><span class="badge">declared by its author</span>', oncology)
    prizes = get(samples, "/bob/nobel-prizes")
    assert '<p class="figure tone-poor">.36</p>' in prizes
    assert "<b>Quarantined:</b> factuality" in prizes


def test_a_card_that_is_not_measured_says_by_which_command_it_is(samples: Shared) -> None:
    page = get(samples, "/cleo/rheinland")
    assert "Not measured" in page
    assert "<code>kcard audit cleo/rheinland --evidence FILE</code>" in page


def test_what_the_evidence_does_not_cover_stands_apart_from_what_it_refutes(samples: Shared) -> None:
    page = get(samples, "/bob/nobel-prizes")
    parts = re.search(r"Of (\d+) documents, (\d+) supported, (\d+) refuted, (\d+) not covered", page)
    assert parts is not None
    total, supported, refuted, unknown = map(int, parts.groups())
    assert (total, supported + refuted, unknown) == (150, 120, 30)
    assert refuted > supported > 0
    assert "30 not covered: the evidence does not speak of it, so it does not count" in page


def test_a_new_version_keeps_the_figure_and_the_place_of_the_last_measured_one(samples: Shared) -> None:
    waiting = ">.19</b>", "v1; v2 waiting"
    for path in ("/leaderboard", "/?q=rivers"):
        page = get(samples, path)
        assert all(part in page for part in waiting), path
    ranked = re.findall(r'<th scope="row"><a href="/([^"]+)"', get(samples, "/leaderboard"))
    assert ranked == [
        "bob/midterms-2022",
        "lab/moons",
        "lab/planets",
        "bob/nobel-prizes",
        WAITING,
        OVERLAPPING,
    ]
    card = get(samples, f"/{WAITING}")
    assert "v1: .19; v2 waiting." in card
    assert "v2 declares .90 (n 200, .84–.95)." in card
    assert '<p class="figure tone-good">.90</p>' in get(samples, f"/{WAITING}/tree/v2")
    # In the list too, where a declared figure would come after all measured ones.
    names = re.findall(r'class="name" href="/([^"]+)"', get(samples, "/?sort=factuality"))
    assert names.index("bob/nobel-prizes") < names.index(WAITING) < names.index("cleo/oncology")


def test_overlap_with_the_cards_own_corpus_is_shown_without_a_colour_or_a_rank(samples: Shared) -> None:
    board = get(samples, "/leaderboard")
    unranked = board.partition("Measured, but not ranked")[2]
    assert OVERLAPPING in unranked
    assert OVERLAPPING not in board.partition("Measured, but not ranked")[0]
    assert '<td class="rank">–</td>' in unranked
    assert "42\N{NARROW NO-BREAK SPACE}%" in unranked
    page = get(samples, f"/{OVERLAPPING}")
    assert '<p class="figure tone-none">.97</p>' in page
    assert "<b>Not ranked:</b>" in page
    assert OVERLAPPING not in get(samples, "/leaderboard?domain=science")


def test_the_history_has_an_error_bar_for_every_sample(samples: Shared) -> None:
    page = get(samples, "/lab/moons")
    # Factuality and recall of three exams, and one audit.
    assert page.count('<path class="error ') == 3 + 3 + 1
    assert "factuality, measured, v3: .81 (n 120, .73–.87)" in page
    assert "recall, v1: .55 (n 200, .49–.60)" in page


def test_the_files_have_a_page_of_their_own_in_pages(
    samples: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = get(samples, "/lab/moons/files/v1")
    assert "6 files, " in page
    assert 'href="/lab/moons/blob/v1/notes.txt"' in page
    monkeypatch.setattr("kcard.hub.server.web.files.MAX_FILES", 4)
    first, second = (get(samples, f"/lab/moons/files/main?page={number}") for number in (1, 2))
    assert (first.count(">Download</a>"), second.count(">Download</a>")) == (4, 2)
    assert 'rel="next" href="/lab/moons/files/main?page=2"' in first
    get(samples, "/lab/moons/files/main?page=x", status=400)


def test_the_readme_does_not_repeat_what_the_page_shows(samples: Shared) -> None:
    text = (
        "# moons\n\nMoons of planets.\n\nIt writes.\n\n## What it is\n\n| | |\n|---|---|\n| domain | sky |\n\n"
        "## How it is prompted\n\nSo.\n\n## How it was trained\n\n| | |\n|---|---|\n| seed | 7 |\n\n"
        "<!-- exam -->\n## Exam\n\n| a |\n|---|\n<!-- end of exam -->\n\n## What it is\n\nMy own words.\n"
    )
    short = abridge_readme(text, Manifest(name="moons", description="Moons of planets."))
    assert re.findall(r"^#+ .*", short, re.M) == ["## How it is prompted", "## What it is"]
    assert short.startswith("It writes.")
    assert "| seed" not in short
    assert short.endswith("My own words.\n")
    article = (
        get(samples, "/lab/moons").partition('<article class="panel readme"')[2].partition("</article>")[0]
    )
    assert "<h1>" not in article
    assert "Moons of the solar system" not in article
    assert "<td>Mars</td>" in article


def test_a_long_description_folds(samples: Shared) -> None:
    publish(samples, "dan/long", "Long and winding. " * 30 + "The end.", "long")
    page = get(samples, "/dan/long")
    summary = page.partition("<summary><span>")[2].partition("</summary>")[0]
    assert "Long and winding." in summary
    assert "The end." not in summary
    assert "The end.</p></details>" in page
    assert "more</b>" not in get(samples, "/lab/moons")


PASSAGES = [
    {"file": "a.md", "section": "Moons > Discovery of Miranda", "text": "Kuiper found it."},
    {"file": "a.md", "section": "Moons > Overview", "text": "It is small."},
    {"file": "b.md", "section": "How to name a moon", "text": "Ask the union."},
    {"file": "c.txt", "text": "Triton is a moon of Neptune."},
    {"file": "c.txt", "text": "It was found in 1846."},
    {"file": "d.md", "section": "<b>bold</b>", "text": 3},
    {"file": "e.md", "section": "Serving cards", "text": ""},
]


def test_a_retrieval_card_has_example_questions_from_its_headings(samples: Shared) -> None:
    lines = [json.dumps(passage) for passage in PASSAGES]
    samples.create("dan/index")
    files = {"passages.jsonl": "\n".join([*lines, '{"file": "f.md", "sec']).encode(), "README.md": b"# Index"}
    samples.put("dan/index", files)
    sha256 = hashlib.sha256(files["passages.jsonl"]).hexdigest()
    assert suggest_questions(samples.hub.blobs, sha256) == (
        "What is known about Discovery of Miranda?",
        "How do I name a moon?",
        "What is known about Triton?",
        "What is known about serving cards?",
    )
    assert suggest_questions(samples.hub.blobs, sha256, "de")[0] == "Discovery of Miranda?"


def test_versions_questions_and_provenance_are_on_the_card(samples: Shared) -> None:
    page = get(samples, "/lab/moons")
    assert page.count("<circle") == 4 + 2  # three declared, one measured; the legend
    assert "✓ right" in page
    assert "✗ wrong" in page
    assert "lab/moons v2</a>" in page  # what it updates
    assert "learning_rate" in page
    assert 'href="/?tag=dataset%3Acorpus-c0c0c0c0c0c0"' in page
    same = get(samples, "/?tag=dataset%3Acorpus-c0c0c0c0c0c0")
    assert "lab/planets" in same


def test_a_card_lists_those_that_were_made_from_it(samples: Shared) -> None:
    sha256 = samples.hub.registry.get("lab/planets").sha256
    publish(samples, "dan/planets-next", "Planets, continued.", "science", updates=sha256)
    assert 'href="/dan/planets-next"' in get(samples, "/lab/planets")
    assert "lab/planets v1</a>" in get(samples, "/dan/planets-next")


def test_what_comes_from_a_card_runs_neither_on_its_page_nor_when_it_is_copied(samples: Shared) -> None:
    publish(samples, "dan/evil", "Evil <script>alert(1)</script>.", "evil")
    record = json.loads(exam("evil", 0.5, 0.5, seed="evil"))
    record["best"][0] |= {
        "question": "'; rm -rf ~ #\n" + EVIL,
        "text": EVIL,
        "answer": EVIL,
        "recalled": True,
    }
    record["checker"] = EVIL
    samples.put("dan/evil", {"exam.json": json.dumps(record).encode(), f"{EVIL[:4]}.txt".strip("<"): b"x"})
    for path in ("/dan/evil", "/dan/evil/blob/main/exam.json", "/?q=evil"):
        page = get(samples, path)
        assert EVIL not in page
        assert "<script>alert" not in page
    page = get(samples, "/dan/evil")
    # The shell gets one argument.
    assert "kcard ask &#39;&#39;&#34;&#39;&#34;&#39;; rm -rf ~ # &lt;img" in page


def test_what_is_odd_in_an_exam_is_left_out(samples: Shared) -> None:
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
    repository = samples.create("dan/odd")
    sha = samples.put("dan/odd", {f"{place}.txt": text for place, text in enumerate(odd)}).sha
    for path, entry in samples.hub.commits.tree(repository, sha).items():
        view = load_exam(samples.hub.blobs, entry.sha256)
        assert view is None or (view.recall, view.figure, view.shown) == (None, None, ()), path


def test_a_file_is_shown_as_text_json_or_tensors(samples: Shared) -> None:
    assert "Mars has two moons." in get(samples, "/lab/moons/blob/main/notes.txt")
    assert "&#34;format&#34;: 2,\n" in get(samples, "/lab/moons/blob/main/exam.json")  # indented
    tensors = get(samples, "/lab/moons/blob/main/adapter_model.safetensors")
    assert "self_attn.q_proj.lora_A.weight" in tensors
    assert "8 × 4" in tensors
    assert "F16" in tensors
    assert "v1" in get(samples, "/lab/moons/blob/v1/notes.txt")
    assert "Not found" in get(samples, "/lab/moons/blob/main/none.txt", status=404)


def test_a_long_or_binary_file_is_cut_or_offered_for_download(samples: Shared) -> None:
    samples.create("dan/files")
    files = {"long.txt": "ü".encode() * 500_000, "bytes.txt": b"\xff\xfe" * 10, "empty.txt": b""}
    samples.put("dan/files", files)
    page = get(samples, "/dan/files/blob/main/long.txt")
    assert len(page.encode()) < 150_000
    assert "The file continues" in page
    assert "This file can&#39;t be shown" in get(samples, "/dan/files/blob/main/bytes.txt").replace(
        "'", "&#39;"
    )
    assert "The file is empty" in get(samples, "/dan/files/blob/main/empty.txt")
    repository = samples.hub.repositories.get("model", "dan/files")
    entry = samples.hub.commits.tree(repository, samples.hub.refs.resolve(repository, "main"))["long.txt"]
    assert view_file(samples.hub.blobs, entry).cut


def test_the_leaderboard_ranks_the_same_files_once_and_greys_a_small_sample(tmp_path: Path) -> None:
    with shared_hub(tmp_path) as hub:
        for name, notes, factuality, judged in (
            ("bob/seas", "Salt.", 0.9, 40),
            ("dan/waters", "Salt.", 0.8, 40),
            ("bob/hills", "Low.", 0.85, 29),
        ):
            publish(hub, name, "About it", "earth", notes=notes)
            audit(hub, name, factuality, judged=judged)
        page = get(hub, "/leaderboard")
    rows = re.findall(
        r'<tr( class="few")?><td class="rank">(\d)</td><th scope="row"><a href="/([^"]+)"', page
    )
    assert rows == [("", "1", "bob/seas"), (' class="few"', "2", "bob/hills")]
    assert 'the same files: <a href="/dan/waters">' in page


def test_a_figure_without_scores_has_the_sample_of_its_audit(samples: Shared) -> None:
    finding = AuditFinding("minilm", None, "atlas", "ab" * 32, "own", "cd" * 32, 0, 0.9, 0.99, "{}")
    finding = replace(finding, coverage=0.8, judged=40, overlap=0.0)
    samples.hub.registry.audits.add(samples.hub.registry.get("cleo/oncology"), finding)
    page = get(samples, "/leaderboard")
    assert page.index("cleo/oncology") < page.index("lab/moons")
    assert re.search(r'>\.99</b> <span class="soft small">n 40<', page)


@pytest.mark.parametrize("path", ["/bob/none", "/nonsense", "/lab/moons/tree/none", "/a/b/c/d/e", "/?page=x"])
def test_an_error_is_a_page_for_browsers_and_json_for_programs(samples: Shared, path: str) -> None:
    status = samples.http().get(path).status_code
    assert "error" in samples.http().get(path, headers={"Accept": "*/*"}).json()
    page = get(samples, path, status=status)
    assert "Search all cards" in page
    assert (
        samples.http().get("/api/models/bob/none", headers=BROWSER).headers["content-type"]
        == "application/json"
    )


def test_a_text_of_any_length_makes_no_large_page(samples: Shared) -> None:
    publish(samples, "dan/wordy", "Wordy \uffff" + "x " * 990, "wordy", licence="w" * 200)
    for path in ("/dan/wordy", "/?q=wordy"):
        assert len(get(samples, path).encode()) < 150_000


def test_an_unexpected_error_is_a_page_that_names_the_request(
    samples: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcard.hub.server.web.home.read_template", lambda _name: 1 / 0)
    answered = samples.http().get("/favicon.svg", headers=BROWSER)
    assert answered.status_code == 500
    assert f"log for request {answered.headers['x-request-id']}" in answered.text.replace("&#39;", "'")
    assert "Search all cards" in answered.text
    assert "error" in samples.http().get("/favicon.svg").json()


# A hub that knows where the page to ask is links to it; another does not mention it.


CHAT = "https://ask.example.org/"


@pytest.mark.parametrize("chat", [CHAT, None])
def test_the_menu_and_a_cards_example_questions_lead_to_the_page_to_ask(
    samples: Shared, chat: str | None
) -> None:
    with running(samples.hub, ServerOptions(chat=chat)) as url:
        home, card = (httpx.get(url + path, headers=BROWSER).text for path in ("/", "/lab/moons"))
    assert (f'href="{CHAT}"' in home) == bool(chat)
    assert (f'href="{CHAT}?card=lab%2Fmoons&amp;q=Who+discovered+the+moon+Phoebe%3F"' in card) == bool(chat)
    assert "Ask it" in card
