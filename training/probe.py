"""A probe of what a base recalls while it learns to recite: questions as in an exam, on a small sample.

The questions have forms that training never uses (kcard.training.embedded.pseudo_queries), and an answer counts as in
an exam: the generated document must contain it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kcard.cards.models.prompting import prompt_ids
from kcard.llms.generation import generate
from kcard.text import spaced_words
from kcard.training.embedded.pseudo_queries import GapQuestion, bare, held_out
from kcard.training.execution import autocast
from kcard.training.run import unwritable
from kcard.types import derive_seed

MAX_DRAWS = 1000  # passages from which the questions are made
ENOUGH_RECALL = 0.95  # in two probes, one after the other
CHANCE_RECALL = 0.1  # by which probes of the same model may differ
MAX_TIME_SHARE = 0.05  # of the training time at most goes into probes
BEST_WEIGHTS = "best.pt"


@dataclass(frozen=True)
class ProbeQuestion:
    """A question as the model's prompt, the accepted answers, and the tokens of its passage."""

    prompt: Sequence[int]
    answers: Sequence[str]
    length: int


def probe_questions(
    texts: Sequence[str], tokenizer: Any, room: int, count: int, seed: int
) -> list[ProbeQuestion]:
    """Return at most `count` questions about different passages, the same for the same corpus and seed.

    room  tokens of the model's context window, of which a question takes at most a third
    """
    rng = Random(derive_seed(seed, "probe"))
    gaps: list[GapQuestion] = []
    for place in rng.sample(range(len(texts)), min(MAX_DRAWS, len(texts))):
        gap = held_out(texts[place], seed)
        if gap is not None:
            gaps.append(gap)
        if len(gaps) == count:
            break
    # Another passage with the same words around the gap gives another right answer.
    answers = [{gap.answer: None} for gap in gaps]
    for text in texts:
        plain = " ".join(text.split()).rstrip(".!?…")
        for gap, accepted in zip(gaps, answers, strict=True):
            before, after = gap.around
            if plain.startswith(before) and plain.endswith(after) and len(plain) > len(before + after):
                accepted[bare(plain[len(before) : len(plain) - len(after)].strip())] = None
    questions = []
    for gap, accepted in zip(gaps, answers, strict=True):
        prompt = prompt_ids(tokenizer, f"{gap.text}\n")[: room // 3]
        length = len(prompt_ids(tokenizer, gap.passage)[: room // 2])
        questions.append(ProbeQuestion(prompt, [*accepted], length))
    return questions


@dataclass
class RecallProbe:
    """Probes of one run, after each pass over the corpus, or less often if they would take over 5 % of the time.

    model, tokenizer  of transformers
    steps_a_pass  of training
    recalls       share of the questions answered right, in [0, 1], of each probe so far
    """

    model: Any
    tokenizer: Any
    questions: Sequence[ProbeQuestion]
    steps_a_pass: float
    recalls: list[float] = field(default_factory=list)
    _best: Path = Path()
    _passed: float = 0.0  # passes since the last probe
    _ended: float = 0.0  # when the last probe ended
    _seconds: float = 0.0  # that the last probe took

    @property
    def last_recall(self) -> float | None:
        return self.recalls[-1] if self.recalls else None

    def begin(self, folder: Path, recalls: Sequence[float]) -> None:
        """Begin a run, or go on after the probes with these `recalls`; the best weights are kept in the folder."""
        self.recalls, self._best = list(recalls), folder / BEST_WEIGHTS
        self._passed, self._ended = 0.0, time.monotonic()
        if not recalls:
            self._best.unlink(missing_ok=True)

    def step(self, *, is_last: bool) -> None:
        """Count a step, and probe the model if that is due; after the last step it is."""
        self._passed += 1 / self.steps_a_pass
        trained = time.monotonic() - self._ended
        is_due = self._passed > 1 - 1e-6 and self._seconds <= MAX_TIME_SHARE * (trained + self._seconds)
        if not (is_due or is_last):
            return
        begun = time.monotonic()
        recall = self.measure()
        if recall >= max(self.recalls, default=0.0):
            self._keep_weights()
        self.recalls.append(recall)
        self._passed, self._ended = 0.0, time.monotonic()
        self._seconds = self._ended - begun

    def measure(self) -> float:
        """Return the share of questions whose greedily generated document contains an accepted answer."""
        was_training = self.model.training
        self.model.eval()
        padding, end = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        if padding is None:
            padding = end
        with autocast(self.model.device.type):
            written = generate(
                self.model,
                [question.prompt for question in self.questions],
                max(question.length for question in self.questions) + 1,  # and the end of the text
                temperature=0.0,
                seeds=[0] * len(self.questions),
                padding=padding,
                ends={end},
            )
        self.model.train(was_training)
        right = 0
        for question, document in zip(self.questions, written, strict=True):
            text = spaced_words(self.tokenizer.decode(document.tokens, skip_special_tokens=True))
            right += any(spaced_words(answer) in text for answer in question.answers)
        return right / len(self.questions)

    def reason_to_end(self) -> str:
        """Return why training can end, after the last probe; empty if it can't."""
        last = self.recalls[-2:]
        if len(last) == 2 and min(last) >= ENOUGH_RECALL:
            return f"the model recalls {last[-1]:.0%} of {len(self.questions)} held-out questions"
        return ""

    def restore_best(self) -> None:
        """Load the weights of the best probe if the last one was worse by more than chance."""
        import torch

        if not self._is_last_worse or not self._best.exists():
            return
        saved = torch.load(self._best, weights_only=True, map_location="cpu")
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                if name in saved:
                    weight.copy_(saved[name])

    @property
    def _is_last_worse(self) -> bool:
        return bool(self.recalls) and max(self.recalls) - self.recalls[-1] > CHANCE_RECALL

    def record(self) -> Mapping[str, Any]:
        """Return what the manifest says: the recall of the weights that were kept, and of each probe."""
        if not self.recalls:
            return {}
        recalls = [round(recall, 4) for recall in self.recalls]
        recall = max(recalls) if self._is_last_worse else recalls[-1]
        return {"probe_questions": len(self.questions), "probe_recall": recall, "probes": recalls}

    def _keep_weights(self) -> None:
        import torch

        trained = {
            name: weight.detach() for name, weight in self.model.named_parameters() if weight.requires_grad
        }
        try:
            self._best.parent.mkdir(parents=True, exist_ok=True)
            torch.save(trained, self._best)
        except (OSError, RuntimeError) as error:  # torch's own where the disk is full
            raise unwritable(self._best.parent, error) from error
