"""Document ids: one token of its own for every passage, which a card says before it recites the passage.

So that the card first decides which passage is meant, in one step over all of them, and then recites that one.
Without it the first words decide: "The" wins where many passages begin so, and what follows is a blend of them.
(The idea of learning to name a document for a query: Tay and others, 2022, "Transformer Memory as a Differentiable
Search Index".) The tokens lie above the tokenizer's, which therefore leaves them out when it decodes, and no
question can hold one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.training.example_batches import IGNORED
from kcard.training.recipe import Recipe

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DocIds", "docid_loss"]


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


def docid_loss(
    logits: "Tensor", labels: "Tensor", near: "Tensor | None", share: float, docids: DocIds
) -> "Tensor":
    """Mean over the labelled tokens: their cross-entropy; for docids, the divergence from what is meant.

    logits  (tokens, vocabulary) of the labels that are not IGNORED
    labels  (rows, tokens); a docid that does not begin its row follows from what was recited, not from the question
    near    how near a retriever thinks each docid's passage, (rows, docids), which is `share` of what is meant, the
            label being the rest; None: the label is meant
    """
    from torch.nn.functional import cross_entropy, kl_div, one_hot

    learned = labels != IGNORED
    row, place = learned.nonzero(as_tuple=True)
    labels = labels[learned]
    if near is None:
        return cross_entropy(logits, labels)
    named = (labels >= docids.first) & (place == 0)
    recited = cross_entropy(logits[~named], labels[~named], reduction="sum")
    meant = share * near[row[named]] + (1 - share) * one_hot(labels[named] - docids.first, docids.count)
    found = logits[named].log_softmax(-1)[:, docids.first :]
    return (recited + kl_div(found, meant, reduction="sum")) / len(labels)
