"""Cards of tiny models that a server of vLLM can have: adapters on one base, with fingerprints."""

import shutil
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from kcard.cards.card import Card, finish
from kcard.cards.fingerprint import write_fingerprint
from kcard.cards.models.loader import base_digest
from kcard.manifest import Base, Manifest, seal
from kcard.types import Source
from tests.corpora import RIVERS
from tests.tiny_tokenizers import of_bytes

TEXTS = RIVERS[:2]
QUESTIONS = ["Where does the Rhine end?", "Which river flows through Vienna, then through Budapest?"]


def llama(folder: Path, seed: int = 1, width: int = 32, heads: int = 2) -> Path:
    """A base with its tokenizer. vLLM needs heads of 64."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(
        "llama", vocab_size=320, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2,
        num_attention_heads=heads, num_key_value_heads=heads // 2, max_position_embeddings=128, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, initializer_range=0.3 if width < 64 else 0.1,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    of_bytes(TEXTS).save_pretrained(folder)
    return folder


def adapter(folder: Path, base: Path, name: str, seed: int, rank: int = 4, **manifest: Any) -> Card:
    torch.manual_seed(seed)
    config = LoraConfig(
        r=rank, target_modules=["q_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(str(folder))
    made_from = Base(str(base), sha256=base_digest(str(base)))
    return proven(folder, Manifest(name, name.title(), method="lora", base=made_from, **manifest))


def whole(folder: Path, name: str) -> Card:
    return proven(llama(folder), Manifest(name, name.title()))


def proven(folder: Path, manifest: Manifest) -> Card:
    """The card with its fingerprint."""
    of_bytes(TEXTS).save_pretrained(folder)
    write_fingerprint(folder, manifest, [(f"What is {text[:12]}?", text) for text in TEXTS])
    return finish(folder, manifest, [Source(text) for text in TEXTS])


def zeroed(card: Card, folder: Path) -> Card:
    """A copy whose adapter does nothing."""
    shutil.copytree(card.folder, folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    save_file({name: tensor * 0 for name, tensor in tensors.items()}, folder / "adapter_model.safetensors")
    seal(folder, card.manifest)
    return Card.open(folder)


def texts(pool: Any, cards: list[Card], sampling: Any, documents: int = 1) -> list[list[str]]:
    """By question: what the cards write."""
    rows = pool.generate(QUESTIONS, [[card.name for card in cards]] * len(QUESTIONS), documents, sampling)
    return [[passage.text for passage in row] for row in rows]
