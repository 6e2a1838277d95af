"""Cards of the models in tests.cards.engine.models, and what a pool of them is asked."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from kcard.cards.card import Card, finish
from kcard.cards.fingerprint import write_fingerprint
from kcard.cards.models.loader import base_digest
from kcard.cards.pool import CardPool
from kcard.embedded import minilm
from kcard.manifest import Base, Manifest, Prompt
from kcard.types import Sampling
from tests.cards.engine.models import FAMILIES, adapter, model

__all__ = ["GREEDY", "QUESTIONS", "SAMPLED", "full", "lora", "prefixed", "sealed", "texts", "tokenizer"]

QUESTIONS = [
    "Where does the Rhine end?",
    "The Seine?",
    "Which river flows through Vienna, and which through Paris?",
]
SAMPLED = Sampling(temperature=1.0, tokens=12)
GREEDY = Sampling(temperature=0, tokens=12)


def tokenizer() -> Any:
    """Bytes, and three tokens beside them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<s>", "</s>", *alphabet])}
    bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=bpe, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def sealed(folder: Path, manifest: Manifest) -> Card:
    tokenizer().save_pretrained(folder)
    write_fingerprint(folder, manifest, [])
    return finish(folder, manifest, [])


def lora(folder: Path, family: str, name: str, seed: int, **options: Any) -> Card:
    """On the family's base in folder/base."""
    base = folder / f"{family}-base"
    if not base.exists():
        model(family).save_pretrained(base)
    targets = options.pop("targets", FAMILIES[family][1][0])
    where = adapter(model(family), folder / name, seed, targets, **options)
    made_from = Base(str(base), sha256=base_digest(str(base)))
    return sealed(where, Manifest(name=name, description=name, method="lora", base=made_from))


def full(folder: Path, family: str, name: str, seed: int) -> Card:
    model(family, seed).save_pretrained(folder / name)
    return sealed(folder / name, Manifest(name=name, description=name))


def prefixed(folder: Path, name: str, seed: int) -> Card:
    model("opt", seed).save_pretrained(folder / name)
    torch.manual_seed(seed)
    tensors = {"weight": torch.randn(3 * 32, minilm.DIMENSIONS), "bias": torch.randn(3 * 32)}
    save_file(tensors, folder / name / "projection.safetensors")
    prompt = Prompt("encoder-prefix", "", 3, minilm.NAME, minilm.SHA256)
    return sealed(folder / name, Manifest(name=name, description=name, prompt=prompt))


def texts(
    pool: CardPool, names: list[str], sampling: Sampling = SAMPLED, questions: list[str] = QUESTIONS
) -> list[list[str]]:
    return [[p.text for p in row] for row in pool.generate(questions, [names] * len(questions), 2, sampling)]
