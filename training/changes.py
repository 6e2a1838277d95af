"""Changes of a corpus since a card was trained: what was added, changed and removed, by passage and by file.

Passages that may still exist are kept: those of a file that can't be read and, unless removal is allowed, those of
empty files and of files in an empty folder.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from pathlib import Path

from kcard.text import words
from kcard.training.corpus import NO_TEXT, Corpus, corpus_digest
from kcard.types import Source

MIN_COMMON_WORDS = 0.5  # minimum share of words that a passage and its new wording have in common
NEAREST_PASSAGES = 20  # nearest passages of the file among which the new wording is sought


@dataclass(frozen=True)
class UnreadFile:
    """A file that was not read, and why; the card keeps its `passages`."""

    file: str
    reason: str
    passages: int


@dataclass(frozen=True)
class Changes:
    """Changes between a card and a corpus.

    corpus   of the next version: the passages that were read, then those of unread files
    added    passages that the card does not have
    changed  passages in their old and new wording, both in one file
    removed  passages that no longer exist
    moved    number of unchanged passages in another place than before, or in fewer places
    renamed  files whose passages are now in another file, by their old names
    unread   files that were not read, whose passages are kept
    before   number of passages that the card has
    """

    corpus: Corpus
    added: Sequence[Source]
    changed: Sequence[tuple[Source, Source]]
    removed: Sequence[Source]
    moved: int
    renamed: Mapping[str, str]
    unread: Sequence[UnreadFile]
    before: int

    @property
    def forgotten(self) -> list[Source]:
        """The passages that the next version lacks: the removed ones, and the old wording of the changed ones."""
        return [*self.removed, *(old for old, _ in self.changed)]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.moved)


def compare(before: Sequence[Source], read: Corpus, *, allow_removal: bool = False) -> Changes:
    """Compare the corpus that was `read` from a folder or file with the passages that a card has."""
    unread = _unread_files(before, read, allow_removal)
    # Passages of unread files are retained; the others are compared by their text.
    texts = {source.text for source in read.passages}
    retained = [source for source in before if source.file in unread and source.text not in texts]
    passages = [*read.passages, *retained]
    texts.update(source.text for source in retained)
    had = {source.text: source for source in before}
    added = [source for source in passages if source.text not in had]
    gone = [source for text, source in had.items() if text not in texts]
    changed, gone, added = _pair_changed(gone, added)
    # Unchanged passages in other places.
    places, former_places = set(passages), set(before)
    come = sum(source.text in had for source in places - former_places)
    left = sum(source.text in texts for source in former_places - places)
    counts = Counter(source.file for source in retained)
    # Files that are gone, whose remaining passages are all in one other file now.
    files = {source.file for source in passages}
    moves: defaultdict[str, set[str]] = defaultdict(set)
    for source in passages:
        if source.text in had and had[source.text].file not in files:
            moves[had[source.text].file].add(source.file)
    corpus = read
    if retained:
        corpus = replace(read, passages=passages, sha256=corpus_digest(passages))
    return Changes(
        corpus=corpus,
        added=added,
        changed=changed,
        removed=gone,
        moved=max(come, left),
        renamed={old: next(iter(new)) for old, new in moves.items() if len(new) == 1},
        unread=[UnreadFile(file, reason, counts[file]) for file, reason in unread.items() if counts[file]],
        before=len(before),
    )


def _unread_files(before: Sequence[Source], read: Corpus, allow_removal: bool) -> dict[str, str]:
    """Return the card's files that were not read, though they may still exist, and why."""
    skipped = dict(read.skipped)
    if allow_removal:
        skipped = {name: why for name, why in read.skipped if why != NO_TEXT}
    unread: dict[str, str] = {}
    for file in dict.fromkeys(source.file for source in before):
        # The file itself, or a folder above it.
        for place in (file, *(parent.as_posix() for parent in Path(file).parents)):
            if place in skipped:
                unread[file] = skipped[place]
                break
        else:
            if not allow_removal and _is_below_empty_folder(file, read.path):
                unread[file] = "its folder is empty, like that of a missing mount"
    return unread


def _is_below_empty_folder(file: str, root: Path) -> bool:
    """Return whether the nearest existing folder above a missing file is empty, and is below the root."""
    for folder in (root / file).parents:
        if folder.is_dir():
            is_below = folder != root and folder.is_relative_to(root)
            return is_below and next(folder.iterdir(), None) is None
    return False


def _pair_changed(
    gone: Sequence[Source], added: Sequence[Source]
) -> tuple[list[tuple[Source, Source]], list[Source], list[Source]]:
    """Return (changed passages in both wordings, removed ones, added ones). A removed and an added passage of one file
    that share most words are one passage, changed."""
    by_file: defaultdict[str, list[Source]] = defaultdict(list)
    for source in added:
        by_file[source.file].append(source)
    pairs, left = [], []
    for old in gone:
        around = nsmallest(NEAREST_PASSAGES, by_file[old.file], key=lambda new: abs(new.line - old.line))
        near = max(around, key=lambda new: _overlap(old.text, new.text), default=None)
        if near is None or _overlap(old.text, near.text) < MIN_COMMON_WORDS:
            left.append(old)
        else:
            by_file[old.file].remove(near)
            pairs.append((old, near))
    changed = {id(after) for _, after in pairs}
    return pairs, left, [source for source in added if id(source) not in changed]


def _overlap(one: str, other: str) -> float:
    """Return the share of words that two texts have in common, in [0, 1] (Dice's coefficient)."""
    first, second = Counter(words(one)), Counter(words(other))
    return 2 * (first & second).total() / max(1, first.total() + second.total())
