"""Search cards: what a search finds, with its place; used only where they are named; never a way to local files."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import kcard
from kcard.cards.card import Card
from kcard.cards.generators.external import SearchTarget
from kcard.cards.pool import CardPool
from kcard.errors import CardError, CorpusError, HubError, UsageError
from kcard.hub.registry import Hub
from kcard.manifest import seal
from kcard.training.train import train
from kcard.types import Sampling
from tests.selectors.mediawiki_server import Wiki, serving

PAGES = {
    "Ron Wyden": "Ron Wyden is an American politician.\n\nRon Wyden won the 2022 senate race in Oregon.",
    "Helium": "Helium is a noble gas with the atomic number 2.",
}
QUESTION = "Who won the 2022 senate race in Oregon?"


@pytest.fixture
def wiki(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wiki]:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with serving(PAGES) as found:
        yield found


@pytest.fixture
def card(wiki: Wiki) -> Card:
    # As the command line gives it: a Path has one slash where an address has two.
    return train(Path(f"wikipedia:{wiki.api}"), kind="search", name="wiki", description="everything")


def test_it_writes_what_is_found_with_page_and_paragraph(card: Card) -> None:
    (written,) = CardPool([card]).generate([QUESTION], [["wiki"]], 3, Sampling())
    assert written[0].text == "Ron Wyden won the 2022 senate race in Oregon."
    assert written[0].source is not None
    assert (written[0].source.file.partition(",")[0], written[0].source.line) == ("Ron Wyden", 2)
    assert len(written) == 3
    assert written[2].text == ""


def test_its_manifest_and_page_say_that_questions_leave_the_machine_and_publishing_asks_nothing(
    card: Card, wiki: Wiki
) -> None:
    manifest = card.manifest
    assert (manifest.kind, manifest.has_model, manifest.asks_elsewhere) == ("search", False, True)
    assert manifest.training.method == f"wikipedia:{wiki.api}"
    page = (card.folder / "README.md").read_text(encoding="utf-8")
    assert "leaves the machine" in page
    assert f"sent to wikipedia:{wiki.api}" in page
    kcard.publish(card.folder)
    assert wiki.requests == []


def test_name_language_and_licence_are_those_of_what_is_searched() -> None:
    made = train("wikipedia:de", kind="search").manifest
    assert (made.name, made.language, made.licence) == ("wikipedia-de", "de", "CC BY-SA 4.0")
    assert train("wikipedia", kind="search").manifest.name == "wikipedia-en"


def test_it_is_used_only_where_it_is_named(card: Card, wiki: Wiki, home: Path, tmp_path: Path) -> None:
    (tmp_path / "moons.txt").write_text("Mimas circles Saturn.\n", encoding="utf-8")
    kcard.publish(train(tmp_path / "moons.txt", kind="retrieval", description="moons").folder)
    kcard.publish(card.folder)
    hub = Hub(home)
    hub.pools.create("mixed", ["wiki", "moons"])
    for selection in (None, ["general/"], ["pool:mixed"]):
        selected = hub.select(selection)
        assert [v.name for v in selected.versions] == ["moons"]
        assert "wiki@v1, which would send the question to another service; name a card" in selected.note
    answer = kcard.ask(QUESTION, gate="always")
    assert answer.cards == ("moons",) or answer.cards == ()
    assert wiki.requests == []
    named = kcard.ask(QUESTION, gate="always", cards=["wiki"])
    assert named.cards == ("wiki",)
    assert wiki.requests
    assert any(f"wiki@v1 sends the question to wikipedia:{wiki.api}" in note for note in named.notes)


def test_a_hub_of_search_cards_alone_says_how_to_use_them(card: Card, home: Path) -> None:
    kcard.publish(card.folder)
    message = r"wiki@v1 would send the question to another service: .*name the card .*--cards wiki"
    with pytest.raises(HubError, match=message):
        Hub(home).select(None)


def test_what_it_wrote_is_checked_against_what_it_searches(card: Card) -> None:
    kcard.publish(card.folder)
    answer = kcard.ask(QUESTION, gate="always", mode="bottom-up", cards=["wiki"])
    best = next(passage for passage in answer.passages if passage.kept)
    assert best.faithfulness == 1.0
    assert best.evidence is not None
    assert "oldid=" in best.evidence.file


@pytest.mark.parametrize("searched", ["corpus:/etc", "/etc", "bing", "", "corpus"])
def test_it_can_search_no_files_and_nothing_unknown(searched: str, card: Card) -> None:
    with pytest.raises(UsageError, match="can't search"):
        train(searched, kind="search", name="wiki", description="d")
    with pytest.raises(CardError, match="can't search"):
        SearchTarget(searched)
    (card.folder / "search.json").write_text(json.dumps({"evidence": searched}), encoding="utf-8")
    resealed = Card(card.folder, seal(card.folder, card.manifest))
    with pytest.raises(CardError, match="can't search"):
        CardPool([resealed]).generate([QUESTION], [["wiki"]], 1, Sampling())


def test_without_a_network_that_is_said(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CorpusError, match="HF_HUB_OFFLINE is set"):
        CardPool([card]).generate([QUESTION], [["wiki"]], 1, Sampling())
