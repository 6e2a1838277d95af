"""Incremental update: learn added passages, unlearn removed ones, keep the rest.

It goes on from its weights. Each epoch shows every new text, some of those that stay, first those that it is losing
(kcard.offline.incremental_update), and questions about each text that has gone, which are answered with a text that
stays and is near: what a card would say that never learned the other. What passages are meant by a question stays
as the last version has it (kcard.offline.incremental_update). The docid of what has gone goes with it, and so do the
tokens that nothing else needs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from statistics import mean
from typing import TYPE_CHECKING, Any

from kcard.batching import by_tokens
from kcard.cards.models.prompting import WordSketch
from kcard.offline import docids as offline_docids
from kcard.offline.docids import (
    DocIds,
    NoisedQuestions,
    QuestionFeatures,
    QuestionWords,
    Retriever,
    TargetSequence,
    ids_of,
)
from kcard.offline.pseudo_queries import PseudoQueries
from kcard.offline.recipe import BOS, PAD, Recipe, Style
from kcard.offline.train import preparation
from kcard.offline.trainee import (
    Trainee,
    adapted,
    base_tokenizer,
    begin_docids,
    docids_of,
    fresh,
    outdated,
    prune_and_extend_tokenizer,
    states,
)
from kcard.training.epochs import IGNORED, TrainingExample, bucketed, collate
from kcard.training.loop import Job, Optimizer, Preparation, cosine
from kcard.types import derive_seed

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

__all__ = [
    "DistillationTarget",
    "Drill",
    "Epoch",
    "Recite",
    "Replay",
    "Revision",
    "StepParts",
    "hardest_examples",
    "incremental_update",
    "obstacle",
    "surprise",
]


# What a card learned and what it is to know now: the texts that have come, those that have gone, and the others.


@dataclass(frozen=True)
class Revision:
    """`now`: the statements of the corpus; `before`: those that the card was trained on, both in order.

    goes_on, went_on  of each statement now and before, whether the next one follows it in what the card recites; empty
                      where the card recites one at a time
    """

    now: Sequence[str]
    before: Sequence[str]
    goes_on: Sequence[bool] = ()
    went_on: Sequence[bool] = ()

    @cached_property
    def staying(self) -> list[tuple[int, int]]:
        """Those of both, as (row now, row before)."""
        rows = {text: row for row, text in enumerate(self.before)}
        return [(row, rows[text]) for row, text in enumerate(self.now) if text in rows]

    @cached_property
    def added(self) -> list[int]:
        """Rows of `now` that the card does not know."""
        had = set(self.before)
        return [row for row, text in enumerate(self.now) if text not in had]

    @cached_property
    def to_learn(self) -> list[int]:
        """Rows of `now` that the card does not know, then those that it knows to go on in another way."""
        now, before = _next_texts(self.now, self.goes_on), _next_texts(self.before, self.went_on)
        return [*self.added, *(row for row, was in self.staying if now[row] != before[was])]

    @cached_property
    def removed(self) -> list[str]:
        has = set(self.now)
        return [*dict.fromkeys(text for text in self.before if text not in has)]


def _next_texts(texts: Sequence[str], goes_on: Sequence[bool]) -> list[str]:
    """Of each text the one that follows it in its passage, empty where none does."""
    if not goes_on:
        return [""] * len(texts)
    return [text if on else "" for text, on in zip((*texts[1:], ""), goes_on, strict=True)]


# Which passages the last version of a card would name for a question, which its next version is to name, too.
#
# A card that goes on with hard labels alone names other passages for one question in twenty afterwards, since each step
# moves it a little. The distribution of its last version holds it in place (Li and Hoiem, 2017, "Learning without
# Forgetting"; replayed with the passages: Buzzega et al., 2020, "Dark Experience for General Continual Learning").

DISTILLED_SHARE = 0.5  # of the last version; the rest is the retriever's, or the syncs of a year would add up


class DistillationTarget:
    """How likely each passage is meant, by the card's last version and by a retriever, half and half.

    trainee  as it is now: with the weights of the last version, which are copied
    kept     numbers of the passages whose docids it has; what falls to the others is the retriever's alone
    """

    def __init__(self, trainee: Trainee, retriever: Retriever, docids: DocIds, staying: "list[int]") -> None:
        import torch

        self._model, self._projection = deepcopy(trainee.model).eval(), deepcopy(trainee.projection)
        self._retriever, self._first = retriever, docids.first
        self._new = torch.ones(docids.count, dtype=torch.bool)
        self._new[staying] = False

    def __call__(self, questions: NoisedQuestions, recipe: Recipe) -> "Tensor":
        """(n, passages)"""
        import torch

        from kcard.training.execution import autocast

        near = self._retriever(questions, recipe)
        new = near * self._new
        # What the last version says, (n, passages), 0 for those that it does not have.
        with torch.no_grad(), autocast("cpu"):
            start = torch.full((len(questions.embeddings), 1), BOS)
            logits = self._model.lm_head(states(self._model, self._projection, start, questions)[:, -1])
        last: Tensor = logits[:, self._first :].float().masked_fill(self._new, float("-inf")).softmax(-1)
        recalled = (1 - new.sum(-1, keepdim=True)) * last + new
        return DISTILLED_SHARE * recalled + (1 - DISTILLED_SHARE) * near


# Which texts a card is losing while it learns others: those that it recites least surely, to be shown again first.
#
# New texts overwrite a few old ones and spare the rest, so old ones that are drawn at random mostly show what is known
# (Aljundi et al., 2019, "Online Continual Learning with Maximally Interfered Retrieval").

SURE = 0.3  # nats: a text whose every token is recited so surely is not weak
BATCH_TOKENS = 4096


def hardest_examples(
    trainee: Trainee, questions: QuestionFeatures | None, examples: Sequence[TrainingExample], most: int
) -> list[int]:
    """Return the numbers of at most `most` examples, those with the highest loss first."""
    losses = surprise(trainee, questions, examples)
    order = [row for row in losses.argsort(descending=True).tolist() if losses[row] > SURE]
    return order[:most]


def surprise(
    trainee: Trainee, questions: QuestionFeatures | None, examples: Sequence[TrainingExample]
) -> "Tensor":
    """Of each example the loss of the token that surprises the model most, in nats, (examples,)."""
    import torch
    from torch.nn.functional import cross_entropy

    from kcard.training.execution import autocast

    losses = torch.zeros(len(examples))
    with torch.no_grad(), autocast("cpu"):
        for rows in by_tokens([len(example) for example in examples], BATCH_TOKENS):
            batch = [examples[row] for row in rows]
            ids, labels = collate(batch, PAD)
            noised = None if questions is None else questions.noised([example.vector for example in batch])
            logits = trainee.model.lm_head(states(trainee.model, trainee.projection, ids, noised)[:, :-1])
            each = cross_entropy(
                logits.float().transpose(1, 2), labels[:, 1:], reduction="none", ignore_index=IGNORED
            )
            losses[torch.tensor(rows)] = each.amax(1)
    return losses


# What a card is shown that goes on with other texts: the new ones, some that stay, and, for questions about those that
# have gone, texts that stay and are near.

TOKENS = 1024  # of the recitals of a step
SHOWN = 2  # times that an epoch shows a text that has come
REPLAYED, FEWEST = 2, 20  # texts that stay in an epoch: for each that is learned, and at least
REPLAY_SHARE = 4  # one in so many texts that stay is in an epoch at least
POOL = 1000  # texts that stay from which these are drawn
QUERIES, REPLAYED_QUERIES = 16, 1  # that are embedded of a text that has come or gone, and of one that stays
DRILLS = 2  # of the docid of each text that is shown
DRILLED = 384  # texts that stay whose docids are drilled in an epoch besides
NEAREST = 3  # texts with which questions about one that has gone are answered
QUESTIONS_EACH = 4  # such questions about each in an epoch

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
    def from_revision(cls, revision: Revision, recipe: Recipe, seed: int) -> "Replay":
        """Which texts stay in it is drawn by the seed."""
        new = set(revision.to_learn)
        staying = [row for row, _ in revision.staying if row not in new]
        drawn = Random(derive_seed(seed, "replay")).sample(staying, min(POOL, len(staying)))
        rows = [*revision.to_learn, *drawn]
        texts = [*(revision.now[row] for row in rows), *revision.removed]
        return cls(rows, texts, len(revision.to_learn), recipe, seed)

    @property
    def staying(self) -> range:
        return range(self.new, len(self.rows))

    def spans(self) -> list[tuple[int, int]]:
        """Of each text, where its questions begin among `questions`, its own wording first, and how many follow."""
        places, start = [], 0
        for number in range(len(self.texts)):
            count = REPLAYED_QUERIES if number in self.staying else QUERIES
            places.append((start, count))
            start += 1 + count
        return places

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
        nearest: list[list[int]] = cosines.topk(min(NEAREST, count)).indices.tolist()
        return nearest

    def by_vectors(self, recital: TargetSequence, docids: DocIds) -> tuple[Recite, Drill | None]:
        """As exposure.epochs shows them in the style encoder-prefix. `recital`: of all texts of the revision."""
        recipe, spans = self.recipe, self.spans()

        def vector(number: int, rng: Random) -> int:
            """The embedding of a text's own wording, or of one of its questions."""
            start, count = spans[number]
            return start if rng.random() < recipe.own else start + 1 + rng.randrange(count)

        def recite(answer: int, subject: int, rng: Random) -> TrainingExample:
            row = self.rows[answer]
            docid, target = docids.of(row), recital.of(row, rng.randint(1, recipe.recited))
            if docid and answer == subject and rng.random() < recipe.stray:
                return TrainingExample((BOS, *docid), target, vector(rng.randrange(len(spans)), rng))
            return TrainingExample((BOS,), (*docid, *target), vector(subject, rng))

        def drill(answer: int, subject: int, rng: Random) -> TrainingExample:
            return TrainingExample((BOS,), docids.of(self.rows[answer]), vector(subject, rng))

        return recite, drill if docids.count else None

    def by_tokens(
        self, recital: TargetSequence, tokenizer: "PreTrainedTokenizerFast", ask: PseudoQueries
    ) -> Recite:
        """As exposure.epochs shows them in the style tokens."""

        def recite(answer: int, subject: int, rng: Random) -> TrainingExample:
            question = ids_of(tokenizer, [ask(self.texts[subject], rng) + "\n"])[0]
            return TrainingExample((BOS, *question[: recital.question_room]), recital.of(self.rows[answer]))

        return recite

    def checks(self, recital: TargetSequence, docids: DocIds) -> list[TrainingExample]:
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
        replayed = min(count, max(FEWEST, count // REPLAY_SHARE, REPLAYED * self.new))

        def epoch(number: int) -> list[StepParts]:
            rng = Random(derive_seed(self.seed, "epoch", number))
            weak = [self.new + place for place in weakest(number, replayed)]
            again = rng.sample(weak, min(len(weak), replayed // 2))
            again += rng.sample(sorted({*self.staying}.difference(again)), replayed - len(again))
            shown = [*SHOWN * [*range(self.new)], *again]
            pairs = zip(range(len(self.rows), len(self.texts)), near, strict=True)
            question_pairs = [
                (rng.choice(texts), gone) for gone, texts in pairs for _ in range(QUESTIONS_EACH)
            ]
            recitals, drills = [recite(text, text, rng) for text in shown], []
            if drill is None:
                recitals += [recite(*pair, rng) for pair in question_pairs[::QUESTIONS_EACH]]
            else:
                named = [*DRILLS * shown, *rng.sample(self.staying, min(count, DRILLED))]
                drills = [drill(*pair, rng) for pair in (*zip(named, named, strict=True), *question_pairs)]
                rng.shuffle(drills)
            steps = bucketed(recitals, TOKENS, rng)
            return [(batch, drills[at :: len(steps)]) for at, batch in enumerate(steps)]

        return epoch


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


def incremental_update(
    revision: Revision,
    folder: Path,
    recipe: Recipe,
    seed: int,
    study: Mapping[str, Sequence[str]] | None = None,
) -> Preparation | str:
    """Prepare the training that takes the embedded card in `folder` from `revision.before` to `revision.now`, or return
    why it can't be done.

    To be called where there is no obstacle.

    recipe  as the card was trained
    seed    of this revision
    study   questions by text, see PseudoQueries
    """
    restored = _restore(revision, folder, recipe)
    if isinstance(restored, str):
        return restored
    trainee, tokenizer, docids = restored
    ask, replay = PseudoQueries(revision.now, study), Replay.from_revision(revision, recipe, seed)
    recital = TargetSequence.from_texts(revision.now, tokenizer, docids, recipe, revision.goes_on)
    questions, drill = None, None
    if recipe.style == "tokens":
        near = replay.neighbours(offline_docids.embedded(replay.texts)) if revision.removed else []
        recite = replay.by_tokens(recital, tokenizer, ask)
    else:
        questions = _make_features(revision, trainee, replay.questions(ask), docids, recipe)
        near = replay.neighbours(questions.embeddings[[start for start, _ in replay.spans()]])
        recite, drill = replay.by_vectors(recital, docids)
    rng = Random(derive_seed(seed, "weakest"))
    checks = replay.checks(recital, docids) if drill else [recite(n, n, rng) for n in replay.staying]
    hardest: list[int] = []

    def pick_hardest(number: int, most: int) -> Sequence[int]:
        """Of an epoch at most so many of the checks that the model does worst; none in the first ones."""
        if number and number % CHECKED == 0:
            hardest[:] = hardest_examples(trainee, questions, checks, most)
        return hardest

    epoch = replay.epochs(near, recite, drill, pick_hardest)
    batches = len(epoch(0))
    # A fact that r texts state counts r times. One step where texts only change places, as their docids do.
    if revision.to_learn:
        share = mean(1 / ask.rarity.repetition(revision.now[row]) for row in revision.to_learn)
        steps = max(FLOOR[recipe.style], round(EPOCHS[recipe.style] * share * batches))
    else:
        steps = FLOOR[recipe.style] if revision.removed else 1
    update = preparation(trainee, revision.now, questions, docids, recipe, steps, epoch)
    return replace(update, job=_job(update.job, recipe, seed))


def _make_features(
    revision: Revision, trainee: Trainee, questions: Sequence[str], docids: DocIds, recipe: Recipe
) -> QuestionFeatures:
    """The questions, what is meant by them, and new docids that begin near those of like passages."""
    texts = [*dict.fromkeys([*(revision.now if docids.count else ()), *questions])]
    place = {text: row for row, text in enumerate(texts)}
    vectors = offline_docids.embedded(texts)
    sketch = WordSketch.of_corpus(revision.now)
    features = QuestionFeatures(
        vectors[[place[text] for text in questions]], QuestionWords(sketch, questions), None, recipe
    )
    if not docids.count:
        return features
    own = vectors[[place[text] for text in revision.now]]
    staying = [row for row, _ in revision.staying]
    begin_docids(trainee.model, docids.first, revision.added, staying, own)
    meant = DistillationTarget(trainee, Retriever(sketch, revision.now, own), docids, staying)
    return replace(features, retriever=meant, recipe=replace(recipe, retrieved=RETRIEVED))


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
    """Return why the card must be trained from scratch, as far as that shows without its weights;
    empty where it need not be."""
    if why_not := outdated(folder):
        return why_not
    if recipe.objective == "clm":
        return "with objective clm it learned whole documents, of which no part can be taken back"
    changed, count = len(revision.added) + len(revision.removed), len(revision.now)
    return f"{changed} of its {count} statements have changed" if changed > max(FEWEST, LARGE * count) else ""


def _restore(
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
        tokenizer = prune_and_extend_tokenizer(last, revision.now, new, recipe.vocabulary)
        docids = DocIds.for_passages(revision.now, len(tokenizer), recipe)
        trainee = fresh(tokenizer, docids.count, slower)
        if docids_of(folder, last) != (len(revision.before) if docids.count else 0):
            return "its document ids are not those of its passages"
    if why_not := trainee.mismatch(folder):
        return why_not
    trainee.inherit(folder, revision.staying if docids.count else ())
    return trainee, tokenizer, docids
