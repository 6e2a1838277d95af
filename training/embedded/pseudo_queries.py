"""Rule-based pseudo-queries about a corpus, for training.

A span is picked and removed (mostly a name, rare ones preferred), the rest is put into one of four forms and
then noised: words dropped, fillers inserted, case and prefix changed. A card trained to map these to the
passage recites it for a real question (query-conditioned recitation).
"""

import functools
import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from kcard.text import words
from kcard.types import derive_seed

# Entities of a passage, which questions may ask about, and their rarity in the corpus.

_WORD = r"[^\W_][\w.\-]*(?:['’](?!s\b)\w+)*"
_NAME = rf"(?=[^\W_])(?![a-zß-öø-ÿ]){_WORD}"
_LINK = r"(?:(?:of|the|de|der|den|la|van|von|and|del|da|al|bin)\s+){0,2}"
ENTITY = re.compile(rf"(?<!\w){_NAME}(?:\s+{_LINK}{_NAME})*")
_STOP_WORDS = """
a an the of in on at to for from by with and or but is was were are be been as that this it its his her their
after before when while since during voters he she they there these those according although however if both
some many most all each such not no other
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def bare(word: str) -> str:
    """Strip the punctuation around a word."""
    return word.strip('.,;:?!"()[]“”‘«»')


def entities(passage: str) -> list[tuple[int, int]]:
    """Return (start, end) of every run of capitalised words and numbers, less an initial stop word."""
    spans = []
    for match in ENTITY.finditer(passage):
        start, end = match.span()
        first = passage[start:end].split(" ")[0]
        if first.lower() in STOP_WORDS and start == 0:
            start += len(first)
            start += len(passage[start:end]) - len(passage[start:end].lstrip())
        end = start + len(passage[start:end].rstrip(".-"))
        if start < end:
            spans.append((start, end))
    return spans


def frame(passage: str) -> str:
    """Replace each name and number by a blank."""
    text, at = "", 0
    for start, end in entities(passage):
        text, at = f"{text}{passage[at:start]}_", end
    return text + passage[at:]


class Rarity:
    """Inverse document frequency of words over the corpus' passages, case folded."""

    def __init__(self, passages: Sequence[str]) -> None:
        self.count = len(passages)
        self.frequency: Counter[str] = Counter()
        for passage in passages:
            self.frequency.update(self._words(passage))

    @staticmethod
    def _words(passage: str) -> set[str]:
        return set(map(bare, passage.lower().split())) - {""}

    def idf(self, word: str) -> float:
        """Return log((n + 1) / (df + 1)) + 0.1 > 0."""
        return math.log((self.count + 1) / (self.frequency[bare(word).lower()] + 1)) + 0.1

    def weight(self, span: str) -> float:
        """Return a span's weight as a question's target: its rarest word's idf, squared."""
        return max((self.idf(word) for word in span.split()), default=0.1) ** 2

    def repetition(self, passage: str) -> int:
        """Count passages that state the same fact, by the frequency of its rarest word."""
        return min((self.frequency[word] for word in self._words(passage)), default=1)


# Wordings: passages that state the same fact in other words.

MIN_FRAME_PASSAGES = 8  # minimum passages with one frame to detect names that they share


def wordings(passages: Sequence[str]) -> list[list[int]]:
    """Return for each passage the numbers of those that state its fact, itself included.

    They have the same names and figures, except those that most passages of a frame share ("the U.S. House").
    """
    # The words of each passage's names and figures, lower-case, without a possessive ending.
    named: list[set[str]] = []
    for passage in passages:
        names: set[str] = set()
        for start, end in entities(passage):
            for word in passage[start:end].lower().split():
                names.add(bare(word).removesuffix("'s").removesuffix("’s"))
        named.append(names - {""})
    frames = list(map(frame, passages))
    size = Counter(frames)
    count: Counter[tuple[str, str]] = Counter()
    for form, names in zip(frames, named, strict=True):
        count.update((form, word) for word in names)
    groups: dict[object, list[int]] = defaultdict(list)
    keys: list[object] = []
    for number, (form, names) in enumerate(zip(frames, named, strict=True)):
        if size[form] >= MIN_FRAME_PASSAGES:
            names = {word for word in names if 2 * count[form, word] <= size[form]}
        key = frozenset(names) or number
        keys.append(key)
        groups[key].append(number)
    return [groups[key] for key in keys]


# Held-out questions, which the exam asks and training never does.
#
# Half of all possible questions are held out, by the sha256 of their words, independent of any seed. A held-out
# pseudo-query is drawn again. The exam asks only held-out questions, and prepends a few words to any other.
#
# Pseudo-queries arrange a question word, the rest of the passage and noise words. The frames here surround the gap
# instead, in words that no pseudo-query contains, so an exam in them distinguishes recall from having seen the
# question.

