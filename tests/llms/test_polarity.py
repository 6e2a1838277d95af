"""Yes or no, read off the words of a question and of the sentences that answer it."""

import pytest

from kcard.offline.extract import DECIDED, extract, polarity


@pytest.mark.parametrize(
    ("question", "sentences", "yes"),
    [
        ("Can the lamp burn outdoors?", "The lamp can be used indoors and outdoors.", True),
        ("Can the lamp burn outdoors?", "The lamp must not be used outdoors.", False),
        ("Can the lamp burn outdoors?", "The lamp doesn't work outdoors, but only in a room.", False),
        ("Is the lamp not allowed outdoors?", "The lamp can't be lit outdoors.", True),
        ("May a lamp be sold?", "You may sell it for any price or no price.", True),
        ("Is it ok to have more than one lamp?", "It is perfectly fine to light several lamps.", True),
        ("Does it work?", "It does **not** work.", False),
        ("Was Tarn ever funded by the FSF?", "The creation of Tarn was sponsored by the FSF.", True),
        ("Does the lamp burn gas?", "The lamp burns only oil.", False),
    ],
)
def test_negation_decides(question: str, sentences: str, yes: bool) -> None:
    found = polarity(question, sentences)
    assert abs(found) >= DECIDED
    assert (found > 0) == yes


def test_sentences_without_such_words_decide_nothing() -> None:
    assert abs(polarity("Is the lamp red?", "Keeper Osric painted the lamp in 1904.")) < DECIDED


def test_the_answer_says_it_before_the_quotation() -> None:
    text = "The depot never opens on Sunday. Ada Fischer keeps the keys."
    found = extract("Does the depot open on Sunday?", [text])
    assert found is not None
    assert found.text.startswith("No: The depot never opens on Sunday.")
    assert not found.words
