"""The embedded card: a small OPT that learns to recite its corpus in a minute or two, as a whole model or an adapter.

A whole model (1.1M parameters) is trained from scratch, an adapter on the base in the package, so both work offline.
It learns pseudo-query -> passage, because a plain causal LM of this size memorizes its sentences but cannot find the
one that a question asks for. The question enters either as tokens or as a prefix computed by the sentence encoder, and
the card answers with the passage's docid first (docs/training.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Generic

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback

from kcard.cards.models.question_words import SIZE, Vocabulary, WordSketch
from kcard.manifest import Prompt
from kcard.training.embedded import docids as embedded_docids
from kcard.training.embedded.docids import DocIds, QuestionFeatures, QuestionWords, Retriever, docid_loss
from kcard.training.embedded.pseudo_queries import QUESTION_WORDS, PseudoQueries
from kcard.training.embedded.recipe import HALF_SHARE, PAD, Recipe, train_tokenizer
from kcard.training.embedded.trainee import Trainee, adapted_model, base_tokenizer, whole_model
from kcard.training.epochs import (
    IGNORED_LABEL,
    BatchEpochs,
    ReplayMix,
    TrainingExample,
    collate,
    in_batches,
    packed_epochs,
    token_blocks,
)
from kcard.training.estimates import MINUTES, Estimate, MemoryEstimate, seconds_to_embed, spread
from kcard.training.execution import autocast
from kcard.training.run import Preparation, Run, cosine
from kcard.training.trainer import Examples, TrainerRun, trainer_arguments
from kcard.types import derive_seed

# Up to this many steps take no longer than estimating their time, which is done only if less than MINUTES are given.
INSTANT_STEPS = 120
# Steps on throw-away weights by which the time is estimated, and the seconds after which no further one is taken.
WARM_STEPS, TIMED_STEPS, TRIAL_SECONDS = 2, 24, 0.5


@dataclass(frozen=True)
class TrainingPlan(Generic[Run]):
    """Cost of training a card, before anything is trained.

    estimate  duration, and whether it fits; None if it was not measured
    prepare   makes everything that training needs, embedded questions included, which takes part of that time
    memory    that training needs, if substantial
    """

    estimate: Estimate | None
    prepare: Callable[[], Preparation[Run]]
    memory: MemoryEstimate | None = None


def plan(
    texts: Sequence[str],
    recipe: Recipe,
    fingerprint: str = "",
    documents: Sequence[str] | None = None,
    goes_on: Sequence[bool] = (),
    *,
    minutes: float | None = None,
    steps: int | None = None,
    measured: bool = False,
) -> "TrainingPlan[EmbeddedRun]":
    """Plan the training of a card on `texts`.

    documents  the whole texts, for objective clm
    goes_on    for each text, whether the next one follows it in its passage; empty: none does
    minutes    limit for training and embedding on this machine; None, or with recipe.epochs: no limit
    steps      of an interrupted run that is to be resumed; None: as many as are needed or fit
    measured   whether to measure the time even if training is too short for that to pay
    """
    # The questions, the tokenizer, and the functions that make epochs and the model.
    ask = PseudoQueries(texts)
    tokenizer = base_tokenizer() if recipe.rank else train_tokenizer(texts, recipe.vocabulary)
    docids = DocIds.for_passages(texts, len(tokenizer), recipe)
    embeds = recipe.style == "encoder-prefix"

    def epochs(queries: int) -> BatchEpochs:
        if documents is None:
            return embedded_docids.epochs(texts, ask, tokenizer, docids, recipe, goes_on, queries)
        size = max(1, recipe.tokens_of_a_step // recipe.positions)
        blocks = token_blocks(documents, tokenizer, recipe.positions)
        return in_batches(packed_epochs(ReplayMix(blocks, (), size, recipe.seed)), size)

    def make_trainee() -> Trainee:
        if recipe.rank is not None:
            return adapted_model(texts, tokenizer, recipe)
        return whole_model(tokenizer, docids.count, recipe)

    trainee = make_trainee()
    # The number of steps.
    batches = epochs(1)(0)
    if recipe.epochs is not None:
        needed = max(1, round(recipe.epochs * len(batches)))
    else:
        needed = embedded_docids.steps_needed(texts, ask.rarity, len(batches), recipe)

    def queries(taken: int) -> int:
        return embedded_docids.queries_per_passage(taken / len(batches), recipe)

    def make_features(questions: Sequence[str], vectors: "Tensor") -> QuestionFeatures | None:
        if not embeds:
            return None
        words = QuestionWords(WordSketch.of_corpus(texts), questions)
        own = vectors[:: len(questions) // len(texts)]
        retriever = Retriever(words.sketch, texts, own) if docids.count else None
        return QuestionFeatures(vectors, words, retriever, recipe)

    # Time a few steps on throwaway weights, with the passages as stand-in questions, unless training is short.
    limit = None if recipe.epochs is not None else minutes
    estimate = None
    if measured or (steps is None and (needed > INSTANT_STEPS or (limit or MINUTES) < MINUTES)):
        stand_ins = [text for text in texts for _ in range(2)] if embeds else []
        likely = sorted(batches, key=lambda batch: len(batch) * max(map(len, batch)))
        blank = make_features(stand_ins, embedded_docids.zero_embeddings(stand_ins))
        trial = EmbeddedRun(make_trainee(), blank, docids, recipe, needed, lambda _: spread(likely))
        a_step = trial.seconds_a_step(WARM_STEPS, TIMED_STEPS, within=TRIAL_SECONDS)
        a_text = seconds_to_embed(texts, embedded_docids.embed_questions) / len(texts) if embeds else 0.0

        def embedded(taken: int) -> int:
            return len(texts) * (1 + queries(taken)) if embeds else 0

        estimate = Estimate(needed, ceil(HALF_SHARE[recipe.style] * needed), a_step, a_text, embedded, limit)
    taken = needed
    if steps:
        taken = steps
    elif estimate is not None:
        taken = estimate.steps

    def prepare() -> "Preparation[EmbeddedRun]":
        features = None
        if embeds:
            questions = embedded_docids.questions_to_embed(texts, ask, recipe, queries(taken))
            features = make_features(questions, embedded_docids.embed_questions(questions))
        ready = preparation(
            trainee, texts, features, docids, recipe, taken, epochs(queries(taken)), fingerprint
        )
        if estimate is None:
            return ready
        recorded = {**ready.hyperparameters, "estimated_seconds": round(estimate.seconds, 1)}
        if limit is not None:
            recorded["minutes"] = limit
        if taken < needed:
            recorded["steps_needed"] = needed
        return replace(ready, hyperparameters=recorded)

    return TrainingPlan(estimate, prepare)


def preparation(
    trainee: Trainee,
    texts: Sequence[str],
    features: QuestionFeatures | None,
    docids: DocIds,
    recipe: Recipe,
    steps: int,
    epoch: Callable[[int], Sequence[Any]],
    fingerprint: str = "",
) -> "Preparation[EmbeddedRun]":
    """Prepare the trainee to learn `texts` by the batches of `epoch`, with `features` of their questions."""
    recorded = asdict(recipe) | {"steps": steps, "batch_tokens": recipe.tokens_of_a_step}
    recorded["addresses"] = recorded.pop("docids")  # the key that manifests have always used
    libraries = ["torch", "transformers", "tokenizers"]
    if trainee.method == "lora":
        libraries.append("peft")

    def save(folder: Path) -> None:
        trainee.save(folder)
        if features is not None:
            features.words.sketch.write(folder)
        if recipe.style == "tokens" and recipe.objective == "recite":
            Vocabulary.of(texts, QUESTION_WORDS).write(folder)

    job = EmbeddedRun(trainee, features, docids, recipe, steps, epoch, fingerprint)
    if recipe.style == "tokens":
        prompt = Prompt() if recipe.objective == "recite" else Prompt(template="{question}")
    else:
        from kcard.embedded import minilm

        prompt = Prompt("encoder-prefix", "", recipe.vectors, minilm.NAME, minilm.SHA256, SIZE)
    return Preparation(job, save, trainee.method, trainee.base, prompt, recorded, tuple(libraries))


@dataclass
class EmbeddedRun(TrainerRun):
    """A training of an embedded model.

    features  of the questions; None where the model reads them as tokens
    epochs    the batches of epoch n, which depend on n alone
    """

    model: Trainee
    features: QuestionFeatures | None
    docids: DocIds
    recipe: Recipe
    steps: int
    epochs: Callable[[int], Sequence[Any]]
    fingerprint: str = ""

    def __post_init__(self) -> None:
        self.timed = self.steps > INSTANT_STEPS
        self.settled = self.recipe.settled

    def make_trainer(
        self, folder: Path, steps: int, callback: TrainerCallback, checkpoint: Path | None = None
    ) -> Trainer:
        del checkpoint
        return EmbeddedTrainer(self, folder, steps, callback)


class EmbeddedTrainer(Trainer):
    """The Trainer of an embedded model: Muon and AdamW, batches filled by tokens, and the loss of docids.

    Noise is a function of seed and step, so a resumed run ends as one without interruption.
    """

    def __init__(self, run: EmbeddedRun, folder: Path, steps: int, callback: TrainerCallback) -> None:
        self.run, recipe = run, run.recipe
        optimizer = run.model.optimizer(recipe)
        rate = cosine(run.steps, min(recipe.warm, run.steps // 4))
        super().__init__(
            model=run.model,
            args=trainer_arguments(folder, steps, recipe.seed, per_device_train_batch_size=1, use_cpu=True),
            train_dataset=Examples(run.epochs, steps),
            callbacks=[callback],
            optimizers=(optimizer, LambdaLR(optimizer, rate)),
        )

    def get_train_dataloader(self) -> "DataLoader[Any]":
        """Return the batches in their own order."""
        batches: Any = self.train_dataset
        return DataLoader(batches, batch_size=1, collate_fn=self.collate_batch)

    @staticmethod
    def collate_batch(items: Sequence[Sequence[TrainingExample]]) -> dict[str, Any]:
        """Return input_ids and labels, (rows, tokens), the mask of padding, and the row of each question's features."""
        [batch] = items
        ids, labels = collate(batch, PAD)
        questions = [example.vector for example in batch]
        return {
            "input_ids": ids,
            "labels": labels,
            "attention_mask": (ids != PAD).long(),
            "questions": questions,
        }

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """Return the mean loss of the learned tokens."""
        del return_outputs, num_items_in_batch
        run, labels = self.run, inputs["labels"][:, 1:]
        torch.manual_seed(derive_seed(run.recipe.seed, "step", self.state.global_step))
        noised = None if run.features is None else run.features.noised(inputs["questions"])
        near, share = None, 0.0
        if run.features is not None and noised is not None and run.features.retriever is not None:
            near, share = run.features.retriever(noised, run.recipe), run.recipe.retrieved
        with autocast("cpu"):
            hidden = model(inputs["input_ids"], noised)
            logits = run.model.model.lm_head(hidden[:, :-1][labels != IGNORED_LABEL])
        return docid_loss(logits.float(), labels, near, share, run.docids)
