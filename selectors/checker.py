"""The offline fact checker: does this text support that claim? MiniLM with a LoRA adapter trained by us.

Of the evidence the four windows that share most words with the claim are read; the claim has the score of
its best window: P(supports), times 0.4 where a number of the claim does not stand in it (windows.py). A claim of
several sentences has the mean of theirs; of more than 64, the mean of 64 that are evenly spread. A sentence that
stands in the evidence word for word is supported: 1.
It is Judging: it names the window that decided.
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
from kcard.batches import by_tokens
from kcard.errors import ModelUnavailable
from kcard.manifest import file_digest
from kcard.protocols import Array, Pair, Verdict
from kcard.selectors import cross_encoder
from kcard.selectors.windows import grounded, near, windows
from kcard.sentences import whole

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["WEIGHTS", "MiniLMChecker"]

WEIGHTS = Path(__file__).parent / "weights" / "checker"
MAX_TOKENS = 192
MOST_SENTENCES = 64  # of a claim: a text of 50 kB would keep a core busy for half a minute
UNGROUNDED = 0.4


@dataclass(frozen=True)
class MiniLMChecker:
    """Scores are the same in any batch: to the bit or to about 1e-7, as embeddings are (kcard.encoder.embed)."""

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
        return np.array([verdict.score for verdict in self.judge(pairs)], dtype=np.float32)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """The scores of `support`, each with the one or two sentences of the evidence that decided it.

        Of a claim of several sentences it is the window of the least supported one: that is where to look. It is
        empty where claim or evidence is.
        """
        claims = [_spread(whole(pair.claim)) for pair in pairs]
        single = [Pair(s, pair.evidence) for pair, group in zip(pairs, claims, strict=True) for s in group]
        verdicts = iter(self._sentences(single))
        return [_together([next(verdicts) for _ in group]) for group in claims]

    def _sentences(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Of each single-sentence claim: the best of its windows, or the sentence that states it."""
        found, read = dict[Pair, Verdict](), list[tuple[Pair, Pair]]()
        for pair in dict.fromkeys(pairs):
            sentences = near(pair.evidence, pair.claim)
            stated = next((s for s in sentences if _plain(s) == _plain(pair.claim)), None)
            found[pair] = Verdict(0.0, "") if stated is None else Verdict(1.0, stated)
            if stated is None:
                read += [(pair, Pair(pair.claim, w)) for w in windows(sentences, pair.claim, self.windows)]
        todo = list(dict.fromkeys(window for _, window in read))
        supports = dict(zip(todo, self.read(todo).tolist(), strict=True))
        for pair, window in read:
            score = supports[window] * (1.0 if grounded(window.claim, window.evidence) else UNGROUNDED)
            if score > found[pair].score:
                found[pair] = Verdict(score, window.evidence)
        return [found[pair] for pair in pairs]

    def read(self, pairs: Sequence[Pair]) -> Array:
        """P(supports) by the network alone, shape (n,): evidence read from its start, in batches of like length."""
        import torch

        if not pairs:
            return np.zeros(0, dtype=np.float32)
        network, head = _load(self.weights)
        rows = cross_encoder.rows(encoder.words().ids, pairs, MAX_TOKENS)
        found = torch.zeros(len(rows))
        with torch.inference_mode():
            for batch in by_tokens([len(row.ids) for row in rows], encoder.BATCH_TOKENS, encoder.WIDTH):
                logits = cross_encoder.logits(network, head, [rows[i] for i in batch], multiple=encoder.WIDTH)
                found[batch] = logits.softmax(-1)[:, 0]
        return np.asarray(found.numpy(), dtype=np.float32)


def _spread(sentences: list[str]) -> list[str]:
    """At most MOST_SENTENCES of them, evenly spread, so that the time of a claim is bounded."""
    if len(sentences) <= MOST_SENTENCES:
        return sentences
    return [sentences[i * len(sentences) // MOST_SENTENCES] for i in range(MOST_SENTENCES)]


def _together(verdicts: Sequence[Verdict]) -> Verdict:
    """Of the sentences of one claim: their mean, with the window of the least supported one."""
    if not verdicts:
        return Verdict(0.0, "")
    least = min(verdicts, key=lambda verdict: verdict.score)
    return Verdict(float(np.mean([verdict.score for verdict in verdicts])), least.window)


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
    network = encoder.network().merged(adapter, scale)
    return network, {name: weight.float() for name, weight in head.items()}


def _scale(folder: Path) -> float:
    import json

    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    return float(config["lora_alpha"]) / float(config["r"])
