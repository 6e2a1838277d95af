"""What vLLM and SGLang are started with: adapters on their base, or one whole model, and start.sh."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from kcard.cards.embedded import BASE
from kcard.cards.export.engines import Engine
from kcard.cards.export.files import copy_adapter, copy_base, copy_model, copy_tokenizer
from kcard.cards.export.merging import merge
from kcard.cards.export.prepared import Prepared
from kcard.cards.export.scripts import START, write_script
from kcard.cards.lm.loader import SMALL

__all__ = ["write"]

MOST = 8  # adapters in a batch; more cards than that take turns


def write(cards: Sequence[Prepared], engine: Engine, folder: Path, report: Callable[[str], None]) -> None:
    """Write the cards' weights, the tokenizer and start.sh into `folder`."""
    for card in cards:
        if card.adapter is not None:
            copy_adapter(card.card, folder / "adapters" / card.name, card.base_argument)
        elif card.merged:
            report(f"merging {card.name} into its base {card.base.name}")
            merge(card.card, folder / "model")
        else:
            copy_model(card.card.folder, folder / "model")
    if cards[0].adapter is not None:
        copy_tokenizer(cards[0].card, folder / "tokenizer")
        if cards[0].config:  # vLLM looks there for the type of the model, too
            (folder / "tokenizer" / "config.json").write_text(
                json.dumps(dict(cards[0].config)), encoding="utf-8"
            )
        if cards[0].base.name == BASE:
            copy_base(folder / "base")
    names = ", ".join(card.name for card in cards)
    comment = f"Starts {engine.title} with {names}. Further options are passed on, such as --port 8001."
    write_script(folder / START, comment, [_command(cards, engine, _small(folder))], passed_on=True)


def _command(cards: Sequence[Prepared], engine: Engine, small: bool) -> list[list[str]]:
    """What starts the engine, an option with its values in each list.

    small  whether the weights are so small that float32 costs nothing, as kcard runs them
    """
    first, vllm = cards[0], engine.name == "vllm"
    module = "vllm.entrypoints.openai.api_server" if vllm else "sglang.launch_server"
    parts = [["${PYTHON:-python3}", "-m", module]]
    model = "--model" if vllm else "--model-path"
    if first.adapter is None:
        parts += [[model, "./model"], ["--served-model-name", first.name]]
    else:
        parts += [[model, first.base_argument], *_lora(cards, engine)]
        if first.base.revision:
            parts.append(["--revision", first.base.revision])
        parts.append(["--tokenizer" if vllm else "--tokenizer-path", "./tokenizer"])
    if small:
        parts.append(["--dtype", "float32"])
    # A base's own sampling settings, such as a repetition penalty, are not the cards'.
    parts.append(["--generation-config", "vllm"] if vllm else ["--sampling-defaults", "openai"])
    return parts


def _lora(cards: Sequence[Prepared], engine: Engine) -> list[list[str]]:
    adapters = [card.adapter for card in cards if card.adapter is not None]
    rank = max(adapter.rank for adapter in adapters)
    paths = [f"{card.name}=./adapters/{card.name}" for card in cards]
    if engine.ranks:
        rank = min(size for size in engine.ranks if size >= rank)
    parts = [["--enable-lora"], ["--max-lora-rank", str(rank)]]
    if engine.name == "vllm":
        return [*parts, ["--max-loras", str(min(len(cards), MOST))], ["--lora-modules", *paths]]
    layers = sorted({layer for adapter in adapters for layer in adapter.layers})
    return [*parts, ["--lora-target-modules", *layers], ["--lora-paths", *paths]]


def _small(folder: Path) -> bool:
    """Whether the whole model or the base lies in the folder and is small."""
    weights = [path for part in ("model", "base") for path in (folder / part).glob("*.safetensors")]
    return 0 < sum(path.stat().st_size for path in weights) < 4 * SMALL
