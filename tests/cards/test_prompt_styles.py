import pytest

from kcard.cards.models.prompting import prompt_ids, template_prompts
from kcard.manifest import Prompt
from tests.tiny_tokenizers import of_words

WORDS = ["<pad>", "<s>", "</s>", "<unk>", "where", "does", "the", "rhine", "end", "now"]
BOS, EOS = 1, 2


@pytest.mark.parametrize("frame", ["$A", "<s> $A", "<s> $A </s>", "$A </s>"])
def test_a_prompt_begins_with_bos_once_and_does_not_end_with_eos(frame: str) -> None:
    assert prompt_ids(of_words(WORDS, frame), "where does the rhine end") == [BOS, 4, 5, 6, 7, 8]


def test_a_tokenizer_without_bos_adds_none() -> None:
    assert prompt_ids(of_words(WORDS, "$A", bos=None), "the rhine") == [6, 7]


def test_a_bos_that_is_also_the_eos_is_kept_at_the_start() -> None:
    same = of_words(WORDS, "</s> $A", bos="</s>")
    assert prompt_ids(same, "the rhine") == [EOS, 6, 7]
    assert prompt_ids(same, "") == [EOS]


def test_the_question_stands_in_the_template() -> None:
    rows = template_prompts(
        of_words(WORDS, "<s> $A"), "where {question} now", ["the rhine", " end "], longest=20
    )
    assert rows.ids == ((BOS, 4, 6, 7, 9), (BOS, 4, 8, 9))


def test_of_a_long_question_the_first_words_are_left_out() -> None:
    (row,) = template_prompts(
        of_words(WORDS, "<s> $A"), "{question}", ["where does the rhine end now"], longest=4
    ).ids
    assert row == (BOS, 7, 8, 9)
    (row,) = template_prompts(
        of_words(WORDS, "$A", bos=None), "{question}", ["where does the rhine end now"], longest=4
    ).ids
    assert row == (6, 7, 8, 9)


def test_an_answer_becomes_a_document_with_its_question() -> None:
    answering = Prompt(template="Question: {question}\nAnswer: ")
    assert (
        answering.document(" Where does the Rhine end?\n", "In the sea.")
        == "Where does the Rhine end? In the sea."
    )
    assert answering.document("Where?", "") == ""


@pytest.mark.parametrize("template", ["{question}\n", "{question}", "<user>{question}<assistant>"])
def test_what_is_not_a_bare_answer_is_a_document_by_itself(template: str) -> None:
    assert Prompt(template=template).document("Where?", "It ends in the sea.") == "It ends in the sea."
