"""The reader: a network that extracts answers from passages.

A passage is read whole if it fits into the network's window, else in pieces that end at sentence boundaries. The
reranker of retrieval cards and the embedded LLM share the readings.
"""

import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kcard.batching import LRUCache
from kcard.embedded import minilm
from kcard.embedded import static_embeddings as static
from kcard.embedded.networks import WEIGHTS_FOLDER, Network, log_softmax, read_weights, token_row
from kcard.interfaces import Array
from kcard.text import sentence_spans

# The network of the embedded reader: all-MiniLM-L6-v2, fully fine-tuned, with heads for spans, evidence and relevance.
#
# It knows questions and texts, not cards; PassageReading interprets its outputs. Training: weights/reader/README.md.

READER_WEIGHTS = WEIGHTS_FOLDER / "reader"
MAX_TOKENS = 288
QUESTION_TOKENS = 64
FILE = "reader.safetensors"


@dataclass(frozen=True)
class TextTokens:
    """Token ids of a text with their offsets in it: (start, end) in characters."""

    ids: Sequence[int]
    offsets: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Encoded:
    """`[CLS] question [SEP] text [SEP]` of one pair.

    ids      token ids; those from `begin` on, but for the last, are the text's
    offsets  (start, end) in characters of each token of the text
    """

    ids: Sequence[int]
    begin: int
    offsets: Sequence[tuple[int, int]]

    @property
    def text(self) -> slice:
        """The tokens of the text."""
        return slice(self.begin, self.begin + len(self.offsets))


@dataclass(frozen=True)
class Outputs:
    """The heads' outputs for one pair whose text has t tokens.

    starts, ends  (t,), logits of the first and last token of the answer
    evidence      (t,), log-odds that a token belongs to the sentences that the answer rests on
    relevance     log-odds that the text answers the question
    """

    starts: Array
    ends: Array
    evidence: Array
    relevance: float


ReaderNetwork = Callable[[Sequence[Encoded]], list[Outputs]]


def encode(pairs: Sequence[tuple[str, str]]) -> list[Encoded]:
    """Tokenise (question, text) pairs, cutting questions to QUESTION_TOKENS and texts to the rest."""
    words = minilm.words()
    texts = (TextTokens(row.ids, row.offsets) for row in words.encodings([text for _, text in pairs]))
    questions = words.ids([question for question, _ in pairs])
    return [join_tokens(question, text) for question, text in zip(questions, texts, strict=True)]


def join_tokens(question: Sequence[int], text: TextTokens) -> Encoded:
    question = question[:QUESTION_TOKENS]
    room = MAX_TOKENS - 3 - len(question)
    ids = [minilm.CLS, *question, minilm.SEP, *text.ids[:room], minilm.SEP]
    return Encoded(ids, len(question) + 2, text.offsets[:room])


def load_reader(folder: Path) -> ReaderNetwork:
    """Load a trained reader into the shipped graph. Raises ModelUnavailable if its file is missing."""
    network = Network("reader", {**minilm.word_table(), **read_weights(folder / FILE)})

    def run(pairs: Sequence[Encoded]) -> list[Outputs]:
        outputs = []
        rows = network.run_all([token_row(pair.ids, pair.begin) for pair in pairs])
        for pair, (spans, relevance) in zip(pairs, rows, strict=True):
            starts, ends, evidence = spans[0, pair.text].T
            outputs.append(Outputs(starts, ends, evidence, float(relevance[0, 0])))
        return outputs

    return run


@functools.cache
def shared_reader() -> ReaderNetwork:
    """Load the shipped reader, once per process."""
    return load_reader(READER_WEIGHTS)


