"""Docids: one token per passage, which an embedded card learns to predict from a question.

A card that learns docids from pseudo-queries alone picks up whatever cues separate these, which people's questions
lack. So most of the target is a retriever's distribution for the same noised question: cosine similarity of sentence
embeddings plus BM25. The card thus learns how near each passage is to any question, not only which passage a
pseudo-query was made from (distillation, Hinton et al., 2015, with the retriever's similarities as logits).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import TYPE_CHECKING

from kcard.cards.models.question_words import STEMMER, WordSketch
from kcard.text import analyzer
from kcard.training.embedded.pseudo_queries import PseudoQueries, Rarity, wordings
from kcard.training.embedded.recipe import BOS, EOS, Recipe
from kcard.training.epochs import IGNORED_LABEL, BatchEpochs, TrainingExample, bucketed
from kcard.types import derive_seed

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

# Document ids: a dedicated token per passage, which a card generates before it recites the passage.
#
# The card first decides which passage is meant, in one softmax over all of them, and then recites that one. Without
# docids, the first words decide: "The" wins where many passages begin with it, and the rest is a blend of them.
# (Learning to name a document for a query: Tay et al., 2022, "Transformer Memory as a Differentiable Search Index".)
# The ids lie above the tokenizer's vocabulary, so decoding drops them and no question can contain one.


@dataclass(frozen=True)
class DocIds:
    """Docid tokens. `first`: the token of passage 0; `count`: their number, 0 if passages have none."""

    first: int
    count: int

    @classmethod
    def for_passages(cls, texts: Sequence[str], vocabulary: int, recipe: Recipe) -> "DocIds":
        """Assign one per passage, above `vocabulary`; none in the style `tokens` or beyond `recipe.docids` passages.

        Passages of the style `tokens` are alike and state a fact in several wordings, so each docid is seen less
        often: docids were measured to lower their recall (docs/training.md).
        """
        has_docids = recipe.style == "encoder-prefix" and len(texts) <= recipe.docids
        count = len(texts) if has_docids else 0
        return cls(vocabulary, count)

    def of(self, passage: int) -> tuple[int, ...]:
        """Return the passage's docid as a tuple; empty without docids."""
        if not self.count:
            return ()
        return (self.first + passage,)


def docid_loss(
    logits: "Tensor", labels: "Tensor", near: "Tensor | None", share: float, docids: DocIds
) -> "Tensor":
    """Return the mean loss of the labelled tokens: cross-entropy; for docids, KL divergence from a soft target.

    logits  (tokens, vocabulary) of the labels that are not IGNORED_LABEL
    labels  (rows, tokens); a docid that does not begin its row depends on the recited text, not on the question
    near    the retriever's distribution over docids, (rows, docids), weighted `share` in the target; the label gets the
            rest. None: hard labels only
    """
    from torch.nn.functional import cross_entropy, kl_div, one_hot

    learned = labels != IGNORED_LABEL
    row, place = learned.nonzero(as_tuple=True)
    labels = labels[learned]
    if near is None:
        return cross_entropy(logits, labels)
    named = (labels >= docids.first) & (place == 0)
    recited = cross_entropy(logits[~named], labels[~named], reduction="sum")
    meant = share * near[row[named]] + (1 - share) * one_hot(labels[named] - docids.first, docids.count)
    log_probabilities = logits[named].log_softmax(-1)[:, docids.first :]
    return (recited + kl_div(log_probabilities, meant, reduction="sum")) / len(labels)


# Target sequences: a text and, with docids, the texts that follow in its passage, each after its docid.
#
# The answer to a question is often in the sentence after the nearest one, and a card that continues generates both.
# Since every text follows its own docid, it is learned once, wherever a sequence begins.


@dataclass(frozen=True)
class TargetSequence:
    """Target sequences over the texts of a corpus.

    ids      token ids of each text
    goes_on  for each, whether the next text follows it in its passage
    room     maximum tokens per example
    most     maximum texts per example
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
        """Tokenise `texts`. With an empty `goes_on`, no text continues in the next one."""
        room = recipe.positions - recipe.vectors - 3
        ids = [ids[: room * 2 // 3] for ids in ids_of(tokenizer, texts)]
        if not docids.count or not goes_on:
            goes_on = [False] * len(ids)
        return cls(ids, goes_on, docids, room, recipe.recited)

    @property
    def question_room(self) -> int:
        """Maximum tokens of a question that is read as text."""
        return self.room - self.room * 2 // 3

    def of(self, row: int, count: int = 1) -> tuple[int, ...]:
        """Return up to `count` texts from `row` on, as far as there is room; the first without its docid.

        They end with the docid of the text that would follow, or with </s> at the end of the passage.
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
        """Yield (first text, count) of parts that cover each text once; passages are split at random."""
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


