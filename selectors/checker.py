"""The offline fact checker: does this text support that claim? MiniLM with a LoRA adapter trained by us.

Of the evidence the four windows that share most words with the claim are read; the claim has the score of
its best window: P(supports) x (0.4 + 0.6 g), g the share of the claim's numbers in it (windows.py). A claim of
several sentences has the mean of theirs. A sentence that stands in the evidence word for word is supported: 1.
"""

import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard import encoder
from kcard.errors import ModelUnavailable
from kcard.manifest import file_digest
from kcard.protocols import Array, Pair
from kcard.selectors import cross_encoder
from kcard.selectors.sentences import split, whole
from kcard.selectors.windows import grounding, windows

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["WEIGHTS", "MiniLMChecker"]

WEIGHTS = Path(__file__).parent / "weights" / "checker"
MAX_TOKENS = 192
BATCH_TOKENS = 4096
FLOOR = 0.4


@dataclass(frozen=True)
class MiniLMChecker:
    """Scores are the same in any batch, to about 1e-5: windows are padded, never cut, to their neighbours."""

    windows: int = 4
    weights: Path = WEIGHTS

    @property
    def sha256(self) -> str:
        """What names these scores: the digest of the encoder's and the adapter's weights and of `windows`."""
        return _digest(self.weights, self.windows)

    def support(self, pairs: Sequence[Pair]) -> Array:
        """How far the evidence supports the claim, shape (n,), in [0, 1]; 0 for an empty claim or evidence.

        Raises ModelUnavailable where the weights are missing.
        """
        claims = [whole(pair.claim) for pair in pairs]
        single = [Pair(s, pair.evidence) for pair, group in zip(pairs, claims, strict=True) for s in group]
        scores = iter(self._sentences(single))
        means = [float(np.mean([next(scores) for _ in group])) if group else 0.0 for group in claims]
        return np.array(means, dtype=np.float32)

    def _sentences(self, pairs: Sequence[Pair]) -> list[float]:
        """The score of each single-sentence claim: the best of its windows, or 1 where it is stated."""
        best = {pair: 1.0 if _stated(pair) else 0.0 for pair in pairs}
        read = [
            (pair, Pair(pair.claim, window))
            for pair, score in best.items()
            if score == 0.0
            for window in windows(pair.evidence, pair.claim, self.windows)
        ]
        todo = list(dict.fromkeys(window for _, window in read))
        supports = dict(zip(todo, self.read(todo).tolist(), strict=True))
        for pair, window in read:
            grounded = supports[window] * (FLOOR + (1 - FLOOR) * grounding(window.claim, window.evidence))
            best[pair] = max(best[pair], grounded)
        return [best[pair] for pair in pairs]

    def read(self, pairs: Sequence[Pair]) -> Array:
        """P(supports) by the network alone, shape (n,): evidence read from its start, in batches of like length."""
        import torch

        if not pairs:
            return np.zeros(0, dtype=np.float32)
        network, head = _load(self.weights)
        rows = cross_encoder.rows(encoder.tokenizer(), pairs, MAX_TOKENS)
        found = torch.zeros(len(rows))
        with torch.inference_mode():
            for batch in cross_encoder.batches([len(row.ids) for row in rows], BATCH_TOKENS):
                found[batch] = cross_encoder.logits(network, head, [rows[i] for i in batch]).softmax(-1)[:, 0]
        return np.asarray(found.numpy(), dtype=np.float32)


def _stated(pair: Pair) -> bool:
    return _plain(pair.claim) in {_plain(sentence) for sentence in split(pair.evidence)}


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.lower()).strip()


@functools.cache
def _digest(folder: Path, windows: int) -> str:
    try:
        files = [file_digest(path) for path in sorted(folder.glob("*.safetensors"))]
    except OSError as error:
        raise ModelUnavailable(f"the checker's weights in {folder} can't be read: {error}") from error
    return hashlib.sha256("\n".join([encoder.SHA256, *files, str(windows)]).encode()).hexdigest()


@functools.cache
def _load(folder: Path) -> tuple[Any, Mapping[str, "Tensor"]]:
    """The encoder with the adapter merged in (fp32) and the head, once a process."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        adapter = load_file(folder / "adapter_model.safetensors")
        head = load_file(folder / "head.safetensors")
        scale = _scale(folder)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise ModelUnavailable(
            f"the checker's weights in {folder} can't be read: {error}; reinstall kcard"
        ) from error
    network = encoder.model()
    for name, parameter in network.named_parameters():
        down = adapter.get(f"base_model.model.{name.removesuffix('.weight')}.lora_A.weight")
        if down is not None:
            up = adapter[f"base_model.model.{name.removesuffix('.weight')}.lora_B.weight"]
            parameter.data += scale * (up.float() @ down.float())
    return network, {name: weight.float() for name, weight in head.items()}


def _scale(folder: Path) -> float:
    import json

    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    return float(config["lora_alpha"]) / float(config["r"])
