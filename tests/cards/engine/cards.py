"""Cards of the models in tests.cards.engine.models, and what a pool of them is asked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from kcard.cards.card import Card, finish
from kcard.cards.fingerprint import write_fingerprint
from kcard.cards.models.loader import base_digest
from kcard.cards.pool import CardPool
from kcard.embedded import minilm
from kcard.manifest import Base, Manifest, Prompt
from kcard.types import Sampling, Source
from tests.cards.engine.models import FAMILIES, adapter, model
from tests.tiny_tokenizers import of_bytes

Pairs = Sequence[tuple[str, str]]

QUESTIONS = [
    "Where does the Rhine end?",
    "The Seine?",
    "Which river flows through Vienna, and which through Paris?",
]
SAMPLED = Sampling(temperature=1.0, tokens=12)
GREEDY = Sampling(temperature=0, tokens=12)


def tokenizer() -> Any:
    """Bytes, and three tokens beside them."""
    return of_bytes([], 259)


def sealed(folder: Path, manifest: Manifest, pairs: Pairs = ()) -> Card:
    """The card of a model or adapter in the folder, whose fingerprint has these questions and passages."""
    tokenizer().save_pretrained(folder)
    write_fingerprint(folder, manifest, list(pairs))
    return finish(folder, manifest, [Source(text) for _, text in pairs])


def lora(folder: Path, family: str, name: str, seed: int, pairs: Pairs = (), **options: Any) -> Card:
    """On the family's base in folder/base."""
    base = folder / f"{family}-base"
    if not base.exists():
        model(family).save_pretrained(base)
    targets = options.pop("targets", FAMILIES[family][1][0])
    where = adapter(model(family), folder / name, seed, targets, **options)
    made_from = Base(str(base), sha256=base_digest(str(base)))
    return sealed(where, Manifest(name=name, description=name, method="lora", base=made_from), pairs)


def full(folder: Path, family: str, name: str, seed: int, pairs: Pairs = ()) -> Card:
    model(family, seed).save_pretrained(folder / name)
    return sealed(folder / name, Manifest(name=name, description=name), pairs)


def prefixed(folder: Path, name: str, seed: int, pairs: Pairs = ()) -> Card:
    model("opt", seed).save_pretrained(folder / name)
    torch.manual_seed(seed)
    tensors = {"weight": torch.randn(3 * 32, minilm.DIMENSIONS), "bias": torch.randn(3 * 32)}
    save_file(tensors, folder / name / "projection.safetensors")
    prompt = Prompt("encoder-prefix", "", 3, minilm.NAME, minilm.SHA256)
    return sealed(folder / name, Manifest(name=name, description=name, prompt=prompt), pairs)


def texts(
    pool: CardPool, names: list[str], sampling: Sampling = SAMPLED, questions: list[str] = QUESTIONS
) -> list[list[str]]:
    return [[p.text for p in row] for row in pool.generate(questions, [names] * len(questions), 2, sampling)]
