"""A folder compared with the passages that a card was made of: what has come, changed and gone, by passage and by file.

Nothing counts as gone that may still be there: the passages of a file that can't be read are held, and so are those of
files whose folder is empty or that are empty themselves, unless removal is allowed.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from pathlib import Path

from kcard.answer import Source
from kcard.training.corpus import Corpus, corpus_digest
from kcard.words import words

__all__ = ["Changes", "Held", "compare"]

EMPTY = "no text in it"  # kcard.training.corpus says so of a file
ALIKE = 0.5  # share of words that a passage and its new wording have in common
AROUND = 20  # passages among which the new wording is sought


@dataclass(frozen=True)
class Held:
    """A file of which the card keeps its passages, though they were not read, and why."""

    file: str
    reason: str
    passages: int


@dataclass(frozen=True)
class Changes:
    """corpus   what the card is to know: what was read, then what is held
    added    passages that the card does not have
    changed  passages in their old and new wording, both in one file
    removed  passages that are gone
    moved    how many passages stand in another place than before, in the same words, or in fewer places
    renamed  files whose passages stand in another file now, by their old names
    before   how many passages the card has
    """

    corpus: Corpus
    added: Sequence[Source]
    changed: Sequence[tuple[Source, Source]]
    removed: Sequence[Source]
    moved: int
    renamed: Mapping[str, str]
    held: Sequence[Held]
    before: int

    @property
    def forgotten(self) -> list[Source]:
        """All that the card is to forget: what is gone, and the old wording of what has changed."""
        return [*self.removed, *(old for old, _ in self.changed)]

    @property
    def learned(self) -> list[Source]:
        """All that is new, and the new wording of what has changed."""
        return [*self.added, *(new for _, new in self.changed)]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.moved)


def compare(before: Sequence[Source], read: Corpus, *, allow_removal: bool = False) -> Changes:
    """What was `read` of a folder, or a file, against the passages that a card has."""
    unread = _unread(before, read, allow_removal)
    texts = {source.text for source in read.passages}
    kept = [source for source in before if source.file in unread and source.text not in texts]
    passages = [*read.passages, *kept]
    texts.update(source.text for source in kept)
    had = {source.text: source for source in before}
    added = [source for source in passages if source.text not in had]
    gone = [source for text, source in had.items() if text not in texts]
    changed, gone, added = _paired(gone, added)
    places, former_places = set(passages), set(before)
    come = sum(source.text in had and source not in former_places for source in places)
    left = sum(source.text in texts and source not in places for source in former_places)
    counts = Counter(source.file for source in kept)
    return Changes(
        corpus=replace(read, passages=passages, sha256=corpus_digest(passages)) if kept else read,
        added=added,
        changed=changed,
        removed=gone,
        moved=max(come, left),
        renamed=_renamed(had, passages),
        held=[Held(file, reason, counts[file]) for file, reason in unread.items() if counts[file]],
        before=len(before),
    )


def _unread(before: Sequence[Source], read: Corpus, allow_removal: bool) -> dict[str, str]:
    """The files of the card of which nothing was read, though they may still be there, and why."""
    skipped = {name: why for name, why in read.skipped if not (allow_removal and why == EMPTY)}
    found: dict[str, str] = {}
    for file in dict.fromkeys(source.file for source in before):
        places = [file, *(place.as_posix() for place in Path(file).parents)]
        if (place := next((place for place in places if place in skipped), None)) is not None:
            found[file] = skipped[place]
        elif not allow_removal and _in_empty_folder(read.path, file):
            found[file] = "its folder is empty, as a mount that is missing would be"
    return found


def _in_empty_folder(root: Path, file: str) -> bool:
    """Whether the nearest folder of a missing file that is there, below the root, is empty."""
    for place in (root / file).parents:
        if place == root or not place.is_relative_to(root):
            return False
        if place.is_dir():
            return next(place.iterdir(), None) is None
    return False


def _paired(
    gone: Sequence[Source], added: Sequence[Source]
) -> tuple[list[tuple[Source, Source]], list[Source], list[Source]]:
    """(passages in both wordings, those that are gone, those that have come): passages of one file that share most
    words are the same passage, changed."""
    by_file: defaultdict[str, list[Source]] = defaultdict(list)
    for source in added:
        by_file[source.file].append(source)
    pairs, left = [], []
    for old in gone:
        around = nsmallest(AROUND, by_file[old.file], key=lambda new: abs(new.line - old.line))
        near = max(around, key=lambda new: _alike(old.text, new.text), default=None)
        if near is None or _alike(old.text, near.text) < ALIKE:
            left.append(old)
        else:
            by_file[old.file].remove(near)
            pairs.append((old, near))
    new = {id(after) for _, after in pairs}
    return pairs, left, [source for source in added if id(source) not in new]


def _alike(one: str, other: str) -> float:
    """Share of words that two texts have in common, in [0, 1] (Dice's coefficient)."""
    first, second = Counter(words(one)), Counter(words(other))
    return 2 * (first & second).total() / max(1, first.total() + second.total())


def _renamed(had: Mapping[str, Source], passages: Sequence[Source]) -> dict[str, str]:
    """The files of before that are no more, with those where all of their passages that remain are now."""
    now = {source.file for source in passages}
    places: defaultdict[str, set[str]] = defaultdict(set)
    for source in passages:
        if source.text in had and (old := had[source.text].file) not in now:
            places[old].add(source.file)
    return {old: next(iter(new)) for old, new in places.items() if len(new) == 1}
