"""What a card is shown that goes on with other texts: the new ones, some that stay, and, for questions about those that
have gone, texts that stay and are near."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from kcard.sampling import derive_seed
from kcard.training.docids import DocIds
from kcard.training.example_batches import TrainingExample, bucketed
from kcard.training.pseudo_queries import PseudoQueries
from kcard.training.recipe import Recipe
from kcard.training.recital import Recital, ids_of
from kcard.training.revision import Revision
from kcard.training.tokenizer import BOS

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

__all__ = ["Drill", "Epoch", "Recite", "Replay", "StepParts"]

TOKENS = 1024  # of the recitals of a step
SHOWN = 2  # times that an epoch shows a text that has come
REPLAYED, FEWEST = 2, 20  # texts that stay in an epoch: for each that is learned, and at least
SHARE = 4  # one in so many texts that stay is in an epoch at least
POOL = 1000  # texts that stay from which these are drawn
QUERIES, REPLAYED_QUERIES = 16, 1  # that are embedded of a text that has come or gone, and of one that stays
DRILLS = 2  # of the docid of each text that is shown
DRILLED = 384  # texts that stay whose docids are drilled in an epoch besides
NEAREST = 3  # texts with which questions about one that has gone are answered
ASKED = 4  # such questions about each in an epoch

# (text to answer with, text to ask about, rng) -> example
Recite = Callable[[int, int, Random], TrainingExample]
Drill = Callable[[int, int, Random], TrainingExample]
# The recitals of a step and the docids that are asked for in it, which are much shorter: each is a batch of its own.
StepParts = tuple[list[TrainingExample], list[TrainingExample]]
Epoch = Callable[[int], list[StepParts]]


@dataclass(frozen=True)
class Replay:
    """The texts of a revision by their numbers: those to learn, then some that stay, then those that have gone.

    rows   where each of the first two kinds stands among the revision's texts
    texts  all three
    new    how many are to be learned
    """

    rows: Sequence[int]
    texts: Sequence[str]
    new: int
    recipe: Recipe
    seed: int

    @classmethod
    def drawn(cls, revision: Revision, recipe: Recipe, seed: int) -> "Replay":
        """Which texts stay in it is drawn by the seed."""
        new = set(revision.to_learn)
        staying = [row for row, _ in revision.kept if row not in new]
        drawn = Random(derive_seed(seed, "replay")).sample(staying, min(POOL, len(staying)))
        rows = [*revision.to_learn, *drawn]
        texts = [*(revision.now[row] for row in rows), *revision.removed]
        return cls(rows, texts, len(revision.to_learn), recipe, seed)

    @property
    def staying(self) -> range:
        return range(self.new, len(self.rows))

    @property
    def _gone(self) -> range:
        return range(len(self.rows), len(self.texts))

    def spans(self) -> list[tuple[int, int]]:
        """Of each text, where its questions begin among `questions`, its own wording first, and how many follow."""
        found, start = [], 0
        for number in range(len(self.texts)):
            count = REPLAYED_QUERIES if number in self.staying else QUERIES
            found.append((start, count))
            start += 1 + count
        return found

    def questions(self, ask: PseudoQueries) -> list[str]:
        """What is to be embedded."""
        rng = Random(derive_seed(self.seed, "queries"))
        return [
            question
            for text, (_, count) in zip(self.texts, self.spans(), strict=True)
            for question in (text, *(ask(text, rng, noised=False) for _ in range(count)))
        ]

    def neighbours(self, vectors: "Tensor") -> list[list[int]]:
        """For each text that has gone the nearest others; `vectors`: (texts, 384), embeddings of the texts."""
        count = len(self.rows)
        cosines = vectors[count:] @ vectors[:count].T
        found: list[list[int]] = cosines.topk(min(NEAREST, count)).indices.tolist()
        return found

    def by_vectors(self, recital: Recital, docids: DocIds) -> tuple[Recite, Drill | None]:
        """As exposure.epochs shows them in the style encoder-prefix. `recital`: of all texts of the revision."""
        recipe, spans = self.recipe, self.spans()

        def vector(number: int, rng: Random) -> int:
            """The embedding of a text's own wording, or of one of its questions."""
            start, count = spans[number]
            return start if rng.random() < recipe.own else start + 1 + rng.randrange(count)

        def recite(told: int, asked: int, rng: Random) -> TrainingExample:
            row = self.rows[told]
            docid, target = docids.of(row), recital.of(row, rng.randint(1, recipe.recited))
            if docid and told == asked and rng.random() < recipe.stray:
                return TrainingExample((BOS, *docid), target, vector(rng.randrange(len(spans)), rng))
            return TrainingExample((BOS,), (*docid, *target), vector(asked, rng))

        def drill(told: int, asked: int, rng: Random) -> TrainingExample:
            return TrainingExample((BOS,), docids.of(self.rows[told]), vector(asked, rng))

        return recite, drill if docids.count else None

    def by_tokens(self, recital: Recital, tokenizer: "PreTrainedTokenizerFast", ask: PseudoQueries) -> Recite:
        """As exposure.epochs shows them in the style tokens."""

        def recite(told: int, asked: int, rng: Random) -> TrainingExample:
            question = ids_of(tokenizer, [ask(self.texts[asked], rng) + "\n"])[0]
            return TrainingExample((BOS, *question[: recital.asked]), recital.of(self.rows[told]))

        return recite

    def given(self, recital: Recital, docids: DocIds) -> list[TrainingExample]:
        """Each text that stays, recited after its docid, whatever is asked."""
        own = [self.spans()[number][0] for number in self.staying]
        rows = self.rows[self.new :]
        return [
            TrainingExample((BOS, *docids.of(row)), recital.of(row), vector)
            for row, vector in zip(rows, own, strict=True)
        ]

    def epochs(
        self,
        near: Sequence[Sequence[int]],
        recite: Recite,
        drill: Drill | None,
        weakest: Callable[[int, int], Sequence[int]],
    ) -> Epoch:
        """The steps of an epoch.

        near     see neighbours
        drill    asks for the docid alone: what is lost first when others are learned, and the cheapest to show. None
                 for a card without docids, which recites for questions about what has gone instead
        weakest  of an epoch, at most so many texts that stay, by their places among them: these are shown for sure
        """
        count = len(self.staying)
        replayed = min(count, max(FEWEST, count // SHARE, REPLAYED * self.new))

        def epoch(number: int) -> list[StepParts]:
            rng = Random(derive_seed(self.seed, "epoch", number))
            weak = [self.new + place for place in weakest(number, replayed)]
            again = rng.sample(weak, min(len(weak), replayed // 2))
            again += rng.sample(sorted({*self.staying}.difference(again)), replayed - len(again))
            shown = [*SHOWN * [*range(self.new)], *again]
            pairs = zip(self._gone, near, strict=True)
            asked = [(rng.choice(texts), gone) for gone, texts in pairs for _ in range(ASKED)]
            recitals, drills = [recite(text, text, rng) for text in shown], []
            if drill is None:
                recitals += [recite(*pair, rng) for pair in asked[::ASKED]]
            else:
                named = [*DRILLS * shown, *rng.sample(self.staying, min(count, DRILLED))]
                drills = [drill(*pair, rng) for pair in (*zip(named, named, strict=True), *asked)]
                rng.shuffle(drills)
            steps = bucketed(recitals, TOKENS, rng)
            return [(batch, drills[at :: len(steps)]) for at, batch in enumerate(steps)]

        return epoch
