"""How an embedded card takes up what has come and lets go of what has gone, without learning the rest again.

It goes on from its weights. Each epoch shows every new text, some of those that stay, first those that it is losing
(kcard.training.weakest), and questions about each text that has gone, which are answered with a text that stays and is
near: what a card would say that never learned the other. What passages are meant by a question stays as the last
version has it (kcard.training.recollection). The docid of what has gone goes with it, and so do the tokens that nothing
else needs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.word_sketch import WordSketch
from kcard.sampling import derive_seed
from kcard.training import exposure
from kcard.training.adapter import adapted, base_tokenizer
from kcard.training.asked import AskedQuestions, QuestionWords, Retriever
from kcard.training.docids import DocIds
from kcard.training.embedded import preparation
from kcard.training.example_batches import TrainingExample
from kcard.training.inheritance import begin_docids, docids_of, outdated
from kcard.training.kept_tokenizer import kept_tokenizer
from kcard.training.loop import Job, Optimizer, cosine
from kcard.training.preparation import Preparation
from kcard.training.pseudo_queries import PseudoQueries
from kcard.training.recipe import Recipe, Style
from kcard.training.recital import Recital
from kcard.training.recollection import Recollection
from kcard.training.replay import FEWEST, Replay, StepParts
from kcard.training.revision import Revision
from kcard.training.trainee import Trainee, fresh
from kcard.training.weakest import weakest

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

__all__ = ["obstacle", "rehearsal"]

EPOCHS: Mapping[Style, int] = {"tokens": 45, "encoder-prefix": 16}
FLOOR: Mapping[Style, int] = {"tokens": 200, "encoder-prefix": 100}  # steps
# Share of the learning rates. AdamW moves all weights of a whole model, at the rate of those that it always moves, as
# Muon's steps are of one size however little is left to learn, so that weights wander off.
RATE = 0.5
DECAY, BETAS = 0.01, (0.9, 0.98)
RETRIEVED = 0.85  # in place of the recipe's; with its .7 more questions get other passages than before
WARM = 20  # steps
CHECKED = 5  # epochs after which it is looked at again which texts the card is losing
LARGE = 0.25  # of the texts: where more have changed, training from scratch takes hardly longer


def rehearsal(
    revision: Revision,
    folder: Path,
    recipe: Recipe,
    seed: int,
    study: Mapping[str, Sequence[str]] | None = None,
) -> Preparation | str:
    """What takes the embedded card in `folder` from `revision.before` to `revision.now`; or why that can't be done.

    To be called where there is no obstacle.

    recipe  as the card was trained
    seed    of this revision
    study   questions by text, see PseudoQueries
    """
    begun = _begun(revision, folder, recipe)
    if isinstance(begun, str):
        return begun
    trainee, tokenizer, docids = begun
    ask, replay = PseudoQueries(revision.now, study), Replay.drawn(revision, recipe, seed)
    recital = Recital.tokenized(revision.now, tokenizer, docids, recipe, revision.goes_on)
    asked, drill = None, None
    if recipe.style == "tokens":
        near = replay.neighbours(exposure.embedded(replay.texts)) if revision.removed else []
        recite = replay.by_tokens(recital, tokenizer, ask)
    else:
        asked = _asked(revision, trainee, replay.questions(ask), docids, recipe)
        near = replay.neighbours(asked.embeddings[[start for start, _ in replay.spans()]])
        recite, drill = replay.by_vectors(recital, docids)
    rng = Random(derive_seed(seed, "weakest"))
    checks = replay.given(recital, docids) if drill else [recite(n, n, rng) for n in replay.staying]
    epoch = replay.epochs(near, recite, drill, _losing(trainee, asked, checks))
    steps = _steps(revision, ask, recipe.style, len(epoch(0)))
    made = preparation(trainee, revision.now, asked, docids, recipe, steps, epoch)
    return replace(made, job=_job(made.job, recipe, seed))


def _steps(revision: Revision, ask: PseudoQueries, style: Style, batches: int) -> int:
    """How many, with so many batches in an epoch: a fact that r texts state counts r times. One where texts only change
    places, as their docids do."""
    if not revision.to_learn:
        return FLOOR[style] if revision.removed else 1
    share = mean(1 / ask.rarity.repetition(revision.now[row]) for row in revision.to_learn)
    return max(FLOOR[style], round(EPOCHS[style] * share * batches))


def _asked(
    revision: Revision, trainee: Trainee, questions: Sequence[str], docids: DocIds, recipe: Recipe
) -> AskedQuestions:
    """The questions, what is meant by them, and new docids that begin near those of like passages."""
    texts = [*dict.fromkeys([*(revision.now if docids.count else ()), *questions])]
    place = {text: row for row, text in enumerate(texts)}
    vectors = exposure.embedded(texts)
    sketch = WordSketch.of_corpus(revision.now)
    asked = AskedQuestions(
        vectors[[place[text] for text in questions]], QuestionWords(sketch, questions), None, recipe
    )
    if not docids.count:
        return asked
    own = vectors[[place[text] for text in revision.now]]
    kept = [row for row, _ in revision.kept]
    begin_docids(trainee.model, docids.first, revision.added, kept, own)
    meant = Recollection(trainee, Retriever(sketch, revision.now, own), docids, kept)
    return replace(asked, retriever=meant, recipe=replace(recipe, retrieved=RETRIEVED))


def _losing(
    trainee: Trainee, asked: AskedQuestions | None, checks: Sequence[TrainingExample]
) -> Callable[[int, int], Sequence[int]]:
    """Of an epoch at most so many of the checks that the model does worst; none in the first ones."""
    found: list[int] = []

    def losing(number: int, most: int) -> Sequence[int]:
        if number and number % CHECKED == 0:
            found[:] = weakest(trainee, asked, checks, most)
        return found

    return losing


def _job(job: Job, recipe: Recipe, seed: int) -> Job:
    """The job with steps of two parts, and with an optimizer and rates that leave weights near where they are."""
    import torch

    def losses(step: StepParts) -> "Iterator[tuple[Tensor, int]]":
        for part in step:
            if part:
                yield from job.losses(part)

    optimizers: Sequence[Optimizer] = job.optimizers
    if recipe.rank is None:
        weights = [weight for module in job.modules.values() for weight in module.parameters()]
        rate = RATE * recipe.adam_rate
        adam = torch.optim.AdamW(weights, lr=rate, betas=BETAS, weight_decay=DECAY, fused=True)
        adam.param_groups[0]["initial_lr"] = rate
        optimizers = [adam]
    return replace(job, losses=losses, optimizers=optimizers, rate=cosine(job.steps, WARM), seed=seed)


def obstacle(revision: Revision, folder: Path, recipe: Recipe) -> str:
    """Why the card must be trained from scratch, as far as that shows without its weights; empty where it need not."""
    if why_not := outdated(folder):
        return why_not
    if recipe.objective == "clm":
        return "with objective clm it learned whole documents, of which no part can be taken back"
    changed, count = len(revision.added) + len(revision.removed), len(revision.now)
    return f"{changed} of its {count} statements have changed" if changed > max(FEWEST, LARGE * count) else ""


def _begun(
    revision: Revision, folder: Path, recipe: Recipe
) -> "tuple[Trainee, PreTrainedTokenizerFast, DocIds] | str":
    """The model with its weights of before, the tokenizer and the docids; or why it can't have these weights."""
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerFast
    trainee: Trainee
    slower = replace(recipe, muon_rate=RATE * recipe.muon_rate, adam_rate=RATE * recipe.adam_rate)
    if recipe.rank is not None:
        tokenizer = base_tokenizer()
        docids, trainee = DocIds(len(tokenizer), 0), adapted(revision.now, tokenizer, slower)
    else:
        last: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        new = [revision.now[row] for row in revision.added]
        tokenizer = kept_tokenizer(last, revision.now, new, recipe.vocabulary)
        docids = DocIds.for_passages(revision.now, len(tokenizer), recipe)
        trainee = fresh(tokenizer, docids.count, slower)
        if docids_of(folder, last) != (len(revision.before) if docids.count else 0):
            return "its document ids are not those of its passages"
    if why_not := trainee.mismatch(folder):
        return why_not
    trainee.inherit(folder, revision.kept if docids.count else ())
    return trainee, tokenizer, docids