MAX_ANSWER_TOKENS = 25  # tokens
MAX_NAME_CHARACTERS = 100  # characters of a path or the like, on either side of the predicted span
ANSWERS = 5  # kept per passage
MAX_REMEMBERED_READINGS = 4096
NO_WORDS_LOG_ODDS = -1e4  # log-odds of a text without words
ROOM = MAX_TOKENS - 3 - QUESTION_TOKENS  # tokens of a piece
MARKS = " \t\n.,;:!?\"'()“”‘’`*|"
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`"}
# A path, option, version or identifier: a run between blanks, brackets, quotes and commas is one word, including the
# brackets of a call, a manual page or a variable, and the forms of an option ("-h,--help").
RUN = re.compile(r"(?:\$\{\w+\}|,(?=-)|[^\s,;()\[\]{}\"'“”‘’`|])+(?:\(\d?[a-z]?\))?")
TECHNICAL = re.compile(
    r"[/\\_=@$~]|::|^\.\w|^--?\w|\w\.\w|\d\.\d|\+\+|\w\+\w|^[#%]\w|\d%$|\*\.\w|\(\d?[a-z]?\)$"
)


@dataclass(frozen=True)
class AnswerSpan:
    """A candidate answer span, its start in the passage, and its probability among all spans of it, in [0, 1]."""

    text: str
    start: int
    certainty: float

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Sentence:
    """A sentence of a passage: its offsets, and the mean log-odds that the answer rests on its tokens."""

    start: int
    end: int
    evidence: float


@dataclass(frozen=True)
class PassageReading:
    """The reader's output for one passage.

    relevance  log-odds that the passage answers the question
    answers    the best answer spans, whether or not the passage answers: non-overlapping, best first
    evidence   (start, end, log-odds that the answer rests on it) of each token
    text       the passage
    """

    relevance: float
    answers: tuple[AnswerSpan, ...]
    evidence: tuple[tuple[int, int, float], ...]
    text: str

    @property
    def probability(self) -> float:
        """P(the passage answers the question), in (0, 1)."""
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, self.relevance))))

    @functools.cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        """Sentences of the passage that have tokens, in order. Lazy, since splitting takes as long as reading a short
        passage and most passages are only ranked."""
        sentences = []
        for start, end in sentence_spans(self.text):
            odds = [value for a, b, value in self.evidence if a >= start and b <= end]
            if odds:
                sentences.append(Sentence(start, end, sum(odds) / len(odds)))
        return tuple(sentences)

    def within(self, text: str, offset: int) -> "PassageReading":
        """Shift a piece's reading by `offset` to positions in the whole `text`."""
        answers = tuple(replace(answer, start=answer.start + offset) for answer in self.answers)
        evidence = tuple((start + offset, end + offset, value) for start, end, value in self.evidence)
        return PassageReading(self.relevance, answers, evidence, text)


memory: LRUCache[tuple[str, str], PassageReading] = LRUCache(MAX_REMEMBERED_READINGS)


def count_tokens(text: str) -> int:
    """Count a text's tokens; of a question, the first QUESTION_TOKENS are read."""
    return len(_tokenize(text).ids)


def read(
    question: str, passages: Sequence[str], network: ReaderNetwork | None = None
) -> list[PassageReading]:
    """Read each passage for the question, by the shipped network unless another is given.

    A reading does not depend on the other passages, except in the last bits of its numbers.
    """
    return read_all([(question, passages)], network)[0]


def read_all(
    questions: Sequence[tuple[str, Sequence[str]]], network: ReaderNetwork | None = None
) -> list[list[PassageReading]]:
    """Read passages for several questions, each with its own, in one batch."""
    pairs = list(dict.fromkeys((question, text) for question, passages in questions for text in passages))
    if network is not None:
        readings = dict(zip(pairs, _read_pairs(network, pairs), strict=True))
    else:
        readings = memory.read(pairs)
        new = [pair for pair in pairs if pair not in readings]
        fresh = dict(zip(new, _read_pairs(shared_reader(), new), strict=True))
        readings |= fresh
        memory.write(fresh)
    return [[readings[question, text] for text in passages] for question, passages in questions]


