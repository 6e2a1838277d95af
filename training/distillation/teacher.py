"""The teacher: the base model with its adapter off, which reads the passage before the question."""

import functools
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.prompt_styles import prompt_ids
from kcard.llms.generation import Draw, generate, padded_rows
from kcard.sampling import derive_seed
from kcard.training.distillation.loss import LEAST, DistilledExample, TopTokens, top_tokens
from kcard.training.distillation.prompts import AnswerPrompts
from kcard.training.distillation.questions import PassageQuestion
from kcard.training.precision import autocast
from kcard.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

__all__ = ["ANSWER", "REASONS", "Teacher"]

ANSWER = 96  # tokens of an answer at most
TEMPERATURE = 0.25  # at which answers are sampled: low, since each must be right
# Why a question is left out, by number; 0 is none.
REASONS = (
    "",
    "prompts longer than the base reads",
    "answers without an end",
    "answers other than the study material's",
)


@dataclass(frozen=True)
class Teacher:
    """`model`: one of peft. `room`: tokens that it reads; `k`: see top_tokens; `prefix`: tokens that
    stand before the student's prompts."""

    model: Any
    tokenizer: Any
    prompts: AnswerPrompts
    room: int
    k: int
    seed: int = 0
    prefix: int = 0

    @functools.cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end an answer."""
        given = self.model.generation_config.eos_token_id
        ends = {*(given if isinstance(given, list) else [given]), self.tokenizer.eos_token_id} - {None}
        if self.prompts.one_line:
            each = self.tokenizer.batch_decode([[token] for token in range(len(self.tokenizer))])
            ends |= {token for token, text in enumerate(each) if "\n" in text}
        return frozenset(ends)

    def examples(self, batch: Sequence[PassageQuestion]) -> list[DistilledExample | int]:
        """For each question what the student learns, or the number of the reason why it is left out."""
        with self._asleep():
            found: list[DistilledExample | int] = [1] * len(batch)
            fitting = [i for i, asked in enumerate(batch) if self._fits(asked)]
            answers = self._answers([batch[i] for i in fitting])
            for i, answer in zip(fitting, answers, strict=True):
                found[i] = self._verdict(batch[i], answer)
            learned = [(i, answer) for i, answer in zip(fitting, answers, strict=True) if not found[i]]
            tops = self._distributions([(batch[i], answer) for i, answer in learned])
            for (i, answer), top in zip(learned, tops, strict=True):
                asked = tuple(prompt_ids(self.tokenizer, self.prompts.asked(batch[i].text)))
                found[i] = DistilledExample(asked, tuple(answer), teacher=top)
        return found

    def length(self, asked: PassageQuestion) -> int:
        return len(self._told(asked))

    def _told(self, asked: PassageQuestion) -> list[int]:
        return prompt_ids(self.tokenizer, self.prompts.told(asked.passage, asked.text))

    def _fits(self, asked: PassageQuestion) -> bool:
        student = self.prefix + len(prompt_ids(self.tokenizer, self.prompts.asked(asked.text)))
        return max(student, self.length(asked)) + ANSWER <= self.room

    def _answers(self, batch: Sequence[PassageQuestion]) -> list[list[int]]:
        """Sampled answers, each with what ends it: an end-of-text token, also where its line ended."""
        if not batch:
            return []
        draws = [
            Draw(TEMPERATURE, derive_seed(self.seed, "teacher", asked.passage, asked.text)) for asked in batch
        ]
        rows = [self._told(asked) for asked in batch]
        written = generate(self.model, rows, ANSWER, draws, padding=self._padding, ends=self.ends)
        end = self.tokenizer.eos_token_id
        return [
            [*row.tokens[:-1], end] if row.tokens and row.tokens[-1] in self.ends else row.tokens
            for row in written
        ]

    def _verdict(self, asked: PassageQuestion, answer: Sequence[int]) -> int:
        if not answer or answer[-1] != self.tokenizer.eos_token_id:
            return 2
        said = " ".join(words(self.tokenizer.decode(answer, skip_special_tokens=True)))
        return 0 if f" {' '.join(words(asked.answer))} " in f" {said} " else 3

    def _distributions(self, pairs: Sequence[tuple[PassageQuestion, list[int]]]) -> list[TopTokens]:
        """What the teacher expects at each token of the answers."""
        import numpy as np
        import torch

        if not pairs:
            return []
        prompts = [self._told(asked) for asked, _ in pairs]
        rows = [[*prompt, *answer] for prompt, (_, answer) in zip(prompts, pairs, strict=True)]
        ids, mask = padded_rows(rows, self._padding, left=False)
        device = self.model.device
        with torch.inference_mode(), autocast(device.type):
            logits = self.model(
                input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False
            ).logits
            found = []
            for row, prompt, (_, answer) in zip(logits, prompts, pairs, strict=True):
                places = row[len(prompt) - 1 : len(prompt) - 1 + len(answer)]
                top, logs = top_tokens(self._ending(places), self.k)
                found.append(TopTokens(top.cpu().numpy().astype(np.uint32), logs.cpu().numpy()))
        return found

    def _ending(self, logits: "Tensor") -> "Tensor":
        """Logits (n, vocabulary) in which the end of the text stands for all tokens that end an answer."""
        ends = sorted(self.ends)
        kept = logits.float().clone()
        kept[:, ends] = LEAST
        kept[:, self.tokenizer.eos_token_id] = logits[:, ends].float().logsumexp(dim=1)
        return kept

    @property
    def _padding(self) -> int:
        pad = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad is None else pad)

    @contextmanager
    def _asleep(self) -> "Iterator[None]":
        """The adapter is off, and nothing is dropped."""
        training = self.model.training
        self.model.eval()
        try:
            with self.model.disable_adapter():
                yield
        finally:
            self.model.train(training)
