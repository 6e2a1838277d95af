"""The embedded card's tokenizer: byte-level BPE trained on the corpus, so that no text is out of reach."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

__all__ = ["BOS", "EOS", "PAD", "SPECIAL", "tokenizer_of", "train_tokenizer"]

PAD, BOS, EOS = 0, 1, 2
SPECIAL = ["<pad>", "<s>", "</s>"]


def train_tokenizer(texts: Iterable[str], vocabulary: int = 3000) -> "PreTrainedTokenizerFast":
    """At most `vocabulary` tokens, the 256 bytes among them; a call puts <s> in front of the text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(texts, trainer)
    model.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return tokenizer_of(model)


def tokenizer_of(model: "Tokenizer") -> "PreTrainedTokenizerFast":
    """As transformers reads it."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", bos_token="<s>", eos_token="</s>", model_max_length=256
    )
