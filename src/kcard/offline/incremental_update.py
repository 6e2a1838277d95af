"""Incremental update: learn added passages, unlearn removed ones, keep the rest.

Training continues from the card's weights. Each epoch shows every added text, some kept texts, first those that the
card is forgetting (hardest_examples), and questions about each removed text, answered with a near kept text: what
a card that never learned the removed one would say. The last version's distribution over passages is distilled
(DistillationTarget). Docids of removed texts are dropped, and so are tokens that nothing else needs.
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
    adapted_model,
    base_tokenizer,
    docids_of,
    initialize_docids,
    prune_and_extend_tokenizer,
    states,
    whole_model,
)
from kcard.training.epochs import IGNORED, TrainingExample, bucketed, collate
from kcard.training.loop import Job, Preparation, cosine
from kcard.types import derive_seed

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

# Revision: the texts that were added, removed and kept between two versions of a corpus.


@dataclass(frozen=True)
class Revision:
    """`now`: statements of the corpus; `before`: those that the card was trained on, both in order.

    goes_on, went_on  for each statement now and before, whether the next one follows it in a target sequence; empty
                      if the card recites one at a time
    """

    now: Sequence[str]
    before: Sequence[str]
    goes_on: Sequence[bool] = ()
    went_on: Sequence[bool] = ()

    @cached_property
    def staying(self) -> list[tuple[int, int]]:
        """Kept texts as (row now, row before)."""
        rows = {text: row for row, text in enumerate(self.before)}
        return [(row, rows[text]) for row, text in enumerate(self.now) if text in rows]

    @cached_property
    def added(self) -> list[int]:
        """Rows of `now` that the card has not learned."""
        had = set(self.before)
        return [row for row, text in enumerate(self.now) if text not in had]

    @cached_property
    def to_learn(self) -> list[int]:
        """Rows of `now` that the card has not learned, then those whose next text has changed."""
        now, before = _next_texts(self.now, self.goes_on), _next_texts(self.before, self.went_on)
        return [*self.added, *(row for row, was in self.staying if now[row] != before[was])]

    @cached_property
    def removed(self) -> list[str]:
        has = set(self.now)
        return [*dict.fromkeys(text for text in self.before if text not in has)]


def _next_texts(texts: Sequence[str], goes_on: Sequence[bool]) -> list[str]:
    """Return for each text the next one in its passage, "" if there is none."""
    if not goes_on:
        return [""] * len(texts)
    return [text if on else "" for text, on in zip((*texts[1:], ""), goes_on, strict=True)]


# Distillation: the next version should name the same passages for a question as the last one.
#
# With hard labels alone, one question in twenty gets other passages after an update, since each step moves the weights
# a little. The last version's distribution as a target prevents this drift (Li and Hoiem, 2017, "Learning without
# Forgetting"; replayed with the passages: Buzzega et al., 2020, "Dark Experience for General Continual Learning").

DISTILLED_SHARE = (
    0.5  # of the last version; the rest is the retriever's, or a year's updates would accumulate drift
)


class DistillationTarget:
    """Target distribution over passages: the card's last version and a retriever, half and half.

    trainee  with the weights of the last version, which are copied
    staying  numbers of the passages whose docids it has; the others' share comes from the retriever alone
    """

    def __init__(self, trainee: Trainee, retriever: Retriever, docids: DocIds, staying: "list[int]") -> None:
        import torch

        self._model, self._projection = deepcopy(trainee.model).eval(), deepcopy(trainee.projection)
        self._retriever, self._first = retriever, docids.first
        self._new = torch.ones(docids.count, dtype=torch.bool)
        self._new[staying] = False

    def __call__(self, questions: NoisedQuestions, recipe: Recipe) -> "Tensor":
        """Return the target, (n, passages)."""
        import torch

        from kcard.training.execution import autocast

        near = self._retriever(questions, recipe)
        new = near * self._new
        # Probabilities by the last version, (n, passages), 0 for passages that it lacks.
        with torch.no_grad(), autocast("cpu"):
            start = torch.full((len(questions.embeddings), 1), BOS)
            logits = self._model.lm_head(states(self._model, self._projection, start, questions)[:, -1])
        last: Tensor = logits[:, self._first :].float().masked_fill(self._new, float("-inf")).softmax(-1)
        recalled = (1 - new.sum(-1, keepdim=True)) * last + new
        return DISTILLED_SHARE * recalled + (1 - DISTILLED_SHARE) * near


# Hardest examples: the kept texts with the highest loss are replayed first.
#
# New texts overwrite a few old ones and spare the rest, so a random sample of old texts mostly shows what is known
# (Aljundi et al., 2019, "Online Continual Learning with Maximally Interfered Retrieval").

SURE = 0.3  # nats: a text with no token above this loss is not hard
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
    """Return the highest token loss of each example, in nats, (examples,)."""
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


# Training batches of an update: added texts, a sample of kept ones, and questions about removed texts, answered with
# near texts that stay.

TOKENS = 1024  # recited per step
SHOWN = 2  # times that each added text is shown per epoch
REPLAYED, FEWEST = 2, 20  # kept texts per epoch: for each learned text, and minimum
REPLAY_SHARE = 4  # at least one in this many kept texts is shown per epoch
POOL = 1000  # kept texts from which these are drawn
QUERIES, REPLAYED_QUERIES = 16, 1  # embedded per added or removed text, and per kept one
DRILLS = 2  # of the docid of each text shown
DRILLED = 384  # other kept texts whose docids are drilled per epoch
NEAREST = 3  # texts that answer questions about a removed one
QUESTIONS_EACH = 4  # such questions per removed text and epoch

# (text to answer with, text to ask about, rng) -> example
Recite = Callable[[int, int, Random], TrainingExample]
# A step's target sequences and its docid drills, which are much shorter: each is a batch of its own.
StepParts = tuple[list[TrainingExample], list[TrainingExample]]
Epoch = Callable[[int], list[StepParts]]


@dataclass(frozen=True)
class Replay:
    """Numbered texts of a revision: those to learn, then a sample of kept ones, then the removed ones.

    rows   rows of the first two kinds in the revision's texts
    texts  all three
    new    number of texts to learn
    """

    rows: Sequence[int]
    texts: Sequence[str]
    new: int
    recipe: Recipe
    seed: int

    @classmethod
    def from_revision(cls, revision: Revision, recipe: Recipe, seed: int) -> "Replay":
        """Sample the kept texts by the seed."""
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
        """Return for each text its start in `questions`, where its own wording is, and how many queries follow."""
        places, start = [], 0
        for number in range(len(self.texts)):
            count = REPLAYED_QUERIES if number in self.staying else QUERIES
            places.append((start, count))
            start += 1 + count
        return places

    def questions(self, ask: PseudoQueries) -> list[str]:
        """Return the texts to embed."""
        rng = Random(derive_seed(self.seed, "queries"))
        return [
            question
            for text, (_, count) in zip(self.texts, self.spans(), strict=True)
            for question in (text, *(ask(text, rng, noised=False) for _ in range(count)))
        ]

    def neighbours(self, vectors: "Tensor") -> list[list[int]]:
        """Return the nearest other texts of each removed one; `vectors`: embeddings, (texts, 384)."""
        count = len(self.rows)
        cosines = vectors[count:] @ vectors[:count].T
        nearest: list[list[int]] = cosines.topk(min(NEAREST, count)).indices.tolist()
        return nearest

    def by_vectors(self, recital: TargetSequence, docids: DocIds) -> tuple[Recite, Recite | None]:
        """Make examples as docids.epochs does (encoder-prefix). `recital`: of all texts of the revision."""
        recipe, spans = self.recipe, self.spans()

        def vector(number: int, rng: Random) -> int:
            """Draw the embedding of a text's own wording or of one of its questions."""
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
        """Make examples as docids.epochs does (tokens)."""

        def recite(answer: int, subject: int, rng: Random) -> TrainingExample:
            question = ids_of(tokenizer, [ask(self.texts[subject], rng) + "\n"])[0]
            return TrainingExample((BOS, *question[: recital.question_room]), recital.of(self.rows[answer]))

        return recite

    def checks(self, recital: TargetSequence, docids: DocIds) -> list[TrainingExample]:
        """Return each kept text as the target after its docid, independent of the question."""
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
        drill: Recite | None,
        weakest: Callable[[int, int], Sequence[int]],
    ) -> Epoch:
        """Return a function from an epoch's number to its steps.

        near     see neighbours
        drill    asks for the docid alone, which is forgotten first and cheapest to show. None for a card without
                 docids, which recites answers to questions about removed texts instead
        weakest  (epoch, n) -> at most n of the kept texts, by index among them, to replay first
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
# Factor on the learning rates. AdamW updates all weights of a whole model, at its usual rate: Muon's steps have the
# same size however little is left to learn, so weights would drift.
RATE = 0.5
DECAY, BETAS = 0.01, (0.9, 0.98)
RETRIEVED = 0.85  # replaces the recipe's .7, with which more questions get other passages than before
WARM = 20  # steps
CHECKED = 5  # epochs between searches for the hardest examples
LARGE = 0.25  # of the texts: if more have changed, training from scratch takes hardly longer


def incremental_update(
    revision: Revision,
    folder: Path,
    recipe: Recipe,
    seed: int,
    study: Mapping[str, Sequence[str]] | None = None,
) -> Preparation[Job] | str:
    """Prepare the training that updates the embedded card in `folder` from `revision.before` to `revision.now`, or
    return why that is impossible.

    Call it only if `obstacle` finds none.

    recipe  as the card was trained
    seed    of this revision
    study   questions by text, see PseudoQueries
    """
    # The card's model, with its weights, and the numbered texts.
    restored = _restore(revision, folder, recipe)
    if isinstance(restored, str):
        return restored
    trainee, tokenizer, docids = restored
    ask, replay = PseudoQueries(revision.now, study), Replay.from_revision(revision, recipe, seed)
    recital = TargetSequence.from_texts(revision.now, tokenizer, docids, recipe, revision.goes_on)
    # How examples are made, by the style of prompts, and which kept texts answer questions about removed ones.
    questions, drill = None, None
    if recipe.style == "tokens":
        near = replay.neighbours(offline_docids.embed_questions(replay.texts)) if revision.removed else []
        recite = replay.by_tokens(recital, tokenizer, ask)
    else:
        questions = _make_features(revision, trainee, replay.questions(ask), docids, recipe)
        near = replay.neighbours(questions.embeddings[[start for start, _ in replay.spans()]])
        recite, drill = replay.by_vectors(recital, docids)
    # Every few epochs, search for the kept texts that the card is forgetting.
    rng = Random(derive_seed(seed, "weakest"))
    checks = replay.checks(recital, docids) if drill else [recite(n, n, rng) for n in replay.staying]
    hardest: list[int] = []

    def pick_hardest(number: int, most: int) -> Sequence[int]:
        """Return at most `most` of the checks, hardest first; none in the first epochs."""
        if number and number % CHECKED == 0:
            hardest[:] = hardest_examples(trainee, questions, checks, most)
        return hardest

    epoch = replay.epochs(near, recite, drill, pick_hardest)
    # The number of steps, for which r texts that state one fact count as one. If texts only change places, one step is
    # enough, since their docids move along.
    batches = len(epoch(0))
    if revision.to_learn:
        share = mean(1 / ask.rarity.repetition(revision.now[row]) for row in revision.to_learn)
        steps = max(FLOOR[recipe.style], round(EPOCHS[recipe.style] * share * batches))
    else:
        steps = FLOOR[recipe.style] if revision.removed else 1
    update = preparation(trainee, revision.now, questions, docids, recipe, steps, epoch)
    return replace(update, job=_adapt_job(update.job, recipe, seed))


def _make_features(
    revision: Revision, trainee: Trainee, questions: Sequence[str], docids: DocIds, recipe: Recipe
) -> QuestionFeatures:
    """Embed the questions, make their targets, and initialise new docids near those of similar passages."""
    texts = [*dict.fromkeys([*(revision.now if docids.count else ()), *questions])]
    place = {text: row for row, text in enumerate(texts)}
    vectors = offline_docids.embed_questions(texts)
    sketch = WordSketch.of_corpus(revision.now)
    features = QuestionFeatures(
        vectors[[place[text] for text in questions]], QuestionWords(sketch, questions), None, recipe
    )
    if not docids.count:
        return features
    own = vectors[[place[text] for text in revision.now]]
    staying = [row for row, _ in revision.staying]
    initialize_docids(trainee.model, docids.first, revision.added, staying, own)
    meant = DistillationTarget(trainee, Retriever(sketch, revision.now, own), docids, staying)
    return replace(features, retriever=meant, recipe=replace(recipe, retrieved=RETRIEVED))


def _adapt_job(job: Job, recipe: Recipe, seed: int) -> Job:
    """Adapt the job to steps of two parts, and to an optimizer and rates that keep weights near their start."""
    import torch

    def losses(step: StepParts) -> "Iterator[tuple[Tensor, int]]":
        for part in step:
            if part:
                yield from job.losses(part)

    optimizers = job.optimizers
    if recipe.rank is None:
        weights = [weight for module in job.modules.values() for weight in module.parameters()]
        rate = RATE * recipe.adam_rate
        optimizers = [torch.optim.AdamW(weights, lr=rate, betas=BETAS, weight_decay=DECAY, fused=True)]
    return replace(job, losses=losses, optimizers=optimizers, rate=cosine(job.steps, WARM), seed=seed)


def obstacle(revision: Revision, recipe: Recipe) -> str:
    """Return why the card must be trained from scratch, as far as known without its weights; empty if it need not
    be."""
    if recipe.objective == "clm":
        return "with objective clm it learned whole documents, which can't be unlearned in part"
    return too_many_changes(revision)


def too_many_changes(revision: Revision) -> str:
    """Return how many statements have changed if training from scratch hardly takes longer; else ""."""
    changed, count = len(revision.added) + len(revision.removed), len(revision.now)
    return f"{changed} of its {count} statements have changed" if changed > max(FEWEST, LARGE * count) else ""


def _restore(
    revision: Revision, folder: Path, recipe: Recipe
) -> "tuple[Trainee, PreTrainedTokenizerFast, DocIds] | str":
    """Load the model with its previous weights, the tokenizer and docids; or return why these do not fit."""
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerFast
    trainee: Trainee
    slower = replace(recipe, muon_rate=RATE * recipe.muon_rate, adam_rate=RATE * recipe.adam_rate)
    if recipe.rank is not None:
        tokenizer = base_tokenizer()
        docids, trainee = DocIds(len(tokenizer), 0), adapted_model(revision.now, tokenizer, slower)
    else:
        last: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        new = [revision.now[row] for row in revision.added]
        tokenizer = prune_and_extend_tokenizer(last, revision.now, new, recipe.vocabulary)
        docids = DocIds.for_passages(revision.now, len(tokenizer), recipe)
        trainee = whole_model(tokenizer, docids.count, slower)
        if docids_of(folder, last) != (len(revision.before) if docids.count else 0):
            return "its document ids are not those of its passages"
    if why_not := trainee.mismatch(folder):
        return why_not
    trainee.inherit(folder, revision.staying if docids.count else ())
    return trainee, tokenizer, docids
