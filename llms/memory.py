"""The embedded memory: a 1.2M-parameter OPT that knows some 1700 widely known facts by heart, and nothing else.

It stands for what a large model knows without cards: asked for anything else, it says so (a token of its own
stands for "unknown"), and its confidence decides whether the cards are asked. How it was trained:
weights/memory/README.md.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kcard.errors import ModelUnavailable
from kcard.llms.token_scores import from_logits
from kcard.networks import Network, read_weights
from kcard.protocols import Array
from kcard.request import TokenScores
from kcard.tokenizer import PlainTokenizer

__all__ = ["UNKNOWN", "WEIGHTS", "Memory", "Recollection", "load", "log_odds", "prompt", "shared"]

WEIGHTS = Path(__file__).resolve().parent / "weights" / "memory"
UNKNOWN = "<unknown>"
LONGEST_ANSWER = 24
LONGEST_PROMPT = 120
POSITIONS = 160  # tokens that the model reads, at most
WIDTH, LAYERS, HEADS, PARTS = 128, 4, 2, ("key", "value")
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


State = Sequence[Array]
Model = Callable[[Sequence[int], State | None], tuple[Array, State]]


@dataclass(frozen=True)
class Memory:
    """A trained memory; `slope` and `threshold` are those of the logistic over its log-odds.

    model      logits, (n, vocabulary), of n token ids behind a state, and the state after them
    tokenizer  that which `load` reads, or transformers' own, which training has
    """

    model: Model
    tokenizer: Any
    slope: float = 1.0
    threshold: float = 0.0

    def recall(self, question: str) -> Recollection:
        """Return the greedy answer and its confidence."""
        unknown, end = self.tokenizer.convert_tokens_to_ids(UNKNOWN), self.tokenizer.eos_token_id
        step, state, least = self._prompt_tokens(question), None, 0.0
        answer: list[int] = []
        seen: list[Array] = []
        for _ in range(LONGEST_ANSWER):
            logits, state = self.model(step, state)
            scores = _log_softmax(logits[-1])
            scores[unknown] = -math.inf
            if not answer:
                scores[end] = -math.inf
            seen.append(scores)
            token = int(scores.argmax())
            least = min(least, float(scores[token]))
            if token == end:
                break
            answer.append(token)
            step = [token]
        text = self.tokenizer.decode(answer, skip_special_tokens=True).strip()
        written = [*answer, end][: len(seen)]
        tokens = from_logits(np.stack(seen), written)
        return Recollection(text or "unknown", least, self._knows(least), tokens)

    def log_probability(self, question: str, answer: str) -> float:
        """Return the mean log-probability a token of `answer`, as far as the model reads; 0 or less."""
        row = self._prompt_tokens(question)
        answer_ids = [
            *self.tokenizer(answer, add_special_tokens=False)["input_ids"],
            self.tokenizer.eos_token_id,
        ][: POSITIONS - len(row)]
        logits, _ = self.model([*row, *answer_ids], None)
        scores = _log_softmax(logits[len(row) - 1 : -1])
        return float(scores[np.arange(len(answer_ids)), answer_ids].mean())

    def _prompt_tokens(self, question: str) -> "Sequence[int]":
        tokens = self.tokenizer(prompt(question), add_special_tokens=False)["input_ids"]
        return [self.tokenizer.bos_token_id, *tokens[-LONGEST_PROMPT:]]

    def _knows(self, least: float) -> float:
        return 1 / (1 + math.exp(min(60.0, -self.slope * (log_odds(least) - self.threshold))))


def _log_softmax(logits: Array) -> Array:
    shifted = logits.astype(np.float32) - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), np.float32)


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
    return Memory(_exported(folder), tokenizer, given["slope"], given["threshold"])


def _exported(folder: Path) -> Model:
    """The shipped graph with the weights of a folder."""
    prefix = "model.decoder."
    saved = read_weights(folder / "model.safetensors")
    weights = {name.removeprefix(prefix): weight for name, weight in saved.items()}
    network = Network("memory", weights)
    empty = [np.zeros((1, HEADS, 0, WIDTH // HEADS), np.float32)] * (2 * LAYERS)

    def run(ids: Sequence[int], state: State | None) -> tuple[Array, State]:
        past = empty if state is None else state
        start = past[0].shape[2]
        named = {f"past_{part}.{n}": past[2 * n + i] for n in range(LAYERS) for i, part in enumerate(PARTS)}
        positions = np.arange(start, start + len(ids), dtype=np.int64)
        logits, *present = network(ids=np.array([ids], np.int64), positions=positions[None], **named)
        return logits[0], present

    return run
