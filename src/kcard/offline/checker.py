"""The offline fact checker: does this text support that claim?

Of the evidence the four windows that share most words with the claim are read; the claim has the score of
its best window: P(supports), times 0.4 where a number of the claim does not stand in it (windows.py), and where another
window contradicts it (contradicted). A claim of
several sentences has the mean of theirs; of more than 64, the mean of 64 that are evenly spread. A sentence that
stands in the evidence word for word is supported: 1.
It is Judging: it names the window that decided.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kcard.errors import ModelUnavailable
from kcard.interfaces import Array, Pair, Verdict
from kcard.manifest import file_digest
from kcard.offline import minilm
from kcard.offline.networks import Network, read_weights, token_row
from kcard.text import analyzer, pieces, small_words, split_sentences, whole

__all__ = [
    "COVERED",
    "REFUTED",
    "SUPPORTED",
    "WEIGHTS",
    "EncodedPair",
    "MiniLMChecker",
    "contradicted",
    "coverage",
    "covered",
    "encode_pairs",
    "grounded",
    "near",
    "windows",
]


# Evidence in windows of one and two sentences, and whether the numbers of a claim stand in one of them.

WORDS = re.compile(r"\w+")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
COMPARISON = re.compile(
    r"\b(?:than|at least|at most|over|under|about|around|nearly|almost|before|after)\b", re.IGNORECASE
)
LONGEST = 80
MOST = 8000
# Share of a claim's words that a text must have in one place to speak of what the claim says (docs/selectors.md).
COVERED = 0.4
READ = 4  # windows of a text
NUMERALS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
SPELLED = {word: str(i) for words in (NUMERALS, ORDINALS) for i, word in enumerate(words, start=1)}


def near(evidence: str, claim: str) -> list[str]:
    """The sentences of the evidence in order; of more than 8000 characters only the nearest.

    The nearest pieces (sentences.py) are those that share most words with the claim. So the time that a text
    takes is bounded.
    """
    segments = pieces(evidence)
    if sum(map(len, segments)) > MOST:
        claim_words, room = _words(claim), MOST
        chosen = []
        for i in sorted(range(len(segments)), key=lambda i: (-len(claim_words & _words(segments[i])), i)):
            if len(segments[i]) <= room:
                chosen.append(i)
                room -= len(segments[i])
        segments = [segments[i] for i in sorted(chosen)]
    return [sentence for piece in segments for sentence in split_sentences(piece)]


def windows(sentences: Sequence[str], claim: str, most: int) -> list[str]:
    """The windows that share most words with the claim, best first, at most `most`; shorter ones first."""
    # Text without full stops can be endless; the network reads about 120 words.
    runs = [sentence.split() for sentence in sentences]
    sentences = [" ".join(run[i : i + LONGEST]) for run in runs for i in range(0, len(run), LONGEST)]
    pairs = [" ".join(sentences[i : i + 2]) for i in range(len(sentences) - 1)]
    claim_words = _words(claim)
    choices = list(dict.fromkeys([*sentences, *pairs]))
    return sorted(choices, key=lambda w: (-len(claim_words & _words(w)), len(w)))[:most]


def grounded(claim: str, window: str) -> bool:
    """Whether every number of the claim stands in the window, and at least one of its words.

    A claim that compares ("more than 280") may hold without its number being there. On windows without a common
    word, "word word word", the network guesses.
    """
    if not _words(claim) & _words(window):
        return False
    there = _numbers(window) | {SPELLED[word] for word in _words(window) & SPELLED.keys()}
    return bool(COMPARISON.search(claim)) or _numbers(claim) <= there


def covered(claim: str, window: str) -> float:
    """The share of a claim's telling words whose stems the window has, in [0, 1]; 1 for a claim without any."""
    stems = analyzer("english")
    telling = set(stems(" ".join(_words(claim) - small_words("en"))))
    return len(telling & set(stems(window))) / len(telling) if telling else 1.0