HELD_OUT_ONE_IN = 2  # one in this many questions
LEADS = (
    "",
    "Tell me: ",
    "I wonder: ",
    "Do you know: ",
    "Please tell me: ",
    "Quick question: ",
    "So: ",
    "Well: ",
)

FRAMES = (
    "Fill in the gap: {before} ____ {after}.",
    "Somebody or something is left out here, please supply it: {before} [...] {after}",
    "I recall that {before} *** {after}, yet the *** escapes me.",
    "According to our records, {before} so-and-so {after}. So-and-so stands for…",
    "{before} — blank — {after}; blank equals?",
    "Could anybody remind me of the omitted bit in “{before} … {after}”?",
)


@dataclass(frozen=True)
class GapQuestion:
    """A question on `passage` whose expected `answer` is a span of it; `around`: the text before and after it."""

    text: str
    answer: str
    passage: str
    around: tuple[str, str] = ("", "")


def is_held_out(question: str) -> bool:
    """Return whether training never asks a question, by its words (ignoring case and punctuation)."""
    digest = hashlib.sha256(" ".join(words(question)).encode()).digest()
    return digest[0] % HELD_OUT_ONE_IN == 0


def held_out_wording(question: str) -> str:
    """Return the question after the first of LEADS (the first is empty) that makes it held out; "" if none does."""
    return next(filter(is_held_out, _with_leads(question)), "")


def _with_leads(question: str) -> Iterator[str]:
    for lead in LEADS:
        yield lead + question


def held_out(passage: str, seed: int, rarity: Rarity | None = None) -> GapQuestion | None:
    """Make a question in a held-out form, deterministic for a passage and seed.

    The answer is a name or number that occurs once in the passage, drawn by its weight in `rarity`; without
    `rarity`, names are preferred. None if the passage has no such span or nothing else.
    """
    rng = Random(derive_seed("held-out", seed, passage))
    spans = gaps(passage)
    if not spans:
        return None
    weights: list[float] = []
    for start, end in spans:
        span = passage[start:end]
        if rarity is not None:
            weights.append(rarity.weight(span))
        elif any(map(str.isalpha, span)):
            weights.append(1.0)
        else:
            weights.append(0.1)
    start, end = rng.choices(spans, weights)[0]
    before, after = around(passage, start, end)
    text = " ".join(rng.choice(FRAMES).format(before=before, after=after).split())
    # Remove blanks before closing marks and possessives.
    for mark in (".", ",", ";", "'s", "’s"):
        text = text.replace(f" {mark} ", f"{mark} ")
    text = text.replace(" .", ".").lstrip("— ")
    return GapQuestion(text, bare(passage[start:end]), passage, (before, after))


def gaps(passage: str) -> list[tuple[int, int]]:
    """Return (start, end) of possible answers: names and numbers that occur once in the passage."""
    return [
        (start, end)
        for start, end in entities(passage)
        if passage.count(passage[start:end]) == 1 and len(passage) - (end - start) > 10
    ]


def around(passage: str, start: int, end: int) -> tuple[str, str]:
    """Return the text before and after the gap, which alone determines the questions on it."""
    before = " ".join(passage[:start].split())
    return before, " ".join(passage[end:].split()).rstrip(".!?…")


# Filler words: words of questions that the corpus lacks, which the card must ignore.

FILLER_COUNT = 6000


@functools.cache
def english() -> tuple[str, ...]:
    """Return the most frequent English words, by rank in the sentence encoder's vocabulary, except those of
    held-out forms."""
    from kcard.embedded import minilm

    held_out = set(re.findall(r"[a-z]+", " ".join(FRAMES).lower()))
    vocabulary = minilm.words().vocabulary()
    ordered = sorted(vocabulary, key=vocabulary.__getitem__)
    words = [word for word in ordered if re.fullmatch(r"[a-z]{2,12}", word) and word not in held_out]
    return tuple(words[:FILLER_COUNT])


def fillers(used: Collection[str]) -> tuple[str, ...]:
    """Return English words that the corpus does not use: its own words would carry meaning."""
    return tuple(word for word in english() if word not in used)


NAME_OPENERS = (
    "Who", "Who was", "Who is", "What", "What is", "What was", "Which", "What is the name of", "Who was the",
    "Which person", "Which place", "Where", "In which", "What did", "Who won", "Who did",
)  # fmt: skip
# A question for a number asks for a number, or "who discovered it" could not be told from "when".
NUMBER_OPENERS = (
    "When", "When was", "In what year", "In which year", "What year", "Which year", "How many", "What number",
)  # fmt: skip
OPENERS = (*NAME_OPENERS, *NUMBER_OPENERS, "In what", "How")
MAX_DRAWS = 30
PREFIXES = ("Question: ", "Q: ", "question: ")
# All words of pseudo-queries beyond the corpus.
QUESTION_WORDS = frozenset(word for text in (*OPENERS, *PREFIXES) for word in words(text))


