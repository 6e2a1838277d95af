"""What the shell completes: names of cards and drafts; and which option a misspelt one is like."""

from pathlib import Path

import pytest

import kcard
from kcard.cli.options import complete_drafts, complete_published, complete_several
from tests.command import Kcard


@pytest.fixture
def cards(tmp_path: Path) -> None:
    """Two published cards, and a draft that is not published."""
    for name in ("moons", "mills", "bridges"):
        corpus = tmp_path / f"{name}.txt"
        corpus.write_text(f"Of {name} there are many.\n", encoding="utf-8")
        card = kcard.train(corpus, kind="retrieval", description=name, language="xx")
        if name != "mills":
            kcard.publish(card.folder)


@pytest.mark.usefixtures("cards")
def test_names_are_completed_from_their_beginning() -> None:
    assert complete_published("") == ["bridges", "moons"]
    assert complete_published("mo") == ["moons"]
    assert complete_published("x") == []
    assert complete_several("bridges,m") == ["bridges,moons"]
    assert complete_drafts("m") == ["mills", "moons"]


def test_without_cards_nothing_is_completed() -> None:
    assert complete_published("") == complete_several("a,") == complete_drafts("") == []


def test_a_hub_that_can_not_be_opened_breaks_no_shell(home: Path) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file where the folder should be")
    assert complete_published("m") == complete_drafts("m") == []


def test_of_options_like_a_misspelt_one_the_nearest_comes_first(kcard: Kcard) -> None:
    assert "No such option: --card (did you mean --cards or " in kcard("ask", "x", "--card", "moons").err
    assert kcard("cards", "list", "--zzzz").err.strip().endswith("No such option: --zzzz")