def _read_pairs(network: ReaderNetwork, pairs: Sequence[tuple[str, str]]) -> list[PassageReading]:
    # Split long texts into pieces: (pair, start and end in its text).
    places = [(at, *place) for at, (_, text) in enumerate(pairs) for place in _split(text)]
    pieces = [pairs[at][1][start:end] for at, start, end in places]
    encoded = [
        join_tokens(_tokenize(pairs[at][0]).ids, _tokenize(piece))
        for (at, _, _), piece in zip(places, pieces, strict=True)
    ]
    # Read each piece, and group the readings by text.
    readings: list[list[PassageReading]] = [[] for _ in pairs]
    for (at, start, _), piece, pair, outputs in zip(places, pieces, encoded, network(encoded), strict=True):
        readings[at].append(_make_reading(pair, outputs, piece).within(pairs[at][1], start))
    # Merge the pieces of a passage: the reading of the most relevant one, with the evidence of all.
    whole = []
    for parts, (_, text) in zip(readings, pairs, strict=True):
        best = max(
            parts,
            key=lambda reading: reading.relevance,
            default=PassageReading(NO_WORDS_LOG_ODDS, (), (), text),
        )
        if len(parts) > 1:
            best = replace(best, evidence=tuple(sorted(token for part in parts for token in part.evidence)))
        whole.append(best)
    return whole


@functools.lru_cache(maxsize=MAX_REMEMBERED_READINGS)
def _tokenize(text: str) -> TextTokens:
    encoding = minilm.words().encoding(text)
    return TextTokens(encoding.ids, encoding.offsets)


