"""What vLLM is started with: adapters on their base, or one whole model."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from kcard.cards.embedded import BASE
from kcard.cards.export.engines import VLLM
from kcard.cards.export.files import copy_adapter, copy_base, copy_model, copy_tokenizer
from kcard.cards.export.merging import merge
from kcard.cards.export.prepared import Prepared
from kcard.cards.lm.loader import SMALL

__all__ = ["write"]

MAX_LORAS = 8  # adapters in a batch; more cards than that take turns


def write(cards: Sequence[Prepared], folder: Path, report: Callable[[str], None]) -> list[str]:
    """Write the cards' weights and the tokenizer into `folder`; return the command that starts vLLM there."""
    for card in cards:
        if card.adapter is not None:
            copy_adapter(card.card, folder / "adapters" / card.name, card.base_argument)
        elif card.merged:
            report(f"merging {card.name} into its base {card.base.name}")
            merge(card.card, folder / "model")
        else:
            copy_model(card.card.folder, folder / "model")
    first = cards[0]
    if first.adapter is not None:
        copy_tokenizer(first.card, folder / "tokenizer")
        if first.config:  # vLLM looks there for the type of the model, too
            (folder / "tokenizer" / "config.json").write_text(
                json.dumps(dict(first.config)), encoding="utf-8"
            )
        if first.base.name == BASE:
            copy_base(folder / "base")
    # A base's own sampling settings, such as a repetition penalty, are not the cards'.
    dtype = ["--dtype", "float32"] if _is_small(folder) else []
    return ["vllm", "serve", *_model_arguments(cards), *dtype, "--generation-config", "vllm"]


def _model_arguments(cards: Sequence[Prepared]) -> list[str]:
    first = cards[0]
    if first.adapter is None:
        return ["./model", "--served-model-name", first.name]
    rank = max(card.adapter.rank for card in cards if card.adapter is not None)
    pinned = ["--revision", first.base.revision] if first.base.revision else []
    return [
        *(first.base_argument, "--enable-lora"),
        *("--max-lora-rank", str(min(allowed for allowed in VLLM.ranks if allowed >= rank))),
        *("--max-loras", str(min(len(cards), MAX_LORAS))),
        *("--lora-modules", *(f"{card.name}=./adapters/{card.name}" for card in cards)),
        *pinned,
        *("--tokenizer", "./tokenizer"),
    ]


def _is_small(folder: Path) -> bool:
    """Whether the model or the base lies in the folder and is small enough for float32, as kcard runs it."""
    weights = [path for part in ("model", "base") for path in (folder / part).glob("*.safetensors")]
    return 0 < sum(path.stat().st_size for path in weights) < 4 * SMALL
