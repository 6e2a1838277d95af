"""What the embedded card is shown: its examples, the embeddings of its questions, and for how many steps."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from kcard.sampling import derive_seed
from kcard.training.docids import DocIds
from kcard.training.epochs import Epochs
from kcard.training.example_batches import TrainingExample, bucketed
from kcard.training.pseudo_queries import PseudoQueries
from kcard.training.recipe import Recipe
from kcard.training.recital import Recital, ids_of
from kcard.training.spans import Rarity
from kcard.training.tokenizer import BOS
from kcard.training.wordings import wordings

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

__all__ = ["blank", "embedded", "epochs", "queries_per_passage", "questions", "steps_needed"]


def epochs(
    texts: Sequence[str],
    ask: PseudoQueries,
    tokenizer: "PreTrainedTokenizerFast",
    docids: DocIds,
    recipe: Recipe,
    goes_on: Sequence[bool] = (),
    queries: int = 2,
) -> Epochs:
    """The batches of an epoch: every text once, under a fresh pseudo-query (or another of its vectors), or after the
    one that it follows.

    goes_on  of each text, whether the next one follows it in its passage; empty: none does
    queries  pseudo-queries that are embedded for each text (encoder-prefix)

    Some pseudo-queries are made from another wording of the passage's fact, or the card would begin its document with
    the words of the question, and go on with those of another fact that begins so.
    """
    recital = Recital.tokenized(texts, tokenizer, docids, recipe, goes_on)
    same = wordings(texts) if recipe.style == "tokens" else []

    def epoch(number: int) -> list[list[TrainingExample]]:
        rng = Random(derive_seed(recipe.seed, "epoch", number))
        if recipe.style == "encoder-prefix":
            examples = _by_vectors(recital, docids, queries, recipe, rng)
        else:
            about = [
                rng.choice(rows) if rng.random() < recipe.reworded else row for row, rows in enumerate(same)
            ]
            asked = [
                ask(texts[row], rng) + "\n" if rng.random() < recipe.query_share else "" for row in about
            ]
            prompts = [(BOS, *ids[: recital.asked]) for ids in ids_of(tokenizer, asked)]
            examples = [TrainingExample(prompt, recital.of(row)) for row, prompt in enumerate(prompts)]
        return bucketed(examples, recipe.tokens_of_a_step, rng)

    return epoch


def _by_vectors(
    recital: Recital, docids: DocIds, per: int, recipe: Recipe, rng: Random
) -> list[TrainingExample]:
    """A vector -> the passage's docid and the passage.

    Some passages are given their docid, with the vector of another, so that the card learns to go by the docid
    and does not blend two passages where a question lies between them. And docids are drilled: the target is
    the docid alone, since to name the passage takes longer to learn than to recite it.
    """

    def vector(row: int) -> int:
        """That of the passage itself, or of one of its pseudo-queries."""
        own = rng.random() < recipe.own
        return row * (per + 1) + (0 if own else 1 + rng.randrange(per))

    rows, examples = len(recital.ids), []
    for row, count in recital.parts(rng):
        docid, target = docids.of(row), recital.of(row, count)
        if docid and rng.random() < recipe.stray:
            examples.append(TrainingExample((BOS, *docid), target, vector(rng.randrange(rows))))
        else:
            examples.append(TrainingExample((BOS,), (*docid, *target), vector(row)))
    if docids.count:
        drilled = [row for row in range(rows) for _ in range(recipe.drills)]
        examples += [TrainingExample((BOS,), docids.of(row), vector(row)) for row in drilled]
    return examples


def queries_per_passage(passes: float, recipe: Recipe) -> int:
    """Pseudo-queries to embed for each passage, where the corpus is gone through so many times."""
    fewest, most = recipe.queries
    return max(fewest, min(most, round(passes / recipe.reused)))


def questions(texts: Sequence[str], ask: PseudoQueries, recipe: Recipe, queries: int) -> list[str]:
    """What is to be embedded: each passage, followed by its pseudo-queries."""
    rng = Random(derive_seed(recipe.seed, "queries"))
    return [row for text in texts for row in (text, *(ask(text, rng, noised=False) for _ in range(queries)))]


def embedded(questions: Sequence[str]) -> "Tensor":
    """(questions, 384): their sentence embeddings."""
    import torch

    from kcard.encoder import embed
    from kcard.training.precision import autocast

    with autocast("cpu"):
        return torch.from_numpy(embed(questions))


def blank(questions: Sequence[str]) -> "Tensor":
    """Something of the same shape, for a trial; it takes no memory."""
    import torch

    from kcard.encoder import DIMENSIONS

    return torch.zeros(1, DIMENSIONS).expand(len(questions), -1)


def steps_needed(texts: Sequence[str], rarity: Rarity, batches: int, recipe: Recipe) -> int:
    """How long to train, with so many batches in an epoch."""
    distinct = sum(1 / rarity.repetition(text) for text in texts) / len(texts)
    return recipe.warm + max(1, round(recipe.passes_needed(distinct) * batches))
