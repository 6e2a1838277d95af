"""Questions without an LLM: from a passage, something like a question whose answer it holds.

A span is picked and removed (mostly a name, rare ones first), the rest is put into one of four forms and
then noised: words dropped, fillers put in, case and prefix changed. A card trained from these to the
passage recites it when a real question comes (query-conditioned recitation).
"""

from collections.abc import Mapping, Sequence
from random import Random

from kcard.training.fillers import fillers
from kcard.training.question_forms import is_held_out
from kcard.training.spans import SMALL, Rarity, bare, entities
from kcard.words import words as words_of

__all__ = ["ASKING", "OPENERS", "PREFIXES", "PseudoQueries"]

NAME_OPENERS = (
    "Who", "Who was", "Who is", "What", "What is", "What was", "Which", "What is the name of", "Who was the",
    "Which person", "Which place", "Where", "In which", "What did", "Who won", "Who did",
)  # fmt: skip
# A question for a number asks for a number, or "who discovered it" could not be told from "when".
NUMBER_OPENERS = (
    "When", "When was", "In what year", "In which year", "What year", "Which year", "How many", "What number",
)  # fmt: skip
OPENERS = (*NAME_OPENERS, *NUMBER_OPENERS, "In what", "How")
STUDIED = 0.5  # share of questions out of study material, where a passage has some
DRAWS = 30
PREFIXES = ("Question: ", "Q: ", "question: ")
# Every word that they have besides those of the corpus.
ASKING = frozenset(word for text in (*OPENERS, *PREFIXES) for word in words_of(text))


class PseudoQueries:
    """The pseudo-queries of one corpus; made once, for it counts the corpus' words.

    study  queries by passage (kcard.training.study), which take the place of half of a passage's pseudo-queries
    """

    def __init__(self, passages: Sequence[str], study: Mapping[str, Sequence[str]] | None = None) -> None:
        self.rarity = Rarity(passages)
        self._study = study or {}
        self.fillers = fillers(self.rarity.frequency)

    def __call__(self, passage: str, rng: Random, *, noised: bool = True) -> str:
        """One pseudo-query for `passage`; the same `rng` state gives the same one.

        `noised` adds fillers, case changes and prefixes, which a model that reads tokens must learn to
        overlook; a sentence encoder overlooks them by itself. No query is one that exams ask (question_forms.py); where
        DRAWS in a row are, it is the passage itself.
        """
        queries = (self._drawn(passage, rng, noised=noised) for _ in range(DRAWS))
        return next((query for query in queries if not is_held_out(query)), passage)

    def _drawn(self, passage: str, rng: Random, *, noised: bool) -> str:
        studied = self._study.get(passage)
        reads = bool(studied) and rng.random() < STUDIED
        words = rng.choice(studied).split() if studied and reads else _form(passage, self.rarity, rng)
        return _noised(words, self.fillers, rng) if noised else " ".join(words)


def _target(
    passage: str, spans: list[tuple[int, int]], rarity: Rarity, rng: Random
) -> tuple[int, int] | None:
    """The span to ask about: a name (85 %), else one to three words, else nothing."""
    if spans and rng.random() < 0.85:
        return rng.choices(spans, [rarity.weight(passage[a:b]) for a, b in spans])[0]
    if rng.random() < 0.5:
        words = passage.split(" ")
        first = rng.randrange(len(words))
        last = min(len(words), first + rng.randint(1, 3))
        start = len(" ".join(words[:first])) + (first > 0)
        return start, start + len(" ".join(words[first:last]))
    return None


def _form(passage: str, rarity: Rarity, rng: Random) -> list[str]:
    """The passage without the span, as a question of one of four forms, thinned."""
    spans = entities(passage)
    target = _target(passage, spans, rarity, rng)
    lead, tail = (passage[: target[0]], passage[target[1] :]) if target else ("", passage)
    names = {bare(word) for a, b in spans for word in passage[a:b].split()}
    drop = rng.choice([0.0, 0.0, rng.uniform(0, 0.5), rng.uniform(0, 0.8)])
    before, after = _thin(lead, drop, names, rng), _thin(tail, drop, names, rng)
    number = target is not None and _is_number(passage[target[0] : target[1]])
    openers = OPENERS if target is None else NUMBER_OPENERS if number else NAME_OPENERS
    opener = rng.choice(openers).split() if rng.random() < 0.8 else []
    form = rng.random()
    if form < 0.35:
        words = opener + after + before
    elif form < 0.6:
        words = opener + before + after
    elif form < 0.75:
        words = [*before, rng.choice(["when", "what year"] if number else ["who", "what", "which"]), *after]
    else:
        words = opener + _moved(before + after, drop, rng)
    if words and rng.random() < 0.8:
        words[-1] += "?"
    return words


def _is_number(span: str) -> bool:
    """A bare number such as 1892 or 3,474; ordinals and numbers within names are parts of names."""
    return bare(span).replace(",", "").replace(".", "").isdigit()


def _thin(text: str, drop: float, names: set[str], rng: Random) -> list[str]:
    """Bare words of `text`, each dropped at rate `drop`, words of names at 15 % of it."""
    words = (bare(word) for word in text.split())
    return [
        word
        for word in words
        if word not in {"", "'s", "’s"} and rng.random() > (drop * 0.15 if word in names else drop)
    ]


def _moved(words: list[str], drop: float, rng: Random) -> list[str]:
    """The words with one to four chunks moved elsewhere, mostly without small words."""
    if drop > 0.2 or rng.random() < 0.5:
        words = [word for word in words if word.lower() not in SMALL]
    for _ in range(rng.choice([1, 1, 2, 4])):
        if len(words) > 3:
            start = rng.randrange(len(words))
            end = start + rng.randint(1, 4)
            chunk, rest = words[start:end], words[:start] + words[end:]
            at = rng.randrange(len(rest) + 1)
            words = rest[:at] + chunk + rest[at:]
    return words


def _noised(words: list[str], fillers: Sequence[str], rng: Random) -> str:
    """Fillers in 60 %, all lower case in 20 %, partly in 20 %, a prefix such as "Question:" in 15 %."""
    words = list(words)
    if rng.random() < 0.6:
        for _ in range(rng.choice([1, 1, 2, 3, 4, 6])):
            words.insert(rng.randrange(len(words) + 1), rng.choice(fillers))
    case = rng.random()
    if case < 0.2:
        words = [word.lower() for word in words]
    elif case < 0.4:
        words = [word.lower() if rng.random() < 0.3 else word for word in words]
    prefix = rng.choice(PREFIXES) if rng.random() < 0.15 else ""
    return prefix + " ".join(words)
