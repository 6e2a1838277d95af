"""A card is chosen by its corpus and its exam, not by its description alone."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import kcard
from kcard.cards.card import Profile, profile_of
from kcard.hub.registry import Hub
from kcard.integrators import card_ranking
from kcard.integrators.assembly import select_cards
from kcard.integrators.card_ranking import CardIndex, Profiles, pack_profiles, profiles_of
from kcard.offline import minilm
from kcard.selectors.relevance import MiniLMRelevance
from kcard.types import Choice

TEXTS = {
    "a": ("notes", "Giovanni Cassini discovered the moon Tethys in 1684."),
    "b": ("papers", "Lucius Lacer built the bridge of Alcantara over the Tagus."),
    "c": ("sheets", "Hywel ruled Wales until the year 950."),
}
QUESTIONS = {
    "Who discovered Tethys?": "a",
    "Which river does the bridge at Alcantara cross?": "b",
    "Who was a king of Wales?": "c",
}


def index(copies: int = 0) -> CardIndex:
    """The three cards behind so many that are about stones."""
    descriptions = [*(copies * ["stones"]), *(description for description, _ in TEXTS.values())]
    return CardIndex(MiniLMRelevance(), descriptions, profiles_behind(copies))


@cache
def profiles_behind(copies: int) -> Profiles:
    others = [f"Stone {n} of the quarry weighs {n} pounds." for n in range(copies)]
    texts = [*others, *(text for _, text in TEXTS.values())]
    vectors = minilm.embed(texts)
    made = [profile_of("en", [text], vectors[i : i + 1]) for i, text in enumerate(texts)]
    return Profiles.of([str(i) for i in range(len(texts))], made)


@pytest.mark.parametrize("copies", [0, 300])
def test_the_card_whose_corpus_answers_comes_first(copies: int) -> None:
    found = index(copies)
    for question, name in QUESTIONS.items():
        cards, scores = found(question, 1)
        assert cards[0] == copies + "abc".index(name)
        assert list(scores) == sorted(scores, reverse=True)


def test_of_many_cards_at_least_as_many_as_wanted_are_ranked_each_once() -> None:
    cards, _ = index(300)("Who discovered Tethys?", 250)
    assert len(cards) >= 250
    assert len(set(cards.tolist())) == len(cards)


def test_the_coarse_stage_leaves_the_best_card_in(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = index(300)
    monkeypatch.setattr(card_ranking, "CANDIDATES", 1000)
    exact = index(300)
    for question in [*QUESTIONS, "How much does stone 17 weigh?"]:
        (first, *_), (score, *_) = fast(question)
        (same, *_), (alike, *_) = exact(question)
        assert first == same
        assert score == pytest.approx(alike, abs=1e-6)


def test_a_question_without_a_word_is_ranked_all_the_same() -> None:
    cards, scores = index()("?")
    assert len(cards) == 3
    assert np.isfinite(scores).all()


def test_packed_profiles_are_those_that_went_in() -> None:
    made = [profile_of("en", [text], minilm.embed([text])) for _, text in TEXTS.values()]
    made.append(profile_of("de", ["Karl herrschte in Aachen."]))
    known = Profiles.of(["a", "b", "c", "d"], made).by_key()
    for key, profile in zip("abcd", made, strict=True):
        assert known[key].to_json() == profile.to_json()


def test_only_profiles_of_new_cards_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_ranking, "MANY", 1)
    read: list[int] = []

    def make(i: int) -> Profile:
        read.append(i)
        return profile_of("en", [f"text {i}"])

    pack_profiles(["a", "b"], make)
    pack_profiles(["a", "b"], make)
    assert read == [0, 1]
    again = pack_profiles(["b", "c"], make)
    assert read == [0, 1, 1]
    assert again.keys.tolist() == ["b", "c"]
    assert again.by_key()["b"].to_json() == profile_of("en", ["text 1"]).to_json()


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    for name, (description, text) in TEXTS.items():
        corpus = tmp_path / f"{name}.txt"
        corpus.write_text(text)
        kcard.publish(kcard.train(corpus, name=name, kind="retrieval", description=description).folder)
    return Hub()


def choices(hub: Hub) -> tuple[Sequence[Choice], Profiles]:
    cards, _ = select_cards(None, hub)
    named = [Choice(m.name, m.description) for m in cards.manifests]
    return named, profiles_of(cards, named)


def test_published_cards_are_chosen_by_their_profiles_and_none_is_laid_out_for_that(hub: Hub) -> None:
    named, read = choices(hub)
    found = CardIndex(MiniLMRelevance(), [card.description for card in named], read)
    for question, name in QUESTIONS.items():
        assert named[found(question)[0][0]].name == name
    assert not [*(hub.home / "hub" / "snapshots").glob("*")]


def test_a_damaged_profile_leaves_the_description(hub: Hub) -> None:
    blob = Path(hub.blobs.where(hub.get("a").manifest.files["routing.json"]))
    blob.chmod(0o600)
    blob.write_text("{}")
    named, read = choices(hub)
    assert [len(read.by_key()[key].centroids) for key in read.keys] == [0, 1, 1]
    assert {card.name for card in named} == {"a", "b", "c"}


def test_the_default_mode_asks_the_card_whose_corpus_answers(hub: Hub) -> None:
    for question, name in QUESTIONS.items():
        assert kcard.ask(question, hub=hub, gate="always", n1=1).cards == (name,)


@pytest.mark.parametrize("mode", ["top-down", "bottom-up", "hybrid"])
def test_no_card_is_asked_about_what_none_fits_and_a_note_says_so(hub: Hub, mode: str) -> None:
    pipeline = kcard.Pipeline(hub=hub, gate="always", mode=mode, min_relevance=0.5)
    off, on = pipeline(["How do I boil an egg?", "Who discovered the moon Tethys?"])
    assert off.cards == ()
    assert "no card was asked" in off.notes[0]
    assert "a" in on.cards
    assert not any("no card was asked" in note for note in on.notes)
