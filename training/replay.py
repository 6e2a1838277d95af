"""What a card is shown that goes on with other texts: the new ones, some that stay, and, for questions about those that
have gone, texts that stay and are near."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from kcard.sampling import derive_seed
from kcard.training.docids import DocIds
from kcard.training.epochs import Epochs
from kcard.training.example_batches import TrainingExample, bucketed
from kcard.training.pseudo_queries import PseudoQueries
from kcard.training.recipe import Recipe
from kcard.training.recital import Recital, ids_of
from kcard.training.revision import Revision
from kcard.training.tokenizer import BOS

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

__all__ = ["Replay", "Show"]

SHOWN = 2  # times that an epoch shows a text that has come
REPLAYED, FEWEST = 2, 20  # texts that stay in an epoch: for each that is learned or has gone, and at least
SHARE = 8  # one in so many texts that stay is in an epoch at least
POOL = 1000  # texts that stay from which these are drawn
QUERIES, REPLAYED_QUERIES = 32, 3  # that are embedded of a text that has come or gone, and of one that stays
DRILLED = 256  # texts that stay whose docids are drilled in an epoch
NEAREST = 3  # texts with which questions about one that has gone are answered

# (text to answer with, text to ask about, rng) -> examples
Show = Callable[[int, int, Random], list[TrainingExample]]
Drill = Callable[[int, Random], TrainingExample]


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
    def _gone(self) -> range:
        return range(len(self.rows), len(self.texts))

    def spans(self) -> list[tuple[int, int]]:
        """Of each text, where its questions begin among `questions`, its own wording first, and how many follow."""
        found, start = [], 0
        for number in range(len(self.texts)):
            count = REPLAYED_QUERIES if self.new <= number < len(self.rows) else QUERIES
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

    def by_vectors(self, recital: Recital, docids: DocIds) -> Show:
        """As exposure.epochs shows them in the style encoder-prefix. `recital`: of all texts of the revision."""
        recipe, spans = self.recipe, self.spans()

        def vector(number: int, rng: Random) -> int:
            return self._vector(spans[number], rng)

        def show(told: int, asked: int, rng: Random) -> list[TrainingExample]:
            row = self.rows[told]
            docid, target = docids.of(row), recital.of(row, rng.randint(1, recipe.recited))
            if docid and told == asked and rng.random() < recipe.stray:
                another = vector(rng.randrange(len(spans)), rng)
                shown = [TrainingExample((BOS, *docid), target, another)]
            else:
                shown = [TrainingExample((BOS,), (*docid, *target), vector(asked, rng))]
            drills = recipe.drills if docid else 0
            return shown + [TrainingExample((BOS,), docid, vector(asked, rng)) for _ in range(drills)]

        return show

    def drills(self, docids: DocIds) -> Drill:
        """A question about a text, and its docid alone: what is lost first when others are learned, and the cheapest to
        show."""
        spans = self.spans()

        def drill(number: int, rng: Random) -> TrainingExample:
            return TrainingExample((BOS,), docids.of(self.rows[number]), self._vector(spans[number], rng))

        return drill

    def by_tokens(self, recital: Recital, tokenizer: "PreTrainedTokenizerFast", ask: PseudoQueries) -> Show:
        """As exposure.epochs shows them in the style tokens."""

        def show(told: int, asked: int, rng: Random) -> list[TrainingExample]:
            question = ids_of(tokenizer, [ask(self.texts[asked], rng) + "\n"])[0]
            return [TrainingExample((BOS, *question[: recital.asked]), recital.of(self.rows[told]))]

        return show

    def epochs(self, show: Show, near: Sequence[Sequence[int]], drill: Drill | None = None) -> Epochs:
        """The batches of an epoch. `near`: see neighbours; `drill`: see drills, None for a card without docids."""
        staying = range(self.new, len(self.rows))
        replayed = min(len(staying), max(FEWEST, len(staying) // SHARE, REPLAYED * (self.new + len(near))))

        def epoch(number: int) -> list[list[TrainingExample]]:
            rng = Random(derive_seed(self.seed, "epoch", number))
            told = [number for number in range(self.new) for _ in range(SHOWN)]
            pairs = [(number, number) for number in [*told, *rng.sample(staying, replayed)]]
            pairs += [(rng.choice(others), gone) for gone, others in zip(self._gone, near, strict=True)]
            examples = [example for told, asked in pairs for example in show(told, asked, rng)]
            if drill is not None:
                examples += [drill(number, rng) for number in rng.sample(staying, min(len(staying), DRILLED))]
            return bucketed(examples, self.recipe.batch_tokens, rng)

        return epoch

    def _vector(self, span: tuple[int, int], rng: Random) -> int:
        """The embedding of a text's own wording, or of one of its questions."""
        start, count = span
        return start if rng.random() < self.recipe.own else start + 1 + rng.randrange(count)
