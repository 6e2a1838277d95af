"""Fact checkers that are models on the Hugging Face Hub.

Evidence is split into chunks of at most 400 tokens, a claim into its sentences, each cut at 100 tokens; evidence and
claim form a pair, in the order that the model was trained on. A sentence has the score of its best chunk, a claim the
mean of its sentences. Pairs of similar length form a batch; padding does not change scores.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.batching import by_tokens
from kcard.errors import ModelUnavailable
from kcard.interfaces import Array, Checker, Pair, Verdict
from kcard.selectors.checkpoints import Checkpoint, digest, load, loading_errors, tokenizer
from kcard.selectors.factuality import TwoCheckers
from kcard.selectors.registry import Loading, models
from kcard.text import split_sentences, whole

if TYPE_CHECKING:
    from torch import Tensor

# The labels of an entailment model: read from its config, then verified on pairs that leave no doubt.

SUPPORTS = frozenset({"entailment", "entails", "supports", "supported", "support", "consistent", "grounded"})
REFUTES = frozenset({"contradiction", "contradicts", "refutes", "refuted", "refute"})

_TOWER = "The Eiffel Tower stands in Paris. It was completed in 1889."
_WATER = "At sea level water freezes at 0 degrees Celsius and boils at 100 degrees Celsius."
_CURIE = "Marie Curie won the Nobel Prize in Physics in 1903 and the Nobel Prize in Chemistry in 1911."
# (evidence, a claim that it supports, a claim that it refutes)
PROBES = (
    (_TOWER, "The Eiffel Tower is in Paris.", "The Eiffel Tower is in London."),
    (
        _WATER,
        "Water boils at 100 degrees Celsius at sea level.",
        "Water boils at 40 degrees Celsius at sea level.",
    ),
    (_CURIE, "Marie Curie won the Nobel Prize in Physics in 1903.", "Marie Curie never won a Nobel Prize."),
)


@dataclass(frozen=True)
class Labels:
    """Indices of the labels among the model's outputs; `refutes` is None if there is no such label."""

    supports: int
    refutes: int | None = None


def read(id2label: Mapping[int, str], meanings: Mapping[str, str], model: str) -> Labels:
    """Return the indices of the labels by their names in the config.

    `meanings`: of names that tell nothing (LABEL_1), from the model's documentation. Raises ModelUnavailable unless
    exactly one label means that the evidence supports the claim.
    """
    usual = {**dict.fromkeys(SUPPORTS, "supports"), **dict.fromkeys(REFUTES, "refutes")}
    for name, meaning in meanings.items():
        usual[_plain(name)] = meaning
    supports, refutes = [], []
    for place, name in id2label.items():
        meaning = usual.get(_plain(str(name)), "")
        if meaning == "supports":
            supports.append(int(place))
        elif meaning == "refutes":
            refutes.append(int(place))
    if len(supports) != 1 or len(refutes) > 1:
        names = ", ".join(map(str, id2label.values()))
        raise ModelUnavailable(
            f"{model} names its labels {names}, and none clearly means supported: choose a model whose "
            "config names one entailment or SUPPORTS"
        )
    if refutes:
        return Labels(supports[0], refutes[0])
    return Labels(supports[0])


def verify(support: Callable[[Sequence[Pair]], Array], model: str) -> None:
    """Raise ModelUnavailable unless plainly supported claims score higher, on average, than plainly refuted ones."""
    pairs = []
    for evidence, true_claim, false_claim in PROBES:
        pairs += [Pair(true_claim, evidence), Pair(false_claim, evidence)]
    scores = support(pairs)
    supported, refuted = float(np.mean(scores[::2])), float(np.mean(scores[1::2]))
    if not supported > refuted:
        raise ModelUnavailable(
            f"{model} scores claims that are plainly refuted {refuted:.2f} and plainly supported ones {supported:.2f}: "
            "its labels are swapped, or it is not a fact checker"
        )


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def chunks(text: str, tokenizer: Any, most: int) -> list[str]:
    """Split a text into chunks of whole sentences, at most `most` tokens each; longer sentences are cut.

    A text that fits is returned stripped, an empty one gives no chunks.
    """
    text = text.strip()
    if not text:
        return []
    if _count([text], tokenizer)[0] <= most:
        return [text]
    pieces = []
    for sentence in split_sentences(text):
        pieces += _pieces(sentence, tokenizer, most)
    merged: list[str] = []
    room = 0
    for piece, tokens in zip(pieces, _count(pieces, tokenizer), strict=True):
        if merged and tokens <= room:
            merged[-1] += f" {piece}"
            room -= tokens
        else:
            merged.append(piece)
            room = most - tokens
    return merged


def cut(text: str, tokenizer: Any, most: int) -> str:
    """Return the text's first `most` tokens."""
    pieces = _pieces(text.strip(), tokenizer, most)
    return pieces[0] if pieces else ""


