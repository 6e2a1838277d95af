"""Cards that contradict each other: the user is told what each says and up to when it knows; the newest goes first."""

from kcard.integrators.citations import Context, resolve_conflicts
from kcard.offline.llm import SpanReader
from kcard.types import Choice, Passage, Turn

CARDS = {
    "old": Choice("old", "captains of ships", "2020-12-01"),
    "new": Choice("new", "captains of ships", "2022-11-30"),
    "undated": Choice("undated", "ships"),
}
QUESTION = "Who is the captain of the Alder?"
OLD = Passage("old", "Mina Orlov is the captain of the Alder.", kept=True)
NEW = Passage("new", "The captain of the Alder is Tomas Reyes.", kept=True)


class LastWords:
    """Reads the last two words of a text about captains."""

    def extract(self, question: str, text: str) -> str | None:
        del question
        return " ".join(text.strip(".").split()[-2:]) if "captain" in text else None


def passage(card: str, name: str, kept: bool = True, factuality: float | None = None) -> Passage:
    text = f"The captain is {name}."
    return Passage(card, text, text, factuality=factuality, kept=kept)


def test_cards_that_differ_are_named_with_their_dates_and_the_newest_goes_first() -> None:
    found = resolve_conflicts(QUESTION, Context((OLD, NEW), ("before",)), CARDS, SpanReader())
    assert found.passages == (NEW, OLD)
    assert found.notes == (
        "before",
        "cards disagree: new (2022-11-30) says 'Tomas Reyes', old (2020-12-01) says 'Mina Orlov'",
    )


def test_the_order_can_be_left_as_it_is_and_the_note_stays() -> None:
    found = resolve_conflicts(QUESTION, Context((OLD, NEW)), CARDS, SpanReader(), reorder=False)
    assert found.passages == (OLD, NEW)
    assert found.notes[0].startswith("cards disagree: new")


def test_passages_of_several_rounds_keep_the_order_in_which_the_llm_saw_them() -> None:
    turns = (Turn("what", "captains", documents=1), Turn("what", "newer captains", documents=1))
    assert resolve_conflicts(QUESTION, Context((OLD, NEW), turns=turns), CARDS, SpanReader()).passages == (
        OLD,
        NEW,
    )
    assert resolve_conflicts(
        QUESTION, Context((OLD, NEW), turns=turns[:1]), CARDS, SpanReader()
    ).passages == (
        NEW,
        OLD,
    )


def test_cards_that_agree_are_left_as_they_are() -> None:
    same = Passage("new", "Since last spring captain Mina Orlov has commanded the Alder.", kept=True)
    gathered = Context((OLD, same))
    assert resolve_conflicts(QUESTION, gathered, CARDS, SpanReader()) == gathered


def test_what_does_not_answer_the_question_contradicts_nobody() -> None:
    other = Passage("new", "The Alder was built in 1871.", kept=True)
    gathered = Context((OLD, other))
    assert resolve_conflicts(QUESTION, gathered, CARDS, SpanReader()) == gathered


def test_a_shorter_name_agrees_with_the_longer_one() -> None:
    gathered = Context((passage("old", "Captain Vance"), passage("new", "captain the vance")))
    assert resolve_conflicts(QUESTION, gathered, CARDS, LastWords()) == gathered


def test_a_card_without_a_date_comes_last() -> None:
    gathered = Context((passage("undated", "Ann Lee"), passage("old", "Ben Roe")))
    found = resolve_conflicts(QUESTION, gathered, CARDS, LastWords())
    assert [p.card for p in found.passages] == ["old", "undated"]
    assert "undated (no date) says 'Ann Lee'" in found.notes[0]


def test_one_card_can_not_disagree_with_itself() -> None:
    gathered = Context((passage("old", "Ann Lee"), passage("old", "Ben Roe")))
    assert resolve_conflicts(QUESTION, gathered, CARDS, LastWords()) == gathered


def test_what_relevance_kept_counts_though_the_draw_left_it_out() -> None:
    gathered = Context((passage("old", "Ann Lee"), passage("new", "Ben Roe", kept=False)))
    assert "Ben Roe" in resolve_conflicts(QUESTION, gathered, CARDS, LastWords()).notes[0]


def test_what_its_own_evidence_doubts_does_not_count() -> None:
    gathered = Context((passage("old", "Ann Lee"), passage("new", "Ben Roe", factuality=0.1)))
    assert resolve_conflicts(QUESTION, gathered, CARDS, LastWords()) == gathered
