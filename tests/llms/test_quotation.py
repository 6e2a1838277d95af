"""Languages that the embedded reader does not know: passages are quoted, and the reply says so."""

import pytest

from kcard.offline.llm import UNKNOWN_ANSWER, EmbeddedLLM, language_of, quote
from kcard.types import Request

TOWER = (
    "Der Leuchtturm von Altmoor wurde im Jahr 1871 gebaut. Seine Lampe brennt mit Petroleum und leuchtet weit "
    "über das Meer."
)
MILL = "Die Mühle am Bach steht seit vielen Jahren leer. Niemand hat ihre Dächer repariert."
ASKED = "Wann wurde der Leuchtturm von Altmoor gebaut?"


def test_the_language_is_that_of_the_passages() -> None:
    assert language_of(ASKED, [TOWER, MILL]) == "de"
    english = "The lighthouse of Altmoor was built in 1871 and its lamp burns oil every night of the year."
    assert language_of("When was it built?", [english]) == "en"


def test_passages_that_are_too_short_to_tell_count_as_english() -> None:
    assert language_of("Wo?", ["Am Bach."]) == "en"
    assert language_of("", []) == "en"


def test_the_passage_that_shares_the_questions_words_is_quoted() -> None:
    found = quote(ASKED, [MILL, TOWER], "de")
    assert found is not None
    assert found.passage == 1
    assert found.text == found.quote == TOWER
    assert 0.5 <= found.probability <= 1


def test_the_quotation_begins_with_the_sentence_that_shares_most_words_in_any_form() -> None:
    found = quote("Wer repariert das Dach?", [TOWER, MILL], "de")
    assert found is not None
    assert found.text == "Niemand hat ihre Dächer repariert."


def test_a_passage_that_shares_few_words_is_held_to_be_no_answer() -> None:
    found = quote("Welcher König von Spanien regierte länger als alle anderen?", [TOWER], "de")
    assert found is not None
    assert found.probability < 0.5


def test_of_a_long_passage_a_part_is_quoted() -> None:
    long = " ".join([TOWER] + [f"Zimmer {number} ist leer und kalt." for number in range(90)])
    found = quote(ASKED, [long], "de")
    assert found is not None
    assert found.text.startswith("Der Leuchtturm")
    assert 120 < len(found.text.split()) < 200


def test_another_passage_that_shares_nearly_as_much_is_quoted_too() -> None:
    door = "Im Leuchtturm von Altmoor gibt es eine Tür."
    found = quote(ASKED, [MILL, door, TOWER], "de")
    assert found is not None
    assert found.text.split("\n") == [TOWER, door]
    assert (found.quote, found.passage) == (TOWER, 2)


@pytest.mark.parametrize(("question", "passages"), [(ASKED, []), ("?", [TOWER]), ("der die das", [TOWER])])
def test_nothing_is_quoted_without_a_passage_or_a_telling_word(question: str, passages: list[str]) -> None:
    assert quote(question, passages, "de") is None


def test_the_embedded_llm_quotes_and_says_why() -> None:
    reply = EmbeddedLLM().reply(Request("answer", ASKED, (MILL, TOWER)))
    assert reply.text == TOWER
    assert "supports English only" in reply.remark
    assert reply.quote is not None
    assert reply.quote.passage == 1
    assert reply.confidence is None


def test_the_embedded_llm_does_not_quote_what_has_nothing_to_do_with_the_question() -> None:
    reply = EmbeddedLLM().reply(Request("answer", "Wann starb der König von Spanien im Exil?", (MILL,)))
    assert (reply.text, reply.known) == (UNKNOWN_ANSWER, False)
