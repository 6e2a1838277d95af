"""Pruning by a summariser, as in the Knowledge Card paper. It writes anew and may add what the text does not say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kcard.batches import by_tokens
from kcard.selectors.models.catalogue import models
from kcard.selectors.models.checkpoint import Checkpoint, load, tokenizer
from kcard.selectors.registry import Loading

__all__ = ["Summariser", "pegasus", "summariser"]

BATCH_TOKENS = 4096
# Of the Knowledge Card code: one sentence of 10 to 30 tokens, searched by beams without sampling.
PAPER = {"min_length": 10, "max_length": 30}


@dataclass(frozen=True)
class Summariser:
    """A sequence-to-sequence model; it does not look at the question. `lengths`: in tokens, else the model's own.

    A text is read as far as the model reads. Nothing is sampled: the same text has the same summary.
    """

    model: Any
    tokenizer: Any
    lengths: dict[str, int]

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Each text summarised; a text of which nothing comes back stays as it is."""
        del question
        distinct = [text for text in dict.fromkeys(texts) if text.strip()]
        rows = [self._row(text) for text in distinct]
        found: dict[str, str] = {}
        for batch in by_tokens([len(row["input_ids"]) for row in rows], BATCH_TOKENS):
            written = self._write([rows[i] for i in batch])
            found |= {distinct[i]: summary for i, summary in zip(batch, written, strict=True)}
        return [found.get(text) or text for text in texts]

    def _row(self, text: str) -> dict[str, Any]:
        return dict(
            self.tokenizer(self._prefix + text, truncation=True, max_length=self._window, verbose=False)
        )

    @property
    def _window(self) -> int:
        config = self.model.config
        positions = getattr(config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        return int(min(positions, self.tokenizer.model_max_length))

    @property
    def _prefix(self) -> str:
        """What the model was trained to find before a text to be summarised (T5: "summarize: ")."""
        tasks = getattr(self.model.config, "task_specific_params", None) or {}
        return str(tasks.get("summarization", {}).get("prefix", ""))

    def _write(self, rows: Sequence[dict[str, Any]]) -> list[str]:
        import torch

        inputs = self.tokenizer.pad(list(rows), return_tensors="pt").to(self.model.device)
        known = {key: inputs[key] for key in ("input_ids", "attention_mask")}
        with torch.inference_mode():
            written = self.model.generate(**known, do_sample=False, **self.lengths)
        return [text.strip() for text in self.tokenizer.batch_decode(written, skip_special_tokens=True)]


def pegasus(loading: Loading, model: str | None = None) -> Summariser:
    return _summariser(Checkpoint.known(models("pruner", "pegasus")[0], model), loading, PAPER)


def summariser(model: str, loading: Loading) -> Summariser:
    return _summariser(Checkpoint.parse("pruner 'summariser'", model), loading, {})


def _summariser(checkpoint: Checkpoint, loading: Loading, lengths: dict[str, int]) -> Summariser:
    from transformers import AutoModelForSeq2SeqLM

    network = load(AutoModelForSeq2SeqLM, checkpoint, loading)
    return Summariser(network, tokenizer(checkpoint, loading), lengths)
