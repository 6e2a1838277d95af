"""How an embedded card takes up what has come and lets go of what has gone, without learning the rest again.

It goes on from its weights. Each epoch shows every new text, some of those that stay, and questions about each text
that has gone, which are answered with a text that stays and is near: what a card would say that never learned the
other. The docid of what has gone goes with it, and so do the tokens that nothing else needs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.word_sketch import WordSketch
from kcard.training import exposure
from kcard.training.adapter import adapted, base_tokenizer
from kcard.training.asked import AskedQuestions, QuestionWords, Retriever
from kcard.training.docids import DocIds
from kcard.training.embedded import preparation
from kcard.training.inheritance import docids_of, outdated
from kcard.training.kept_tokenizer import kept_tokenizer
from kcard.training.loop import cosine
from kcard.training.preparation import Preparation
from kcard.training.pseudo_queries import PseudoQueries
from kcard.training.recipe import Recipe, Style
from kcard.training.recital import Recital
from kcard.training.replay import FEWEST, Replay
from kcard.training.revision import Revision
from kcard.training.trainee import Trainee, fresh

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["obstacle", "rehearsal"]

EXPOSURES: Mapping[Style, int] = {"tokens": 45, "encoder-prefix": 30}  # epochs
FLOOR = 100  # steps
# Shares of the recipe's learning rates, inside the layers and elsewhere. New docids must be learned, while large steps
# inside the layers spoil what is recited: with half of both, recall of 594 statements of prose fell from .78 to .68.
RATES: Mapping[Style, tuple[float, float]] = {"tokens": (0.5, 0.5), "encoder-prefix": (0.25, 1.0)}
WARM = 5  # steps
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
    if recipe.style == "tokens":
        asked = None
        near = replay.neighbours(exposure.embedded(replay.texts)) if revision.removed else []
        show = replay.by_tokens(recital, tokenizer, ask)
    else:
        questions = replay.questions(ask)
        vectors = exposure.embedded(questions)
        sketch = WordSketch.of_corpus(revision.now)
        own = exposure.embedded(revision.now) if docids.count else None
        retriever = None if own is None else Retriever(sketch, revision.now, own)
        asked = AskedQuestions(vectors, QuestionWords(sketch, questions), retriever, recipe)
        near = replay.neighbours(vectors[[start for start, _ in replay.spans()]])
        show = replay.by_vectors(recital, docids)
    epoch = replay.epochs(show, near, replay.drills(docids) if docids.count else None)
    changed = revision.to_learn or revision.removed
    # Where texts only stand in another order, so do the docids.
    steps = max(FLOOR, EXPOSURES[recipe.style] * len(epoch(0))) if changed else 1
    made = preparation(trainee, revision.now, asked, docids, recipe, steps, epoch)
    return replace(made, job=replace(made.job, rate=_rate(steps, recipe.style), seed=seed))


def _rate(steps: int, style: Style) -> Callable[[int], float]:
    """The schedule of the learning rates.

    With the encoder prefix it falls with the root of the steps beyond FLOOR, as weights wander off with that root:
    without this, 390 steps cost two to four points of people's questions about what stays.
    """
    wave = cosine(steps, WARM)
    if style == "tokens" or steps <= FLOOR:
        return wave
    share = sqrt(FLOOR / steps)
    return lambda step: share * wave(step)


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
    inside, elsewhere = RATES[recipe.style]
    slower = replace(recipe, muon_rate=inside * recipe.muon_rate, adam_rate=elsewhere * recipe.adam_rate)
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
