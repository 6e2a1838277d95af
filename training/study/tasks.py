"""What is asked about a corpus: which passages, in which requests."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kcard.answer import Source
from kcard.request import Request
from kcard.training.spans import Rarity, bare, entities
from kcard.training.study.item import Kind
from kcard.words import passage_digest

__all__ = ["KINDS", "Assignment", "Task", "assignments"]

Task = Literal["questions", "statements", "links"]
KINDS: Mapping[Task, tuple[Kind, ...]] = {
    "questions": ("direct", "reverse", "far", "unanswerable"),
    "statements": ("rewrite", "implication", "summary"),
    "links": ("link",),
}
SHARED = 10  # passages that may share a name that links them: one that more share says little
LEAST = 12  # words of a passage that is asked about


@dataclass(frozen=True)
class Assignment:
    """One request: a task about one passage, or for links about two."""

    task: Task
    passages: tuple[Source, ...]

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(passage_digest(passage.text) for passage in self.passages)

    @property
    def texts(self) -> tuple[str, ...]:
        """With their headings."""
        return tuple(passage.in_context for passage in self.passages)

    @property
    def request(self) -> Request:
        return Request("study", self.task, self.texts)


def assignments(passages: Sequence[Source], tasks: Sequence[Task]) -> Iterator[Assignment]:
    """Those of a corpus, passage by passage; links come last. Passages of a few words are passed over."""
    long = [passage for passage in passages if len(passage.text.split()) >= LEAST]
    for passage in long:
        for task in tasks:
            if task != "links":
                yield Assignment(task, (passage,))
    if "links" in tasks:
        yield from (Assignment("links", pair) for pair in _pairs(long))


def _pairs(passages: Sequence[Source]) -> Iterator[tuple[Source, Source]]:
    """For each passage one other that shares its rarest shared name, no pair twice."""
    names = [{bare(word) for a, b in entities(p.text) for word in p.text[a:b].split()} for p in passages]
    holding: defaultdict[str, list[int]] = defaultdict(list)
    for row, found in enumerate(names):
        for name in found:
            holding[name].append(row)
    rarity, done = Rarity([passage.text for passage in passages]), set[tuple[int, int]]()
    for row, found in enumerate(names):
        shared = [name for name in found if 1 < len(holding[name]) <= SHARED and name[:1].isupper()]
        for name in sorted(shared, key=lambda name: (-rarity.weight(name), name)):
            pair = next(((row, other) for other in holding[name] if other > row), None)
            if pair is not None and pair not in done:
                done.add(pair)
                yield passages[pair[0]], passages[pair[1]]
                break
