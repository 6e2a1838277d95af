from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from kcard.cards.lm.prompt_styles import prompt_ids, template_prompts

WORDS = ["<pad>", "<s>", "</s>", "<unk>", "where", "does", "the", "rhine", "end", "now"]
BOS, EOS = 1, 2


def tokenizer(frame: str, bos: str | None = "<s>") -> Any:
    """A word tokenizer that puts `frame` around a text, as different bases do."""
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single=frame, special_tokens=[("<s>", BOS), ("</s>", EOS)]
    )
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=words, bos_token=bos, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


@pytest.mark.parametrize("frame", ["$A", "<s> $A", "<s> $A </s>", "$A </s>"])
def test_a_prompt_begins_with_bos_once_and_does_not_end_with_eos(frame: str) -> None:
    assert prompt_ids(tokenizer(frame), "where does the rhine end") == [BOS, 4, 5, 6, 7, 8]


def test_a_tokenizer_without_bos_adds_none() -> None:
    assert prompt_ids(tokenizer("$A", bos=None), "the rhine") == [6, 7]


def test_a_bos_that_is_also_the_eos_is_kept_at_the_start() -> None:
    same = tokenizer("</s> $A", bos="</s>")
    assert prompt_ids(same, "the rhine") == [EOS, 6, 7]
    assert prompt_ids(same, "") == [EOS]


def test_the_question_stands_in_the_template() -> None:
    rows = template_prompts(tokenizer("<s> $A"), "where {question} now", ["the rhine", " end "], longest=20)
    assert rows.ids == ((BOS, 4, 6, 7, 9), (BOS, 4, 8, 9))


def test_of_a_long_question_the_first_words_are_left_out() -> None:
    (row,) = template_prompts(
        tokenizer("<s> $A"), "{question}", ["where does the rhine end now"], longest=4
    ).ids
    assert row == (BOS, 7, 8, 9)
    (row,) = template_prompts(
        tokenizer("$A", bos=None), "{question}", ["where does the rhine end now"], longest=4
    ).ids
    assert row == (6, 7, 8, 9)
