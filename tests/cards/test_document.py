import pytest

from kcard.cards.passages import clean


def test_a_sentence_that_was_cut_off_is_dropped_where_a_whole_one_precedes_it() -> None:
    assert clean(" Ron Wyden won in Oregon. He had held the", ended=False) == "Ron Wyden won in Oregon."


def test_a_document_that_the_model_ended_is_only_stripped() -> None:
    assert (
        clean("Ron Wyden won in Oregon. Held the seat\n", ended=True)
        == "Ron Wyden won in Oregon. Held the seat"
    )


@pytest.mark.parametrize(
    "text",
    [
        "won the race in",
        "Ron Wyden won the 2022 U.S. senate race in",
        "Dr. No was a film of",
        "Ron Wyden won. Then he spoke.",
        'He said: "I won."',
        "",
    ],
)
def test_nothing_is_dropped_where_no_other_sentence_is_whole(text: str) -> None:
    assert clean(text, ended=False) == text


def test_only_the_last_of_several_sentences_is_dropped() -> None:
    text = "He won. He won. The U.S. senate sat. He"
    assert clean(text, ended=False) == "He won. He won. The U.S. senate sat."


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("他赢了。他赢", "他赢了。"),
        ("「彼は勝った。」そして彼", "「彼は勝った。」"),
        ("वह जीता। उसने", "वह जीता।"),
        ("هل فاز؟ نعم لقد", "هل فاز؟"),
    ],
)
def test_sentences_of_other_scripts_end_with_their_own_marks(text: str, kept: str) -> None:
    assert clean(text, ended=False) == kept
