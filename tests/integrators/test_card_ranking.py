"""A card is chosen by its corpus, not by its description alone; only those that were chosen are opened."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import kcard
from kcard.cards.profile import Profile, profile_of
from kcard.embedded import minilm
from kcard.errors import DamagedCard
from kcard.hub.registry import Hub
from kcard.integrators import card_ranking
from kcard.integrators.assembly import select_cards
from kcard.integrators.bottom_up import BottomUp
from kcard.integrators.card_ranking import CardIndex, CardRanker, Profiles, pack_profiles, profiles_of
from kcard.integrators.options import Mode
from kcard.integrators.pool_views import Selectors
from kcard.integrators.top_down import CardSelection, ExplicitChoice, Need
from kcard.interfaces import LLM, Array, Relevance
from kcard.selectors.pruning import Unpruned
from kcard.selectors.relevance import MiniLMRelevance
from kcard.types import Choice, Passage, Question, Sampling
from tests.fakes import Says, Supports, WrittenCards, questions
from tests.integrators.conftest import HubOf

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


@pytest.mark.parametrize("copies", [0, 220])
def test_the_card_whose_corpus_answers_comes_first(copies: int) -> None:
    found = index(copies)
    for question, name in QUESTIONS.items():
        cards, scores = found(question, 1)
        assert cards[0] == copies + "abc".index(name)
        assert list(scores) == sorted(scores, reverse=True)
    cards, _ = found("?", 210)
    assert len(cards) == len(set(cards.tolist())) >= min(copies + 3, 210)


def test_the_coarse_stage_leaves_the_best_card_in(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = index(220)
    monkeypatch.setattr(card_ranking, "MIN_CANDIDATES", 1000)
    exact = index(220)
    for question in [*QUESTIONS, "How much does stone 17 weigh?"]:
        (first, *_), (score, *_) = fast(question)
        (same, *_), (alike, *_) = exact(question)
        assert first == same
        assert score == pytest.approx(alike, abs=1e-6)


def test_only_profiles_of_new_cards_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_ranking, "MIN_CACHED_CARDS", 1)
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
def hub(hub_of: HubOf) -> Hub:
    return hub_of(TEXTS)


def laid_out(hub: Hub) -> list[str]:
    return sorted(path.name for path in (hub.home / "hub" / "snapshots").glob("*"))


def choices(hub: Hub) -> tuple[Sequence[Choice], Profiles]:
    cards, _ = select_cards(None, hub)
    named = [Choice(name, m.description) for name, m in cards.manifests.items()]
    return named, profiles_of(cards, named)


def test_a_damaged_profile_leaves_the_description(hub: Hub) -> None:
    blob = Path(hub.blobs.where(hub.get("a").manifest.files["routing.json"]))
    blob.chmod(0o600)
    blob.write_text("{}")
    named, read = choices(hub)
    assert [len(read.by_key()[key].centroids) for key in read.keys] == [0, 1, 1]
    assert {card.name for card in named} == {"a", "b", "c"}


def test_the_default_mode_asks_and_lays_out_only_the_card_whose_corpus_answers(hub: Hub) -> None:
    for question, name in QUESTIONS.items():
        assert kcard.ask(question, hub=hub, gate="always", n1=1).cards == (name,)
        assert laid_out(hub) == [*"abc"[: "abc".index(name) + 1]]


def test_a_card_that_was_not_chosen_may_be_damaged(hub: Hub) -> None:
    for name in "ac":
        blob = Path(hub.blobs.where(hub.get(name).manifest.files["passages.jsonl"]))
        blob.chmod(0o600)
        blob.write_text("{}")
    with pytest.raises(DamagedCard, match=r"\ba\b.*passages\.jsonl"):
        kcard.ask("Who discovered Tethys?", gate="always")
    answer = kcard.ask("Who built the bridge of Alcantara?", gate="always", max_cards=1)
    assert answer.cards == ("b",)


def test_a_pool_of_many_cards_means_the_newest_version_of_each(hub: Hub, tmp_path: Path) -> None:
    names = [f"stones-{n}" for n in range(5)]
    for name in names:
        corpus = tmp_path / f"{name}.txt"
        corpus.write_text(f"Nobody weighed {name}.")
        kcard.publish(kcard.train(corpus, kind="retrieval", description=f"weights of {name}").folder)
    hub.pools.create("all", [*names, "a@v1", "c"])
    chosen = hub.select(["pool:all"])
    assert [version.reference for version in chosen.versions] == [f"{n}@v1" for n in [*names, "a", "c"]]
    answer = kcard.ask(
        "Who discovered Tethys?", gate="always", cards=["pool:all"], mode="bottom-up", max_cards=2
    )
    assert "a" in answer.cards
    assert answer.notes == ("only the 2 of 7 cards nearest to the question were used (--max-cards)",)


@pytest.mark.parametrize("mode", ["top-down", "bottom-up", "hybrid"])
def test_no_card_is_asked_about_what_none_fits_and_a_note_says_so(hub: Hub, mode: Mode) -> None:
    pipeline = kcard.Pipeline(hub=hub, gate="always", mode=mode, min_relevance=0.5)
    off, on = pipeline(["How do I boil an egg?", "Who discovered the moon Tethys?"])
    assert off.cards == ()
    assert "no card used" in off.notes[0]
    assert "a" in on.cards
    assert not any("no card used" in note for note in on.notes)


# Choosing among more cards than are shown or can write: the nearest, and the user is told.

CARDS = [Choice(f"stones-{n}", f"weights of stones in the quarry {n}") for n in range(1900, 2050)]
CARDS += [Choice("moons", "moons of the solar system and their discoverers")]


class Length(Relevance):
    """Relevance that reads the texts one by one, and counts what it was asked to read."""

    def __init__(self) -> None:
        self.read = 0

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        del question
        self.read += len(texts)
        return np.array([0.9 if "moons" in text else len(text) / 1000 for text in texts], dtype=np.float32)


def writing() -> WrittenCards:
    """A pool whose cards write their names."""
    return WrittenCards(CARDS, lambda card, _: [Passage(card, f"{card} says so.")])


def test_a_selector_that_cannot_be_prepared_reads_the_hundred_that_the_encoder_puts_first() -> None:
    selector = Length()
    found = CardRanker(selector, CARDS)("Who discovered the moons of Saturn?", len(CARDS))
    assert selector.read == 100
    assert found[0].name == "moons"
    assert len({card.name for card in found}) == len(CARDS)


def chosen(llm: LLM, choice: ExplicitChoice, question: str) -> CardSelection:
    (selection,) = choice.select(llm, [Need(Question(question))])
    return selection


def test_an_explicit_choice_lists_only_the_nearest_and_says_so() -> None:
    llm = Says("moons")
    choice = ExplicitChoice(CARDS, ranker=CardRanker(MiniLMRelevance(), CARDS), shortlist=5)
    found = chosen(llm, choice, "Who discovered the moons of Saturn?")
    assert len(llm.requests[0].choices) == 5
    assert llm.requests[0].choices[0].name == "moons"
    assert found.cards == ("moons",)
    assert found.notes == ("the LLM chose from the 5 of 151 cards nearest to the question (--shortlist)",)


def test_bottom_up_lets_the_nearest_cards_write_for_each_question_and_says_so() -> None:
    pool = writing()
    run = BottomUp(pool, Selectors(MiniLMRelevance(), Unpruned(), Supports(), {}), Sampling(), max_cards=2)
    moons, stones = run.gather(
        questions("Who discovered moons?", "What did stones weigh in the quarry 1950?")
    )
    assert {len(names) for _, names, _ in pool.calls} == {2}
    assert "moons" in {p.card for p in moons.passages}
    assert "stones-1950" in {p.card for p in stones.passages}
    assert (
        moons.notes
        == stones.notes
        == ("only the 2 of 151 cards nearest to the question were used (--max-cards)",)
    )
