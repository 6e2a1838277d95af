"""Which questions need their conversation, and which replies are rewritten questions."""

import pytest

from kcard.conversation import rewritten_question, stands_alone, unexplained_pronoun


@pytest.mark.parametrize(
    ("question", "pronoun"),
    [
        ("Which planet does it orbit?", "it"),
        ("when was he born", "he"),
        ("Who discovered it?", "it"),
        ("And how old is she?", "she"),
        ("And who leads it now?", "it"),
        ("Who wrote Hamlet and when did he die?", None),
        ("If the disk is full, does it stop?", None),
        ("What does it mean when wget exits with 8?", None),
        ("Is it safe to delete the cache?", None),
        ("Who discovered Triton?", None),
    ],
)
def test_a_question_that_leans_on_the_one_before_is_noticed(question: str, pronoun: str | None) -> None:
    assert unexplained_pronoun(question) == pronoun


@pytest.mark.parametrize(
    ("question", "alone"),
    [
        ("When was the lighthouse of Port Ansel finished?", True),
        ("Tell me a long story about ships", True),
        ("And who leads it now?", False),
        ("And who leads the museum now?", True),
        ("Who was the other keeper of the lighthouse?", False),
        ("How many passengers?", False),
        ("Wann wurde der Leuchtturm von Port Ansel fertig?", False),
        ("誰が博物館を設立しましたか？", False),
    ],
)
def test_only_a_whole_english_question_surely_stands_alone(question: str, alone: bool) -> None:
    assert stands_alone(question) is alone


@pytest.mark.parametrize(
    ("reply", "question"),
    [
        ("Who leads the Ansel Museum now?", "Who leads the Ansel Museum now?"),
        ('Rewritten question: "Who leads the museum?"', "Who leads the museum?"),
        ("\n**Who leads the museum?**\nIt is led by ...", "Who leads the museum?"),
        ("user: Who leads the museum?", "Who leads the museum?"),
        ("Who is the current leader of the museum?", "Who is the current leader of the museum?"),
        ("Mira Solvay leads it.", "Who leads it?"),
        ("What is the name of the ship that sank?", "Who leads it?"),
        ("What leads to the museum?", "Who leads it?"),
        ("", "Who leads it?"),
        ("x" * 20_001 + "?", "Who leads it?"),
    ],
)
def test_a_reply_that_is_no_question_or_another_one_changes_none(reply: str, question: str) -> None:
    assert rewritten_question("Who leads it?", reply) == question
