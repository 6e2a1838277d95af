"""Which texts a card is losing while it learns others: those that it recites least surely, to be shown again first.

New texts overwrite a few old ones and spare the rest, so old ones that are drawn at random mostly show what is known
(Aljundi et al., 2019, "Online Continual Learning with Maximally Interfered Retrieval").
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcard.batches import by_tokens
from kcard.training.asked import AskedQuestions
from kcard.training.example_batches import IGNORED, TrainingExample, collate
from kcard.training.tokenizer import PAD
from kcard.training.trainee import Trainee, states

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["surprise", "weakest"]

SURE = 0.3  # nats: a text whose every token is recited so surely is not weak
BATCH_TOKENS = 4096


def weakest(
    trainee: Trainee, asked: AskedQuestions | None, examples: Sequence[TrainingExample], most: int
) -> list[int]:
    """The numbers of at most so many examples, those that the model recites least surely first."""
    found = surprise(trainee, asked, examples)
    order = [row for row in found.argsort(descending=True).tolist() if found[row] > SURE]
    return order[:most]


def surprise(trainee: Trainee, asked: AskedQuestions | None, examples: Sequence[TrainingExample]) -> "Tensor":
    """Of each example the loss of the token that surprises the model most, in nats, (examples,)."""
    import torch
    from torch.nn.functional import cross_entropy

    from kcard.training.precision import autocast

    found = torch.zeros(len(examples))
    with torch.no_grad(), autocast("cpu"):
        for rows in by_tokens([len(example) for example in examples], BATCH_TOKENS):
            batch = [examples[row] for row in rows]
            ids, labels = collate(batch, PAD)
            noised = None if asked is None else asked.noised([example.vector for example in batch])
            logits = trainee.model.lm_head(states(trainee.model, trainee.projection, ids, noised)[:, :-1])
            each = cross_entropy(
                logits.float().transpose(1, 2), labels[:, 1:], reduction="none", ignore_index=IGNORED
            )
            found[torch.tensor(rows)] = each.amax(1)
    return found
