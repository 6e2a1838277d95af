"""Reading: what the embedded reader makes of passages for a question, remembered within the process.

A passage is read whole where it fits into the network's window, else in pieces that end where sentences do. The same
reading serves the reranker of retrieval cards and the embedded LLM.
"""

import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard import encoder
from kcard.batches import by_tokens
from kcard.parallel import in_parallel, share
from kcard.reader.network import (
    MAX_TOKENS,
    QUESTION_TOKENS,
    Encoded,
    Outputs,
    ReaderNetwork,
    Tokens,
    joined,
    shared,
)
from kcard.sentences import spans

__all__ = ["AnswerSpan", "Reading", "Sentence", "question_tokens", "read", "read_all"]

LONGEST_ANSWER = 25  # tokens
ANSWERS = 5  # kept of a passage
BATCH_TOKENS = 1024  # the states of so many fit into a core's cache
REMEMBERED = 4096  # readings
ROOM = MAX_TOKENS - 3 - QUESTION_TOKENS  # tokens of a piece
MARKS = " \t\n.,;:!?\"'()"


@dataclass(frozen=True)
class AnswerSpan:
    """Words of a passage that may answer, where they begin in it, and their probability among all of it, in [0, 1]."""

    text: str
    start: int
    certainty: float


@dataclass(frozen=True)
class Sentence:
    """A sentence of a passage: where it stands in it, and the mean log-odds that the answer rests on its words."""

    start: int
    end: int
    evidence: float


@dataclass(frozen=True)
class Reading:
    """What the reader says of one passage.

    relevance  log-odds that the passage answers the question
    answers    the words that answer it best, whether or not the passage does: apart from each other, the best first
    sentences  those of the passage, in order
    """

    relevance: float
    answers: tuple[AnswerSpan, ...]
    sentences: tuple[Sentence, ...]

    @property
    def probability(self) -> float:
        """That the passage answers the question, in (0, 1)."""
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, self.relevance))))

    def after(self, offset: int) -> "Reading":
        """Of a piece of a passage: the same, with places in the passage."""
        answers = tuple(replace(a, start=a.start + offset) for a in self.answers)
        moved = tuple(replace(s, start=s.start + offset, end=s.end + offset) for s in self.sentences)
        return replace(self, answers=answers, sentences=moved)


EMPTY = Reading(-1e4, (), ())

_remembered: OrderedDict[tuple[str, str], Reading] = OrderedDict()
_lock = threading.Lock()


def question_tokens(question: str) -> int:
    """How many tokens a question has; of more than QUESTION_TOKENS the first are read."""
    return len(_tokens(question).ids)


def read(question: str, passages: Sequence[str], network: ReaderNetwork | None = None) -> list[Reading]:
    """A Reading for each passage; by the shipped network, unless another is given.

    A Reading does not depend on the other passages, but for the last bits of its numbers.
    """
    return read_all([(question, passages)], network)[0]


def read_all(
    asked: Sequence[tuple[str, Sequence[str]]], network: ReaderNetwork | None = None
) -> list[list[Reading]]:
    """The same of several questions with passages of their own, which are read together."""
    pairs = list(dict.fromkeys((question, text) for question, passages in asked for text in passages))
    if network is not None:
        known = dict(zip(pairs, _read(network, pairs), strict=True))
    else:
        with _lock:
            known = {pair: _remembered[pair] for pair in pairs if pair in _remembered}
        new = [pair for pair in pairs if pair not in known]
        found = dict(zip(new, _read(shared(), new), strict=True))
        known |= found
        with _lock:
            _remembered.update(found)
            while len(_remembered) > REMEMBERED:
                _remembered.popitem(last=False)
    return [[known[question, text] for text in passages] for question, passages in asked]


@dataclass(frozen=True)
class _Piece:
    """Part of the passage of a pair: where it begins in it, and its tokens."""

    pair: int
    question: Sequence[int]
    start: int
    text: str
    tokens: Tokens

    @property
    def length(self) -> int:
        """Tokens that the network reads."""
        return min(len(self.question), QUESTION_TOKENS) + len(self.tokens.ids) + 3


