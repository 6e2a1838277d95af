"""What a question asks for, and whether an answer can be of that kind."""

import pytest

from kcard.embedded.question_forms import counts_nothing


@pytest.mark.parametrize(
    "answer",
    [
        "v1.5.2", "0x3f", "rtc1", "UTF-8", "RFC 2822", "07:30", "3 May 2020", "May 11, 2021", "in 2019", "1.5.2",
        "Python 3", "#3449", "All packages",
    ],
)  # fmt: skip
def test_identifiers_versions_dates_and_times_count_nothing(answer: str) -> None:
    assert counts_nothing("How many are there?", answer)
    assert not counts_nothing("How long is it?", answer)


@pytest.mark.parametrize(
    "answer",
    [
        "2,300 books",
        "4",
        "12 GB",
        "About 30",
        "Three",
        "3.5 million",
        "10-20",
        "The 3 modes",
        "Up to 64",
        "none",
    ],
)
def test_amounts_count(answer: str) -> None:
    assert not counts_nothing("How many are there?", answer)
