"""The network of the embedded reader: all-MiniLM-L6-v2 with LoRA, and a linear head for start and end.

The first token stands for "no answer" (as in SQuAD 2). It knows contexts, not passages: see reader.py.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard import encoder
from kcard.errors import ModelUnavailable
from kcard.quiet import quiet_loading

if TYPE_CHECKING:
    import torch

__all__ = ["IMPOSSIBLE", "MAX_TOKENS", "Network", "Span", "load", "spans", "tokens"]

MAX_TOKENS = 256
LONGEST_ANSWER = 21
IMPOSSIBLE = -1e4


@dataclass(frozen=True)
class Span:
    """The best answer found. `score` is the log-odds of the span against "no answer": above 0, it is one.

    `text` is the best span even where the score is negative; it is empty only where there was no passage.
    """

    text: str
    score: float

    @property
    def null(self) -> bool:
        """Whether the reader holds that no passage answers the question."""
        return self.score < 0


@dataclass(frozen=True)
class Network:
    """The transformer and its head, (384, 2); `threshold` is what a span's log-odds must exceed."""

    model: Any
    head: "torch.nn.Linear"
    threshold: float = 0.0

    def logits(self, inputs: dict[str, "torch.Tensor"]) -> "torch.Tensor":
        """Start and end logits, shape (n, tokens, 2); only the first token and the passages are possible."""
        states = self.model(**inputs).last_hidden_state
        possible = (inputs["token_type_ids"] == 1) & (inputs["input_ids"] != encoder.tokenizer().sep_token_id)
        possible[:, 0] = True
        found: torch.Tensor = self.head(states).float()
        return found.masked_fill(~possible.unsqueeze(-1), IMPOSSIBLE)


def tokens(questions: Sequence[str], contexts: Sequence[str]) -> Any:
    """`[CLS] question [SEP] context [SEP]`, padded, with offsets into the contexts."""
    return encoder.tokenizer()(
        list(questions),
        list(contexts),
        padding=True,
        truncation="only_second",
        max_length=MAX_TOKENS,
        return_offsets_mapping=True,
        return_tensors="pt",
    )


def spans(network: Network, questions: Sequence[str], contexts: Sequence[str]) -> list[Span]:
    """The best span of each context, of at most LONGEST_ANSWER tokens."""
    import torch

    encoded = tokens(questions, contexts)
    offsets = encoded.pop("offset_mapping")
    with torch.inference_mode():
        logits = network.logits(dict(encoded))
    length = logits.shape[1]
    band = torch.ones(length, length).triu().tril(LONGEST_ANSWER - 1).bool()
    band[0] = False
    pairs = logits[:, :, None, 0] + logits[:, None, :, 1]
    best, where = pairs.masked_fill(~band, 4 * IMPOSSIBLE).flatten(1).max(1)
    odds = best - pairs[:, 0, 0] - network.threshold
    found = []
    for row, context in enumerate(contexts):
        first, last = divmod(int(where[row]), length)
        start, end = int(offsets[row, first, 0]), int(offsets[row, last, 1])
        found.append(Span(_whole_words(context, start, end), float(odds[row])))
    return found


def _whole_words(text: str, start: int, end: int) -> str:
    while start > 0 and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while 0 < end < len(text) and text[end].isalnum() and text[end - 1].isalnum():
        end += 1
    return text[start:end].strip(" \t\n.,;:!?\"'()")


def load(folder: Path) -> Network:
    """A trained reader, its adapter merged into the encoder; ModelUnavailable where its files are missing."""
    import torch
    from safetensors.torch import load_file

    if not (folder / "adapter_model.safetensors").is_file():
        raise ModelUnavailable(f"the embedded reader's weights are missing from {folder}: reinstall kcard")
    with quiet_loading():
        model = encoder.model()
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    _merge(model, load_file(folder / "adapter_model.safetensors"), config)
    weights = load_file(folder / "head.safetensors")
    head = torch.nn.Linear(encoder.DIMENSIONS, 2)
    with torch.no_grad():
        head.weight.copy_(weights["weight"])
        head.bias.copy_(weights["bias"])
    return Network(model, head, float(weights["threshold"]))


def _merge(model: Any, adapter: dict[str, "torch.Tensor"], config: dict[str, Any]) -> None:
    """Add a PEFT LoRA adapter to the weights it was trained on (without importing peft, which takes a second)."""
    import torch

    scale = config["lora_alpha"] / config["r"]
    with torch.no_grad():
        for name, down in adapter.items():
            if not name.endswith(".lora_A.weight"):
                continue
            up = adapter[name.replace(".lora_A.", ".lora_B.")]
            layer = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            model.get_submodule(layer).weight += scale * (up.float() @ down.float())