def _read(network: ReaderNetwork, pairs: Sequence[tuple[str, str]]) -> list[Reading]:
    """Of each (question, text)."""
    pieces = [
        _Piece(at, _tokens(question).ids, start, text[start:end], _tokens(text[start:end]))
        for at, (question, text) in enumerate(pairs)
        for start, end in _pieces(text)
    ]
    lengths = [piece.length for piece in pieces]
    groups = [
        [pieces[at] for at in group]
        for group in by_tokens(lengths, share(sum(lengths), BATCH_TOKENS) if lengths else BATCH_TOKENS)
    ]
    found: list[list[Reading]] = [[] for _ in pairs]
    for group, readings in zip(groups, in_parallel(lambda group: _pass(network, group), groups), strict=True):
        for piece, reading in zip(group, readings, strict=True):
            found[piece.pair].append(reading)
    return [_together(parts) for parts in found]


def _pass(network: ReaderNetwork, pieces: Sequence[_Piece]) -> list[Reading]:
    """One forward pass."""
    import torch

    with torch.inference_mode():
        encoded = joined([(piece.question, piece.tokens) for piece in pieces])
        outputs = network(encoded)
        return [
            _reading(encoded, outputs, row, piece.text).after(piece.start) for row, piece in enumerate(pieces)
        ]


@functools.lru_cache(maxsize=REMEMBERED)
def _tokens(text: str) -> Tokens:
    found = encoder.words().encoding(text)
    return Tokens(found.ids, found.offsets)


def _together(parts: Sequence[Reading]) -> Reading:
    """Of the pieces of one passage: what the most relevant says, with the sentences of all."""
    if len(parts) < 2:
        return parts[0] if parts else EMPTY
    best = max(parts, key=lambda reading: reading.relevance)
    sentences = sorted((s for part in parts for s in part.sentences), key=lambda s: s.start)
    return replace(best, sentences=tuple(sentences))


def _pieces(text: str) -> list[tuple[int, int]]:
    """(start, end) of pieces of at most about ROOM tokens: whole sentences, or parts of an overlong one."""
    offsets = _tokens(text).offsets
    if len(offsets) <= ROOM:
        return [(0, len(text))] if offsets else []
    found, first = [], 0
    ends = [end for _, end in spans(text)]
    while first < len(offsets):
        last = min(first + ROOM, len(offsets))
        if last < len(offsets):
            reached = [end for end in ends if offsets[first][0] < end <= offsets[last][0]]
            if reached:
                last = next(
                    at for at in range(first, last + 1) if at == last or offsets[at][0] >= reached[-1]
                )
        found.append((offsets[first][0], offsets[last - 1][1]))
        first = last
    return found


def _reading(pairs: Encoded, outputs: Outputs, row: int, text: str) -> Reading:
    import torch

    begin, offsets = pairs.begins[row], pairs.offsets[row]
    if not offsets:
        return EMPTY
    inside = slice(begin, begin + len(offsets))
    starts, ends = (torch.log_softmax(part[row, inside], 0) for part in (outputs.starts, outputs.ends))
    band = torch.ones(len(offsets), len(offsets)).triu().tril(LONGEST_ANSWER - 1).bool()
    best, lasts = (starts[:, None] + ends[None, :]).masked_fill(~band, -1e9).max(1)
    answers = tuple(_answers(text, offsets, best.tolist(), lasts.tolist()))
    evidence = outputs.evidence[row, inside]
    sentences = tuple(_sentences(text, offsets, evidence.tolist()))
    return Reading(float(outputs.relevance[row]), answers, sentences)


def _answers(
    text: str, offsets: Sequence[tuple[int, int]], best: Sequence[float], lasts: Sequence[int]
) -> list[AnswerSpan]:
    """The likeliest words that do not overlap, given the best log-probability of each first token and its last."""
    found: list[AnswerSpan] = []
    taken: list[tuple[int, int]] = []
    for first in sorted(range(len(best)), key=lambda at: -best[at]):
        if len(found) == ANSWERS:
            break
        start, end = _whole_words(text, offsets[first][0], offsets[lasts[first]][1])
        if start < end and all(end <= a or b <= start for a, b in taken):
            taken.append((start, end))
            found.append(AnswerSpan(text[start:end], start, math.exp(best[first])))
    return found


def _sentences(text: str, offsets: Sequence[tuple[int, int]], evidence: Sequence[float]) -> list[Sentence]:
    found = []
    for start, end in spans(text):
        odds = [value for (a, b), value in zip(offsets, evidence, strict=True) if a >= start and b <= end]
        if odds:
            found.append(Sentence(start, end, sum(odds) / len(odds)))
    return found


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """The place, extended to whole words, without punctuation around it."""
    while start > 0 and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while 0 < end < len(text) and text[end].isalnum() and text[end - 1].isalnum():
        end += 1
    while start < end and text[start] in MARKS:
        start += 1
    while end > start and text[end - 1] in MARKS:
        end -= 1
    return start, end