def coverage(claim: str, evidence: Iterable[str]) -> float:
    """How far the texts speak of what a claim says, in [0, 1], whether they bear it out or not.

    For each sentence of the claim the largest share of its telling words that one window has; the mean of these.
    """
    sentences = whole(claim) or [claim]
    texts = [near(text, claim) for text in dict.fromkeys(evidence)]
    best = [
        max((covered(part, w) for found in texts for w in windows(found, part, READ)), default=0.0)
        for part in sentences
    ]
    return sum(best) / len(best)


@functools.lru_cache(maxsize=4096)
def _words(text: str) -> frozenset[str]:
    return frozenset(WORDS.findall(text.lower()))


def _numbers(text: str) -> set[str]:
    """Figures without thousands commas; 7th counts as 7."""
    return {match.replace(",", "").rstrip(".") for match in NUMBER.findall(text)}


WEIGHTS = Path(__file__).parent / "weights" / "checker"
MAX_TOKENS = 192
CLAIM_TOKENS = 96
MOST_SENTENCES = 64  # of a claim: a text of 50 kB would keep a core busy for half a minute
UNGROUNDED = 0.4
# By how much another window must refute a claim more surely than the best one supports it; and how surely, where it has
# more of the claim's words (contradicted; docs/selectors.md).
MARGIN, SURE = 0.2, 0.9
# Score from which a claim is supported, and probability of refutation from which another one is refuted; what is
# neither the evidence does not cover (docs/selectors.md).
SUPPORTED, REFUTED = 0.5, 0.5


