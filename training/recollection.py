"""Which passages the last version of a card would name for a question, which its next version is to name, too.

A card that goes on with hard labels alone names other passages for one question in twenty afterwards, since each step
moves it a little. The distribution of its last version holds it in place (Li and Hoiem, 2017, "Learning without
Forgetting"; replayed with the passages: Buzzega et al., 2020, "Dark Experience for General Continual Learning").
"""

from copy import deepcopy
from typing import TYPE_CHECKING

from kcard.training.asked import NoisedQuestions, Retriever
from kcard.training.docids import DocIds
from kcard.training.recipe import Recipe
from kcard.training.tokenizer import BOS
from kcard.training.trainee import Trainee, states

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Recollection"]

SHARE = 0.5  # of the last version; the rest is the retriever's, or the syncs of a year would add up


class Recollection:
    """How likely each passage is meant, by the card's last version and by a retriever, half and half.

    trainee  as it is now: with the weights of the last version, which are copied
    kept     numbers of the passages whose docids it has; what falls to the others is the retriever's alone
    """

    def __init__(self, trainee: Trainee, retriever: Retriever, docids: DocIds, kept: "list[int]") -> None:
        import torch

        self._model, self._projection = deepcopy(trainee.model).eval(), deepcopy(trainee.projection)
        self._retriever, self._first = retriever, docids.first
        self._new = torch.ones(docids.count, dtype=torch.bool)
        self._new[kept] = False

    def __call__(self, questions: NoisedQuestions, recipe: Recipe) -> "Tensor":
        """(n, passages)"""
        near = self._retriever(questions, recipe)
        new = near * self._new
        recalled = (1 - new.sum(-1, keepdim=True)) * self._recalled(questions) + new
        return SHARE * recalled + (1 - SHARE) * near

    def _recalled(self, questions: NoisedQuestions) -> "Tensor":
        """What the last version says, (n, passages), 0 for those that it does not have."""
        import torch

        from kcard.training.precision import autocast

        with torch.no_grad(), autocast("cpu"):
            start = torch.full((len(questions.embeddings), 1), BOS)
            found = self._model.lm_head(states(self._model, self._projection, start, questions)[:, -1])
        recalled: Tensor = found[:, self._first :].float().masked_fill(self._new, float("-inf"))
        return recalled.softmax(-1)
