"""Which items of study material a student is asked."""

from kcard.offline.pseudo_queries import held_out_wording, trained_wording
from kcard.text import passage_digest, words
from kcard.training.distillation import PassageQuestion, passage_questions
from kcard.training.study import StudyItem
from kcard.types import Source

GATE, WELL = "The gate of Arden is red.", "The well of Arden is deep."
PASSAGES = [Source(GATE, "a.txt"), Source(WELL, "a.txt")]
ON_GATE, ON_WELL = (passage_digest(text) for text in (GATE, WELL))


def test_questions_with_an_answer_come_with_the_text_of_their_passages() -> None:
    items = [
        StudyItem("direct", "What colour is the gate?", "red", (ON_GATE,)),
        StudyItem("link", "What is red beside a deep well?", "gate", (ON_GATE, ON_WELL)),
    ]
    assert passage_questions(items, PASSAGES) == [
        PassageQuestion(trained_wording("What colour is the gate?"), "red", GATE),
        PassageQuestion(trained_wording("What is red beside a deep well?"), "gate", f"{GATE}\n\n{WELL}"),
    ]


def test_a_student_is_asked_no_question_of_any_exam_whatever_its_case_or_punctuation() -> None:
    """Of a hundred questions of the same words an exam asks about half, and a student the others or other words."""
    questions = [f"What colour is gate {number}?" for number in range(100)]
    items = [StudyItem("direct", question, "red", (ON_GATE,)) for question in questions]
    learned = {" ".join(words(found.text)) for found in passage_questions(items, PASSAGES)}
    exams = {" ".join(words(text.upper())) for question in questions if (text := held_out_wording(question))}
    assert len(learned) == len(exams) == 100
    assert not learned & exams
    assert len(learned & {" ".join(words(question)) for question in questions}) > 30


def test_statements_open_questions_other_passages_and_repetitions_are_left_out() -> None:
    item = StudyItem("direct", "What colour is the gate?", "red", (ON_GATE,))
    items = [
        item,
        item,
        StudyItem("unanswerable", "Who built the gate?", "", (ON_GATE,)),
        StudyItem("implication", "The gate is not blue.", "", (ON_GATE,)),
        StudyItem("direct", "How deep is it?", "very", (passage_digest("Another text."),)),
        StudyItem("link", "What is both?", "red", (ON_GATE, passage_digest("Another text."))),
        StudyItem("direct", "About nothing?", "red"),
    ]
    assert [found.text for found in passage_questions(items, PASSAGES)] == [trained_wording(item.text)]


def test_a_question_is_known_where_all_of_its_passages_are() -> None:
    items = [
        StudyItem("direct", "old?", "red", (ON_GATE,)),
        StudyItem("direct", "new?", "deep", (ON_WELL,)),
        StudyItem("link", "both?", "red", (ON_GATE, ON_WELL)),
    ]
    assert [question.is_old for question in passage_questions(items, PASSAGES, old_count=1)] == [
        True,
        False,
        False,
    ]
