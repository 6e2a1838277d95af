"""Tokenizers of a few hundred tokens, made by the tests."""

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

__all__ = ["of_bytes", "of_words"]

SPECIAL = ("<pad>", "<s>", "</s>")


def of_words(words: Sequence[str], frame: str = "<s> $A", bos: str | None = "<s>") -> Any:
    """A token for each of these words, special ones included; `frame` is put around a text."""
    ids = {word: row for row, word in enumerate(words)}
    base = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    base.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [(name, ids[name]) for name in ("<s>", "</s>")]
    base.post_processor = processors.TemplateProcessing(single=frame, special_tokens=special)
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=base, bos_token=bos, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def of_bytes(texts: Sequence[str], size: int = 320, *, bos: bool = True) -> Any:
    """Byte-level BPE with `size` tokens, trained on the texts; `bos`: texts begin with <s>."""
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    base.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[*SPECIAL], initial_alphabet=alphabet, show_progress=False
    )
    base.train_from_iterator(texts, trainer)
    if bos:
        base.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=base, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
