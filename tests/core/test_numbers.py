"""Ordinals in words and in figures."""

import pytest

from kcard.text import ordinals_as_in


@pytest.mark.parametrize(
    ("texts", "question", "read"),
    [
        (["Ohio's 8th district"], "the eighth district", "the 8th district"),
        (["Ohio's 7th district"], "the Eighth district", "the 8th district"),
        (["Ohio's eighth district"], "the 8th district", "the eighth district"),
        (["Ohio's seventh district"], "the 8th district", "the 8th district"),
        (["the second of the 3rd kind"], "the second kind", "the second kind"),
        (["8 districts"], "the eighth of 8 districts", "the eighth of 8 districts"),
        (["the 3rd of 9 requests"], "requests per second", "requests per second"),
        ([], "who came first", "who came first"),
    ],
)
def test_ordinals_are_written_as_in_the_texts(texts: list[str], question: str, read: str) -> None:
    assert ordinals_as_in(texts, question) == read
