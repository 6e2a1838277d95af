"""The offline fact checker: does this text support that claim?

The network reads the four windows of the evidence that share the most words with the claim. The claim gets the score of
its best window: P(supports), times 0.4 if the window lacks one of its numbers (`grounded`), and again if another window
contradicts it (`contradicted`). A claim of several sentences gets their mean; of more than 64, the mean of 64 evenly
spaced ones. A sentence that occurs verbatim in the evidence scores 1. It names the window that decided.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from kcard.batching import batched
from kcard.embedded import minilm
from kcard.embedded.networks import WEIGHTS_FOLDER, Network, read_weights, token_row
from kcard.embedded.question_forms import NUMERALS
from kcard.errors import ModelUnavailable
from kcard.interfaces import Array, Checker, Pair, Verdict
from kcard.manifest import file_digest
from kcard.text import analyzer, pieces, small_words, split_sentences, whole

# Evidence in windows of one and two sentences, and whether a window contains the claim's numbers.

WORDS = re.compile(r"\w+")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
COMPARISON = re.compile(
    r"\b(?:than|at least|at most|over|under|about|around|nearly|almost|before|after)\b", re.IGNORECASE
)
MAX_WINDOW_WORDS = 80
MAX_EVIDENCE_CHARACTERS = 8000
# Share of a claim's words that one window of a text must contain to be about the claim (docs/selectors.md).
MIN_COVERAGE = 0.4
MAX_WINDOWS = 4  # per text
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
SPELLED_NUMBERS = {word: str(number) for number, word in enumerate(NUMERALS, start=1)}
SPELLED_NUMBERS |= {word: str(number) for number, word in enumerate(ORDINALS, start=1)}


def near(evidence: str, claim: str) -> list[str]:
    """Return the sentences of the evidence in order; beyond 8000 characters only the nearest.

    The nearest pieces (kcard.text) are those that share the most words with the claim. This bounds the time per text.
    """
    segments = pieces(evidence)
    if sum(map(len, segments)) > MAX_EVIDENCE_CHARACTERS:
        claim_words = _words(claim)
        shared = [len(claim_words & _words(segment)) for segment in segments]
        chosen, room = [], MAX_EVIDENCE_CHARACTERS
        for place in np.argsort(-np.array(shared), kind="stable").tolist():
            if len(segments[place]) <= room:
                chosen.append(place)
                room -= len(segments[place])
        segments = [segments[place] for place in sorted(chosen)]
    sentences = []
    for segment in segments:
        sentences += split_sentences(segment)
    return sentences


def windows(sentences: Sequence[str], claim: str, most: int) -> list[str]:
    """Return at most `most` windows, ranked by words shared with the claim, then shortest first."""
    # Text without full stops can be endless; the network reads about 120 words.
    singles = []
    for sentence in sentences:
        for run in batched(sentence.split(), MAX_WINDOW_WORDS):
            singles.append(" ".join(run))
    pairs = [f"{first} {second}" for first, second in pairwise(singles)]
    claim_words = _words(claim)

    def rank(window: str) -> tuple[int, int]:
        return -len(claim_words & _words(window)), len(window)

    return sorted(dict.fromkeys([*singles, *pairs]), key=rank)[:most]


def grounded(claim: str, window: str) -> bool:
    """Return whether the window contains every number and at least one word of the claim.

    A comparison ("more than 280") may hold without its number in the window. On windows that share no word with the
    claim, the network guesses.
    """
    if not _words(claim) & _words(window):
        return False
    there = _numbers(window)
    for word in _words(window):
        if word in SPELLED_NUMBERS:
            there.add(SPELLED_NUMBERS[word])
    return bool(COMPARISON.search(claim)) or _numbers(claim) <= there


def covered(claim: str, window: str) -> float:
    """Return the share of the claim's content words whose stems the window has, in [0, 1]; 1 if it has none."""
    stems = analyzer("english")
    telling = set(stems(" ".join(_words(claim) - small_words("en"))))
    if not telling:
        return 1.0
    return len(telling & set(stems(window))) / len(telling)


def coverage(claim: str, evidence: Iterable[str]) -> float:
    """Return how well the texts cover the claim's subject, in [0, 1], whether they support it or not.

    The mean over the claim's sentences of the largest share of content words found in one window.
    """
    sentences = whole(claim) or [claim]
    texts = [near(text, claim) for text in dict.fromkeys(evidence)]
    total = 0.0
    for sentence in sentences:
        largest = 0.0
        for text in texts:
            for window in windows(text, sentence, MAX_WINDOWS):
                largest = max(largest, covered(sentence, window))
        total += largest
    return total / len(sentences)


