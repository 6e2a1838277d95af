"""Items so many at a time."""

import pytest

from kcard.batching import QUESTIONS, questions_together


@pytest.mark.parametrize(("requests", "questions"), [(None, QUESTIONS), (1, QUESTIONS), (4, 16), (25, 100)])
def test_questions_are_asked_together_four_for_each_request_at_a_time(
    requests: int | None, questions: int
) -> None:
    assert questions_together(requests) == questions
