"""What of study material is supported by its passage."""

import pytest

from kcard.offline.llm import SpanReader
from kcard.selectors.registry import Loading, checker
from kcard.training.study import StudyItem
from kcard.training.study_writer import check_item

PASSAGE = (
    "Titan is the largest moon of Saturn. The Dutch astronomer Christiaan Huygens discovered it in 1655 with a "
    "telescope that he and his brother had built."
)


def result(item: StudyItem) -> StudyItem | str:
    return check_item(item, [PASSAGE], checker("minilm", Loading()), SpanReader(), "en")


@pytest.mark.parametrize(
    "item",
    [
        StudyItem("direct", "Who discovered Titan?", "Christiaan Huygens"),
        StudyItem("reverse", "Which moon did Christiaan Huygens discover in 1655?", "Titan"),
        StudyItem("far", "Whose eyes first fell on Saturn's biggest companion?", "Christiaan Huygens"),
        StudyItem("unanswerable", "How many rings does Neptune have?"),
    ],
)
def test_questions_that_the_passage_answers_are_kept(item: StudyItem) -> None:
    assert result(item) == item


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (StudyItem("direct", "Who discovered Titan?", "Galileo Galilei"), "the answer does not stand"),
        (StudyItem("direct", "Did Huygens discover it?", "Huygens"), "gives the answer away"),
        (StudyItem("direct", "When was Titan discovered?", "Saturn"), "another answer or none"),
        (StudyItem("unanswerable", "Who discovered Titan?"), "answered by the passage"),
        (StudyItem("implication", "Galileo discovered Titan in 1610."), "not supported"),
        (
            StudyItem("implication", "The passage implies that Titan was discovered in 1655."),
            "mentions the text",
        ),
        (StudyItem("direct", "According to the text, who discovered Titan?", "Huygens"), "mentions the text"),
        (StudyItem("unanswerable", "http://example.org"), "about something else"),
        (
            StudyItem("far", "Who sells the cheapest football boots in town?", "Huygens"),
            "about something else",
        ),
        (
            StudyItem("far", "Welcher Mensch hat den größten Mond zuerst gesehen?", "Huygens"),
            "another language",
        ),
        (StudyItem("rewrite", "titan is the largest moon of saturn"), "repeats the passage"),
    ],
)
def test_what_is_not_supported_is_left_out_with_its_reason(item: StudyItem, why: str) -> None:
    outcome = result(item)
    assert isinstance(outcome, str)
    assert why in outcome


def test_passages_in_other_languages_are_not_judged_by_an_encoder_that_knows_english_alone() -> None:
    text = "Titan ist der größte Mond des Saturn. Der Astronom Christiaan Huygens hat ihn 1655 in Den Haag entdeckt."
    item = StudyItem(
        "far", "Wessen Auge fiel zuerst auf den größten Begleiter des Ringplaneten?", "Christiaan Huygens"
    )
    assert check_item(item, [text], checker("minilm", Loading()), SpanReader(), "de") == item


def test_a_corpus_about_texts_may_be_asked_about_them() -> None:
    text = "The passage from Homer that Virgil knew best is the one on the shield. The text was copied in Rome in 1450."
    item = StudyItem("direct", "When was the text copied in Rome?", "1450")
    assert check_item(item, [text], checker("minilm", Loading()), SpanReader(), "en") == item


@pytest.mark.parametrize(
    "message",
    [
        "The largest moon of Saturn was discovered in the seventeenth century.",
        "Titan was known in the eighteenth century.",
    ],
)
def test_what_follows_needs_less_support_than_what_is_said_again(message: str) -> None:
    assert isinstance(result(StudyItem("implication", message)), StudyItem)
    assert result(StudyItem("rewrite", message)) == "not supported by the passage"


def test_statements_get_their_support() -> None:
    outcome = result(StudyItem("rewrite", "Christiaan Huygens discovered Titan in 1655."))
    assert isinstance(outcome, StudyItem)
    assert (outcome.support or 0) > 0.5
