"""The offline LLM: a small memory of what is widely known, and a reader of passages.

It answers requests directly, without prompts: need from the memory's confidence, what with the question itself,
choose by the nearest description, answer by extracting, a draft from the memory alone. It does not reason, and it
says so; where neither passages nor memory hold an answer, it says that it does not know.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kcard.errors import LLMError, ModelUnavailable
from kcard.interfaces import Array
from kcard.llms.parsing import from_logits, named_option
from kcard.llms.prompts import NEED
from kcard.offline.extract import Extract, extract, extract_all
from kcard.offline.networks import Network, read_weights
from kcard.offline.opt import PlainTokenizer
from kcard.offline.reader import QUESTION_TOKENS, question_tokens
from kcard.text import Analyzer, agreement, analyzer, identify, sentence_spans, small_words, stemmer_of, words
from kcard.types import Choice, Quote, Reply, Request, TokenScores

__all__ = [
    "ANSWERED",
    "UNKNOWN_ANSWER",
    "UNKNOWN_TOKEN",
    "WEIGHTS",
    "EmbeddedLLM",
    "EmbeddedMemory",
    "MemoryAnswer",
    "SpanReader",
    "language_of",
    "load",
    "log_odds",
    "prompt",
    "quote",
    "shared",
]


# The embedded memory: a 1.2M-parameter OPT that knows some 1700 widely known facts by heart, and nothing else.
#
# It stands for what a large model knows without cards: asked for anything else, it says so (a token of its own
# stands for "unknown"), and its confidence decides whether the cards are asked. How it was trained:
# weights/memory/README.md.

WEIGHTS = Path(__file__).resolve().parent / "weights" / "memory"
UNKNOWN_TOKEN = "<unknown>"
LONGEST_ANSWER = 24
LONGEST_PROMPT = 120
POSITIONS = 160  # tokens that the model reads, at most
WIDTH, LAYERS, HEADS, PARTS = 128, 4, 2, ("key", "value")
OPENING = re.compile(
    r"^((question|q|answer|please answer)\s*:"
    r"|(can|could|would) you (please )?(tell me|say)|(please )?tell me|do you know|please)[\s,:]+"
)


@dataclass(frozen=True)
class MemoryAnswer:
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
class EmbeddedMemory:
    """A trained memory; `slope` and `threshold` are those of the logistic over its log-odds.

    model      logits, (n, vocabulary), of n token ids behind a state, and the state after them
    tokenizer  that which `load` reads, or transformers' own, which training has
    """

    model: Model
    tokenizer: Any
    slope: float = 1.0
    threshold: float = 0.0

    def recall(self, question: str) -> MemoryAnswer:
        """Return the greedy answer and its confidence."""
        unknown, end = self.tokenizer.convert_tokens_to_ids(UNKNOWN_TOKEN), self.tokenizer.eos_token_id
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
        knows = 1 / (1 + math.exp(min(60.0, -self.slope * (log_odds(least) - self.threshold))))
        return MemoryAnswer(text or "unknown", least, knows, tokens)

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


def _log_softmax(logits: Array) -> Array:
    shifted = logits.astype(np.float32) - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), np.float32)


def log_odds(log_probability: float) -> float:
    """ln(p / (1 - p)), within [-17, 17]: it tells sure from very sure, where log-probabilities are all near 0."""
    clipped = min(max(log_probability, -17.0), -4e-8)
    return clipped - math.log(-math.expm1(clipped))


def prompt(question: str) -> str:
    """Normalise a question for the memory: one lower-case line without punctuation."""
    text = OPENING.sub("", " ".join(question.lower().split()))
    return re.sub(r"[?!.]+$", "", text).strip() + "\n"


@functools.cache
def shared() -> EmbeddedMemory:
    """The shipped memory, loaded once a process."""
    return load(WEIGHTS)


def load(folder: Path) -> EmbeddedMemory:
    """A trained memory; ModelUnavailable where its files are missing."""
    if not (folder / "model.safetensors").is_file():
        raise ModelUnavailable(f"the embedded memory's weights are missing from {folder}: reinstall kcard")
    calibration = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    if (tokenizer := PlainTokenizer.read(folder)) is None:
        raise ModelUnavailable(f"the embedded memory's tokenizer is missing from {folder}: reinstall kcard")
    # The shipped graph with the weights of the folder.
    saved = read_weights(folder / "model.safetensors")
    network = Network("memory", {name.removeprefix("model.decoder."): w for name, w in saved.items()})
    empty = [np.zeros((1, HEADS, 0, WIDTH // HEADS), np.float32)] * (2 * LAYERS)

    def run(ids: Sequence[int], state: State | None) -> tuple[Array, State]:
        past = empty if state is None else state
        start = past[0].shape[2]
        named = {f"past_{part}.{n}": past[2 * n + i] for n in range(LAYERS) for i, part in enumerate(PARTS)}
        positions = np.arange(start, start + len(ids), dtype=np.int64)
        logits, *present = network(ids=np.array([ids], np.int64), positions=positions[None], **named)
        return logits[0], present

    return EmbeddedMemory(run, tokenizer, calibration["slope"], calibration["threshold"])


# What the embedded LLM does in a language that its reader does not know: it quotes the passages that share the
# question's words, and says so.

LETTERS = 60  # that a text must have to tell its language
PASSAGES = 2
WINDOW = 150  # words of one of them
LEAST = 0.5  # share of the question's telling words that a passage must have; of the best share, that another must


def language_of(question: str, passages: Sequence[str]) -> str:
    """The language of the passages, as an ISO 639-1 code; "en" where they are too short to tell."""
    text = " ".join([question, *passages])
    return identify(text[:2000]) if sum(map(str.isalpha, text)) >= LETTERS else "en"


def quote(question: str, passages: Sequence[str], language: str) -> Extract | None:
    """Of the passages, which come the likeliest first, the two that share most with the question, each from the
    sentence that shares most; as probability, which share of the question's words the better one has.

    None where there is no passage.
    """
    stems = analyzer(stemmer_of(language))
    question_stems = {
        stem
        for word in words(question)
        if len(word) > 2 and word not in small_words(language)
        for stem in stems(word)
    }
    if not passages or not question_stems:
        return None
    shares = [len(question_stems & set(stems(text))) / len(question_stems) for text in passages]
    best, *others = sorted(range(len(passages)), key=lambda at: -shares[at])
    quoted = [best, *(at for at in others[: PASSAGES - 1] if shares[at] >= shares[best] * LEAST)]
    parts = [_quote_window(passages[at], question_stems, stems) for at in quoted]
    share = shares[best] if shares[best] >= LEAST else shares[best] * LEAST
    return Extract("\n".join(parts), parts[0], best, share)


def _quote_window(text: str, question_stems: set[str], stems: Analyzer) -> str:
    """The sentence that shares most words with the question, and what follows it."""
    places = sentence_spans(text)
    if not places:
        return text
    first = max(
        range(len(places)), key=lambda at: (len(question_stems & set(stems(text[slice(*places[at])]))), -at)
    )
    start, end = places[first]
    for _, after in places[first + 1 :]:
        if text.count(" ", start, after) >= WINDOW:
            break
        end = after
    return "\n".join(" ".join(line.split()) for line in text[start:end].split("\n") if line.strip())


# The embedded reader as one answer in words, for whoever compares what passages say.

# Probability that an extract is right, below which it is not given (recipes/reader/calibrate.py).
ANSWERED = 0.38


@dataclass(frozen=True)
class SpanReader:
    """A Reader of kcard.interfaces, with the shipped weights."""

    def extract(self, question: str, text: str) -> str | None:
        """Return the words of the text that answer the question; None where the reader is unsure."""
        answer = extract(question, [text])
        if answer is None or not answer.words or answer.probability < ANSWERED:
            return None
        return answer.text


UNKNOWN_ANSWER = "I don't know."
MEANT = 0.5  # cosine, below which an answer out of passages is none of the options
REMEMBERED = 0.5  # probability that the memory is right, below which it is not asked
QUOTED = 0.5  # the same of a quotation in another language
UNREAD = {
    "what",
    "choose",
    "document",
    "knowledge",
    "recite",
    "study",
}  # kinds of requests whose passages are not read


class EmbeddedLLM:
    """Deterministic: it has no temperature. Weights are loaded when they are first needed.

    Its window is for the question alone: passages are read one by one, the long ones in pieces.
    """

    window = QUESTION_TOKENS
    concurrency = 4  # requests that are read together
    deterministic = True

    announcement = "LLM: the embedded reader, an offline stand-in: it extracts answers and does not reason"

    def count(self, request: Request) -> int:
        """The tokens of the question."""
        return question_tokens(request.question)

    def reply(self, request: Request) -> Reply:
        """Never an empty text, but for a document about what the memory does not know. For multiple choice, the text
        is the name (letter) of the chosen option, unless it does not know.

        Raises LLMError for a choice among nothing.
        """
        return _reply(request, _extract_answers([request])[0])

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """The same of each request, or its error; the passages of all are read together."""
        for request, answer in zip(requests, _extract_answers(requests), strict=True):
            try:
                yield _reply(request, answer)
            except LLMError as error:
                yield error


def _extract_answers(requests: Sequence[Request]) -> list[Extract | None]:
    """What the passages of each request answer; None where there is nothing to read."""
    readable = []
    for request in requests:
        if not request.knowledge or request.kind in UNREAD:
            readable.append(False)
        else:
            readable.append(request.kind == "need" or bool(request.choices) or _language(request) == "en")
    chosen = [request for request, reads in zip(requests, readable, strict=True) if reads]
    extracts = iter(extract_all([(r.question, r.knowledge) for r in chosen], [r.headings for r in chosen]))
    return [next(extracts) if reads else None for reads in readable]


def _language(request: Request) -> str:
    return language_of(request.question, request.knowledge) if request.knowledge else "en"


def _reply(request: Request, answer: Extract | None) -> Reply:
    """Return the reply to one request. `answer`: what its passages say."""
    if request.kind == "need":
        if request.knowledge:
            # Whether the reader finds an answer in it: a half where an extract is as likely right as it must be to be
            # given.
            probability = answer.probability if answer else 0.0
            if probability >= ANSWERED:
                yes = 0.5 * (1 - probability) / (1 - ANSWERED)
            else:
                yes = 1 - 0.5 * probability / ANSWERED
        else:
            yes = 1 - shared().recall(request.question).knows
        wants_yes = (yes > 0.5) == NEED[request.template].yes_needs
        return Reply("Yes" if wants_yes else "No", yes)
    if request.kind == "what":
        return Reply(request.question)
    if request.kind == "choose":
        # The choice whose description is nearest to the question, in meaning and in its numbers.
        from kcard import cache

        question, choices = request.question, request.choices
        if not choices:
            raise LLMError("there is nothing to choose from: give at least one card")
        question_vector, *described = cache.embed([question, *(choice.description for choice in choices)])
        agreed = [agreement(question, choice.description) for choice in choices]
        return Reply(choices[int(np.argmax(np.stack(described) @ question_vector * agreed))].name)
    if request.kind == "study":
        raise LLMError("the embedded LLM writes no study material: name another")
    if request.kind in UNREAD:
        # What the memory knows, with the question that it belongs to; empty where it knows nothing.
        question, recollection = request.question, shared().recall(request.question)
        is_sure = recollection.knows >= REMEMBERED
        return Reply(f"{question.strip(' ?')}: {recollection.answer}." if is_sure else "")
    if request.choices:
        return _choose_option(request, answer)
    if request.draft and not request.knowledge:
        recollection = shared().recall(request.question)
        return Reply(recollection.answer, tokens=recollection.tokens)
    # What the passages say; what the memory knows, where they say nothing; else UNKNOWN and what comes nearest.
    language = _language(request)
    if language != "en":
        return _reply_with_quotation(request, language)
    if answer is not None and answer.probability >= ANSWERED:
        return Reply(answer.text, confidence=answer.probability, quote=Quote(answer.quote, answer.passage))
    recollection = shared().recall(request.question)
    if recollection.knows >= REMEMBERED:
        return Reply(recollection.answer, confidence=recollection.knows)
    return _reply_unknown(recollection.knows, answer)


def _reply_unknown(knows: float, answer: Extract | None) -> Reply:
    """That it does not know, and what comes nearest."""
    quote = None if answer is None else Quote(answer.quote, answer.passage)
    likeliest = max(knows, 0.0 if answer is None else answer.probability)
    return Reply(UNKNOWN_ANSWER, confidence=1 - likeliest, known=False, quote=quote)


def _reply_with_quotation(request: Request, language: str) -> Reply:
    """Where the passages are in another language: quoted, without a claim that they answer."""
    quotation = quote(request.question, request.knowledge, language)
    remark = (
        f"the embedded reader supports English only: in {language} it quotes passages that share "
        "the question's words"
    )
    if quotation is None:
        return Reply(UNKNOWN_ANSWER, known=False, remark=remark)
    quoted = Quote(quotation.quote, quotation.passage)
    if quotation.probability >= QUOTED:
        return Reply(quotation.text, quote=quoted, remark=remark)
    return Reply(UNKNOWN_ANSWER, known=False, quote=quoted, remark=remark)


def _choose_option(request: Request, answer: Extract | None) -> Reply:
    """The option that the passages name, else the one that the memory knows; UNKNOWN where neither is sure."""
    if answer is not None and answer.probability >= ANSWERED:
        letter = _match_option(answer, request.choices)
        if letter is not None:
            quote = Quote(answer.quote, answer.passage)
            return Reply(letter, confidence=answer.probability, choice=letter, quote=quote)
    recollection = shared().recall(request.question)
    if recollection.knows >= REMEMBERED:
        letter = named_option(recollection.answer, request.choices)
        if not letter:
            # The option that is likeliest to the memory.
            memory, question = shared(), request.question
            scores = [memory.log_probability(question, choice.description) for choice in request.choices]
            letter = request.choices[int(np.argmax(scores))].name
        return Reply(letter, confidence=recollection.knows, choice=letter)
    return _reply_unknown(recollection.knows, answer)


def _match_option(answer: Extract, choices: Sequence[Choice]) -> str | None:
    """The option that an answer out of passages names or, where it names none, its sentence, or comes nearest to."""
    from kcard.offline import minilm

    letter = named_option(answer.text, choices) or named_option(answer.quote, choices)
    if letter is not None:
        return letter
    answer_vector, *described = minilm.embed([answer.text, *(choice.description for choice in choices)])
    scores = np.stack(described) @ answer_vector
    best = int(np.argmax(scores))
    return choices[best].name if scores[best] >= MEANT else None