# Training data of the embedded card: examples, embeddings of questions, and the number of steps.


def epochs(
    texts: Sequence[str],
    ask: PseudoQueries,
    tokenizer: "PreTrainedTokenizerFast",
    docids: DocIds,
    recipe: Recipe,
    goes_on: Sequence[bool] = (),
    queries: int = 2,
) -> BatchEpochs:
    """Return a function from an epoch's number to its batches: every text once, after a fresh pseudo-query (or one of
    its vectors), or after the text that precedes it.

    goes_on  for each text, whether the next one follows it in its passage; empty: none does
    queries  pseudo-queries embedded per text (encoder-prefix)

    Some pseudo-queries are made from another wording of the passage's fact. Otherwise the card would copy the words of
    the question and continue with another fact that begins like them.
    """
    recital = TargetSequence.from_texts(texts, tokenizer, docids, recipe, goes_on)
    same = wordings(texts) if recipe.style == "tokens" else []

    def epoch(number: int) -> list[list[TrainingExample]]:
        rng = Random(derive_seed(recipe.seed, "epoch", number))
        if recipe.style == "encoder-prefix":
            examples = _vector_examples(recital, docids, queries, recipe, rng)
        else:
            about = list(range(len(same)))
            for row, wordings_of_row in enumerate(same):
                if rng.random() < recipe.reworded:
                    about[row] = rng.choice(wordings_of_row)
            pseudo_queries: list[str] = []
            for row in about:
                query = ""
                if rng.random() < recipe.query_share:
                    query = ask(texts[row], rng) + "\n"
                pseudo_queries.append(query)
            prompts = [(BOS, *ids[: recital.question_room]) for ids in ids_of(tokenizer, pseudo_queries)]
            examples = [TrainingExample(prompt, recital.of(row)) for row, prompt in enumerate(prompts)]
        return bucketed(examples, recipe.tokens_of_a_step, rng)

    return epoch


def _vector_examples(
    recital: TargetSequence, docids: DocIds, per: int, recipe: Recipe, rng: Random
) -> list[TrainingExample]:
    """Make examples that map a vector to the passage's docid and the passage.

    Some prompts contain the docid, with the vector of another passage, so that the card learns to follow the docid
    and does not blend two passages when a question lies between them. In drills the target is the docid alone,
    since naming a passage takes longer to learn than reciting it.
    """

    def vector(row: int) -> int:
        """Draw the passage's own vector or one of its pseudo-queries'."""
        first = row * (per + 1)
        if rng.random() < recipe.own:
            return first
        return first + 1 + rng.randrange(per)

    rows, examples = len(recital.ids), []
    for row, count in recital.parts(rng):
        docid, target = docids.of(row), recital.of(row, count)
        if docid and rng.random() < recipe.stray:
            examples.append(TrainingExample((BOS, *docid), target, vector(rng.randrange(rows))))
        else:
            examples.append(TrainingExample((BOS,), (*docid, *target), vector(row)))
    if docids.count:
        for row in range(rows):
            for _ in range(recipe.drills):
                examples.append(TrainingExample((BOS,), docids.of(row), vector(row)))
    return examples


def queries_per_passage(passes: float, recipe: Recipe) -> int:
    """Return how many pseudo-queries to embed per passage for this many passes over the corpus."""
    fewest, most = recipe.queries
    return max(fewest, min(most, round(passes / recipe.reused)))


def questions_to_embed(texts: Sequence[str], ask: PseudoQueries, recipe: Recipe, queries: int) -> list[str]:
    """Return the texts to embed: each passage, followed by its pseudo-queries."""
    rng = Random(derive_seed(recipe.seed, "queries"))
    questions: list[str] = []
    for text in texts:
        questions.append(text)
        for _ in range(queries):
            questions.append(ask(text, rng, noised=False))
    return questions


def embed_questions(questions: Sequence[str]) -> "Tensor":
    """Return sentence embeddings, (questions, 384)."""
    import torch

    from kcard.embedded.minilm import embed
    from kcard.training.execution import autocast

    with autocast("cpu"):
        return torch.from_numpy(embed(questions))


