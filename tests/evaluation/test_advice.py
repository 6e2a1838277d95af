"""Which kind of card serves a corpus, by its exam."""

import pytest

from kcard.evaluation.exam import advice
from kcard.evaluation.records import EvalRun, Exam, Mean


def mean(value: float | None) -> Mean | None:
    return None if value is None else Mean(value, value, value)


def exam(both: float | None, model: float | None, index: float | None) -> Exam:
    own = EvalRun("asked", "", 40, "", mean(both), model=mean(model), index=mean(index))
    return Exam("rivers", "0", own)


@pytest.mark.parametrize(
    ("both", "model", "index", "sentence"),
    [
        (0.90, 0.40, 0.89, "an index alone (--kind retrieval) serves this corpus; without it 0.50 is lost"),
        (0.90, 0.89, 0.40, "the model alone (--kind model) serves this corpus as well"),
        (0.90, 0.60, 0.70, "leaving the index out costs 0.30, leaving the model out 0.20"),
        (0.90, 0.90, 0.90, "an index alone"),
    ],
)
def test_what_a_part_is_worth_is_said_with_the_figures(
    both: float, model: float, index: float, sentence: str
) -> None:
    text = advice(exam(both, model, index))
    assert text is not None
    assert sentence in text
    assert text.startswith(
        f"of 40 questions its model alone recalls {model:.2f}, its index alone {index:.2f}"
    )


@pytest.mark.parametrize("parts", [(0.9, None, 0.9), (0.9, 0.9, None), (None, 0.9, 0.9)])
def test_a_card_of_one_part_gets_no_advice(parts: tuple[float | None, ...]) -> None:
    assert advice(exam(*parts)) is None


def test_without_an_exam_of_its_own_corpus_there_is_no_advice() -> None:
    assert advice(Exam("rivers", "0", None)) is None