@functools.lru_cache(maxsize=4096)
def _words(text: str) -> frozenset[str]:
    return frozenset(WORDS.findall(text.lower()))


def _numbers(text: str) -> set[str]:
    """Return figures without thousands commas; 7th counts as 7."""
    return {match.replace(",", "").rstrip(".") for match in NUMBER.findall(text)}


WEIGHTS = WEIGHTS_FOLDER / "checker"
MAX_TOKENS = 192
MAX_CLAIM_TOKENS = 96
MAX_CLAIM_SENTENCES = 64  # per claim: 50 kB of text would keep a core busy for half a minute
UNGROUNDED_FACTOR = 0.4
# A window contradicts the best one if its refutation exceeds the best support by REFUTATION_MARGIN, or reaches
# SURE_REFUTATION and it shares more words with the claim (contradicted; docs/selectors.md).
REFUTATION_MARGIN, SURE_REFUTATION = 0.2, 0.9
# Minimum score of a supported claim, and minimum refutation probability of a refuted one; the evidence does not cover
# any other claim (docs/selectors.md).
MIN_SUPPORT, MIN_REFUTATION = 0.5, 0.5


class MiniLMChecker(Checker):
    """A checker whose scores depend on their pair alone."""

    def __init__(self, windows: int = 4, weights: Path = WEIGHTS) -> None:
        self.windows, self.weights = windows, weights
        self.sha256 = weights_digest(weights, windows)

    def support(self, pairs: Sequence[Pair]) -> Array:
        """Score how well the evidence supports the claims, shape (n,), in [0, 1]; 0 if either is empty.

        Raises ModelUnavailable if the weights are missing.
        """
        return np.array([verdict.score for verdict in self.judge(pairs)], dtype=np.float32)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Return the scores of `support`, each with the one or two sentences of evidence that decided it.

        For a claim of several sentences, this is the window of the least supported one. It is empty if the claim or
        the evidence is.
        """
        claims = []
        for pair in pairs:
            # At most MAX_CLAIM_SENTENCES per claim, evenly spaced, to bound the time.
            sentences = whole(pair.claim)
            if len(sentences) > MAX_CLAIM_SENTENCES:
                places = np.arange(MAX_CLAIM_SENTENCES) * len(sentences) // MAX_CLAIM_SENTENCES
                sentences = [sentences[place] for place in places.tolist()]
            claims.append([Pair(sentence, pair.evidence) for sentence in sentences])
        verdict_of = self._judge_sentences(list(chain.from_iterable(claims)))
        judged = []
        for sentence_pairs in claims:
            if not sentence_pairs:
                judged.append(Verdict(0.0, "", 0.0))
                continue
            # Average the claim's sentences; keep the window of the least supported one.
            verdicts = [verdict_of[pair] for pair in sentence_pairs]
            least = min(verdicts, key=lambda verdict: verdict.score)
            score = float(np.mean([verdict.score for verdict in verdicts]))
            judged.append(Verdict(score, least.window, least.refutation))
        return judged

    def _judge_sentences(self, pairs: Sequence[Pair]) -> dict[Pair, Verdict]:
        """Judge single-sentence claims by their best window, or by the sentence that states them verbatim."""
        verdict_of: dict[Pair, Verdict] = {}
        windows_of: dict[Pair, list[Pair]] = {}
        for pair in dict.fromkeys(pairs):
            sentences = near(pair.evidence, pair.claim)
            stated = _find_stated(pair.claim, sentences)
            if stated is not None:
                verdict_of[pair] = Verdict(1.0, stated, 0.0)
            else:
                chosen = windows(sentences, pair.claim, self.windows)
                windows_of[pair] = [Pair(pair.claim, window) for window in chosen]
        to_read = list(dict.fromkeys(chain.from_iterable(windows_of.values())))
        labels = dict(zip(to_read, self.read(to_read).tolist(), strict=True))
        for pair, chosen_pairs in windows_of.items():
            readings = []
            for window_pair in chosen_pairs:
                supports, refutes, _ = labels[window_pair]
                readings.append(_Reading.of(window_pair, supports, refutes))
            verdict_of[pair] = _decide(readings)
        return verdict_of

    def read(self, pairs: Sequence[Pair]) -> Array:
        """Return the network's probabilities of support, refutation and neither, shape (n, 3).

        The evidence is read from its start.
        """
        rows = encode_pairs(minilm.words().ids, pairs, MAX_TOKENS)
        outputs = load_network(self.weights).run_all([token_row(row.ids, row.claim_start) for row in rows])
        return np.array([labels[0] for (labels,) in outputs], dtype=np.float32).reshape(-1, 3)


@dataclass(frozen=True)
class EncodedPair:
    """Token ids of a pair, `[CLS] evidence [SEP] claim [SEP]`; the claim begins at `claim_start`."""

    ids: tuple[int, ...]
    claim_start: int


def encode_pairs(
    encode: Callable[[Sequence[str]], list[list[int]]], pairs: Sequence[Pair], max_tokens: int
) -> list[EncodedPair]:
    """Tokenise pairs, truncating the evidence to what the claim (at most 96 tokens) leaves of `max_tokens`.

    `encode`: returns token ids of texts, without special tokens.
    """
    texts: dict[str, None] = {}
    for pair in pairs:
        texts[pair.claim] = None
        texts[pair.evidence] = None
    if not texts:
        return []
    ids = dict(zip(texts, encode(list(texts)), strict=True))
    rows = []
    for pair in pairs:
        claim = ids[pair.claim][:MAX_CLAIM_TOKENS]
        evidence = ids[pair.evidence][: max_tokens - len(claim) - 3]
        row = (minilm.CLS, *evidence, minilm.SEP, *claim, minilm.SEP)
        rows.append(EncodedPair(row, len(evidence) + 2))
    return rows


@dataclass(frozen=True)
class _Reading:
    """A window's scores for a claim. `share`: of the claim's words in it; from MIN_COVERAGE on, it can refute."""

    window: str
    support: float
    refutation: float
    share: float

    @classmethod
    def of(cls, pair: Pair, supports: float, refutes: float) -> "_Reading":
        share = covered(pair.claim, pair.evidence)
        if not grounded(pair.claim, pair.evidence):
            supports *= UNGROUNDED_FACTOR
        if share < MIN_COVERAGE:
            refutes = 0.0
        return cls(pair.evidence, supports, refutes, share)


def contradicted(support: float, share: float, refutation: float, refuting_share: float) -> bool:
    """Return whether a refuting window outweighs a supporting one, which is then about something else.

    It does if it has as many of the claim's words (shares in [0, 1]) and is surer, or has more of them and is sure.
    """
    if refuting_share > share and refutation >= SURE_REFUTATION:
        return True
    return refuting_share >= share and refutation > support + REFUTATION_MARGIN


def _decide(readings: Sequence[_Reading]) -> Verdict:
    """Return the score of the most supportive window, lowered if another one contradicts it.

    If the claim is not supported, the verdict's window is the one that refutes it most, if any.
    """
    if not readings:
        return Verdict(0.0, "", 0.0)
    best = max(readings, key=lambda reading: reading.support)
    worst = max(readings, key=lambda reading: reading.refutation)
    score = best.support
    for other in readings:
        if other is not best and contradicted(best.support, best.share, other.refutation, other.share):
            score = best.support * UNGROUNDED_FACTOR
    window = ""
    if score < MIN_SUPPORT and worst.refutation >= MIN_REFUTATION:
        window = worst.window
    elif best.support:
        window = best.window
    return Verdict(score, window, worst.refutation)


def _find_stated(claim: str, sentences: Sequence[str]) -> str | None:
    """Return the sentence that has the claim's words, whatever its case and signs."""
    normalized = _normalize(claim)
    for sentence in sentences:
        if _normalize(sentence) == normalized:
            return sentence
    return None