def _split(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of pieces of at most about ROOM tokens: whole sentences, or parts of a long one."""
    offsets = _tokenize(text).offsets
    if len(offsets) <= ROOM:
        return [(0, len(text))] if offsets else []
    pieces, first = [], 0
    ends = [end for _, end in sentence_spans(text)]
    while first < len(offsets):
        last = min(first + ROOM, len(offsets))
        if last < len(offsets):
            reached = [end for end in ends if offsets[first][0] < end <= offsets[last][0]]
            if reached:
                last = next(
                    at for at in range(first, last + 1) if at == last or offsets[at][0] >= reached[-1]
                )
        pieces.append((offsets[first][0], offsets[last - 1][1]))
        first = last
    return pieces


def _make_reading(pair: Encoded, outputs: Outputs, text: str) -> PassageReading:
    offsets = pair.offsets
    if not offsets:
        return PassageReading(NO_WORDS_LOG_ODDS, (), (), text)
    starts, ends = log_softmax(outputs.starts), log_softmax(outputs.ends)
    # The best end for each start, in a span of at most MAX_ANSWER_TOKENS tokens.
    reached = np.pad(ends, (0, MAX_ANSWER_TOKENS - 1), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(reached, MAX_ANSWER_TOKENS)
    lengths = windows.argmax(-1)
    places = np.arange(len(offsets))
    best, lasts = starts + ends[places + lengths], places + lengths
    answers = tuple(_pick_answers(text, offsets, best.tolist(), lasts.tolist()))
    odds = outputs.evidence.tolist()
    evidence = tuple((start, end, value) for (start, end), value in zip(offsets, odds, strict=True))
    return PassageReading(outputs.relevance, answers, evidence, text)


def _pick_answers(
    text: str, offsets: Sequence[tuple[int, int]], best: Sequence[float], lasts: Sequence[int]
) -> list[AnswerSpan]:
    """Pick the best non-overlapping spans, given each first token's best log-probability and last token."""
    answers: list[AnswerSpan] = []
    taken: list[tuple[int, int]] = []
    for first in sorted(range(len(best)), key=lambda at: -best[at]):
        if len(answers) == ANSWERS:
            break
        start, end = extend_to_words(text, offsets[first][0], offsets[lasts[first]][1])
        if start < end and all(end <= a or b <= start for a, b in taken):
            taken.append((start, end))
            answers.append(AnswerSpan(text[start:end], start, math.exp(best[first])))
    return answers


def extend_to_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Extend a span to whole words and strip punctuation around it."""
    while start > 0 and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while 0 < end < len(text) and text[end].isalnum() and text[end - 1].isalnum():
        end += 1
    while start < end and text[start] in MARKS:
        start += 1
    while end > start and text[end - 1] in MARKS:
        end -= 1
    if start >= end:
        return start, end
    # Extend it to a whole technical name that it overlaps: "papersize" to /etc/papersize.
    first = max(0, start - MAX_NAME_CHARACTERS)
    for run in RUN.finditer(text, first, end + MAX_NAME_CHARACTERS):
        name = run[0].rstrip(".:!?")
        stop = run.start() + len(name)
        if run.start() < end and stop > start and TECHNICAL.search(name):
            start, end = min(start, run.start()), max(end, stop)
    start, end = _balance_brackets(text, start, end)
    # With the quotation mark that belongs to one inside it.
    closing = QUOTES.get(text[start - 1]) if start else None
    if closing and re.search(rf"{re.escape(closing)}(?!\w)", text[start:end]):
        start -= 1
    return start, end


def _balance_brackets(text: str, start: int, end: int) -> tuple[int, int]:
    """Extend a span to the other one of a bracket in it, if that is near; else end it before, or begin it behind."""
    for opening, closing in BRACKETS:
        unclosed = text[start:end].count(opening) - text[start:end].count(closing)
        if unclosed > 0:
            close = text.find(closing, end, end + MAX_NAME_CHARACTERS)
            if close >= 0 and not re.search(r"[\n;]|[.!?]\s", text[end:close]):
                end = close + 1
            elif (open_at := text.rfind(opening, start, end)) > start:
                end = open_at
        elif unclosed < 0:
            open_at = text.rfind(opening, max(0, start - MAX_NAME_CHARACTERS), start)
            if open_at >= 0 and not re.search(r"[\n;]|[.!?]\s", text[open_at:start]):
                start = open_at
            elif (close := text.find(closing, start, end)) < end - 1:
                start = close + 1
    while start < end and text[start] in " \t\n.,;:":
        start += 1
    while end > start and text[end - 1] in " \t\n,;:":
        end -= 1
    return start, end


# The ranker: a three-layer cross-encoder of a question and the best window of a passage.
#
# It selects the candidates for the reader, which is twice as deep and reads whole passages.
# Training: recipes/ranker, weights/ranker/README.md.

RANKER_WEIGHTS = WEIGHTS_FOLDER / "ranker"
LAYERS = 3
RANKER_QUESTION_TOKENS = 32
WINDOW = 32  # tokens; it was trained on windows of 64, and ranks as well with 32


def rank_all(pairs: Sequence[tuple[str, str]], network: Network | None = None) -> Array:
    """Score how likely each passage answers its question: log-odds up to a constant, shape (n,).

    Uses the shipped network unless another is given.
    """
    words = minilm.words()
    questions = dict.fromkeys(question for question, _ in pairs)
    ids = dict(zip(questions, words.ids(list(questions)), strict=True))
    passages = words.ids([passage for _, passage in pairs])
    rows = [
        token_row(*pair_tokens(ids[question], passage))
        for (question, _), passage in zip(pairs, passages, strict=True)
    ]
    return np.array([score[0, 0] for (score,) in (network or shared_ranker()).run_all(rows)], np.float32)


def pair_tokens(question: Sequence[int], passage: Sequence[int], size: int = WINDOW) -> tuple[list[int], int]:
    """Join a question and a passage's best window, `[CLS] question [SEP] window [SEP]`; return also its start.

    `size`: tokens of the window.
    """
    cut = list(question[:RANKER_QUESTION_TOKENS])
    start = best_window(cut, passage, size)
    window = passage[start : start + size]
    return [minilm.CLS, *cut, minilm.SEP, *window, minilm.SEP], len(cut) + 2


def best_window(question: Sequence[int], passage: Sequence[int], size: int) -> int:
    """Return the start of the window of `size` tokens that overlaps most with the question.

    Shared tokens are weighted by the norm of their static vectors, which is small for common words.
    """
    if len(passage) <= size:
        return 0
    shared = np.isin(np.asarray(passage), np.asarray(question)) * static.token_weights(passage)
    sums = np.concatenate([[0.0], np.cumsum(shared)])
    windows = sums[size:] - sums[:-size]
    # Of ties the middle one, so that the match has context on both sides.
    best = np.flatnonzero(windows >= windows.max() - 1e-6)
    return int(best[len(best) // 2])


def load_ranker(folder: Path) -> Network:
    """Load a trained ranker. Raises ModelUnavailable if its file is missing."""
    return Network("ranker", {**minilm.word_table(), **read_weights(folder / "ranker.safetensors")})


@functools.cache
def shared_ranker() -> Network:
    """Load the shipped ranker, once per process."""
    return load_ranker(RANKER_WEIGHTS)
