"""The offline LLM: a small memory of widely known facts, and a reader of passages.

It handles requests directly, without prompts: `need` by the memory's confidence, `what` with the question itself,
`choose` by the nearest description, answers by extraction, drafts from the memory alone. It does not reason, and
says so; if neither passages nor memory have the answer, it says that it does not know.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kcard.embedded.networks import WEIGHTS_FOLDER, Network, log_softmax, read_weights
from kcard.embedded.opt import PlainTokenizer
from kcard.embedded.reader import QUESTION_TOKENS, count_tokens
from kcard.errors import LLMError, ModelUnavailable
from kcard.interfaces import LLM, Array
from kcard.llms.extraction.extract import Extract, extract, extract_all
from kcard.llms.extraction.quotation import collapse_lines
from kcard.llms.parsing import from_logits, named_option
from kcard.llms.prompts import NEED_WORDINGS
from kcard.text import Analyzer, agreement, analyzer, identify, sentence_spans, small_words, stemmer_of, words
from kcard.types import Choice, Quote, Reply, Request, TokenScores

# The embedded memory: a 1.2M-parameter OPT that has memorized some 1700 widely known facts, and nothing else.
#
# It stands in for the parametric knowledge of a large model: for anything else it generates a special "unknown" token,
# and its confidence decides whether cards are asked. Training: weights/memory/README.md.

WEIGHTS = WEIGHTS_FOLDER / "memory"
UNKNOWN_TOKEN = "<unknown>"
MAX_ANSWER_TOKENS = 24
MAX_PROMPT_TOKENS = 120
POSITIONS = 160  # maximum tokens of the model's input
WIDTH, LAYERS, HEADS, PARTS = 128, 4, 2, ("key", "value")
OPENING = re.compile(
    r"^((question|q|answer|please answer)\s*:"
    r"|(can|could|would) you (please )?(tell me|say)|(please )?tell me|do you know|please)[\s,:]+"
)


@dataclass(frozen=True)
class MemoryAnswer:
    """The memory's answer. `least_log_probability`: of its least likely token, at most 0.

    `answer` is never the unknown token: if that is likeliest, it is the best guess, with a low probability.
    `knows`: the calibrated probability in [0, 1] that the guess is knowledge; 0.5 is the decision point.
    `tokens`: scores of the guess's tokens, among all that could have been generated.
    """

    answer: str
    least_log_probability: float
    knows: float
    tokens: tuple[TokenScores, ...] = ()


State = Sequence[Array]
Model = Callable[[Sequence[int], State | None], tuple[Array, State]]


@dataclass(frozen=True)
class EmbeddedMemory:
    """A trained memory; `slope` and `threshold` are of the logistic over its log-odds.

    model      (n token ids, KV cache) -> logits, (n, vocabulary), and the extended cache
    tokenizer  as `load` reads it, or, in training, transformers' own
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
        for _ in range(MAX_ANSWER_TOKENS):
            logits, state = self.model(step, state)
            scores = log_softmax(logits[-1])
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
        """Return the mean token log-probability of `answer`, cut to the model's input length; at most 0."""
        row = self._prompt_tokens(question)
        tokens = self.tokenizer(answer, add_special_tokens=False)["input_ids"]
        answer_ids = [*tokens, self.tokenizer.eos_token_id][: POSITIONS - len(row)]
        logits, _ = self.model([*row, *answer_ids], None)
        scores = log_softmax(logits[len(row) - 1 : -1])
        return float(scores[np.arange(len(answer_ids)), answer_ids].mean())

    def _prompt_tokens(self, question: str) -> "Sequence[int]":
        tokens = self.tokenizer(prompt(question), add_special_tokens=False)["input_ids"]
        return [self.tokenizer.bos_token_id, *tokens[-MAX_PROMPT_TOKENS:]]


def log_odds(log_probability: float) -> float:
    """Return ln(p / (1 - p)), within [-17, 17], which separates high confidences whose logs are all near 0."""
    clipped = min(max(log_probability, -17.0), -4e-8)
    return clipped - math.log(-math.expm1(clipped))