def _normalize(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.lower()).strip()


@functools.cache
def weights_digest(folder: Path, windows: int) -> str:
    try:
        files = [file_digest(path) for path in sorted(folder.glob("*.safetensors"))]
    except OSError as error:
        raise ModelUnavailable(f"the checker's weights in {folder} can't be read: {error}") from error
    return hashlib.sha256("\n".join([minilm.SHA256, *files, str(windows)]).encode()).hexdigest()


@functools.cache
def load_network(folder: Path) -> Network:
    """Load the encoder with the adapter merged in (fp32) and the head, once per process."""
    adapter = read_weights(folder / "adapter_model.safetensors")
    head = read_weights(folder / "head.safetensors")
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        scale = float(config["lora_alpha"]) / float(config["r"])
    except (OSError, ValueError, KeyError) as error:
        raise ModelUnavailable(
            f"the checker's weights in {folder} can't be read: {error}; reinstall kcard"
        ) from error
    # Weight deltas of a PEFT LoRA adapter: scale * B @ A, where scale = alpha / r.
    prefix, down = "base_model.model.", ".lora_A.weight"
    changes = {}
    for name, first in adapter.items():
        if name.endswith(down):
            second = adapter[name.replace(".lora_A.", ".lora_B.")]
            layer = name.removeprefix(prefix).removesuffix(down) + ".weight"
            changes[layer] = scale * (second @ first)
    return Network("checker", {**minilm.adapted(changes), **head})