@dataclass(frozen=True)
class MiniLMChecker:
    """A score depends on its pair alone."""

    windows: int = 4
    weights: Path = WEIGHTS

    @property
    def sha256(self) -> str:
        """What names these scores: the digest of the encoder's and the adapter's weights and of `windows`."""
        return weights_digest(self.weights, self.windows)

    def support(self, pairs: Sequence[Pair]) -> Array:
        """How far the evidence supports the claim, shape (n,), in [0, 1]; 0 for an empty claim or evidence.

        Raises ModelUnavailable where the weights are missing.
        """
        return np.array([verdict.score for verdict in self.judge(pairs)], dtype=np.float32)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """The scores of `support`, each with the one or two sentences of the evidence that decided it.

        Of a claim of several sentences it is the window of the least supported one: that is where to look. It is
        empty where claim or evidence is.
        """
        claims = []
        for pair in pairs:
            # At most MOST_SENTENCES of a claim, evenly spread, so that its time is bounded.
            sentences = whole(pair.claim)
            if len(sentences) > MOST_SENTENCES:
                places = (i * len(sentences) // MOST_SENTENCES for i in range(MOST_SENTENCES))
                sentences = [sentences[place] for place in places]
            claims.append(sentences)
        single = [Pair(s, pair.evidence) for pair, group in zip(pairs, claims, strict=True) for s in group]
        verdicts = iter(self._judge_sentences(single))
        judged = []
        for group in claims:
            # The mean of a claim's sentences, with the window of the least supported one.
            parts = [next(verdicts) for _ in group]
            if not parts:
                judged.append(Verdict(0.0, "", 0.0))
                continue
            least = min(parts, key=lambda verdict: verdict.score)
            score = float(np.mean([verdict.score for verdict in parts]))
            judged.append(Verdict(score, least.window, least.refutation))
        return judged

    def _judge_sentences(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Judge single-sentence claims: each by the best of its windows, or by the sentence that states it."""
        verdict_of, read = dict[Pair, Verdict](), dict[Pair, list[Pair]]()
        for pair in dict.fromkeys(pairs):
            sentences = near(pair.evidence, pair.claim)
            stated = next((s for s in sentences if _normalize(s) == _normalize(pair.claim)), None)
            if stated is not None:
                verdict_of[pair] = Verdict(1.0, stated, 0.0)
            else:
                read[pair] = [Pair(pair.claim, w) for w in windows(sentences, pair.claim, self.windows)]
        todo = list(dict.fromkeys(window for chosen in read.values() for window in chosen))
        labels = dict(zip(todo, self.read(todo).tolist(), strict=True))
        for pair, chosen in read.items():
            verdict_of[pair] = _decide([_Reading.of(window, *labels[window][:2]) for window in chosen])
        return [verdict_of[pair] for pair in pairs]

    def read(self, pairs: Sequence[Pair]) -> Array:
        """Return the probabilities of support, refutation and neither by the network alone, shape (n, 3).

        The evidence is read from its start.
        """
        rows = encode_pairs(minilm.words().ids, pairs, MAX_TOKENS)
        outputs = load_network(self.weights).run_all([token_row(row.ids, row.claim_start) for row in rows])
        return np.array([labels[0] for (labels,) in outputs], dtype=np.float32).reshape(-1, 3)


@dataclass(frozen=True)
class EncodedPair:
    """One pair as token ids, `[CLS] evidence [SEP] claim [SEP]`; those from `claim_start` on are the claim's."""

    ids: tuple[int, ...]
    claim_start: int


def encode_pairs(
    encode: Callable[[Sequence[str]], list[list[int]]], pairs: Sequence[Pair], max_tokens: int
) -> list[EncodedPair]:
    """Tokenise pairs; the evidence is cut to what the claim (at most 96 tokens) leaves of `max_tokens`.

    `encode`: token ids of texts, without special tokens.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.claim, pair.evidence)))
    if not texts:
        return []
    ids = dict(zip(texts, encode(texts), strict=True))
    rows = []
    for pair in pairs:
        claim = ids[pair.claim][:CLAIM_TOKENS]
        evidence = ids[pair.evidence][: max_tokens - len(claim) - 3]
        row = (minilm.CLS, *evidence, minilm.SEP, *claim, minilm.SEP)
        rows.append(EncodedPair(row, len(evidence) + 2))
    return rows


@dataclass(frozen=True)
class _Reading:
    """What a window says of a claim. `share`: that of the claim's words which it has; it refutes from COVERED on."""

    window: str
    support: float
    refutation: float
    share: float

    @classmethod
    def of(cls, pair: Pair, supports: float, refutes: float) -> "_Reading":
        share = covered(pair.claim, pair.evidence)
        support = supports * (1.0 if grounded(pair.claim, pair.evidence) else UNGROUNDED)
        return cls(pair.evidence, support, refutes if share >= COVERED else 0.0, share)


def contradicted(support: float, share: float, refutation: float, refuting_share: float) -> bool:
    """Whether a text that supports a claim speaks of something else than another one that refutes it.

    The other one has as many of the claim's words (shares in [0, 1]) and is surer, or has more of them and is sure.
    """
    if refuting_share > share and refutation >= SURE:
        return True
    return refuting_share >= share and refutation > support + MARGIN


def _decide(readings: Sequence[_Reading]) -> Verdict:
    """The score of the window that supports a claim most, lower if another one contradicts it.

    Where it does not support the claim, the window is the one that refutes it most, if one does.
    """
    if not readings:
        return Verdict(0.0, "", 0.0)
    best = max(readings, key=lambda reading: reading.support)
    worst = max(readings, key=lambda reading: reading.refutation)
    others = [reading for reading in readings if reading is not best]
    denied = any(contradicted(best.support, best.share, other.refutation, other.share) for other in others)
    score = best.support * (UNGROUNDED if denied else 1.0)
    decides = score < SUPPORTED and worst.refutation >= REFUTED
    window = worst.window if decides else best.window if best.support else ""
    return Verdict(score, window, worst.refutation)


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
    """The encoder with the adapter merged in (fp32) and the head, once a process."""
    adapter = read_weights(folder / "adapter_model.safetensors")
    head = read_weights(folder / "head.safetensors")
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        scale = float(config["lora_alpha"]) / float(config["r"])
    except (OSError, ValueError, KeyError) as error:
        raise ModelUnavailable(
            f"the checker's weights in {folder} can't be read: {error}; reinstall kcard"
        ) from error
    # What a PEFT LoRA adapter adds to the weights that it was trained on, `scale` being its alpha / r.
    prefix, down = "base_model.model.", ".lora_A.weight"
    changes = {}
    for name, first in adapter.items():
        if name.endswith(down):
            second = adapter[name.replace(".lora_A.", ".lora_B.")]
            layer = name.removeprefix(prefix).removesuffix(down) + ".weight"
            changes[layer] = scale * (second @ first)
    return Network("checker", {**minilm.adapted(changes), **head})
