"""The embedded memory: a 1.2M-parameter OPT that knows some 1700 widely known facts by heart, and nothing else.

It stands for what a large model knows without cards: asked for anything else, it says so (a token of its own
stands for "unknown"), and its confidence decides whether the cards are asked. How it was trained:
weights/memory/README.md.
"""

import functools
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard import opt
from kcard.errors import ModelUnavailable
from kcard.llms.token_scores import from_logits
from kcard.request import TokenScores
from kcard.tokenizer import PlainTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["UNKNOWN", "WEIGHTS", "Memory", "Recollection", "load", "log_odds", "prompt", "shared"]

WEIGHTS = Path(__file__).resolve().parent / "weights" / "memory"
UNKNOWN = "<unknown>"
LONGEST_ANSWER = 24
LONGEST_PROMPT = 120
POSITIONS = 160  # tokens that the model reads, at most
OPENING = re.compile(
    r"^((question|q|answer|please answer)\s*:"
    r"|(can|could|would) you (please )?(tell me|say)|(please )?tell me|do you know|please)[\s,:]+"
)


@dataclass(frozen=True)
class Recollection:
    """What the memory would answer. `least_log_probability` is that of its least sure token, 0 or less.

    `answer` is never the unknown token: where that is likeliest, it is the best guess, with a low probability.
    `knows` is the calibrated probability in [0, 1] that the guess is knowledge; 0.5 is the decision point.
    `tokens`: the scores of the guess's tokens, among those that it could have written.
    """

    answer: str
    least_log_probability: float
    knows: float
    tokens: tuple[TokenScores, ...] = ()


@dataclass(frozen=True)
class Memory:
    """A trained memory; `slope` and `threshold` are those of the logistic over its log-odds.

    Model and tokenizer are those that `load` reads, or transformers' own, which training has.
    """

    model: Any
    tokenizer: Any
    slope: float = 1.0
    threshold: float = 0.0

    def recall(self, question: str) -> Recollection:
        """The greedy answer and its confidence."""
        import torch

        unknown = self.tokenizer.convert_tokens_to_ids(UNKNOWN)
        row = self._prompt_tokens(question)
        answer: list[int] = []
        seen: list[torch.Tensor] = []
        state, least = None, 0.0
        step = torch.tensor([row])
        with torch.inference_mode():
            for _ in range(LONGEST_ANSWER):
                out = self.model(input_ids=step, past_key_values=state, use_cache=True)
                state = out.past_key_values
                scores = torch.log_softmax(out.logits[0, -1].float(), -1)
                scores[unknown] = -math.inf
                if not answer:
                    scores[self.tokenizer.eos_token_id] = -math.inf
                seen.append(scores)
                value, token = scores.max(-1)
                least = min(least, float(value))
                if int(token) == self.tokenizer.eos_token_id:
                    break
                answer.append(int(token))
                step = token.view(1, 1)
        text = self.tokenizer.decode(answer, skip_special_tokens=True).strip()
        written = [*answer, self.tokenizer.eos_token_id][: len(seen)]
        return Recollection(
            text or "unknown", least, self._knows(least), from_logits(torch.stack(seen), written)
        )

    def log_probability(self, question: str, answer: str) -> float:
        """Mean log-probability a token of `answer`, as far as the model reads; 0 or less."""
        import torch

        row = self._prompt_tokens(question)
        answer_ids = [
            *self.tokenizer(answer, add_special_tokens=False)["input_ids"],
            self.tokenizer.eos_token_id,
        ][: POSITIONS - len(row)]
        with torch.inference_mode():
            logits = (
                self.model(input_ids=torch.tensor([[*row, *answer_ids]])).logits[0, len(row) - 1 : -1].float()
            )
        scores = torch.log_softmax(logits, -1)[torch.arange(len(answer_ids)), torch.tensor(answer_ids)]
        return float(scores.mean())

    def _prompt_tokens(self, question: str) -> "Sequence[int]":
        tokens = self.tokenizer(prompt(question), add_special_tokens=False)["input_ids"]
        return [self.tokenizer.bos_token_id, *tokens[-LONGEST_PROMPT:]]

    def _knows(self, least: float) -> float:
        return 1 / (1 + math.exp(min(60.0, -self.slope * (log_odds(least) - self.threshold))))


def log_odds(log_probability: float) -> float:
    """ln(p / (1 - p)), within [-17, 17]: it tells sure from very sure, where log-probabilities are all near 0."""
    held = min(max(log_probability, -17.0), -4e-8)
    return held - math.log(-math.expm1(held))


def prompt(question: str) -> str:
    """The form in which the memory is asked: one lower-case line without marks, so that writing does not matter."""
    text = OPENING.sub("", " ".join(question.lower().split()))
    return re.sub(r"[?!.]+$", "", text).strip() + "\n"


@functools.cache
def shared() -> Memory:
    """The shipped memory, loaded once a process."""
    return load(WEIGHTS)


def load(folder: Path) -> Memory:
    """A trained memory; ModelUnavailable where its files are missing."""
    if not (folder / "model.safetensors").is_file():
        raise ModelUnavailable(f"the embedded memory's weights are missing from {folder}: reinstall kcard")
    given = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    if (tokenizer := PlainTokenizer.read(folder)) is None:
        raise ModelUnavailable(f"the embedded memory's tokenizer is missing from {folder}: reinstall kcard")
    return Memory(opt.OPTNetwork.read(folder), tokenizer, given["slope"], given["threshold"])
