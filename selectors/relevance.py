"""Relevance of passages to a question: cosine of embeddings, sentence-transformers, random."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from kcard.interfaces import Array, Relevance
from kcard.selectors.checkpoints import (
    Checkpoint,
    announce,
    check_code,
    digest,
    loading_errors,
    move_to_device,
)
from kcard.selectors.registry import Loading, models
from kcard.system import quiet_loading
from kcard.text import agreement
from kcard.types import derive_seed


class Cosine(Relevance):
    """Cosine of the embeddings of all-MiniLM-L6-v2, as in the paper. Empty texts get low scores like any other."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        """Return scores, shape (n,), in [-1, 1]."""
        from kcard import cache

        if not texts:
            return np.zeros(0, dtype=np.float32)
        distinct = list(dict.fromkeys(texts))
        vectors = cache.embed([question, *distinct])
        cosines = np.clip(vectors[1:] @ vectors[0], -1.0, 1.0)
        place = {text: i for i, text in enumerate(distinct)}
        scores: Array = cosines[[place[text] for text in texts]]
        return scores


class MiniLMRelevance(Relevance):
    """Cosine times the agreement of the question's numbers: the encoder hardly distinguishes 2020 from 2022.

    In the paper, relevance is the cosine alone.
    """

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        """Return scores, shape (n,), in [-1, 1]."""
        cosines = Cosine().scores(question, texts)
        agreed = np.array([agreement(question, text) for text in texts], dtype=np.float32)
        return np.where(cosines > 0, cosines * agreed, cosines)


def top(scores: Array | Sequence[float], k: int, floor: float = 0.0) -> list[int]:
    """Return the indices of the k highest scores, best first; of equal ones the earlier first.

    `floor` in [0, 1]: scores below this share of the best one are dropped.
    """
    order: list[int] = np.argsort(-np.asarray(scores), kind="stable")[: max(k, 0)].tolist()
    if not floor or not order or scores[order[0]] <= 0:
        return order
    lowest = floor * scores[order[0]]
    return [i for i in order if scores[i] >= lowest]


MIN_CHANCE_SCORE = 0.99  # so near the highest that no floor drops any


class Chance(Relevance):
    """Random scores, to ablate the relevance selector (Knowledge Card, figure 3)."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        """Draw scores, shape (n,), in [0.99, 1]; seeded by question and text for reproducibility."""
        scores = []
        for text in texts:
            drawn = np.random.default_rng(derive_seed(0, question, text)).random()
            scores.append(MIN_CHANCE_SCORE + (1 - MIN_CHANCE_SCORE) * drawn)
        return np.array(scores, dtype=np.float32)


class Unranked(Relevance):
    """Equal scores: documents stay in the order in which they come, as an index ranks them."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        """Return ones, shape (n,)."""
        del question
        return np.ones(len(texts), dtype=np.float32)


Pooled = Literal["mean", "cls"]
_POOLING_DIGESTS = {None: False, "mean": True, "cls": "cls"}  # as in the digests of earlier versions
_ENCODING = {"show_progress_bar": False, "convert_to_numpy": False, "convert_to_tensor": True}


class SentenceEmbedding(Relevance):
    """Cosine of question and text by any model of sentence-transformers, as in the paper.

    mpnet-base is a plain language model: its embedding is the mean over the states of a text's tokens, without
    padding. The configs of the others name their pooling and prompts. `sha256` identifies the scores.
    """

    def __init__(self, checkpoint: Checkpoint, loading: Loading, pooling: Pooled | None = None) -> None:
        """Load the model. `pooling`: mean over tokens, or the first one ([CLS]), instead of its own. Raises as
        checkpoints.load does."""
        check_code(checkpoint, loading)
        announce(checkpoint, loading)
        with loading_errors(checkpoint), quiet_loading():
            from sentence_transformers import SentenceTransformer

            if pooling is None:
                # As the model was published.
                model = SentenceTransformer(
                    checkpoint.name,
                    revision=checkpoint.revision,
                    device="cpu",
                    trust_remote_code=loading.trust_remote_code,
                    model_kwargs=_model_options(loading),
                )
            else:
                # With the given pooling after its transformer.
                from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

                at = {"revision": checkpoint.revision, "trust_remote_code": False}
                transformer = Transformer(
                    checkpoint.name,
                    model_kwargs=at | _model_options(loading),
                    processor_kwargs=at,
                    config_kwargs=at,
                )
                modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling)]
                model = SentenceTransformer(modules=modules, device="cpu")
        self._model = move_to_device(model.eval(), loading.device)
        # Models without a transformer, such as static embeddings, have no config.
        config = getattr(getattr(model[0], "auto_model", None), "config", None)
        self.sha256 = digest(checkpoint, config, _POOLING_DIGESTS[pooling], loading.dtype)

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        """Return scores, shape (n,), in [-1, 1], independent of other texts."""
        if not texts:
            return np.zeros(0, dtype=np.float32)
        query_vector = self._model.encode_query([question], **_ENCODING)
        distinct = list(dict.fromkeys(texts))
        place = {text: i for i, text in enumerate(distinct)}
        vectors = self._model.encode_document(distinct, **_ENCODING)
        cosines = np.clip(_normalize(vectors) @ _normalize(query_vector)[0], -1.0, 1.0)
        return np.asarray([cosines[place[text]] for text in texts], dtype=np.float32)


def _normalize(vectors: object) -> Array:
    import torch

    assert isinstance(vectors, torch.Tensor)
    normalized = torch.nn.functional.normalize(vectors.float(), dim=-1)
    return np.asarray(normalized.cpu().numpy(), dtype=np.float32)


def mpnet(loading: Loading, model: str | None = None) -> SentenceEmbedding:
    return SentenceEmbedding(_catalogued("mpnet", model), loading)


def mpnet_base(loading: Loading, model: str | None = None) -> SentenceEmbedding:
    return SentenceEmbedding(_catalogued("mpnet-base", model), loading, "mean")


def granite(loading: Loading, model: str | None = None) -> SentenceEmbedding:
    return SentenceEmbedding(_catalogued("granite", model), loading)


def multilingual(loading: Loading, model: str | None = None) -> SentenceEmbedding:
    return SentenceEmbedding(_catalogued("multilingual", model), loading)


def sentence_transformers(model: str, loading: Loading) -> SentenceEmbedding:
    return SentenceEmbedding(Checkpoint.parse("relevance 'sentence-transformers'", model), loading)


def cls(model: str, loading: Loading) -> SentenceEmbedding:
    """Use the state of an encoder's first token, as unsupervised SimCSE does (Gao et al., 2021)."""
    return SentenceEmbedding(Checkpoint.parse("relevance 'cls'", model), loading, "cls")


def _catalogued(name: str, elsewhere: str | None) -> Checkpoint:
    return Checkpoint.from_catalogue(models("relevance", name)[0], elsewhere)


def _model_options(loading: Loading) -> dict[str, object]:
    import torch

    return {"dtype": getattr(torch, loading.dtype), "use_safetensors": True}
