"""A tokenizer that follows its corpus: old words are split as before, and tokens that nothing needs are gone."""

from transformers import PreTrainedTokenizerFast

from kcard.offline.recipe import BOS, EOS, PAD, train_tokenizer
from kcard.offline.trainee import prune_and_extend_tokenizer

STAY = [f"The {thing} of Lower Marsh was built by {name}." for thing, name in
        (("mill", "Ada Fischer"), ("inn", "Bo Lindqvist"), ("bridge", "Cy Okafor"), ("tower", "Di Novak"))]  # fmt: skip
GONE = "The observatory of Quixley was founded by Zebulon Wrexham."
NEW = "The lighthouse of Port Ondine is kept by Saskia Vandermeer."


def split(tokenizer: PreTrainedTokenizerFast, text: str) -> list[str]:
    return tokenizer.tokenize(text)


def test_a_text_that_stays_is_split_as_before() -> None:
    last = train_tokenizer([*STAY, GONE], 420)
    now = prune_and_extend_tokenizer(last, STAY, [], 420)
    assert [split(now, text) for text in STAY] == [split(last, text) for text in STAY]


def test_the_words_of_a_text_that_has_gone_are_no_tokens_any_more() -> None:
    last = train_tokenizer([*STAY, GONE])
    now = prune_and_extend_tokenizer(last, [*STAY, NEW], [NEW], 3000)
    for word in ("Quixley", "Zebulon", "Wrexham", "observatory"):
        assert f"Ġ{word}" in last.get_vocab()
        assert not any(word[:5] in token for token in now.get_vocab())
    assert "Wrexham" not in now.backend_tokenizer.to_str()


def test_new_words_get_tokens_as_far_as_there_is_room() -> None:
    last = train_tokenizer(STAY)
    now = prune_and_extend_tokenizer(last, [*STAY, NEW], [NEW], 3000)
    assert "ĠVandermeer" in now.get_vocab()
    full = prune_and_extend_tokenizer(last, [*STAY, NEW], [NEW], len(last) + 3)
    assert len(full) == len(last) + 3
    assert str(now.decode(now(NEW)["input_ids"], skip_special_tokens=True)).strip() == NEW


def test_special_tokens_keep_their_numbers_through_many_revisions() -> None:
    texts = [*STAY]
    tokenizer = train_tokenizer(texts)
    for number in range(20):
        texts = [*texts[1:], f"The keeper of gate {number} is Nils Aalto the {number}th."]
        tokenizer = prune_and_extend_tokenizer(tokenizer, texts, texts[-1:], 3000)
    assert tokenizer.convert_tokens_to_ids(["<pad>", "<s>", "</s>"]) == [PAD, BOS, EOS]
    assert tokenizer(texts[0])["input_ids"][0] == BOS
    assert "Fischer" not in tokenizer.backend_tokenizer.to_str()
