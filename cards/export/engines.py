"""The engines that cards are exported to, and which cards each of them runs as they were trained.

What an engine does not apply it often leaves out without a word, so a card that it would run wrongly is refused here.
Sources: vLLM 0.32 (lora/peft_helper.py, config/lora.py; the models that implement SupportsLoRA), SGLang
(srt/lora/lora_config.py, utils.py), llama.cpp (convert_lora_to_gguf.py, conversion/), Ollama (docs/modelfile).
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ENGINES", "Engine"]


@dataclass(frozen=True)
class Engine:
    """What an engine can run.

    name            as the user writes it
    title           as its makers write it
    port            that its server listens at by default
    ranks           what its greatest rank may be set to; empty: it is not set
    rslora          whether it divides alpha by the root of the rank where the adapter says so
    layers          the linear layers whose LoRA pairs it applies; None: those of every transformer block
    without         model types (config.json) that it does not run
    without_lora    model types that it runs, but without adapters
    gguf            whether it reads GGUF files
    """

    name: str
    title: str
    port: int
    ranks: tuple[int, ...] = ()
    rslora: bool = False
    layers: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    without_lora: frozenset[str] = frozenset()
    gguf: bool = False


PROJECTIONS = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})
PLAIN = frozenset(
    {"bloom", "falcon", "gpt2", "gpt_neox", "gptj", "mpt", "olmo", "phi", "stablelm", "starcoder2"}
)

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            "vllm",
            "vLLM",
            8000,
            ranks=(1, 8, 16, 32, 64, 128, 256, 320, 512),
            rslora=True,
            without_lora=PLAIN,
        ),
        Engine("sglang", "SGLang", 30000, layers=PROJECTIONS, without_lora=PLAIN | {"opt"}),
        Engine("llama.cpp", "llama.cpp", 8080, without=frozenset({"opt"}), gguf=True),
        Engine("ollama", "Ollama", 11434, without=frozenset({"opt"}), gguf=True),
    )
}
