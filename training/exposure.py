"""What the embedded card is shown: its examples, the embeddings of its questions, and for how many steps."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from kcard.sampling import derive_seed
from kcard.training.batches import Example, bucketed
from kcard.training.pseudo_queries import PseudoQueries
from kcard.training.recipe import Recipe
from kcard.training.spans import Rarity
from kcard.training.tokenizer import BOS, EOS

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

__all__ = ["epochs", "question_vectors", "steps"]


def epochs(
    texts: Sequence[str], ask: PseudoQueries, tokenizer: "PreTrainedTokenizerFast", recipe: Recipe
) -> Callable[[int], list[list[Example]]]:
    """The batches of an epoch: every passage once, under a fresh pseudo-query (or another of its vectors)."""
    longest = recipe.positions - recipe.vectors - 2
    targets = [[*ids[: longest * 2 // 3], EOS] for ids in _ids(tokenizer, texts)]
    prefix = recipe.style == "encoder-prefix"
    per = _per_passage(texts, ask.rarity, recipe)
    share = recipe.query_share if recipe.objective == "recite" else 0.0

    def epoch(number: int) -> list[list[Example]]:
        rng = Random(derive_seed(recipe.seed, "epoch", number))
        if prefix:
            examples = [
                Example(
                    (BOS,), tuple(target), row * (per + 1) + (1 + rng.randrange(per)) * (rng.random() < 0.75)
                )
                for row, target in enumerate(targets)
            ]
        else:
            asked = [ask(t, rng) + "\n" if rng.random() < share else "" for t in texts]
            room = longest - longest * 2 // 3
            prompts = [ids[:room] for ids in _ids(tokenizer, asked)]
            examples = [Example((BOS, *p), tuple(t)) for p, t in zip(prompts, targets, strict=True)]
        return bucketed(examples, recipe.batch_tokens, rng)

    return epoch


def _ids(tokenizer: "PreTrainedTokenizerFast", texts: Sequence[str]) -> list[list[int]]:
    found = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return [list(ids) if text else [] for ids, text in zip(found, texts, strict=True)]


def _per_passage(texts: Sequence[str], rarity: Rarity, recipe: Recipe) -> int:
    """Pseudo-queries to embed for a passage: a fact told in five passages needs a fifth in each."""
    told = sum(rarity.repetition(text) for text in texts) / len(texts)
    fewest, most = (count / told for count in recipe.queries)
    return max(2, round(min(most, max(fewest, recipe.embedded / len(texts)))))


def question_vectors(texts: Sequence[str], ask: PseudoQueries, recipe: Recipe) -> "Tensor":
    """(passages * (1 + per passage), 384): each passage's own embedding, then those of its pseudo-queries."""
    import torch

    from kcard.encoder import embed
    from kcard.training.precision import autocast

    rng = Random(derive_seed(recipe.seed, "queries"))
    per = _per_passage(texts, ask.rarity, recipe)
    rows = [row for text in texts for row in (text, *(ask(text, rng, worn=False) for _ in range(per)))]
    with autocast("cpu"):
        return torch.from_numpy(embed(rows))


def steps(
    texts: Sequence[str], rarity: Rarity, epoch: Callable[[int], list[list[Example]]], recipe: Recipe
) -> int:
    """How long to train: `exposures` of every fact, at least `floor` steps."""
    batches = len(epoch(0))
    if recipe.epochs is not None:
        return max(1, round(recipe.epochs * batches))
    share = sum(1 / rarity.repetition(text) for text in texts) / len(texts)
    return max(recipe.floor, round(recipe.exposures * share * batches))
