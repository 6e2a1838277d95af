"""Unlearning: a card that is trained further forgets the texts that its corpus no longer has.

The target is the base, which never saw them (Chundawat et al., 2023, "Can Bad Teaching Induce Forgetting?"): after a
question about a removed text, or after the text before it, the card should give each of its tokens the probability that
the base gives it. This divergence is bounded, unlike an ascent on the loss of removed texts, which ruins a model (Zhang
et al., 2024, "Negative Preference Optimization", section 3), and it vanishes where the text is forgotten. What the card
says instead is left to the texts that stay, which are replayed. A whole model's base is loaded besides, but only for
these examples.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from kcard.batching import batched
from kcard.cards.models.prompting import prompt_ids
from kcard.offline.pseudo_queries import PseudoQueries
from kcard.training.base_model import WeightSource, load_model
from kcard.training.distillation import DistilledExample, Teacher, target_logits, top_table
from kcard.training.epochs import passage_tokens, question_tokens
from kcard.training.execution import Execution
from kcard.types import derive_seed

if TYPE_CHECKING:
    from kcard.training.finetune import Options

PROMPTS = 8  # of each removed text
SAMPLE = 1000  # texts that stay, from which their questions take words
# Weights that are near their aim take smaller steps, and fewer: a share of the epochs, but at least so many steps, or
# half of those that training from scratch takes.
RATE, EPOCHS, STEPS = 0.5, 0.5, 100

Row = tuple[Sequence[int], Sequence[int]]  # prompt and target, in tokens


@dataclass(frozen=True)
class Unlearning:
    """What turns removed texts into examples.

    model    the card's, with its adapter if it has one
    room     tokens of a prompt with its target
    teacher  with objective distil
    """

    model: Any
    tokenizer: Any
    options: "Options"
    execution: Execution
    origin: WeightSource
    room: int
    teacher: Teacher | None = None

    def examples(self) -> list[DistilledExample]:
        """Return PROMPTS examples of each removed text, with the base's probabilities of their tokens.

        Raises ModelUnavailable where a whole model's base can't be loaded.
        """
        import torch

        if not self.origin.removed:
            return []
        rows = [row for row in self._rows() if row[1]]
        longest = max((len(prompt) + len(target) for prompt, target in rows), default=1)
        # Of a token its own probability counts; with objective distil, in which the base answers, those of others too.
        k = 1 if self.teacher is None else self.teacher.k
        base = self.model
        if self.options.method == "full":
            source = WeightSource(base=self.origin.base)
            base = load_model(self.options, self.execution, source, str(self.model.device))
        was_training = self.model.training
        base.eval()
        examples = []
        with nullcontext() if self.options.method == "full" else base.disable_adapter():
            for part in batched(rows, self.execution.rows(longest)):
                for (prompt, target), logits in zip(
                    part, target_logits(base, part, self._padding), strict=True
                ):
                    merged = logits if self.teacher is None else self.teacher.merge_ends(logits)
                    top = top_table(merged, k, torch.tensor(target, device=logits.device))
                    examples.append(DistilledExample(tuple(prompt), tuple(target), teacher=top))
        self.model.train(was_training)
        return examples

    def _rows(self) -> list[Row]:
        """Return prompts as the card is trained on them, and what it must no longer say after them."""
        rng = Random(derive_seed(self.options.seed, "removed"))
        each = [text for text in self.origin.removed for _ in range(PROMPTS)]
        if self.options.objective == "clm":
            return [self._in_context(text.before, text.text, rng) for text in each]
        ask = PseudoQueries([*self.origin.passages[:SAMPLE], *(text.text for text in self.origin.removed)])
        questions = [ask(text.text, rng) for text in each]
        if self.teacher is not None:  # the card answers in its own words
            rows = self.execution.rows(self.room)
            return [row for part in batched(questions, rows) for row in self.teacher.student_answers(part)]
        targets = passage_tokens(self.tokenizer, [text.text for text in each], self.room)
        prompts = [question_tokens(self.tokenizer, f"{question}\n", self.room) for question in questions]
        return [*zip(prompts, targets, strict=True)]

    def _in_context(self, before: str, text: str, rng: Random) -> Row:
        """Return the text after none, some or all of the words before it in its document."""
        words = before.split(" ")[-self.room :]
        context = " ".join(words[rng.randint(0, len(words)) :])
        start, whole = (prompt_ids(self.tokenizer, part) for part in (context, context + text))
        # A token may hold the last space of the context and the first word of the text.
        same = [one == other for one, other in zip(start, whole, strict=False)]
        border = [*same, False].index(False)
        target = whole[border:][: self.room - 1]
        return whole[:border][-(self.room - len(target)) :] or [self.tokenizer.eos_token_id], target

    @property
    def _padding(self) -> int:
        pad = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad is None else pad)


def unlearning_steps(steps: int, scratch: float) -> int:
    """Return how many steps an update with removed texts takes.

    steps    of all its epochs
    scratch  of training from scratch
    """
    return math.ceil(max(EPOCHS * steps, min(STEPS, scratch / 2)))