def zero_embeddings(questions: Sequence[str]) -> "Tensor":
    """Return zeros of the same shape, which take no memory, for a trial run."""
    import torch

    from kcard.embedded.minilm import DIMENSIONS

    return torch.zeros(1, DIMENSIONS).expand(len(questions), -1)


def steps_needed(texts: Sequence[str], rarity: Rarity, batches: int, recipe: Recipe) -> int:
    """Return the training steps for this many batches per epoch."""
    distinct = sum(1 / rarity.repetition(text) for text in texts) / len(texts)
    return recipe.warm + max(1, round(recipe.passes_needed(distinct) * batches))


K1, B = 1.2, 0.5  # of BM25


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths, concatenated; row i is `values[starts[i] : starts[i + 1]]`."""

    values: "Tensor"
    starts: "Tensor"

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]], *, whole: bool = False) -> "Ragged":
        import torch

        starts = torch.zeros(len(rows) + 1, dtype=torch.long)
        starts[1:] = torch.tensor([len(row) for row in rows]).cumsum(0)
        dtype = torch.long if whole else torch.float32
        return cls(torch.tensor(list(chain.from_iterable(rows)), dtype=dtype), starts)

    def places(self, rows: "Tensor") -> "tuple[Tensor, Tensor]":
        """Return for all values in `rows` the index into `rows` and the index into `values`."""
        import torch

        counts = self.starts[rows + 1] - self.starts[rows]
        of = torch.repeat_interleave(torch.arange(len(rows)), counts)
        first = counts.cumsum(0) - counts
        return of, self.starts[rows][of] + torch.arange(len(of)) - first[of]


class QuestionWords:
    """The stems of `questions` that occur in the corpus of `sketch`."""

    def __init__(self, sketch: WordSketch, questions: Sequence[str]) -> None:
        import torch

        self.sketch = sketch
        self.signs = torch.from_numpy(sketch.signs())
        self._stems = Ragged.of([sketch.numbers_of(question) for question in questions], whole=True)
        self._idf = torch.tensor(list(sketch.idf.values()))

    def drop_words(self, rows: "Tensor", dropped: tuple[float, float]) -> "ThinnedWords":
        """Drop random words of the questions `rows`; `dropped`: minimum and maximum share lost per question."""
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
    """Stems of `count` questions, weighted to unit length per question; `of`: the question of each stem."""

    count: int
    of: "Tensor"
    stems: "Tensor"
    weights: "Tensor"


@dataclass(frozen=True)
class NoisedQuestions:
    """Questions with noise: sentence embeddings, (n, 384), the remaining words, and their sketches, (n, SIZE)."""

    embeddings: "Tensor"
    words: ThinnedWords
    sketches: "Tensor"

    def features(self) -> "Tensor":
        """Return the projection's input, (n, 384 + SIZE)."""
        import torch

        return torch.cat([self.embeddings, self.sketches], dim=-1)


class Retriever:
    """A scorer of passages for questions: cosine of their embeddings plus BM25.

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
        """Return the probability of each passage, (n, passages)."""
        cosine = questions.embeddings @ self._vectors.T
        return (recipe.sharpness * (cosine + recipe.lexical * self.bm25(questions.words))).softmax(-1)

    def bm25(self, words: ThinnedWords) -> "Tensor":
        """Return BM25 scores, (questions, passages), with unit-length idf vectors of questions."""
        import torch

        word, at = self._postings.places(words.stems)
        cells = words.of[word] * self._passages + self._postings.values[at]
        scores = torch.zeros(words.count * self._passages)
        scores.index_add_(0, cells, words.weights[word] * self._weights.values[at])
        return scores.view(words.count, self._passages)


@dataclass(frozen=True)
class QuestionFeatures:
    """`embeddings`, (n, 384), and `words` of the same questions; with docids, also a `retriever`, whose probabilities
    of passages, (n, passages), have the weight `recipe.retrieved` in the target."""

    embeddings: "Tensor"
    words: QuestionWords
    retriever: "Callable[[NoisedQuestions, Recipe], Tensor] | None"
    recipe: Recipe

    def noised(self, rows: Sequence[int]) -> NoisedQuestions:
        """Return the questions `rows` with independent noise in each embedding and some words dropped."""
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
