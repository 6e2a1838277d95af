"""Graph cards: statements of a knowledge graph about the entities that a question names (KC-13).

Entity names are matched in the question, longest first. Statements about them (one hop), and statements about their
neighbours (two hops, one after the other), are ranked by the words that they share with the question and, for English,
by the sentence encoder. graph.tsv holds the triples: row n is the triple of passage n.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.cards.card import GRAPH, Card
from kcard.cards.generators.retrieval import padded
from kcard.cards.passages import passages
from kcard.errors import DamagedCard
from kcard.interfaces import CardGenerator
from kcard.text import is_english, words
from kcard.types import Passage, Sampling, Source

if TYPE_CHECKING:
    from kcard.cards.models.loader import Loader

MAX_NAME_WORDS = 12
MAX_STATEMENTS = 300  # about one entity, above which paths do not pass through it (a year, a country)
MAX_PATHS = 20_000  # compared
CANDIDATES = 20  # paths that the encoder reads
MAX_CACHED_PASSAGES = 50_000  # whose words are kept
Name = tuple[str, ...]
RowPath = tuple[int, ...]


def write_triples(folder: Path, triples: Iterable[tuple[str, str, str]]) -> None:
    """Write the triples of the passages, one per line: subject, relation, object."""
    with (folder / GRAPH).open("w", encoding="utf-8") as stream:
        for triple in triples:
            stream.write("\t".join(" ".join(cell.split()) for cell in triple) + "\n")


def load_graph_card(card: Card, models: "Loader") -> "GraphCard":
    """Load the generator of a card's graph. Raises DamagedCard if the graph does not fit the passages."""
    del models
    return GraphCard(card)


@dataclass(frozen=True)
class Graph:
    """`ends`: names of the subject and object of each row; `rows`: the rows in which each name occurs."""

    ends: Sequence[tuple[Name, Name]]
    rows: dict[Name, list[int]]

    @classmethod
    def read(cls, path: Path) -> "Graph":
        """Load a table of triples. Raises OSError, or ValueError if it is none."""
        ends = list[tuple[Name, Name]]()
        rows = dict[Name, list[int]]()
        for line in path.read_text(encoding="utf-8").splitlines():
            subject, _, value = line.split("\t")
            pair = (_name(subject), _name(value))
            for name in dict.fromkeys(pair):
                rows.setdefault(name, []).append(len(ends))
            ends.append(pair)
        rows.pop((), None)
        return cls(ends, rows)

    def find_names(self, question: Sequence[str]) -> list[Name]:
        """Return the entities that a question names, in order; the longest of overlapping names."""
        names: dict[Name, None] = {}
        at = 0
        while at < len(question):
            step = 1
            for length in range(MAX_NAME_WORDS, 0, -1):
                name = tuple(question[at : at + length])
                if name in self.rows:
                    names[name] = None
                    step = len(name)
                    break
            at += step
        return list(names)

    def paths(self, names: Sequence[Name]) -> Iterator[RowPath]:
        """Yield single rows, then pairs of rows joined by an entity that the question does not name.

        Busy names start no path if the question has others.
        """
        starts = [name for name in names if len(self.rows[name]) <= MAX_STATEMENTS] or names
        first: dict[int, None] = {}
        for name in starts:
            first.update(dict.fromkeys(self.rows[name]))
        for row in first:
            yield (row,)
        for row in first:
            for name in self.ends[row]:
                onward = self.rows.get(name, [])
                if name in names or len(onward) > MAX_STATEMENTS:
                    continue
                for other in onward:
                    if other != row:
                        yield row, other


class GraphCard(CardGenerator):
    """Generates the passages of paths in the graph: document 1 is the best for the question."""

    def __init__(self, card: Card) -> None:
        self._name = card.name
        self._english = is_english(card.manifest.language)
        self._passages = passages(card.folder)
        try:
            self._graph = Graph.read(card.folder / GRAPH)
        except (OSError, ValueError) as error:
            raise DamagedCard(
                f"card {card.name!r}: {card.folder / GRAPH} is not a table of triples: {error}"
            ) from error
        self._words = lru_cache(MAX_CACHED_PASSAGES)(lambda row: frozenset(words(self._passages[row].text)))
        if len(self._graph.ends) != len(self._passages):
            raise DamagedCard(
                f"card {card.name!r}: {GRAPH} does not match its passages: train the card again"
            )

    def generate(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """Generate as CardGenerator does, without sampling: the seed has no effect.

        A question that names nothing in the graph gets empty documents. `Passage.source` is the statement's place; for
        two, their joint text and the second's place.
        """
        del sampling
        return [padded(self._name, self._search(question), documents) for question in questions]

    def _search(self, question: str) -> list[Source]:
        """Return the statements near the entities that a question names, best first."""
        question_words = words(question)
        names = self._graph.find_names(question_words)
        other_words = set(question_words).difference(*names)
        # The share of the question's names and other words that occur in each path, in [0, 1].
        shares: dict[RowPath, float] = {}
        for path in islice(self._graph.paths(names), MAX_PATHS):
            there = set().union(*map(self._words, path))
            ends = {*chain(*map(self._graph.ends.__getitem__, path))}
            matches = len(there & other_words) + len(ends & {*names})
            shares[path] = matches / (len(other_words) + len(names))
            # A second statement must cover more of the question than the first alone.
            if path[1:] and shares[path] <= shares[path[:1]]:
                del shares[path]
        # Join the statements of the best paths.
        candidates = []
        best = sorted(shares, key=lambda path: -shares[path])[:CANDIDATES]
        for path in best:
            statements = [self._passages[row] for row in path]
            text = " ".join(source.text for source in statements)
            last = statements[-1]
            candidates.append(Source(text, last.file, last.line, round(shares[path], 5)))
        if not candidates or not self._english:
            return candidates
        # In English, rank them by the mean of that share and the encoder's cosine.
        from kcard.embedded import minilm

        vectors = minilm.embed([question, *(source.text for source in candidates)])
        cosines = (vectors[1:] @ vectors[0]).tolist()
        ranked = []
        for candidate, path, cosine in zip(candidates, best, cosines, strict=True):
            # Rounded, since the last bits of an embedding depend on the rest of its batch.
            ranked.append(replace(candidate, score=round((shares[path] + cosine) / 2, 5)))
        return sorted(ranked, key=lambda source: -source.score)


def _name(text: str) -> Name:
    """Return a name as words, without a leading article."""
    name = tuple(words(text))
    return name[1:] if len(name) > 1 and name[0] == "the" else name
