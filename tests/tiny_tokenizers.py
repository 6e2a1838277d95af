"""Tokenizers of a few hundred tokens, made by the tests."""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

__all__ = ["of_bytes", "of_pieces", "of_words"]

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


def of_pieces(texts: Sequence[str]) -> Any:
    """The texts' characters, and bytes for others, in the form of Llama 2's tokenizer, which llama.cpp converts.

    Characters are not joined, because llama.cpp would join them in another order.
    """
    base = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    base.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    base.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    named = ["<unk>", "<s>", "</s>"]
    found = [*named, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=len(found), special_tokens=found, show_progress=False)
    base.train_from_iterator([text.replace(" ", "▁") for text in texts], trainer)
    data = json.loads(base.to_str())
    # Bytes are tokens like any other.
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in named]
    base = Tokenizer.from_str(json.dumps(data))
    base.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=base, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
