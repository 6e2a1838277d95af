"""The network of the embedded reader: all-MiniLM-L6-v2 with LoRA, and a linear head for start and end.

The first token stands for "no answer" (as in SQuAD 2). It knows contexts, not passages: see reader.py.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard import encoder, minilm
from kcard.errors import ModelUnavailable

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
        possible = (inputs["token_type_ids"] == 1) & (inputs["input_ids"] != minilm.SEP)
        possible[:, 0] = True
        found: torch.Tensor = self.head(states).float()
        return found.masked_fill(~possible.unsqueeze(-1), IMPOSSIBLE)


def tokens(questions: Sequence[str], contexts: Sequence[str]) -> "dict[str, torch.Tensor]":
    """`[CLS] question [SEP] context [SEP]`, padded; of the context what fits, with `offset_mapping` into it."""
    import torch

    words = encoder.words()
    asked = dict(zip(questions, words.ids(questions), strict=True))
    rows, types, offsets = [], [], []
    for question, found in zip(questions, words.encodings(contexts), strict=True):
        first = asked[question]
        room = max(0, MAX_TOKENS - 3 - len(first))
        rows.append([minilm.CLS, *first, minilm.SEP, *found.ids[:room], minilm.SEP])
        types.append([0] * (len(first) + 2) + [1] * (len(rows[-1]) - len(first) - 2))
        offsets.append([(0, 0)] * (len(first) + 2) + found.offsets[:room] + [(0, 0)])
    length = max(map(len, rows))
    ids, mask = minilm.padded(rows, length)
    places = torch.zeros(len(rows), length, 2, dtype=torch.long)
    for row, told in enumerate(offsets):
        places[row, : len(told)] = torch.tensor(told)
    kinds, _ = minilm.padded(types, length)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds, "offset_mapping": places}


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
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    adapter = load_file(folder / "adapter_model.safetensors")
    model = encoder.network().merged(adapter, config["lora_alpha"] / config["r"])
    weights = load_file(folder / "head.safetensors")
    head = torch.nn.Linear(encoder.DIMENSIONS, 2)
    with torch.no_grad():
        head.weight.copy_(weights["weight"])
        head.bias.copy_(weights["bias"])
    return Network(model, head, float(weights["threshold"]))