def prompt(question: str) -> str:
    """Normalise a question for the memory: one lower-case line without punctuation."""
    text = OPENING.sub("", " ".join(question.lower().split()))
    return re.sub(r"[?!.]+$", "", text).strip() + "\n"


@functools.cache
def shared() -> EmbeddedMemory:
    """Load the shipped memory, once per process."""
    return load(WEIGHTS)


def load(folder: Path) -> EmbeddedMemory:
    """Load a trained memory. Raises ModelUnavailable if files are missing."""
    if not (folder / "model.safetensors").is_file():
        raise ModelUnavailable(f"the embedded memory's weights are missing from {folder}: reinstall kcard")
    calibration = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    tokenizer = PlainTokenizer.read(folder)
    if tokenizer is None:
        raise ModelUnavailable(f"the embedded memory's tokenizer is missing from {folder}: reinstall kcard")
    # The shipped graph with the folder's weights.
    saved = read_weights(folder / "model.safetensors")
    network = Network("memory", {name.removeprefix("model.decoder."): w for name, w in saved.items()})
    empty = [np.zeros((1, HEADS, 0, WIDTH // HEADS), np.float32)] * (2 * LAYERS)

    def run(ids: Sequence[int], state: State | None) -> tuple[Array, State]:
        past = iter(state or empty)
        start = (state or empty)[0].shape[2]
        named = {}
        for layer in range(LAYERS):
            for part in PARTS:
                named[f"past_{part}.{layer}"] = next(past)
        positions = np.arange(start, start + len(ids), dtype=np.int64)
        logits, *present = network(ids=np.array([ids], np.int64), positions=positions[None], **named)
        return logits[0], present

    return EmbeddedMemory(run, tokenizer, calibration["slope"], calibration["threshold"])


# Fallback for languages that the reader does not know: quote the passages that share the question's words, with
# a remark.

MIN_LETTERS = 60  # for language identification
MAX_IDENTIFIED_CHARACTERS = 2000
MAX_QUOTED_WORDS = 150  # of a passage
MIN_SHARE = 0.5  # of the question's content words in a passage; of the best share, for the second passage


def language_of(question: str, passages: Sequence[str]) -> str:
    """Identify the passages' language as an ISO 639-1 code; "en" if they are too short to tell."""
    text = " ".join([question, *passages])
    if sum(map(str.isalpha, text)) < MIN_LETTERS:
        return "en"
    return identify(text[:MAX_IDENTIFIED_CHARACTERS])


def quote(question: str, passages: Sequence[str], language: str) -> Extract | None:
    """Quote the two passages that share the most words with the question, each from its best sentence on. The
    probability is the share of the question's words in the better one. Of equal passages, the first wins.

    None if there is no passage.
    """
    stems = analyzer(stemmer_of(language))
    question_stems = set[str]()
    for word in words(question):
        if len(word) > 2 and word not in small_words(language):
            question_stems.update(stems(word))
    if not passages or not question_stems:
        return None
    # The best passage, and the second if it is nearly as good.
    shares = [len(question_stems & set(stems(text))) / len(question_stems) for text in passages]
    order = sorted(range(len(passages)), key=lambda at: -shares[at])
    best = order[0]
    text = first = _quote_window(passages[best], question_stems, stems)
    for second in order[1:2]:
        if shares[second] >= shares[best] * MIN_SHARE:
            text += "\n" + _quote_window(passages[second], question_stems, stems)
    share = shares[best]
    if share < MIN_SHARE:
        share *= MIN_SHARE
    return Extract(text, first, best, share)


def _quote_window(text: str, question_stems: set[str], stems: Analyzer) -> str:
    """Return the sentence that shares most words with the question, and its sequel."""
    places = sentence_spans(text)
    if not places:
        return text
    shared = [len(question_stems & set(stems(text[start:end]))) for start, end in places]
    first = shared.index(max(shared))
    start, end = places[first]
    for _, after in places[first + 1 :]:
        if text.count(" ", start, after) >= MAX_QUOTED_WORDS:
            break
        end = after
    return collapse_lines(text[start:end])


# The embedded reader as a Reader: one answer span per passage, for callers that compare passages.


@dataclass(frozen=True)
class SpanReader:
    """A Reader of kcard.interfaces, with the shipped weights."""

    def extract(self, question: str, text: str) -> str | None:
        """Return the words of the text that answer the question; None if the reader is unsure."""
        answer = extract(question, [text])
        if answer is None or not answer.words or not answer.is_sure:
            return None
        return answer.text


UNKNOWN_ANSWER = "I don't know."
MIN_OPTION_COSINE = 0.5  # below which an extracted answer matches no option
MIN_KNOWLEDGE = 0.5  # probability that the memory is right, below which it is ignored
MIN_QUOTATION = 0.5  # the same for a quotation in another language
# Kinds of requests whose passages are not read.
UNREAD = {"what", "choose", "document", "knowledge", "recite", "rewrite"}


class EmbeddedLLM(LLM):
    """A deterministic LLM without a temperature. Weights are loaded on first use.

    The window applies to the question alone: passages are read one by one, long ones in pieces.
    """

    window = QUESTION_TOKENS
    concurrency = 4  # requests that are read together
    is_deterministic = True
    can_rewrite = False

    announcement = "LLM: the embedded reader, an offline stand-in: it extracts answers and does not reason"

    def count(self, request: Request) -> int:
        """Count the question's tokens."""
        return count_tokens(request.question)

    def reply(self, request: Request) -> Reply:
        """Reply to a request; the text is empty only for a document on something that the memory does not know. For
        multiple choice it is the chosen option's name (letter), unless unknown.

        Raises LLMError for a choice among nothing.
        """
        return _add_usage(request, _reply(request, _extract_answers([request])[0]))

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """Yield each request's reply or error; the passages of all are read in one batch."""
        for request, answer in zip(requests, _extract_answers(requests), strict=True):
            try:
                yield _add_usage(request, _reply(request, answer))
            except LLMError as error:
                yield error


def _extract_answers(requests: Sequence[Request]) -> list[Extract | None]:
    """Extract an answer from each request's passages; None if there is nothing to read."""
    answers: list[Extract | None] = [None] * len(requests)
    rows, questions, headings = [], [], []
    for row, request in enumerate(requests):
        if not request.knowledge or request.kind in UNREAD:
            continue
        if request.kind == "need" or request.choices or _language(request) == "en":
            rows.append(row)
            questions.append((request.question, request.knowledge))
            headings.append(request.headings)
    for row, answer in zip(rows, extract_all(questions, headings), strict=True):
        answers[row] = answer
    return answers


def _add_usage(request: Request, reply: Reply) -> Reply:
    """Add the tokens of the request's texts, each counted once, and of the reply."""
    texts = [request.question, *(choice.description for choice in request.choices)]
    if request.kind not in UNREAD:
        texts += request.knowledge
    return replace(reply, tokens_in=sum(map(count_tokens, texts)), tokens_out=count_tokens(reply.text))


def _language(request: Request) -> str:
    if not request.knowledge:
        return "en"
    return language_of(request.question, request.knowledge)


def _reply(request: Request, answer: Extract | None) -> Reply:
    """Return the reply to one request. `answer`: extracted from its passages."""
    if request.kind == "need":
        if request.knowledge:
            # Whether the reader finds an answer in the passages: 0.5 at the probability from which it gives an extract.
            if answer is None:
                yes = 1.0
            elif answer.is_sure:
                yes = 0.5 * (1 - answer.probability) / (1 - answer.threshold)
            else:
                yes = 1 - 0.5 * answer.probability / answer.threshold
        else:
            yes = 1 - shared().recall(request.question).knows
        if (yes > 0.5) == NEED_WORDINGS[request.template].yes_needs:
            return Reply("Yes", yes)
        return Reply("No", yes)
    if request.kind in {"what", "rewrite"}:
        return Reply(request.question)
    if request.kind == "choose":
        # Choose the description nearest to the question, by cosine and by matching numbers.
        from kcard import cache

        question, choices = request.question, request.choices
        if not choices:
            raise LLMError("no cards to choose from: give at least one")
        question_vector, *described = cache.embed([question, *(choice.description for choice in choices)])
        agreed = [agreement(question, choice.description) for choice in choices]
        return Reply(choices[int(np.argmax(np.stack(described) @ question_vector * agreed))].name)
    if request.kind in UNREAD:
        # What the memory knows, prefixed with the question; empty if it knows nothing.
        recollection = shared().recall(request.question)
        if recollection.knows < MIN_KNOWLEDGE:
            return Reply("")
        return Reply(f"{request.question.strip(' ?')}: {recollection.answer}.")
    if request.choices:
        return _choose_option(request, answer)
    if request.draft and not request.knowledge:
        recollection = shared().recall(request.question)
        return Reply(recollection.answer, tokens=recollection.tokens)
    # Answer from the passages, else from the memory, else UNKNOWN with the nearest quotation.
    language = _language(request)
    if language != "en":
        return _reply_with_quotation(request, language)
    if answer is not None and answer.is_sure:
        return Reply(answer.text, confidence=answer.probability, quote=Quote(answer.quote, answer.passage))
    recollection = shared().recall(request.question)
    if recollection.knows >= MIN_KNOWLEDGE:
        return Reply(recollection.answer, confidence=recollection.knows)
    return _reply_unknown(recollection.knows, answer)


def _reply_unknown(knows: float, answer: Extract | None) -> Reply:
    """Reply "I don't know", with the nearest quotation."""
    unknown = Reply(UNKNOWN_ANSWER, confidence=1 - knows, known=False)
    if answer is None:
        return unknown
    confidence = 1 - max(knows, answer.probability)
    return replace(unknown, confidence=confidence, quote=Quote(answer.quote, answer.passage))


def _reply_with_quotation(request: Request, language: str) -> Reply:
    """Quote passages in another language, without claiming that they answer."""
    quotation = quote(request.question, request.knowledge, language)
    remark = (
        f"the embedded reader supports English only: in {language} it quotes passages that share "
        "the question's words"
    )
    if quotation is None:
        return Reply(UNKNOWN_ANSWER, known=False, remark=remark)
    quoted = Quote(quotation.quote, quotation.passage)
    if quotation.probability >= MIN_QUOTATION:
        return Reply(quotation.text, quote=quoted, remark=remark)
    return Reply(UNKNOWN_ANSWER, known=False, quote=quoted, remark=remark)


def _choose_option(request: Request, answer: Extract | None) -> Reply:
    """Choose the option named by the passages, else by the memory; UNKNOWN if neither is sure."""
    if answer is not None and answer.is_sure:
        letter = _match_option(answer, request.choices)
        if letter is not None:
            quote = Quote(answer.quote, answer.passage)
            return Reply(letter, confidence=answer.probability, choice=letter, quote=quote)
    recollection = shared().recall(request.question)
    if recollection.knows >= MIN_KNOWLEDGE:
        letter = named_option(recollection.answer, request.choices)
        if not letter:
            # The option with the highest likelihood in the memory.
            memory, question = shared(), request.question
            scores = [memory.log_probability(question, choice.description) for choice in request.choices]
            letter = request.choices[int(np.argmax(scores))].name
        return Reply(letter, confidence=recollection.knows, choice=letter)
    return _reply_unknown(recollection.knows, answer)


def _match_option(answer: Extract, choices: Sequence[Choice]) -> str | None:
    """Match an extracted answer to an option: one that it names, else that its quote names, else the nearest."""
    from kcard.embedded import minilm

    letter = named_option(answer.text, choices) or named_option(answer.quote, choices)
    if letter is not None:
        return letter
    answer_vector, *described = minilm.embed([answer.text, *(choice.description for choice in choices)])
    scores = np.stack(described) @ answer_vector
    best = int(np.argmax(scores))
    if scores[best] < MIN_OPTION_COSINE:
        return None
    return choices[best].name
