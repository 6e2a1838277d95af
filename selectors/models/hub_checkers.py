"""Fact checkers from the hub, by name. How each reads a pair is that of the code it was published with.

vitaminc  evidence, then claim; three labels; the score of the Knowledge Card code, (P(supports) - P(refutes) + 1) / 2
factkb    summary, then article: the claim first; the label of place 1 is factual
factcg    one prompt with evidence and claim; the label of place 1 is yes
hhem      one prompt; a T5 encoder whose first token is classified; the label of place 1 is consistent
nli       any other: premise (evidence), then hypothesis (claim); P(supports)
"""

from typing import Any

from kcard.selectors.models import labels
from kcard.selectors.models.catalogue import models
from kcard.selectors.models.checkpoint import Checkpoint, digest, load, loading_errors, tokenizer
from kcard.selectors.models.entailment import LIMIT, Entailment, PairFormat
from kcard.selectors.models.two_checkers import TwoCheckers
from kcard.selectors.registry import Loading

__all__ = ["factcg", "factkb", "hhem", "nli", "paper", "vitaminc"]

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
SHIFTED = {"roberta", "xlm-roberta", "camembert", "mpnet"}  # positions start after that of the padding token


def vitaminc(loading: Loading, model: str | None = None) -> Entailment:
    return _classifier(_known("vitaminc", model), loading, VITAMINC)


def factkb(loading: Loading, model: str | None = None) -> Entailment:
    return _classifier(_known("factkb", model), loading, FACTKB)


def factcg(loading: Loading, model: str | None = None) -> Entailment:
    return _classifier(_known("factcg", model), loading, FACTCG)


def multilingual(loading: Loading, model: str | None = None) -> Entailment:
    return _classifier(_known("multilingual", model), loading, PairFormat())


def nli(model: str, loading: Loading) -> Entailment:
    return _classifier(Checkpoint.parse("checker 'nli'", model), loading, PairFormat())


def hhem(loading: Loading, model: str | None = None) -> Entailment:
    """HHEM-2.1-open without the code of its repository, which transformers 5 loads without the tied weights.

    It is a T5 encoder with a token classifier, which transformers has; only the weights' names differ.
    """
    from transformers import AutoConfig, T5ForTokenClassification

    checkpoint = _known("hhem", model)
    base = checkpoint.tokenizer_place
    with loading_errors(Checkpoint(checkpoint.selector, base.name, base.revision)):
        config = AutoConfig.from_pretrained(
            base.name, revision=base.revision, num_labels=2, trust_remote_code=False
        )
    network = load(
        T5ForTokenClassification, checkpoint, loading, native=True, config=config, key_mapping={r"^t5\.": ""}
    )
    return _verified(checkpoint, loading, HHEM, network, lambda inputs: network(**inputs).logits[:, 0])


def paper(loading: Loading) -> TwoCheckers:
    """As in the Knowledge Card paper: VitaminC checks facts, FactKB summaries."""
    return TwoCheckers(vitaminc(loading), factkb(loading))


def _known(name: str, elsewhere: str | None) -> Checkpoint:
    return Checkpoint.known(models("checker", name)[0], elsewhere)


def _classifier(checkpoint: Checkpoint, loading: Loading, reading: PairFormat) -> Entailment:
    from transformers import AutoModelForSequenceClassification

    network = load(AutoModelForSequenceClassification, checkpoint, loading)
    return _verified(checkpoint, loading, reading, network, lambda inputs: network(**inputs).logits)


def _verified(
    checkpoint: Checkpoint, loading: Loading, reading: PairFormat, network: Any, logits: Any
) -> Entailment:
    words = tokenizer(checkpoint, loading)
    config = network.config
    found = Entailment(
        logits,
        words,
        reading,
        labels.read(config.id2label, reading.meanings, str(checkpoint)),
        digest(checkpoint, config, reading, loading.dtype),
        loading.device,
        _limit(config, words),
        types=getattr(config, "type_vocab_size", 0) > 1,
    )
    labels.verify(found.support, str(checkpoint))
    return found


def _limit(config: Any, words: Any) -> int:
    """Tokens that the model reads at a time, at most 512: those that read more were not trained on more at a time."""
    positions = getattr(config, "max_position_embeddings", None) or LIMIT
    if config.model_type in SHIFTED:
        positions -= (config.pad_token_id or 0) + 1
    return int(min(LIMIT, positions, words.model_max_length))
