"""Passages as tokens of their own: what an embedded card learns to name for a question.

A card that learns its docids from pseudo-queries alone takes them apart by whatever tells them apart, and people's
questions are none. So most of its target is what a retriever makes of the same noised question: cosine of the sentence
embeddings and BM25. The card so learns how near its passages are to any question, not only which one a pseudo-query
was made of (distillation of a retriever: Hinton et al., 2015, with its similarities as the logits).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from kcard.cards.models.prompting import STEMMER, WordSketch
from kcard.offline.pseudo_queries import PseudoQueries, Rarity, wordings
from kcard.offline.recipe import BOS, EOS, Recipe
from kcard.text import analyzer
from kcard.training.epochs import IGNORED, Epochs, TrainingExample, bucketed
from kcard.types import derive_seed

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

__all__ = [
    "DocIds",
    "NoisedQuestions",
    "QuestionFeatures",
    "QuestionWords",
    "Retriever",
    "TargetSequence",
    "blank",
    "docid_loss",
    "embedded",
    "epochs",
    "ids_of",
    "queries_per_passage",
    "questions",
    "steps_needed",
]


# Document ids: one token of its own for every passage, which a card says before it recites the passage.
#
# So that the card first decides which passage is meant, in one step over all of them, and then recites that one.
# Without it the first words decide: "The" wins where many passages begin so, and what follows is a blend of them.
# (The idea of learning to name a document for a query: Tay and others, 2022, "Transformer Memory as a Differentiable
# Search Index".) The tokens lie above the tokenizer's, which therefore leaves them out when it decodes, and no
# question can hold one.


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
        has_docids = recipe.style == "encoder-prefix" and len(texts) <= recipe.docids
        return cls(vocabulary, len(texts) if has_docids else 0)

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
    log_probabilities = logits[named].log_softmax(-1)[:, docids.first :]
    return (recited + kl_div(log_probabilities, meant, reduction="sum")) / len(labels)


# What an embedded card recites: a text and, if it has docids, those that follow in its passage, each after its docid.
#
# The answer to a question often stands in the sentence after the one that is nearest to it, and a card that goes
# on says both. Since every text follows its own docid, it is learned once, wherever a recital begins.


@dataclass(frozen=True)
class TargetSequence:
    """Of the texts of a corpus.

    ids      their tokens
    goes_on  of each, whether the next one follows it in its passage
    room     most tokens of an example
    most     texts in one example, at most
    """

    ids: Sequence[Sequence[int]]
    goes_on: Sequence[bool]
    docids: DocIds
    room: int
    most: int

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        tokenizer: "PreTrainedTokenizerFast",
        docids: DocIds,
        recipe: Recipe,
        goes_on: Sequence[bool] = (),
    ) -> "TargetSequence":
        """`goes_on` empty: none goes on."""
        room = recipe.positions - recipe.vectors - 3
        ids = [ids[: room * 2 // 3] for ids in ids_of(tokenizer, texts)]
        follows = goes_on if docids.count and goes_on else [False] * len(ids)
        return cls(ids, follows, docids, room, recipe.recited)

    @property
    def question_room(self) -> int:
        """Most tokens of a question that is read as text."""
        return self.room - self.room * 2 // 3

    def of(self, row: int, count: int = 1) -> tuple[int, ...]:
        """The text `row`, without its docid, and the next ones up to `count` in all, as far as there is room.

        Then comes the docid of the one that would follow, or </s> where the passage ends.
        """
        tokens, last = [*self.ids[row]], row
        while self.goes_on[last]:
            last += 1
            tokens += self.docids.of(last)
            if last == row + count or len(tokens) + len(self.ids[last]) >= self.room:
                return tuple(tokens)
            tokens += self.ids[last]
        return (*tokens, EOS)

    def parts(self, rng: Random) -> Iterator[tuple[int, int]]:
        """(first text, how many), each text being in one part; where passages are parted is drawn."""
        row = 0
        while row < len(self.ids):
            first, most = row, rng.randint(1, self.most)
            while self.goes_on[row] and row + 1 < first + most:
                row += 1
            row += 1
            yield first, row - first


def ids_of(tokenizer: "PreTrainedTokenizerFast", texts: Sequence[str]) -> list[list[int]]:
    rows = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return [list(ids) if text else [] for ids, text in zip(rows, texts, strict=True)]


# What the embedded card is shown: its examples, the embeddings of its questions, and for how many steps.


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
    recital = TargetSequence.from_texts(texts, tokenizer, docids, recipe, goes_on)
    same = wordings(texts) if recipe.style == "tokens" else []

    def epoch(number: int) -> list[list[TrainingExample]]:
        rng = Random(derive_seed(recipe.seed, "epoch", number))
        if recipe.style == "encoder-prefix":
            examples = _vector_examples(recital, docids, queries, recipe, rng)
        else:
            about = [
                rng.choice(rows) if rng.random() < recipe.reworded else row for row, rows in enumerate(same)
            ]
            pseudo_queries = [
                ask(texts[row], rng) + "\n" if rng.random() < recipe.query_share else "" for row in about
            ]
            prompts = [(BOS, *ids[: recital.question_room]) for ids in ids_of(tokenizer, pseudo_queries)]
            examples = [TrainingExample(prompt, recital.of(row)) for row, prompt in enumerate(prompts)]
        return bucketed(examples, recipe.tokens_of_a_step, rng)

    return epoch


def _vector_examples(
    recital: TargetSequence, docids: DocIds, per: int, recipe: Recipe, rng: Random
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

    from kcard.offline.minilm import embed
    from kcard.training.execution import autocast

    with autocast("cpu"):
        return torch.from_numpy(embed(questions))


def blank(questions: Sequence[str]) -> "Tensor":
    """Something of the same shape, for a trial; it takes no memory."""
    import torch

    from kcard.offline.minilm import DIMENSIONS

    return torch.zeros(1, DIMENSIONS).expand(len(questions), -1)


def steps_needed(texts: Sequence[str], rarity: Rarity, batches: int, recipe: Recipe) -> int:
    """How long to train, with so many batches in an epoch."""
    distinct = sum(1 / rarity.repetition(text) for text in texts) / len(texts)
    return recipe.warm + max(1, round(recipe.passes_needed(distinct) * batches))


K1, B = 1.2, 0.5  # of BM25


@dataclass(frozen=True)
class Ragged:
    """Rows of different length, one after the other; row i is from `starts[i]` to `starts[i + 1]`."""

    values: "Tensor"
    starts: "Tensor"

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]], *, whole: bool = False) -> "Ragged":
        import torch

        starts = torch.zeros(len(rows) + 1, dtype=torch.long)
        starts[1:] = torch.tensor([len(row) for row in rows]).cumsum(0)
        flat = [value for row in rows for value in row]
        return cls(torch.tensor(flat, dtype=torch.long if whole else torch.float32), starts)

    def places(self, rows: "Tensor") -> "tuple[Tensor, Tensor]":
        """Of all values of `rows`: which of the rows each is in, and its place in `values`."""
        import torch

        counts = self.starts[rows + 1] - self.starts[rows]
        of = torch.repeat_interleave(torch.arange(len(rows)), counts)
        first = counts.cumsum(0) - counts
        return of, self.starts[rows][of] + torch.arange(len(of)) - first[of]


class QuestionWords:
    """The stems of `questions` that the corpus of `sketch` has."""

    def __init__(self, sketch: WordSketch, questions: Sequence[str]) -> None:
        import torch

        self.sketch = sketch
        self.signs = torch.from_numpy(sketch.signs())
        self._stems = Ragged.of([sketch.numbers_of(question) for question in questions], whole=True)
        self._idf = torch.tensor(list(sketch.idf.values()))

    def drop_words(self, rows: "Tensor", dropped: tuple[float, float]) -> "ThinnedWords":
        """The words of questions without some of them; `dropped`: the least and the largest share that one loses."""
        import torch

        of, places = self._stems.places(rows)
        least, most = dropped
        share = least + (most - least) * torch.rand(len(rows))
        remaining = torch.rand(len(of)) >= share[of]
        of, stems = of[remaining], self._stems.values[places[remaining]]
        weights = self._idf[stems]
        norm = torch.zeros(len(rows)).index_add_(0, of, weights**2).sqrt().clamp(min=1e-6)
        return ThinnedWords(len(rows), of, stems, weights / norm[of])


@dataclass(frozen=True)
class ThinnedWords:
    """`stems` of `count` questions with their weights, which have unit length a question; `of`: whose they are."""

    count: int
    of: "Tensor"
    stems: "Tensor"
    weights: "Tensor"


@dataclass(frozen=True)
class NoisedQuestions:
    """Of some questions: noised sentence embeddings, (n, 384), a part of the words, and its sketches, (n, SIZE)."""

    embeddings: "Tensor"
    words: ThinnedWords
    sketches: "Tensor"

    def features(self) -> "Tensor":
        """What the projection reads, (n, 384 + SIZE)."""
        import torch

        return torch.cat([self.embeddings, self.sketches], dim=-1)


class Retriever:
    """How near passages are to questions, by the cosine of their embeddings and by BM25.

    sketch   of the corpus
    vectors  embeddings of `passages`, (passages, 384)
    """

    def __init__(self, sketch: WordSketch, passages: Sequence[str], vectors: "Tensor") -> None:
        counts = [Counter(analyzer(STEMMER)(passage)) for passage in passages]
        mean = sum(sum(count.values()) for count in counts) / len(counts)
        postings: list[list[int]] = [[] for _ in sketch.idf]
        weights: list[list[float]] = [[] for _ in sketch.idf]
        for passage, count in enumerate(counts):
            length = K1 * (1 - B + B * sum(count.values()) / mean)
            for stem, n in count.items():
                postings[sketch.number[stem]].append(passage)
                weights[sketch.number[stem]].append(n * (K1 + 1) / (n + length))
        self._vectors, self._passages = vectors, len(counts)
        self._postings, self._weights = Ragged.of(postings, whole=True), Ragged.of(weights)

    def __call__(self, questions: NoisedQuestions, recipe: Recipe) -> "Tensor":
        """How likely each passage is meant, (n, passages)."""
        cosine = questions.embeddings @ self._vectors.T
        return (recipe.sharpness * (cosine + recipe.lexical * self.bm25(questions.words))).softmax(-1)

    def bm25(self, words: ThinnedWords) -> "Tensor":
        """(questions, passages), the idf of a question being of unit length."""
        import torch

        word, at = self._postings.places(words.stems)
        cells = words.of[word] * self._passages + self._postings.values[at]
        scores = torch.zeros(words.count * self._passages)
        scores.index_add_(0, cells, words.weights[word] * self._weights.values[at])
        return scores.view(words.count, self._passages)


@dataclass(frozen=True)
class QuestionFeatures:
    """`embeddings`, (n, 384), and `words` of the same questions; and where passages have docids, how likely each is
    meant by some questions, (n, passages), which is `recipe.retrieved` of what is learned."""

    embeddings: "Tensor"
    words: QuestionWords
    retriever: "Callable[[NoisedQuestions, Recipe], Tensor] | None"
    recipe: Recipe

    def noised(self, rows: Sequence[int]) -> NoisedQuestions:
        """Some of them, each with noise of its own in the embedding and without some of its words."""
        import torch
        from torch.nn.functional import normalize

        index = torch.tensor(rows)
        clean = self.embeddings[index]
        scale = 2 * self.recipe.noise * torch.rand(len(rows), 1)
        noised = normalize(clean + scale * torch.randn_like(clean), dim=-1)
        words = self.words.drop_words(index, self.recipe.dropped)
        sketches = torch.zeros(len(rows), self.words.signs.shape[1])
        sketches.index_add_(0, words.of, words.weights[:, None] * self.words.signs[words.stems])
        return NoisedQuestions(noised, words, sketches)
