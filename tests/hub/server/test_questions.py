"""Questions on the pages: one card or all, whose cards they are, and what the visitor is told."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kcard.hub.audits import AuditFinding
from kcard.hub.server import questions as asking
from kcard.hub.server.web import ask
from kcard.manifest import Manifest, seal
from tests.hub.server.asking_hub import MOONS, RIVERS, asking_hub, publish_passages
from tests.hub.server.browser_session import Browser, hub_for_browsers, text
from tests.hub.shared_hub import Shared

PHOBOS = "Who discovered Phobos?"
SECRET = ("Otto Krause discovered the moon Zyx in 2031.",)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ask, "OF_CLIENT", 10_000)
        with asking_hub(folder, exam_required=False) as shared:
            publish_passages(
                shared, folder / "moons", "lab/moons", MOONS, "Moons of the planets: who discovered them"
            )
            publish_passages(
                shared, folder / "rivers", "bob/rivers", RIVERS, "Where the rivers of Europe rise"
            )
            publish_passages(
                shared, folder / "zyx", "bob/zyx", SECRET, "Who discovered the moon Zyx", private=True
            )
            yield shared


@pytest.fixture
def visitor(shared: Shared) -> Browser:
    return Browser(shared)


def question(browser: Browser, text: str, card: str = "", **others: str) -> httpx.Response:
    return browser.send("/ask", {"card": card, "question": text, **others})


def test_a_question_of_a_card_is_answered_with_links_to_its_passages(visitor: Browser) -> None:
    answer = question(visitor, PHOBOS, "lab/moons")
    assert answer.status_code == 200
    shown = text(answer)
    assert "Answer Asaph Hall" in shown
    assert "Gate always: cards were asked" in shown
    assert re.search(r"Confidence 0\.\d\d", shown)
    cited = re.search(r'<p class="said">Asaph Hall&nbsp;<a class="cited" href="#(passage-\d)"', answer.text)
    assert cited is not None
    passage = answer.text.partition(f'id="{cited[1]}"')[2].partition("</li>")[0]
    assert MOONS[1] in passage
    assert "✓ kept" in passage
    assert "Faithfulness 1.00 · factuality" in passage
    assert "rivers.md:2" in passage
    assert 'href="/lab/moons"' in passage


def test_what_no_passage_answers_is_not_known_and_the_nearest_passage_shown(visitor: Browser) -> None:
    shown = text(question(visitor, "Who discovered the moon Zyx?", "lab/moons"))
    assert "I don't know." in shown
    assert "Nearest passage" in shown
    assert 'href="#passage-' in question(visitor, "Who discovered the moon Zyx?", "lab/moons").text


def test_of_all_cards_the_right_one_is_asked(visitor: Browser) -> None:
    answer = question(visitor, "Where does the river Oder rise?")
    shown = text(answer)
    assert "Sudetes" in shown.partition("Passages")[0]
    assert "Cards to choose from 2" in shown
    assert "bob/rivers" in shown


def test_what_the_llm_knows_is_answered_without_cards(visitor: Browser) -> None:
    shown = text(question(visitor, "What is the capital of France?"))
    assert "Paris" in shown
    assert "the LLM knows the answer, no card was asked" in shown
    assert "No passage supports it" in shown
    assert "No passage supports it" in text(question(visitor, "Who wrote Faust?", "lab/moons"))
    assert "No passage supports it" not in text(question(visitor, PHOBOS, "lab/moons"))


def test_private_cards_are_asked_only_for_those_who_may_read_them(shared: Shared, visitor: Browser) -> None:
    zyx = "Who discovered the moon Zyx?"
    assert "Otto Krause" not in text(question(visitor, zyx))
    private, missing = question(visitor, zyx, "bob/zyx"), question(visitor, zyx, "bob/none")
    assert private.status_code == missing.status_code == 401
    assert text(private).replace("bob/zyx", "bob/none") == text(missing)
    for path in ("/ask?card=bob/zyx", "/ask?card=bob/none"):
        assert visitor.http.get(path).status_code == 401
    bob = Browser(shared).log_in("bob")
    bob.open("/ask?card=bob/zyx")
    assert "Otto Krause" in text(question(bob, zyx, "bob/zyx"))
    assert "Otto Krause" in text(question(bob, zyx))
    dan = Browser(shared).log_in("dan")
    dan.open("/ask")
    assert question(dan, zyx, "bob/zyx").status_code == 404
    assert "Otto Krause" not in text(question(dan, zyx))


def test_gated_cards_are_asked_after_access_was_granted(
    shared: Shared, tmp_path: Path, visitor: Browser
) -> None:
    publish_passages(shared, tmp_path / "gated", "bob/gated", SECRET, "Who discovered the moon Zyx, gated")
    repository = shared.hub.repositories.get("model", "bob/gated")
    shared.hub.repositories.update(repository, gated="manual")
    zyx = "Who discovered the moon Zyx?"
    assert question(visitor, zyx, "bob/gated").status_code == 401
    assert "Otto Krause" not in text(question(visitor, zyx))


def test_a_quarantined_card_is_left_out_and_a_warning_goes_with_it_where_it_is_named(
    shared: Shared, tmp_path: Path, visitor: Browser
) -> None:
    lies = ("Galileo Galilei discovered Nereid, a moon of Neptune.",)
    publish_passages(shared, tmp_path / "lies", "lab/lies", lies, "Who discovered Nereid")
    hub = shared.hub.registry
    hub.quarantine.set(0.5)
    try:
        finding = AuditFinding("minilm", None, "atlas", "ab" * 32, "own", "cd" * 32, 0, 0.8, 0.2, "{}")
        hub.audits.add(hub.get("lab/lies"), finding)
        everyone = text(question(visitor, "Who discovered Nereid?"))
        assert "Galileo" not in everyone
        assert "1 quarantined left out" in everyone
        named = text(question(visitor, "Who discovered Nereid?", "lab/lies"))
        assert "Galileo Galilei" in named
        assert "Quarantined: factuality 0.20 (verified" in named
        assert "It is asked because you named it" in named
    finally:
        hub.quarantine.set(None)


@pytest.mark.parametrize(
    ("typed", "card", "status", "why"),
    [
        ("", "lab/moons", 400, "Type a question"),
        ("   ", "", 400, "Type a question"),
        ("x" * 501, "lab/moons", 400, "501 characters: the limit is 500"),
        (PHOBOS, "lab/moons@v9", 404, "not a published version"),
        (PHOBOS, "no reference", 400, "invalid card"),
        (PHOBOS, "lab/none", 401, "not found, or private"),
        ("a\0b", "lab/moons", 400, "NUL"),
    ],
)
def test_questions_that_can_not_be_asked_are_explained(
    visitor: Browser, typed: str, card: str, status: int, why: str
) -> None:
    answer = question(visitor, typed, card)
    assert answer.status_code == status
    assert why.lower() in text(answer).lower()


def test_a_card_whose_model_is_elsewhere_is_not_asked(
    shared: Shared, tmp_path: Path, visitor: Browser
) -> None:
    (tmp_path / "search.json").write_text('{"evidence": "wikipedia:en"}')
    seal(tmp_path, Manifest(name="search", description="Searches", domain="science", kind="search"))
    repository = shared.create("bob/search")
    commit = shared.put("bob/search", {p.name: p.read_bytes() for p in tmp_path.iterdir()})
    shared.hub.publications.publish(repository, "v1", commit.sha, shared.identity("ada:admin"))
    answer = question(visitor, PHOBOS, "bob/search")
    assert answer.status_code == 400
    assert "whose model is not among its files" in text(answer)
    assert 'action="/ask"' not in visitor.open("/bob/search")


def test_a_damaged_card_is_reported_without_the_folders_of_the_machine(
    shared: Shared, tmp_path: Path, visitor: Browser
) -> None:
    publish_passages(shared, tmp_path / "damaged", "lab/damaged", ("Nobody.",), "What damaged cards know")
    version = shared.hub.registry.get("lab/damaged")
    shared.hub.blobs.delete(version.manifest.files["passages.jsonl"])
    answer = question(visitor, PHOBOS, "lab/damaged")
    assert answer.status_code == 400
    assert "passages.jsonl is missing" in text(answer)
    assert str(shared.folder) not in answer.text
    everyone = text(question(visitor, "What do damaged cards of nobody know?"))
    assert "I don't know" in everyone
    assert "lab/damaged can't be asked" in everyone
    assert question(visitor, PHOBOS, "lab/moons").status_code == 200


def test_two_cards_of_one_name_are_told_apart(shared: Shared, tmp_path: Path, visitor: Browser) -> None:
    publish_passages(
        shared, tmp_path / "r", "lab/rivers", ("The Inn rises in the Engadin.",), "Where the Inn rises"
    )
    shown = text(question(visitor, "Where does the river Inn rise?"))
    assert "Engadin" in shown
    assert "lab/rivers v1" in shown.partition("Passages")[2]


def test_the_page_of_a_card_has_the_form_with_questions_to_choose(visitor: Browser) -> None:
    page = visitor.open("/lab/moons")
    assert '<input type="hidden" name="card" value="lab/moons@v1">' in page
    assert '<a href="/ask">Ask</a>' in page
    chosen = question(visitor, "", "lab/moons@v1", suggestion=PHOBOS)
    assert "Asaph Hall" in text(chosen)
    assert f'value="{PHOBOS}"' in chosen.text


def test_a_session_needs_its_form_token_and_nobody_may_ask_from_elsewhere(shared: Shared) -> None:
    bob = Browser(shared).log_in("bob")
    bob.form_token = "0" * 64
    assert question(bob, PHOBOS, "lab/moons").status_code == 403
    visitor = Browser(shared)
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = visitor.http.post("/ask", data={"question": PHOBOS}, headers=headers)
        assert answer.status_code == 403


def test_texts_of_questions_and_passages_run_nothing(
    shared: Shared, tmp_path: Path, visitor: Browser
) -> None:
    script = "<script>alert(1)</script>"
    publish_passages(
        shared, tmp_path / "x", "lab/scripted", (f"{script} discovered Ymir.",), f"Ymir {script}"
    )
    answer = question(visitor, f"Who discovered Ymir? {script}", "lab/scripted")
    assert answer.status_code == 200
    assert script not in answer.text
    assert "&lt;script&gt;" in answer.text


def test_questions_of_a_client_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "OF_CLIENT", 1)
    from kcard.hub.server.dependencies import ServerOptions

    with hub_for_browsers(tmp_path, ServerOptions(asking=str(tmp_path / "none"))) as shared:
        visitor = Browser(shared)
        answers = [question(visitor, PHOBOS, "lab/none") for _ in range(6)]
        assert [answer.status_code for answer in answers] == [401] * 5 + [429]
        assert int(answers[-1].headers["retry-after"]) > 0
        assert "too many questions: try again in" in text(answers[-1])


def test_a_hub_answers_no_questions_unless_it_is_told_to(tmp_path: Path) -> None:
    with hub_for_browsers(tmp_path / "hub", exam_required=False) as shared:
        publish_passages(shared, tmp_path / "moons", "lab/moons", MOONS, "Moons")
        visitor = Browser(shared)
        assert visitor.http.get("/ask").status_code == 404
        assert question(visitor, PHOBOS, "lab/moons").status_code == 404
        for path in ("/", "/lab/moons"):
            assert "/ask" not in visitor.open(path)


def test_on_a_large_hub_the_cards_that_a_search_finds_are_chosen_from(
    shared: Shared, tmp_path: Path, visitor: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        publish_passages(shared, tmp_path / name, f"lab/{name}", ("Nothing.",), f"Nothing, part {name}")
        shared.hub.repositories.count_download({shared.hub.repositories.get("model", f"lab/{name}").id: 1000})
    monkeypatch.setattr(asking, "MOST_CARDS", 2)
    shown = text(question(visitor, "Where do the rivers of Europe rise, the Oder for example?"))
    assert "Sudetes" in shown
    assert re.search(r"Cards to choose from 2 of \d+", shown)
