"""A checker of any sequence classifier that tells whether evidence supports a claim.

Evidence is read in chunks of at most 400 tokens, a claim by its sentences, of which each is cut at 100 tokens;
evidence and claim go in as a pair, in the order that the model was trained on. A sentence has the score of its best
chunk, a claim the mean of its sentences. Pairs are padded in batches of like length, which changes no score.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.batches import by_tokens
from kcard.protocols import Array, Pair, Verdict
from kcard.selectors.models.chunks import chunks, cut
from kcard.selectors.models.labels import Labels
from kcard.sentences import whole

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Entailment", "PairFormat"]

LIMIT = 512
CHUNK = 400
CLAIM = 100
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class PairFormat:
    """How a model reads a pair, and how its labels become a score.

    claim_first  the claim is the first text of the pair; else the evidence
    template     instead of a pair, one text with {evidence} and {claim}
    margin       the score is (P(supports) - P(refutes) + 1) / 2; else P(supports)
    meanings     what label names mean that say nothing by themselves
    """

    claim_first: bool = False
    template: str = ""
    margin: bool = False
    meanings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Entailment:
    """`logits` takes the tokenizer's tensors and gives shape (n, labels). `sha256` names the scores.

    types   whether the model was trained with token types, which mark the second text, which some tokenizers
            of such models (ALBERT's) do not say unasked
    """

    logits: Callable[[Mapping[str, "Tensor"]], "Tensor"]
    tokenizer: Any
    reading: PairFormat
    labels: Labels
    sha256: str
    device: str = "cpu"
    limit: int = LIMIT
    types: bool = False

    def support(self, pairs: Sequence[Pair]) -> Array:
        """How far the evidence supports the claim, shape (n,), in [0, 1]; 0 for an empty claim or evidence."""
        return np.array([verdict.score for verdict in self.judge(pairs)], dtype=np.float32)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """The same, each with the chunk that decided: the best one for the least supported sentence."""
        claims = {claim: whole(claim) for claim in dict.fromkeys(pair.claim for pair in pairs)}
        texts = dict.fromkeys(pair.evidence for pair in pairs)
        parts = {text: chunks(text, self.tokenizer, self._room) for text in texts}
        read = [
            Pair(s, chunk) for pair in pairs for s in claims[pair.claim] for chunk in parts[pair.evidence]
        ]
        todo = list(dict.fromkeys(read))
        scores = dict(zip(todo, self.read(todo).tolist(), strict=True))
        return [_verdict(claims[pair.claim], parts[pair.evidence], scores) for pair in pairs]

    def read(self, pairs: Sequence[Pair]) -> Array:
        """The score of each sentence against each chunk, as they are, shape (n,)."""
        import torch

        rows = [self._row(pair) for pair in pairs]
        found = np.zeros(len(rows), dtype=np.float32)
        with torch.inference_mode():
            for batch in by_tokens([len(row["input_ids"]) for row in rows], BATCH_TOKENS):
                inputs = self.tokenizer.pad([rows[i] for i in batch], return_tensors="pt").to(self.device)
                probabilities = self.logits(inputs).float().softmax(-1)
                found[batch] = self._score(probabilities).cpu().numpy()
        return found

    def _score(self, probabilities: "Tensor") -> "Tensor":
        supports = probabilities[:, self.labels.supports]
        if not self.reading.margin or self.labels.refutes is None:
            return supports
        return (supports - probabilities[:, self.labels.refutes] + 1) / 2

    @property
    def _claim(self) -> int:
        return min(CLAIM, self.limit // 4)

    @property
    def _room(self) -> int:
        """Tokens that are left for the evidence."""
        alone = len(self._encoded("", "")["input_ids"])
        return max(1, min(CHUNK, self.limit - alone - self._claim))

    def _row(self, pair: Pair) -> dict[str, Any]:
        return self._encoded(cut(pair.claim, self.tokenizer, self._claim), pair.evidence)

    def _encoded(self, claim: str, evidence: str) -> dict[str, Any]:
        if self.reading.template:
            text = self.reading.template.format(evidence=evidence, claim=claim)
            return dict(self.tokenizer(text, return_token_type_ids=self.types, verbose=False))
        pair = (claim, evidence) if self.reading.claim_first else (evidence, claim)
        side = "only_second" if self.reading.claim_first else "only_first"
        options = {"truncation": side, "max_length": self.limit, "verbose": False}
        return dict(self.tokenizer(*pair, return_token_type_ids=self.types, **options))


def _verdict(sentences: Sequence[str], parts: Sequence[str], scores: Mapping[Pair, float]) -> Verdict:
    if not sentences or not parts:
        return Verdict(0.0, "")
    best = [max(((scores[Pair(s, chunk)], chunk) for chunk in parts), key=lambda b: b[0]) for s in sentences]
    return Verdict(float(np.mean([score for score, _ in best])), min(best, key=lambda b: b[0])[1])