def _pieces(text: str, tokenizer: Any, most: int) -> list[str]:
    """Split the text into pieces of `most` tokens."""
    spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)[
        "offset_mapping"
    ]
    if len(spans) <= most:
        return [text] if text else []
    edges = [0]
    for start in range(most, len(spans), most):
        edges.append(spans[start][0])
    edges.append(len(text))
    pieces = []
    for begin, end in pairwise(edges):
        piece = text[begin:end].strip()
        if piece:
            pieces.append(piece)
    return pieces


def _count(texts: list[str], tokenizer: Any) -> list[int]:
    return [len(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]]


MAX_PAIR_TOKENS = 512
MAX_CHUNK_TOKENS = 400
MAX_CLAIM_TOKENS = 100
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
class Entailment(Checker):
    """A checker that classifies pairs of evidence and claim.

    logits  takes the tokenizer's tensors and returns shape (n, labels)
    sha256  identifies the scores
    types   whether the model was trained with token types, which mark the second text; some tokenizers of such models
            (ALBERT's) return them only on request
    """

    logits: Callable[[Mapping[str, "Tensor"]], "Tensor"]
    tokenizer: Any
    reading: PairFormat
    labels: Labels
    sha256: str
    device: str = "cpu"
    limit: int = MAX_PAIR_TOKENS
    types: bool = False

    def support(self, pairs: Sequence[Pair]) -> Array:
        """Score how far the evidence supports the claim, shape (n,), in [0, 1]; 0 for an empty claim or evidence."""
        return np.array([verdict.score for verdict in self.judge(pairs)], dtype=np.float32)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Return the scores, each with the chunk that decided: the best one of the least supported sentence."""
        # Split claims into sentences and texts into chunks, which fill the tokens that are left for the evidence.
        alone = len(self._encoded("", "")["input_ids"])
        room = max(1, min(MAX_CHUNK_TOKENS, self.limit - alone - self._max_claim_tokens))
        sentences: dict[str, list[str]] = {}
        parts: dict[str, list[str]] = {}
        for pair in pairs:
            if pair.claim not in sentences:
                sentences[pair.claim] = whole(pair.claim)
            if pair.evidence not in parts:
                parts[pair.evidence] = chunks(pair.evidence, self.tokenizer, room)
        # Score each sentence by each chunk once.
        scores: dict[Pair, float] = {}
        for pair in pairs:
            for sentence, part in product(sentences[pair.claim], parts[pair.evidence]):
                scores[Pair(sentence, part)] = 0.0
        scores.update(zip(scores, self.read(list(scores)).tolist(), strict=True))
        # Take the best chunk of each sentence, and the mean of a claim's sentences.
        verdicts = []
        for pair in pairs:
            best = []
            for sentence in sentences[pair.claim]:
                read = [Verdict(scores[Pair(sentence, part)], part) for part in parts[pair.evidence]]
                if read:
                    best.append(max(read, key=_score))
            if best:
                mean = float(np.mean([verdict.score for verdict in best]))
                verdicts.append(Verdict(mean, min(best, key=_score).window))
            else:
                verdicts.append(Verdict(0.0, ""))
        return verdicts

    def read(self, pairs: Sequence[Pair]) -> Array:
        """Score pairs of one sentence and one chunk, shape (n,)."""
        import torch

        rows = []
        for pair in pairs:
            claim = cut(pair.claim, self.tokenizer, self._max_claim_tokens)
            rows.append(self._encoded(claim, pair.evidence))
        scores = np.zeros(len(rows), dtype=np.float32)
        with torch.inference_mode():
            for batch in by_tokens([len(row["input_ids"]) for row in rows], BATCH_TOKENS):
                inputs = self.tokenizer.pad([rows[i] for i in batch], return_tensors="pt").to(self.device)
                probabilities = self.logits(inputs).float().softmax(-1)
                supports = probabilities[:, self.labels.supports]
                if self.reading.margin and self.labels.refutes is not None:
                    supports = (supports - probabilities[:, self.labels.refutes] + 1) / 2
                scores[batch] = supports.cpu().numpy()
        return scores

    @property
    def _max_claim_tokens(self) -> int:
        return min(MAX_CLAIM_TOKENS, self.limit // 4)

    def _encoded(self, claim: str, evidence: str) -> dict[str, Any]:
        if self.reading.template:
            text = self.reading.template.format(evidence=evidence, claim=claim)
            return dict(self.tokenizer(text, return_token_type_ids=self.types, verbose=False))
        options = {"max_length": self.limit, "return_token_type_ids": self.types, "verbose": False}
        if self.reading.claim_first:
            return dict(self.tokenizer(claim, evidence, truncation="only_second", **options))
        return dict(self.tokenizer(evidence, claim, truncation="only_first", **options))


def _score(verdict: Verdict) -> float:
    return verdict.score


# Fact checkers by name. Each reads pairs in the format of the code it was published with.
#
# vitaminc  evidence, then claim; three labels; the score of the Knowledge Card code, (P(supports) - P(refutes) + 1) / 2
# factkb    summary, then article: the claim first; the label of place 1 is factual
# factcg    one prompt with evidence and claim; the label of place 1 is yes
# hhem      one prompt; a T5 encoder whose first token is classified; the label of place 1 is consistent
# nli       any other: premise (evidence), then hypothesis (claim); P(supports)

_YES = {"LABEL_0": "refutes", "LABEL_1": "supports"}
VITAMINC = PairFormat(
    margin=True,
    meanings={"LABEL_0": "supports", "LABEL_1": "refutes", "LABEL_2": "not enough information"},
)
FACTKB = PairFormat(claim_first=True, meanings=_YES)
FACTCG = PairFormat(
    template='{evidence}\n\nChoose your answer: based on the paragraph above can we conclude that "{claim}"?'
    "\n\nOPTIONS:\n- Yes\n- No\nI think the answer is ",
    meanings=_YES,
)
HHEM = PairFormat(
    template="<pad> Determine if the hypothesis is true given the premise?"
    "\n\nPremise: {evidence}\n\nHypothesis: {claim}",
    meanings=_YES,
)
# Models whose positions start after that of the padding token.
SHIFTED_POSITIONS = {"roberta", "xlm-roberta", "camembert", "mpnet"}


def vitaminc(loading: Loading, model: str | None = None) -> Entailment:
    return _classifier(_catalogued("vitaminc", model), loading, VITAMINC)


def factkb(loading: Loading, model: str | None = None) -> Entailment:
    return _classifier(_catalogued("factkb", model), loading, FACTKB)


def factcg(loading: Loading, model: str | None = None) -> Entailment:
    return _classifier(_catalogued("factcg", model), loading, FACTCG)


def multilingual(loading: Loading, model: str | None = None) -> Entailment:
    return _classifier(_catalogued("multilingual", model), loading, PairFormat())


def nli(model: str, loading: Loading) -> Entailment:
    return _classifier(Checkpoint.parse("checker 'nli'", model), loading, PairFormat())


def hhem(loading: Loading, model: str | None = None) -> Entailment:
    """Load HHEM-2.1-open without the code of its repository, which transformers 5 loads without the tied weights.

    It is a T5 encoder with a token classifier, as transformers has it; only the weights' names differ.
    """
    from transformers import AutoConfig, T5ForTokenClassification

    checkpoint = _catalogued("hhem", model)
    base = checkpoint.tokenizer_place
    with loading_errors(Checkpoint(checkpoint.selector, base.name, base.revision)):
        config = AutoConfig.from_pretrained(
            base.name, revision=base.revision, num_labels=2, trust_remote_code=False
        )
    network = load(
        T5ForTokenClassification, checkpoint, loading, native=True, config=config, key_mapping={r"^t5\.": ""}
    )
    return _verified_checker(
        checkpoint, loading, HHEM, network, lambda inputs: network(**inputs).logits[:, 0]
    )


def paper(loading: Loading) -> TwoCheckers:
    """Load the checkers of the Knowledge Card paper: VitaminC for facts, FactKB for summaries."""
    return TwoCheckers(vitaminc(loading), factkb(loading))


def _catalogued(name: str, elsewhere: str | None) -> Checkpoint:
    return Checkpoint.from_catalogue(models("checker", name)[0], elsewhere)


def _classifier(checkpoint: Checkpoint, loading: Loading, reading: PairFormat) -> Entailment:
    from transformers import AutoModelForSequenceClassification

    network = load(AutoModelForSequenceClassification, checkpoint, loading)
    return _verified_checker(checkpoint, loading, reading, network, lambda inputs: network(**inputs).logits)


def _verified_checker(
    checkpoint: Checkpoint, loading: Loading, reading: PairFormat, network: Any, logits: Any
) -> Entailment:
    words = tokenizer(checkpoint, loading)
    config = network.config
    # At most 512 tokens: models that read more were not trained on more at a time.
    positions = getattr(config, "max_position_embeddings", None) or MAX_PAIR_TOKENS
    if config.model_type in SHIFTED_POSITIONS:
        positions -= (config.pad_token_id or 0) + 1
    limit = int(min(MAX_PAIR_TOKENS, positions, words.model_max_length))
    checker = Entailment(
        logits,
        words,
        reading,
        read(config.id2label, reading.meanings, str(checkpoint)),
        digest(checkpoint, config, reading, loading.dtype),
        loading.device,
        limit,
        types=getattr(config, "type_vocab_size", 0) > 1,
    )
    verify(checker.support, str(checkpoint))
    return checker
