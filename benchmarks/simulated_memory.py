"""A simulated LLM that knows each fact with a given probability, by a trained or a played memory.

Which facts are known is simulated, and published figures say so. The trained memory is a closed-book model
(recipes/memory) trained on exactly the known facts, so its answers and confidence are real. The played memory is a fast
substitute: it answers the known facts correctly, and its confidence is random, higher for known facts, with an AUROC of
about 0.86.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kcard.llms import embedded_llm as llm
from kcard.llms.embedded_llm import EmbeddedMemory, MemoryAnswer
from kcard.types import TokenScores, derive_seed

Kind = Literal["trained", "played"]
Rule = Literal["popular", "independent"]
STEEP = 2.0  # logits a standard deviation of log popularity
SPREAD = 0.75  # logits, standard deviation of the relations among each other
APART = 1.5  # standard deviations between the confidence in what is known and in what is not
KEPT_OUT = 0.1  # of what is unknown, to calibrate a trained memory


def known_facts(
    popularity: Sequence[float], relations: Sequence[str], rule: Rule, share: float, seed: int
) -> list[bool]:
    """Which facts are known.

    popular      with a probability that rises smoothly with log popularity, some relations being known better
    independent  each with probability `share`, whatever it is about
    """
    draws = np.array([derive_seed(seed, "known", i) / 2**63 for i in range(len(popularity))])
    if rule == "independent":
        return [bool(x) for x in draws < share]
    logs = np.log10(1 + np.asarray(popularity, dtype=np.float64))
    above = (logs - logs.mean()) / (logs.std() or 1)
    random_ = np.random.default_rng(seed)
    effects = {relation: random_.normal(0, SPREAD) for relation in sorted(set(relations))}
    effect = np.array([effects[relation] for relation in relations])
    chance = 1 / (1 + np.exp(-(STEEP * above + effect + np.log(share / (1 - share)))))
    return [bool(x) for x in draws < chance]


@dataclass(frozen=True)
class Played:
    """A stand-in for kcard.llms.embedded_llm.EmbeddedMemory: `facts` are what it knows, question -> answer."""

    facts: Mapping[str, str]
    seed: int = 0

    def recall(self, question: str) -> MemoryAnswer:
        drawn = random.Random(derive_seed(self.seed, "confidence", question))
        sure = drawn.gauss(APART if question in self.facts else 0.0, 1.0) - APART / 2
        knows = float(1 / (1 + np.exp(-2 * sure)))
        # Without the fact there is nothing to say: `knows` is held below what the embedded LLM would answer from.
        answer = self.facts.get(question, "unknown")
        least = float(np.log(knows))
        token = TokenScores(least, knows, float(-knows * np.log(knows)))
        return MemoryAnswer(answer, least, knows, (token,))

    def log_probability(self, question: str, answer: str) -> float:
        return 0.0 if self.facts.get(question) == answer else -1.0


def taught(
    facts: Mapping[str, str], unknown: Sequence[str], kind: Kind, seconds: float, seed: int
) -> EmbeddedMemory | Played:
    """A memory that knows these facts; of the `unknown` questions some calibrate a trained one's confidence."""
    if kind == "played":
        return Played(facts, seed)
    from dataclasses import replace

    from recipes.memory.calibrate import calibrate
    from recipes.memory.questions import Unanswerable
    from recipes.memory.train import train
    from recipes.reader.words import Words

    learnt = dict(facts)
    trained, _ = train(learnt, Unanswerable(learnt, Words(random.Random(seed))), seconds, seed)
    apart = random.Random(seed).sample(list(unknown), max(10, round(KEPT_OUT * len(unknown))))
    strange = Unanswerable(learnt, Words(random.Random(seed + 1)))
    fit = calibrate(trained, learnt, apart, strange)
    return replace(trained, slope=fit.slope, threshold=fit.threshold)


@contextmanager
def remembering(instead: EmbeddedMemory | Played) -> Iterator[None]:
    """Give the embedded LLM this memory for as long as the block lasts."""
    shipped = llm.shared
    llm.shared = lambda: instead  # type: ignore[assignment] # it recalls as an EmbeddedMemory does
    try:
        yield
    finally:
        llm.shared = shipped
