"""Pruning by an OpenProvence model: it reads question and text together and keeps the sentences that serve.

Its code lies in its repository and is run only where that is trusted. `process` is the interface which that code
documents; the sentences are ours (sentences.py), so it needs no data of nltk, only the package.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kcard.quiet import quiet_loading
from kcard.selectors.models.catalogue import models
from kcard.selectors.models.checkpoint import Checkpoint, announce, check_trust, loading_errors, placed
from kcard.selectors.registry import Loading
from kcard.sentences import split

__all__ = ["Provence", "provence"]


@dataclass(frozen=True)
class Provence:
    """It copies sentences and adds none. The threshold is the model's own."""

    model: Any

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """The sentences of each text that are kept, in their order; a text of which none is kept stays whole."""
        distinct = [text for text in dict.fromkeys(texts) if text.strip()]
        if not distinct:
            return list(texts)
        result = self.model.process(
            question=question,
            context=distinct,
            title=None,
            sentence_splitter=split,
            return_sentence_texts=True,
            show_progress=False,
            enable_warnings=False,
        )
        kept = [" ".join(s.strip() for s in sentences if s.strip()) for sentences in result["kept_sentences"]]
        found = dict(zip(distinct, kept, strict=True))
        return [found.get(text) or text for text in texts]


def provence(loading: Loading, model: str | None = None) -> Provence:
    """Raises UsageError where remote code is not trusted, else as checkpoint.load does."""
    import torch
    from transformers import AutoModel

    checkpoint = Checkpoint.known(models("pruner", "provence")[0], model)
    check_trust(checkpoint, loading)
    announce(checkpoint, loading)
    with loading_errors(checkpoint), quiet_loading():
        # Its own from_pretrained returns the model alone, so what it lacks can't be asked for.
        found = AutoModel.from_pretrained(
            checkpoint.name,
            revision=checkpoint.revision,
            dtype=getattr(torch, loading.dtype),
            use_safetensors=True,
            trust_remote_code=True,
        )
    return Provence(placed(found.eval(), loading.device))