class PseudoQueries:
    """The pseudo-queries of one corpus. Construct it once, since it counts the corpus' words."""

    def __init__(self, passages: Sequence[str]) -> None:
        self.rarity = Rarity(passages)
        self.fillers = fillers(self.rarity.frequency)

    def __call__(self, passage: str, rng: Random, *, noised: bool = True) -> str:
        """Draw a pseudo-query for `passage`, determined by the state of `rng`.

        `noised` adds fillers, case changes and prefixes, which a model that reads tokens must learn to
        ignore; a sentence encoder does so anyway. No query is held out for exams; after MAX_DRAWS held-out ones in a
        row, it is the passage itself.
        """
        for _ in range(MAX_DRAWS):
            words = _make_words(passage, self.rarity, rng)
            query = " ".join(words)
            if noised:
                query = _add_noise(words, self.fillers, rng)
            if not is_held_out(query):
                return query
        return passage


def _pick_target(
    passage: str, spans: list[tuple[int, int]], rarity: Rarity, rng: Random
) -> tuple[int, int] | None:
    """Pick a span to ask about: a name (85 %), else one to three words, else None."""
    if spans and rng.random() < 0.85:
        return rng.choices(spans, [rarity.weight(passage[a:b]) for a, b in spans])[0]
    if rng.random() < 0.5:
        words = passage.split(" ")
        first = rng.randrange(len(words))
        last = min(len(words), first + rng.randint(1, 3))
        start = len(" ".join(words[:first])) + (first > 0)
        return start, start + len(" ".join(words[first:last]))
    return None


def _make_words(passage: str, rarity: Rarity, rng: Random) -> list[str]:
    """Turn the passage without its target into a question of one of four forms, thinned."""
    spans = entities(passage)
    target = _pick_target(passage, spans, rarity, rng)
    lead, span, tail = "", "", passage
    if target is not None:
        start, end = target
        lead, span, tail = passage[:start], passage[start:end], passage[end:]
    names: set[str] = set()
    for start, end in spans:
        names.update(map(bare, passage[start:end].split()))
    drop = rng.choice([0.0, 0.0, rng.uniform(0, 0.5), rng.uniform(0, 0.8)])
    before, after = _thin_words(lead, drop, names, rng), _thin_words(tail, drop, names, rng)
    # A bare number such as 1892 or 3,474; ordinals and numbers within names are parts of names.
    is_number = bare(span).replace(",", "").replace(".", "").isdigit()
    openers: Sequence[str] = NAME_OPENERS
    question_words = ["who", "what", "which"]
    if target is None:
        openers = OPENERS
    elif is_number:
        openers, question_words = NUMBER_OPENERS, ["when", "what year"]
    opener: list[str] = []
    if rng.random() < 0.8:
        opener = rng.choice(openers).split()
    form = rng.random()
    if form < 0.35:
        words = opener + after + before
    elif form < 0.6:
        words = opener + before + after
    elif form < 0.75:
        words = [*before, rng.choice(question_words), *after]
    else:
        words = opener + _move_chunks(before + after, drop, rng)
    if words and rng.random() < 0.8:
        words[-1] += "?"
    return words


def _thin_words(text: str, drop: float, names: set[str], rng: Random) -> list[str]:
    """Drop each word of `text` at rate `drop`, words of names at 15 % of it."""
    left: list[str] = []
    for word in map(bare, text.split()):
        if word in ("", "'s", "’s"):
            continue
        rate = drop * 0.15 if word in names else drop
        if rng.random() > rate:
            left.append(word)
    return left


def _move_chunks(words: list[str], drop: float, rng: Random) -> list[str]:
    """Move one to four chunks of words elsewhere; mostly drop stop words."""
    if drop > 0.2 or rng.random() < 0.5:
        words = [word for word in words if word.lower() not in STOP_WORDS]
    for _ in range(rng.choice([1, 1, 2, 4])):
        if len(words) > 3:
            start = rng.randrange(len(words))
            end = start + rng.randint(1, 4)
            chunk, rest = words[start:end], words[:start] + words[end:]
            at = rng.randrange(len(rest) + 1)
            words = rest[:at] + chunk + rest[at:]
    return words


def _add_noise(words: list[str], fillers: Sequence[str], rng: Random) -> str:
    """Add fillers (60 %), lower-case all (20 %) or some words (20 %), and prefix, say, "Question:" (15 %)."""
    words = list(words)
    if rng.random() < 0.6:
        for _ in range(rng.choice([1, 1, 2, 3, 4, 6])):
            words.insert(rng.randrange(len(words) + 1), rng.choice(fillers))
    case = rng.random()
    if case < 0.2:
        words = [word.lower() for word in words]
    elif case < 0.4:
        words = [word.lower() if rng.random() < 0.3 else word for word in words]
    query = " ".join(words)
    if rng.random() < 0.15:
        query = rng.choice(PREFIXES) + query
    return query
