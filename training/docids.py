"""Document ids: one token of its own for every passage, which a card says before it recites the passage.

So that the card first decides which passage is meant, in one step over all of them, and then recites that one.
Without it the first words decide: "The" wins where many passages begin so, and what follows is a blend of them.
(The idea of learning to name a document for a query: Tay and others, 2022, "Transformer Memory as a Differentiable
Search Index".) The tokens lie above the tokenizer's, which therefore leaves them out when it decodes, and no
question can hold one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.training.recipe import Recipe

__all__ = ["DocIds"]


@dataclass(frozen=True)
class DocIds:
    """`first`: the token of passage 0; `count`: how many there are, 0 where passages have none."""

    first: int
    count: int

    @classmethod
    def for_passages(cls, texts: Sequence[str], vocabulary: int, recipe: Recipe) -> "DocIds":
        """One a passage, above the `vocabulary`; none in the style `tokens` or for more than `recipe.docids`.

        Passages that are asked by tokens are alike and tell a fact in several wordings, each with a docid that
        is seen the less often: measured, they recall less with docids (docs/training.md).
        """
        wanted = recipe.style == "encoder-prefix" and len(texts) <= recipe.docids
        return cls(vocabulary, len(texts) if wanted else 0)

    def of(self, passage: int) -> tuple[int, ...]:
        """The token that stands for it, or nothing."""
        return (self.first + passage,) if self.count else ()
