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


class Unpruned(Pruner):
    """No pruning, to ablate the pruning selector (Knowledge Card, figure 3)."""

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
        scored: dict[str, float] = {}
        for text in texts:
            sentences = whole(text)
            if len(sentences) > 1:
                scored.update(dict.fromkeys(sentences, 0.0))
        scored.update(zip(scored, Cosine().scores(question, list(scored)).tolist(), strict=True))
        return [self._condensed(text, scored) for text in texts]

    def _condensed(self, text: str, cosine: dict[str, float]) -> str:
        sentences = list(dict.fromkeys(whole(text)))
        if not sentences:
            return text
        if len(sentences) == 1:
            # The text stays as it is, unless a second sentence was cut off or repeats the first.
            is_shorter = len(sentences[0]) < len(text.strip())
            return sentences[0] if is_shorter else text
        scores = np.array([cosine[sentence] for sentence in sentences])
        floor = scores.max()
        if floor > 0:
            floor *= self.ratio
        best = np.argsort(-scores, kind="stable")[: self.most]
        chosen = sorted(best[scores[best] >= floor])
        return " ".join(sentences[i] for i in chosen)


@dataclass(frozen=True)
class ReaderPruner(Pruner):
    """Keep the sentences that an answer rests on by the embedded reader (Knowledge Card, section 2.2): those at most
    `near` log-odds below the best one.

    A text of up to `short` sentences is returned unchanged.
    """

    near: float = 2.5
    short: int = 2

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Condense each text, preserving the order of sentences."""
        from kcard.embedded.reader import read

        long = [text for text in texts if len(sentence_spans(text)) > self.short]
        condensed = {}
        for text, reading in zip(long, read(question, long), strict=True):
            condensed[text] = self._condensed(text, reading.sentences)
        return [condensed.get(text, text) for text in texts]

    def _condensed(self, text: str, sentences: "Sequence[Sentence]") -> str:
        if not sentences:
            return text
        floor = max(sentence.evidence for sentence in sentences) - self.near
        chosen = []
        for sentence in sentences:
            if sentence.evidence >= floor:
                words = text[sentence.start : sentence.end].split()
                chosen.append(" ".join(words))
        return "\n".join(chosen)


BATCH_TOKENS = 4096
# Of the Knowledge Card code: one sentence of 10 to 30 tokens, searched by beams without sampling.
PAPER_LENGTHS = {"min_length": 10, "max_length": 30}


@dataclass(frozen=True)
class Summariser(Pruner):
    """A sequence-to-sequence model, which ignores the question. `lengths`: in tokens, else the model's own.

    It rewrites, as in the Knowledge Card paper, and may add what the text does not say. Texts are truncated to the
    model's window. Nothing is sampled: equal texts have equal summaries.
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
        rows = []
        for text in distinct:
            row = self.tokenizer(prefix + text, truncation=True, max_length=window, verbose=False)
            rows.append(dict(row))
        # Generate a summary of each, in batches of similar length.
        summaries: dict[str, str] = {}
        for batch in by_tokens([len(row["input_ids"]) for row in rows], BATCH_TOKENS):
            inputs = self.tokenizer.pad([rows[i] for i in batch], return_tensors="pt").to(self.model.device)
            with torch.inference_mode():
                tokens = self.model.generate(
                    input_ids=inputs["input_ids"],
                    attention_mask=inputs["attention_mask"],
                    do_sample=False,
                    **self.lengths,
                )
            written = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
            for i, summary in zip(batch, written, strict=True):
                summaries[distinct[i]] = summary.strip()
        return [summaries.get(text) or text for text in texts]


def pegasus(loading: Loading, model: str | None = None) -> Summariser:
    return _summariser(
        Checkpoint.from_catalogue(models("pruner", "pegasus")[0], model), loading, PAPER_LENGTHS
    )


def summariser(model: str, loading: Loading) -> Summariser:
    return _summariser(Checkpoint.parse("pruner 'summariser'", model), loading, {})


def _summariser(checkpoint: Checkpoint, loading: Loading, lengths: dict[str, int]) -> Summariser:
    from transformers import AutoModelForSeq2SeqLM

    network = load(AutoModelForSeq2SeqLM, checkpoint, loading)
    return Summariser(network, tokenizer(checkpoint, loading), lengths)


@dataclass(frozen=True)
class Provence(Pruner):
    """An OpenProvence model: it reads question and text together and keeps the sentences that serve, by its threshold.

    Its code is in its repository and runs only if that is trusted. `process` is the interface which that code
    documents; the sentence splitter is ours, so it needs no data of nltk, only the package.
    """

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
        pruned = {}
        for text, sentences in zip(distinct, result["kept_sentences"], strict=True):
            stripped = [sentence.strip() for sentence in sentences]
            pruned[text] = " ".join(filter(None, stripped))
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
