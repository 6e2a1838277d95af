"""Questions made of plain sentences: clauses, what is asked of them, and how it is reworded."""

from random import Random

import pytest

from kcard.evaluation.metrics import substring
from kcard.evaluation.questions import (
    SYNONYMS,
    Clause,
    NaturalQuestion,
    draw_question,
    natural_questions,
    parse_clause,
    reword,
)

MUSEUM = "Ada Fischer founded the Brindle Museum in 1871."
BRIDGE = "The Tamsel Bridge was closed because the river had risen above its piers."
CRANES = "The parcel depot of Tamsel has three cranes for heavy goods."
TOWER = "The tower of Marrow was opened in Oldenmark in 1904."
UNDO = "To undo a commit of yesterday, run revert with the number of the commit."
SENTENCES = [MUSEUM, BRIDGE, CRANES, TOWER, UNDO]


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        (MUSEUM, Clause("Ada Fischer", "founded", "found", "the Brindle Museum in 1871")),
        (TOWER, Clause("The tower of Marrow", "was", None, "opened in Oldenmark in 1904")),
        (
            "In 1993, the council moved the library to Marrow.",
            Clause("the council", "moved", "move", "the library to Marrow", "In 1993"),
        ),
    ],
)
def test_a_plain_sentence_is_taken_apart(sentence: str, parts: Clause) -> None:
    assert parse_clause(sentence) == parts


@pytest.mark.parametrize(
    "sentence",
    [
        "It was founded in 1993.",
        "If the lid is open the machine stops at once.",
        "Running the tool deletes the cache of the server.",
        "The man who opened the depot was a baker.",
        "These rooms are kept for letters.",
        "Was the depot opened by a baker?",
        "The cat sat.",
        "",
    ],
)
def test_what_can_not_be_told_apart_for_sure_is_passed_over(sentence: str) -> None:
    assert parse_clause(sentence) is None


def questions_by_form(sentence: str) -> dict[str, NaturalQuestion]:
    return {question.form: question for question in natural_questions(sentence, Random(0))}


@pytest.mark.parametrize(
    ("sentence", "form", "answer", "begins"),
    [
        (MUSEUM, "who", "Ada Fischer", "Who "),
        (MUSEUM, "when", "1871", "When did Ada Fischer "),
        (CRANES, "how many", "three", "How many cranes has the parcel depot of Tamsel"),
        (TOWER, "where", "Oldenmark", "Where was the tower of Marrow "),
        (BRIDGE, "why", "the river had risen above its piers", "Why was the Tamsel Bridge closed"),
        (UNDO, "how", "run revert with the number of the commit", "How can I undo a commit"),
    ],
)
def test_each_form_asks_for_a_part_of_the_sentence(
    sentence: str, form: str, answer: str, begins: str
) -> None:
    question = questions_by_form(sentence)[form]
    assert question.answer == answer
    assert question.text.startswith(begins)
    assert question.text.endswith("?")


@pytest.mark.parametrize("sentence", SENTENCES)
def test_an_answer_stands_in_the_sentence_and_not_in_its_question(sentence: str) -> None:
    questions = natural_questions(sentence, Random(1))
    assert questions
    for question in questions:
        assert sentence.count(question.answer) == 1
        assert not substring(question.text, [question.answer])
        before, after = question.around
        assert " ".join([before, question.answer, after]).split() == sentence.rstrip(".").split()


def test_brackets_and_too_little_to_go_by_make_no_question() -> None:
    assert natural_questions("A registry is a list of (named) packages kept by a server.", Random(0)) == []
    assert natural_questions("Bo was there in 1871.", Random(0)) == []


def test_equal_seeds_give_equal_questions() -> None:
    for seed in range(5):
        one, other = (natural_questions(MUSEUM, Random(seed)) for _ in range(2))
        assert one == other


def test_a_question_is_drawn_of_the_first_sentence_that_gives_any() -> None:
    for seed in range(10):
        question = draw_question(["No verb here.", MUSEUM, CRANES], Random(seed))
        assert question is not None
        assert question.answer in MUSEUM
    assert draw_question(["No verb here.", ""], Random(0)) is None


def test_words_are_replaced_by_synonyms_and_names_stay() -> None:
    wordings = {reword("Who founded the large city of Founded?", Random(seed)) for seed in range(40)}
    assert len(wordings) > 3
    for text in wordings:
        words = text.removesuffix(" of Founded?")
        assert words != text
        assert any(f"Who {verb} " in words for verb in ("founded", *SYNONYMS["founded"]))


@pytest.mark.parametrize("question", ["How large is it?", "What is a file-system?", "Who is Ada Large?"])
def test_what_has_no_synonym_in_its_place_stays(question: str) -> None:
    assert {reword(question, Random(seed)) for seed in range(20)} == {question}


def test_an_adverb_may_be_left_out() -> None:
    wordings = {reword("Who usually keeps watch?", Random(seed)) for seed in range(30)}
    assert any("usually" not in text and "normally" not in text for text in wordings)
    assert any("usually" in text or "normally" in text or "generally" in text for text in wordings)
