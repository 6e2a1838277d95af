"""The engines that cards are exported to, and which cards each of them runs as they were trained.

What an engine does not apply it often leaves out without a word, so a card that it would run wrongly is refused here.
Sources: vLLM 0.32 (lora/peft_helper.py, config/lora.py; the models that implement SupportsLoRA), llama.cpp
(convert_lora_to_gguf.py, conversion/).
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ENGINES", "LLAMA_CPP", "VLLM", "Engine"]


@dataclass(frozen=True)
class Engine:
    """What an engine can run.

    name            as the user writes it
    title           as its makers write it
    ranks           what its greatest rank may be set to; empty: it is not set
    rslora          whether it divides alpha by the root of the rank where the adapter says so
    without         model types (config.json) that it does not run
    without_lora    model types that it runs, but without adapters
    """

    name: str
    title: str
    ranks: tuple[int, ...] = ()
    rslora: bool = False
    without: frozenset[str] = frozenset()
    without_lora: frozenset[str] = frozenset()


VLLM = Engine(
    "vllm",
    "vLLM",
    ranks=(1, 8, 16, 32, 64, 128, 256, 320, 512),
    rslora=True,
    without_lora=frozenset(
        {"bloom", "falcon", "gpt2", "gpt_neox", "gptj", "mpt", "olmo", "phi", "stablelm", "starcoder2"}
    ),
)
LLAMA_CPP = Engine("llama.cpp", "llama.cpp", without=frozenset({"opt"}))
ENGINES: Mapping[str, Engine] = {engine.name: engine for engine in (VLLM, LLAMA_CPP)}
