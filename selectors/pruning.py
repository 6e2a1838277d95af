"""Pruning condenses a passage to what a question needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.batching import by_tokens
from kcard.interfaces import Pruner
from kcard.selectors.checkpoints import (
    Checkpoint,
    announce,
    check_trust,
    load,
    loading_errors,
    move_to_device,
    tokenizer,
)
from kcard.selectors.registry import Loading, models
from kcard.selectors.relevance import Cosine
from kcard.system import quiet_loading
from kcard.text import sentence_spans, split_sentences, whole

if TYPE_CHECKING:
    from kcard.embedded.reader import Sentence

# No pruning, to ablate the pruning selector (Knowledge Card, figure 3).


class Unpruned(Pruner):
    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Return the texts unchanged."""
        del question
        return list(texts)


@dataclass(frozen=True)
class Extractive(Pruner):
    """A pruner that keeps sentences whose cosine with the question is at least `ratio` of the best.

    It copies and never rewrites, so it adds no fact. A sentence that is cut off at the end is dropped if there is a
    whole one; at most `most` sentences are kept; a text of one sentence is returned unchanged.
    """

    ratio: float = 0.75
    most: int = 3

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Condense each text, preserving the order of sentences."""
        sentences = [whole(text) for text in texts]
        scored = [s for group in sentences if len(group) > 1 for s in group]
        cosine = dict(zip(scored, Cosine().scores(question, scored).tolist(), strict=True))
        return [self._condensed(text, group, cosine) for text, group in zip(texts, sentences, strict=True)]

    def _condensed(self, text: str, sentences: list[str], cosine: dict[str, float]) -> str:
        if len(sentences) < 2:
            return sentences[0] if sentences and len(sentences[0]) < len(text.strip()) else text
        distinct = list(dict.fromkeys(sentences))
        scores = np.array([cosine[s] for s in distinct])
        floor = self.ratio * scores.max() if scores.max() > 0 else scores.max()
        order = [i for i in np.argsort(-scores, kind="stable") if scores[i] >= floor][: self.most]
        return " ".join(distinct[i] for i in sorted(order))


# Pruning by the embedded reader: keeps the sentences that an answer rests on (Knowledge Card, section 2.2).


@dataclass(frozen=True)
class ReaderPruner(Pruner):
    """An extractive pruner that keeps sentences at most `near` log-odds below the best one.

    A text of up to `short` sentences is returned unchanged.
    """

    near: float = 2.5
    short: int = 2

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Condense each text, preserving the order of sentences."""
        from kcard.embedded.reader import read

        long = [text for text in texts if len(sentence_spans(text)) > self.short]
        readings = dict(zip(long, read(question, long), strict=True))
        return [
            self._condensed(text, readings[text].sentences) if text in readings else text for text in texts
        ]

    def _condensed(self, text: str, sentences: "Sequence[Sentence]") -> str:
        if not sentences:
            return text
        least = max(sentence.evidence for sentence in sentences) - self.near
        return "\n".join(" ".join(text[s.start : s.end].split()) for s in sentences if s.evidence >= least)


# Pruning by a summariser, as in the Knowledge Card paper. It rewrites, and may add what the text does not say.

BATCH_TOKENS = 4096
# Of the Knowledge Card code: one sentence of 10 to 30 tokens, searched by beams without sampling.
PAPER = {"min_length": 10, "max_length": 30}


@dataclass(frozen=True)
class Summariser(Pruner):
    """A sequence-to-sequence model, which ignores the question. `lengths`: in tokens, else the model's own.

    Texts are truncated to the model's window. Nothing is sampled: equal texts have equal summaries.
    """

    model: Any
    tokenizer: Any
    lengths: dict[str, int]

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Summarise each text; a text whose summary is empty stays unchanged."""
        import torch

        del question
        # Encode each text after the prefix that the model was trained to find there (T5: "summarize: ").
        config = self.model.config
        tasks = getattr(config, "task_specific_params", None) or {}
        prefix = tasks.get("summarization", {}).get("prefix", "")
        longest = self.tokenizer.model_max_length
        window = int(min(getattr(config, "max_position_embeddings", None) or longest, longest))
        distinct = [text for text in dict.fromkeys(texts) if text.strip()]
        rows = [
            dict(self.tokenizer(prefix + text, truncation=True, max_length=window, verbose=False))
            for text in distinct
        ]
        # Generate a summary of each, in batches of similar length.
        summaries: dict[str, str] = {}
        for batch in by_tokens([len(row["input_ids"]) for row in rows], BATCH_TOKENS):
            inputs = self.tokenizer.pad([rows[i] for i in batch], return_tensors="pt").to(self.model.device)
            tensors = {key: inputs[key] for key in ("input_ids", "attention_mask")}
            with torch.inference_mode():
                tokens = self.model.generate(**tensors, do_sample=False, **self.lengths)
            written = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
            summaries |= {distinct[i]: summary.strip() for i, summary in zip(batch, written, strict=True)}
        return [summaries.get(text) or text for text in texts]


def pegasus(loading: Loading, model: str | None = None) -> Summariser:
    return _summariser(Checkpoint.from_catalogue(models("pruner", "pegasus")[0], model), loading, PAPER)


def summariser(model: str, loading: Loading) -> Summariser:
    return _summariser(Checkpoint.parse("pruner 'summariser'", model), loading, {})


def _summariser(checkpoint: Checkpoint, loading: Loading, lengths: dict[str, int]) -> Summariser:
    from transformers import AutoModelForSeq2SeqLM

    network = load(AutoModelForSeq2SeqLM, checkpoint, loading)
    return Summariser(network, tokenizer(checkpoint, loading), lengths)


# Pruning by an OpenProvence model: it reads question and text together and keeps the sentences that serve.
#
# Its code is in its repository and runs only if that is trusted. `process` is the interface which that code documents;
# the sentence splitter is ours, so it needs no data of nltk, only the package.


@dataclass(frozen=True)
class Provence(Pruner):
    """An extractive pruner. The threshold is the model's own."""

    model: Any

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Return the kept sentences of each text, in their order; a text of which none is kept stays whole."""
        distinct = [text for text in dict.fromkeys(texts) if text.strip()]
        if not distinct:
            return list(texts)
        result = self.model.process(
            question=question,
            context=distinct,
            title=None,
            sentence_splitter=split_sentences,
            return_sentence_texts=True,
            show_progress=False,
            enable_warnings=False,
        )
        joined = [
            " ".join(s.strip() for s in sentences if s.strip()) for sentences in result["kept_sentences"]
        ]
        pruned = dict(zip(distinct, joined, strict=True))
        return [pruned.get(text) or text for text in texts]


def provence(loading: Loading, model: str | None = None) -> Provence:
    """Load the model. Raises UsageError if remote code is not trusted, else as checkpoints.load does."""
    import torch
    from transformers import AutoModel

    checkpoint = Checkpoint.from_catalogue(models("pruner", "provence")[0], model)
    check_trust(checkpoint, loading)
    announce(checkpoint, loading)
    with loading_errors(checkpoint), quiet_loading():
        # Its own from_pretrained returns the model alone, so what it lacks can't be asked for.
        network = AutoModel.from_pretrained(
            checkpoint.name,
            revision=checkpoint.revision,
            dtype=getattr(torch, loading.dtype),
            use_safetensors=True,
            trust_remote_code=True,
        )
    return Provence(move_to_device(network.eval(), loading.device))
