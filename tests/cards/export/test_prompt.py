"""Prompts as text: what an engine's tokenizer makes of them is what the card was trained to read."""

from typing import Any

import pytest
from tokenizers import processors

from kcard.cards.export import Expected, expected, text_prompt
from kcard.cards.fingerprint import Fingerprint, Probe
from kcard.cards.models.prompting import prompt_ids
from kcard.errors import CardError
from tests.tiny_tokenizers import of_bytes

TEXTS = ["The Rhine ends in the North Sea.", "The Danube ends in the Black Sea."]
QUESTION = "Where does the Rhine end?"


def fingerprint(tokenizer: Any, card: list[float], base: list[float], text: str = TEXTS[0]) -> Fingerprint:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][: len(card)]
    prompt = tuple(prompt_ids(tokenizer, QUESTION + "\n"))
    return Fingerprint("float32", (Probe(QUESTION, text, prompt, tuple(ids), tuple(card), tuple(base)),))


@pytest.mark.parametrize(("bos", "before"), [(True, ""), (False, "<s>")])
def test_the_text_brings_the_bos_token_only_where_the_tokenizer_does_not(bos: bool, before: str) -> None:
    tokenizer = of_bytes(TEXTS, bos=bos)
    prompt = text_prompt("rivers", tokenizer, "{question}\n", None)
    assert prompt.before == before
    sent = tokenizer(prompt.before + prompt.template.replace("{question}", QUESTION))["input_ids"]
    assert sent == prompt_ids(tokenizer, f"{QUESTION}\n")
    assert sent[0] == tokenizer.bos_token_id


def test_a_tokenizer_that_ends_texts_can_not_be_asked_with_text() -> None:
    tokenizer = of_bytes(TEXTS)
    frame = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer.backend_tokenizer.post_processor = frame
    with pytest.raises(CardError, match=r"frames texts in another way: use kcard serve"):
        text_prompt("rivers", tokenizer, "{question}\n", None)


def test_the_token_that_the_adapter_moves_most_shows_it() -> None:
    tokenizer = of_bytes(TEXTS)
    found = expected(tokenizer, fingerprint(tokenizer, [-0.1, -0.2, -0.1, -3.0], [-0.2, -7.0, -4.0, -12.0]))
    ids = tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    prompt = prompt_ids(tokenizer, QUESTION + "\n")
    assert found == [
        Expected(
            text=tokenizer.decode([*prompt[1:], ids[0]]),
            ids=(*prompt, ids[0]),
            token=tokenizer.decode([ids[1]]),
            card=-0.2,
            base=-7.0,
        )
    ]


def test_what_neither_the_card_is_sure_of_nor_the_adapter_moves_shows_nothing() -> None:
    tokenizer = of_bytes(TEXTS)
    assert expected(tokenizer, fingerprint(tokenizer, [-0.1, -3.0], [-0.2, -12.0])) == []
    assert expected(tokenizer, None) == []


def test_a_whole_model_is_shown_by_what_it_is_sure_of() -> None:
    tokenizer = of_bytes(TEXTS)
    (found,) = expected(tokenizer, fingerprint(tokenizer, [-2.0, -0.5, -0.1], []))
    assert (found.card, found.base) == (-0.1, None)


def test_tokens_that_no_text_gives_are_shown_as_ids() -> None:
    tokenizer = of_bytes(TEXTS)
    kept = fingerprint(tokenizer, [-0.1, -0.1], [-5.0, -9.0], "a b")
    row = kept.rows[0]
    # Single bytes where the tokenizer would have joined them.
    split = Probe(row.question, row.text, (*row.prompt, *tokenizer.convert_tokens_to_ids(["T", "h", "e"])), *(
        (row.continuation, row.card, row.base)
    ))  # fmt: skip
    (found,) = expected(tokenizer, Fingerprint("float32", (split,)))
    assert found.text == ""
    assert found.ids[: len(split.prompt)] == split.prompt
