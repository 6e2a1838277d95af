"""The questions that a card with an encoder prefix learns from, as it sees them, and what a retriever finds for them.

A card that learns its docids from pseudo-queries alone takes them apart by whatever tells them apart, and people's
questions are none. So most of its target is what a retriever makes of the same noised question: cosine of the sentence
embeddings and BM25. The card so learns how near its passages are to any question, not only which one a pseudo-query
was made of (distillation of a retriever: Hinton et al., 2015, with its similarities as the logits).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.cards.lm.word_sketch import STEMMER, WordSketch
from kcard.training.recipe import Recipe
from kcard.words import analyzer

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["AskedQuestions", "NoisedQuestions", "QuestionWords", "Retriever"]

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
        self._known = Ragged.of([sketch.known(question) for question in questions], whole=True)
        self._idf = torch.tensor(list(sketch.idf.values()))

    def thinned(self, rows: "Tensor", dropped: tuple[float, float]) -> "ThinnedWords":
        """The words of questions without some of them; `dropped`: the least and the largest share that one loses."""
        import torch

        of, places = self._known.places(rows)
        least, most = dropped
        share = least + (most - least) * torch.rand(len(rows))
        kept = torch.rand(len(of)) >= share[of]
        of, stems = of[kept], self._known.values[places[kept]]
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
        found = torch.zeros(words.count * self._passages)
        found.index_add_(0, cells, words.weights[word] * self._weights.values[at])
        return found.view(words.count, self._passages)


@dataclass(frozen=True)
class AskedQuestions:
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
        words = self.words.thinned(index, self.recipe.dropped)
        sketches = torch.zeros(len(rows), self.words.signs.shape[1])
        sketches.index_add_(0, words.of, words.weights[:, None] * self.words.signs[words.stems])
        return NoisedQuestions(noised, words, sketches)
