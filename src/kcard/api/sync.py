"""Bring cards up to date with their folders, once or whenever these change."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard.config import settings
from kcard.errors import CardError, KcardError, TrainingInterrupted, UsageError
from kcard.options import Option, documented
from kcard.types import Source

if TYPE_CHECKING:
    from kcard.evaluation.records import Mean
    from kcard.evaluation.retention import Remembered, SyncRecord
    from kcard.training.corpus import Corpus
    from kcard.training.next_version import Onward, Way
    from kcard.training.options import TrainOptions
    from kcard.training.update import Changes, Previous

__all__ = ["Foreseen", "Synced", "sync", "watch"]


@dataclass(frozen=True)
class Foreseen:
    """How the next version would be made, as far as that shows before it is.

    way      indexed, continued (from the card's weights) or trained (from scratch)
    why      it must be trained from scratch; empty where it need not, or where that was asked for
    seconds  what training the card from scratch took; None where it does not tell
    """

    way: "Way"
    why: str
    seconds: float | None


@dataclass(frozen=True)
class Synced:
    """What a sync saw, and did.

    changes  between the card and the folder
    refused  why nothing may be done without allow_removal; empty where it may
    folder   of the next version; None where nothing was written
    record   what travels with that version
    version  its reference on the local hub; empty where it was not published
    foreseen  of a dry run that found something to do
    """

    card: str
    changes: "Changes"
    refused: str = ""
    folder: Path | None = None
    record: "SyncRecord | None" = None
    version: str = ""
    foreseen: Foreseen | None = None


@documented
def sync(
    folder: Annotated[
        Path | str,
        Option("The card's whole corpus: a folder, or a file.", argument=True, command_line=Path),
    ],
    card: Annotated[
        str | Path,
        Option("A draft's name, a card folder or a published card.", command_line=str, completes="drafts"),
    ],
    *,
    dry_run: Annotated[
        bool, Option("Only tell what has changed, and how the next version would be made.")
    ] = False,
    allow_removal: Annotated[
        bool,
        Option(
            "Remove passages even if more than half are gone, and those of files that are empty or whose folder is."
        ),
    ] = False,
    retrain: Annotated[bool, Option("Train the model from scratch, even if nothing has changed.")] = False,
    publish: Annotated[bool, Option("Publish the next version on the local hub.", negatable=True)] = True,
    exam: Annotated[bool, Option("Examine the next version.")] = False,
    study: Annotated[
        Path | str | None,
        Option("Study material about the folder: a file, or auto, as in training.", command_line=str | None),
    ] = None,
    field: Annotated[str | None, Option("The corpus' field or column, as in training.")] = None,
    knowledge_date: Annotated[
        str | None, Option("The date up to which the folder is current, as YYYY-MM-DD.")
    ] = None,
    report: Callable[[Any], None] | None = None,
) -> Synced:
    """Compare a folder with what a card learned from it, and train the next version: it learns what was added, forgets
    what was removed, and keeps the rest.

    What the model remembers is measured; where it recalls what was removed, or less of what stays, it is trained from
    scratch. `report` is called with the events of training (kcard.training.progress) and of asking
    (kcard.evaluation.recall).

    The files of `folder` are only read. Until the next version is whole the card stays as it is. Raises UsageError
    where more than half of the passages are gone and `allow_removal` is not given, and for a card that can't be
    updated; CorpusError for a folder that is missing or empty; CardError where the card has changed meanwhile; and what
    training raises.
    """
    from kcard.training.next_version import Onward
    from kcard.training.options import TrainOptions, check
    from kcard.training.progress import Note, silent
    from kcard.training.update import compare

    begun, say = time.monotonic(), report or silent
    before = _previous(card)
    given = before.arguments(
        TrainOptions(study=study, field=field, knowledge_date=knowledge_date, update=card)
    )
    check(given)
    changes = compare(before.passages, _read(Path(folder), before, given), allow_removal=allow_removal)
    name, refused = before.card.name, "" if allow_removal else _refusal(changes, name=before.card.name)
    if not (changes or retrain):
        return Synced(name, changes, refused)
    onward = Onward.of(before, changes, given, say)
    if dry_run:
        return Synced(name, changes, refused, foreseen=_foreseen(onward, retrain))
    if refused:
        raise UsageError(f"{folder}: {refused}")
    for held in changes.held:
        say(
            Note(f"{held.file}: its {held.passages} passages are kept, since it can't be read: {held.reason}")
        )
    output = _output(before)
    _tell(onward, say, examined=exam)
    record = _write(onward, output, retrain, begun)
    if exam:
        from kcard.api.exam import exam as examine

        examine(output, report=report)
    version = _published(output, changes, say) if publish else ""
    return Synced(name, changes, "", output, record, version)


def _previous(card: str | Path) -> "Previous":
    """The card's last version. UsageError where its passages are not there to be compared."""
    from kcard.training.output import mend
    from kcard.training.update import previous

    if isinstance(card, str) and Path(card).name == card:
        mend(settings().drafts / card)
    before = previous(card)
    if before.card.manifest.evidence == "hashes":
        raise UsageError(
            f"{before.card.name} carries only hashes of its passages, which can't be compared with a folder: train "
            "it with evidence passages"
        )
    return before


def _read(folder: Path, before: "Previous", given: "TrainOptions") -> "Corpus":
    from kcard.training.corpus import read_corpus

    whole = before.card.manifest.has_model and given.objective == "clm"
    return read_corpus(folder, given.field, whole=whole, readers=None)


def _refusal(changes: "Changes", name: str) -> str:
    """Why the folder may not be the card's; empty where so much is there that it is."""
    gone = len(changes.removed)
    if 2 * gone <= changes.before:
        return ""
    return (
        f"{gone} of the {changes.before} passages of {name} are not there: check that it is the card's folder and is "
        "whole, or remove them with --allow-removal"
    )


def _foreseen(onward: "Onward", scratch: bool) -> Foreseen:
    from kcard.evaluation.retention import read_sync

    way, why = onward.foreseen(scratch=scratch)
    last, manifest = read_sync(onward.before.card.folder), onward.before.card.manifest
    whole = manifest.updates is None if last is None else last.way == "trained"
    return Foreseen(way, why, manifest.training.seconds if whole and way == "trained" else None)


def _output(before: "Previous") -> Path:
    """Where the next version is written: in place of the last one, and of a published one as a draft."""
    from kcard.training.output import claim

    folder, name = before.card.folder, before.card.name
    if folder.is_relative_to(settings().home / "hub"):
        folder = settings().drafts / name
    claim(folder, name)
    return folder


def _write(onward: "Onward", output: Path, scratch: bool, begun: float) -> "SyncRecord":
    """Write the next version, measured; nothing where the card has changed since it was read."""
    from kcard.evaluation.retention import SyncRecord, read_sync
    from kcard.manifest import MANIFEST, file_digest, seal
    from kcard.training.output import fresh
    from kcard.training.progress import Note

    before, changes = onward.before, onward.changes
    last = read_sync(before.card.folder)
    with fresh(output) as partial:
        made, way, why = onward.write(partial, scratch=scratch)
        recall = _recall(onward, partial)
        first = last.first if last is not None else _mean(recall.before if recall else None)
        if way == "continued" and recall is not None and (why := _fault(recall, first)):
            onward.report(Note(f"{recall.summary()}: training from scratch, since {why}"))
            shutil.rmtree(partial)
            partial.mkdir()
            made, way, _ = onward.write(partial, scratch=True)
            recall = _recall(onward, partial)
        record = SyncRecord(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            updates=before.sha256,
            way=way,
            why=why,
            added=len(changes.added),
            changed=len(changes.changed),
            removed=len(changes.removed),
            moved=changes.moved,
            seconds=round(time.monotonic() - begun, 1),
            recall=recall,
            first=_mean(recall.after if recall else None) if way == "trained" else first,
        )
        record.write(partial)
        seal(partial, made.manifest)
        if output == before.card.folder and file_digest(output / MANIFEST) != before.sha256:
            raise CardError(f"{output} was changed during the sync: sync it again")
    return record


def _recall(onward: "Onward", folder: Path) -> "Remembered | None":
    from kcard.cards.card import Card
    from kcard.evaluation.retention import remembered

    card = Card.open(folder)
    if not card.manifest.has_model:
        return None
    revision = onward.revision
    learned = {source.text for source in onward.changes.learned}
    staying = [source for source in onward.changes.corpus.passages if source.text not in learned]
    new = [Source(revision.now[row], "", 0) for row in revision.added]
    return remembered(
        card,
        onward.before.card,
        staying,
        new,
        revision.removed,
        seed=onward.given.seed,
        device=onward.given.device or "cpu",
        report=onward.report,
    )


def _mean(recall: "Mean | None") -> float:
    """0 of no questions."""
    return 0.0 if recall is None else recall.mean


def _fault(recall: "Remembered", first: float) -> str:
    """Why the model must be trained from scratch; empty where it need not."""
    if not recall.forgotten:
        return "it still recalls what was removed"
    if not recall.learned:
        return "it recalls little of what has come"
    if not recall.kept:
        return "it recalls less of what stays"
    return f"its recall was {first:.2f} once" if recall.drifted(first) else ""


def _tell(onward: "Onward", say: Callable[[Any], None], *, examined: bool) -> None:
    """What the user should know that the card itself does not show. `examined`: whether the next version will be."""
    from kcard.evaluation.records import EXAM
    from kcard.text import words
    from kcard.training.progress import Note

    manifest = onward.manifest
    forgotten = {word for source in onward.changes.forgotten for word in words(source.text)}
    kept = {word for source in onward.changes.corpus.passages for word in words(source.in_context)}
    if left := sorted(set(words(manifest.description)) & (forgotten - kept)):
        say(Note(f"the description still says {', '.join(left)}, which only removed passages did"))
    if not examined and (onward.before.card.folder / EXAM).is_file():
        say(
            Note(
                f"the last version's exam does not hold for the next: take it again (kcard exam {manifest.name})"
            )
        )


def _published(folder: Path, changes: "Changes", say: Callable[[Any], None]) -> str:
    from kcard.hub.registry import Hub
    from kcard.training.progress import Note

    hub = Hub()
    version = hub.publish(folder)
    earlier = [each.reference for each in hub.versions(version.name) if each.number != version.number]
    if changes.forgotten and earlier:
        say(
            Note(
                f"earlier versions on the hub may still hold what was removed: {', '.join(earlier)}; "
                f"`kcard remove {earlier[0]}` deletes one"
            )
        )
    return version.reference


# watch: a card follows its folder, one sync after each change.

# (inode, time of change in ns, size) of every file by its path; None where it can't be looked at
State = Mapping[str, tuple[int, int, int] | None]


def watch(
    folder: Path | str,
    card: str | Path,
    *,
    interval: float = 2.0,
    done: Callable[[Synced], None],
    failed: Callable[[KcardError], None],
    wait: Callable[[float], None] = time.sleep,
    **given: Any,
) -> None:
    """Sync now, and again whenever the folder has changed and was then left alone for `interval` seconds. Until Ctrl-C.

    It looks at the files every `interval` seconds, which works on network file systems, too. `done` is called after
    each sync, `failed` where one raised an error: the card is as it was then, and the next change is tried again.
    `given`: what kcard.sync takes. Raises UsageError for a wrong interval, KeyboardInterrupt, and TrainingInterrupted.
    """
    if not interval > 0:
        raise UsageError(f"interval {interval} must be above 0")
    root, seen = Path(folder).expanduser(), None
    while True:
        state = _state(root)
        if state != seen:
            while seen is not None and (later := _settled(root, interval, wait)) != state:
                state = later
            try:
                done(sync(root, card, **given))
            except TrainingInterrupted:
                raise
            except KcardError as error:
                failed(error)
            seen = state
        wait(interval)


def _settled(root: Path, interval: float, wait: Callable[[float], None]) -> State:
    wait(interval)
    return _state(root)


def _state(root: Path) -> State:
    """Of a folder's files, hidden ones and links to folders left out; of a file its own."""
    found: dict[str, tuple[int, int, int] | None] = {}
    paths = [root] if root.is_file() else _files(root)
    for path in paths:
        try:
            known = path.stat()
            found[str(path)] = (known.st_ino, known.st_mtime_ns, known.st_size)
        except OSError:
            found[str(path)] = None
    return found


def _files(root: Path) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    return found
