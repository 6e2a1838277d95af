"""Questions that a corpus does not answer, and whether a card's documents are held to answer a question."""

from kcard.evaluation.exam import ELSEWHERE, INVENTED, make_unanswerable
from kcard.evaluation.questions import ExamQuestion
from kcard.evaluation.recall import StepProgress, judge_answered
from kcard.types import Passage, Source

CORPUS = [
    Source("Ada Fischer founded the Brindle Museum in 1871."),
    Source("The Titanic is not mentioned but for its name."),
]
ANSWERABLE = [
    ExamQuestion("Who founded the Brindle Museum?", ("Ada Fischer",)),
    ExamQuestion("When did Ada Fischer found it?", ("1871",)),
    ExamQuestion("what else is known of it?", ("nothing",)),
]


def test_half_name_something_unknown_and_half_are_on_other_subjects() -> None:
    questions = make_unanswerable(ANSWERABLE, CORPUS, 4, seed=3)
    assert len(questions) == len({question.text for question in questions}) == 4
    assert all(question.answers == () for question in questions)
    assert [question.text in ELSEWHERE for question in questions] == [False, False, True, True]


def test_a_renamed_question_asks_the_same_of_a_name_that_is_not_in_the_corpus() -> None:
    for seed in range(10):
        near = make_unanswerable(ANSWERABLE, CORPUS, 4, seed)[:2]
        assert near[0].text.startswith("Who founded ")
        assert near[1].text.startswith("When did ")
        for question, original in zip(near, ANSWERABLE, strict=False):
            new = set(question.text.strip("?").split()) - set(original.text.strip("?").split())
            assert new
            assert not [word for word in new if any(word in source.text.split() for source in CORPUS)]


def test_a_name_that_the_corpus_has_is_not_invented() -> None:
    *taken, free = INVENTED[2]
    corpus = [*CORPUS, *(Source(f"It was {name}.") for name in taken)]
    for seed in range(10):
        assert make_unanswerable(ANSWERABLE[1:2], corpus, 1, seed)[0].text == f"When did {free} found it?"


def test_questions_on_other_subjects_name_nothing_that_the_corpus_names() -> None:
    everything = make_unanswerable([], CORPUS, 10_000, seed=0)
    assert len(everything) == len(ELSEWHERE) - 1
    assert not [question for question in everything if "Titanic" in question.text]


def test_equal_seeds_ask_the_same() -> None:
    assert make_unanswerable(ANSWERABLE, CORPUS, 6, seed=1) == make_unanswerable(
        ANSWERABLE, CORPUS, 6, seed=1
    )
    assert make_unanswerable(ANSWERABLE, CORPUS, 6, seed=1) != make_unanswerable(
        ANSWERABLE, CORPUS, 6, seed=2
    )


def test_a_question_is_answered_where_one_of_its_documents_answers_it() -> None:
    right = Passage("museums", "Ada Fischer founded the Brindle Museum in 1871.")
    wrong = Passage("museums", "?!")
    events: list[StepProgress] = []
    questions = [ANSWERABLE[0]] * 4
    scores = judge_answered(
        questions, [[wrong, right], [wrong], [], [Passage("museums", " ")]], events.append
    )
    assert scores == [1.0, 0.0, 0.0, 0.0]
    assert [(progress.done, progress.total) for progress in events] == [(n, 4) for n in range(1, 5)]


def test_what_is_read_is_the_pruned_document_under_its_headings() -> None:
    whole = "Nothing else is known. It was founded by Ada Fischer in 1871."
    source = Source(whole, section="Brindle Museum")
    shown = Passage("museums", whole, pruned="It was founded by Ada Fischer in 1871.", source=source)
    hidden = Passage("museums", whole, pruned="?", source=Source(whole, section="?"))
    assert judge_answered([ANSWERABLE[0]] * 2, [[shown], [hidden]], lambda _: None) == [1.0, 0.0]
