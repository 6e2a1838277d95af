"""Bring cards up to date with their folders, once or whenever these change."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

from kcard.config import settings
from kcard.errors import CardError, KcardError, TrainingInterrupted, UsageError
from kcard.events import OnEvent, ignore, note
from kcard.options import Option, documented, takes
from kcard.types import Source

if TYPE_CHECKING:
    from kcard.evaluation.records import Mean
    from kcard.evaluation.retention import Retention, SyncRecord
    from kcard.training.next_version import NextVersion, Way
    from kcard.training.update import Changes


@dataclass(frozen=True)
class SyncForecast:
    """How the next version would be made, as far as this is known in advance.

    way      indexed, continued (from the card's weights) or trained (from scratch)
    why      the reason for training from scratch; empty if it is not needed, or was requested
    seconds  expected time of training from scratch; None if unknown
    """

    way: "Way"
    why: str
    seconds: float | None


@dataclass(frozen=True)
class SyncResult:
    """The result of a sync.

    changes  between the card and the folder
    refused  why the sync needs allow_removal; empty if it does not
    folder   of the next version; None if nothing was written
    record   the record of the sync, which is stored with that version
    version  its reference on the local hub; empty if it was not published
    foreseen  the forecast of a dry run that found changes
    """

    card: str
    changes: "Changes"
    refused: str = ""
    folder: Path | None = None
    record: "SyncRecord | None" = None
    version: str = ""
    foreseen: SyncForecast | None = None


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
    device: Annotated[
        str | None,
        Option("Where to train, measure and examine, as in training.", default="a GPU where there is one"),
    ] = None,
    micro_batch: Annotated[
        int | None, Option("Passages or blocks that go through the model at once, as in training.")
    ] = None,
    gradient_checkpointing: Annotated[
        bool | None, Option("Recompute activations to save memory, as in training.", default="off")
    ] = None,
    processes: Annotated[
        int | None, Option("GPUs, or processes on the CPU, to train on, as in training.", default="1")
    ] = None,
    on_event: OnEvent = ignore,
) -> SyncResult:
    """Compare a folder with what a card learned from it, and train the next version, which learns what was added,
    forgets what was removed and keeps the rest.

    What the model remembers is measured; if it still recalls what was removed, or recalls less of what stays, it is
    trained from scratch. `on_event` is called with the events of training and of measuring
    (kcard.evaluation.recall).

    The files of `folder` are only read, and the card stays as it is until the next version is complete. Raises
    UsageError if more than half of the passages are gone and `allow_removal` is not set, and for a card that can't be
    updated; CorpusError for a folder that is missing or empty; CardError if the card changes meanwhile; and what
    training raises.
    """
    from kcard.text import words
    from kcard.training.corpus import read_corpus
    from kcard.training.next_version import NextVersion
    from kcard.training.options import TrainOptions, check
    from kcard.training.output import check_output, recover_output
    from kcard.training.update import compare, previous

    start = time.monotonic()

    # The card's last version, which needs the text of its passages.
    if isinstance(card, str) and Path(card).name == card:
        recover_output(settings().drafts / card)
    before = previous(card)
    name = before.card.name
    if before.card.manifest.evidence == "hashes":
        raise UsageError(
            f"{name} carries only hashes of its passages, which can't be compared with a folder: train it with "
            "evidence passages"
        )
    options = before.arguments(
        TrainOptions(
            study=study,
            field=field,
            knowledge_date=knowledge_date,
            device=device,
            micro_batch=micro_batch,
            gradient_checkpointing=gradient_checkpointing,
            processes=processes,
            update=card,
        )
    )
    check(options)

    # What has changed since.
    whole = before.card.manifest.has_model and options.objective == "clm"
    corpus = read_corpus(Path(folder), options.field, whole=whole, readers=None)
    changes = compare(before.passages, corpus, allow_removal=allow_removal)
    gone, refused = len(changes.removed), ""
    if not allow_removal and 2 * gone > changes.before:
        refused = (
            f"{gone} of the {changes.before} passages of {name} are missing: check that this is the card's complete "
            "folder, or remove them with --allow-removal"
        )
    if not (changes or retrain):
        return SyncResult(name, changes, refused)

    # How the next version will be made; a dry run ends here.
    next_version = NextVersion.of(before, changes, options, on_event)
    if dry_run:
        from kcard.evaluation.retention import read_sync

        way, why = next_version.forecast(scratch=retrain)
        # Training from scratch takes as long as the last version did, if that was trained from scratch too.
        last, manifest = read_sync(before.card.folder), before.card.manifest
        was_trained = manifest.updates is None if last is None else last.way == "trained"
        seconds = manifest.training.seconds if was_trained and way == "trained" else None
        return SyncResult(name, changes, refused, foreseen=SyncForecast(way, why, seconds))
    if refused:
        raise UsageError(f"{folder}: {refused}")
    for file in changes.unread:
        on_event(
            note(f"{file.file}: its {file.passages} passages are kept, since it can't be read: {file.reason}")
        )

    # Train it in the folder of the last version, or as a draft if that one is published; then examine it.
    output = before.card.folder
    if output.is_relative_to(settings().home / "hub"):
        output = settings().drafts / name
    check_output(output, name)
    from kcard.evaluation.records import EXAM

    # What the update makes stale: words of the description, and the exam unless it is taken again.
    forgotten = {word for source in changes.forgotten for word in words(source.text)}
    remaining = {word for source in changes.corpus.passages for word in words(source.in_context)}
    if left := sorted(set(words(before.card.manifest.description)) & (forgotten - remaining)):
        on_event(note(f"the description still says {', '.join(left)}, which only removed passages did"))
    if not exam and (before.card.folder / EXAM).is_file():
        on_event(
            note(
                "the exam of the last version does not apply to the next one: take it again "
                f"(kcard exam {name})"
            )
        )
    record = write_next_version(next_version, output, retrain, start)
    if exam:
        from kcard.api.exam import exam as examine
        from kcard.api.train import exam_device
        from kcard.cards.card import Card

        examine(output, device=exam_device(Card.open(output), options), on_event=on_event)
    if not publish:
        return SyncResult(name, changes, "", output, record)

    # Publish it.
    from kcard.hub.registry import Hub

    hub = Hub()
    version = hub.publish(output)
    earlier = [each.reference for each in hub.versions(version.name) if each.number != version.number]
    if changes.forgotten and earlier:
        on_event(
            note(
                f"earlier versions on the hub may still contain what was removed: {', '.join(earlier)}; "
                f"`kcard remove {earlier[0]}` deletes one"
            )
        )
    return SyncResult(name, changes, "", output, record, version.reference)


def write_next_version(
    next_version: "NextVersion", output: Path, scratch: bool, start: float
) -> "SyncRecord":
    """Train the next version into `output`, and measure what it remembers. `start`: of the sync, in monotonic time.

    Raises CardError, and writes nothing, if the card has changed since it was read.
    """
    from kcard.evaluation.retention import SyncRecord, read_sync
    from kcard.manifest import MANIFEST, file_digest, seal
    from kcard.training.output import replacing_output

    before, changes = next_version.before, next_version.changes
    last = read_sync(before.card.folder)
    with replacing_output(output) as partial:
        card, way, why = next_version.write(partial, scratch=scratch)
        recall = _recall(next_version, partial)
        first = last.first if last is not None else _mean(recall.before if recall else None)

        # Train from scratch if the update went wrong; `why` stays empty if it did not.
        if way == "continued" and recall is not None:
            if not recall.forgotten:
                why = "it still recalls what was removed"
            elif not recall.learned:
                why = "it recalls little of what was added"
            elif not recall.kept:
                why = "it recalls less of what stays"
            else:
                why = f"its recall was {first:.2f} once" if recall.drifted(first) else ""
        if way == "continued" and recall is not None and why:
            next_version.on_event(note(f"{recall.summary()}: training from scratch, since {why}"))
            shutil.rmtree(partial)
            partial.mkdir()
            card, way, _ = next_version.write(partial, scratch=True)
            recall = _recall(next_version, partial)

        # Seal it with a record of the sync.
        record = SyncRecord(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            updates=before.sha256,
            way=way,
            why=why,
            added=len(changes.added),
            changed=len(changes.changed),
            removed=len(changes.removed),
            moved=changes.moved,
            seconds=round(time.monotonic() - start, 1),
            recall=recall,
            first=_mean(recall.after if recall else None) if way == "trained" else first,
        )
        record.write(partial)
        seal(partial, card.manifest)
        if output == before.card.folder and file_digest(output / MANIFEST) != before.sha256:
            raise CardError(f"{output} was changed during the sync: sync it again")
    return record


def _recall(next_version: "NextVersion", folder: Path) -> "Retention | None":
    from kcard.api.train import exam_device
    from kcard.cards.card import Card
    from kcard.evaluation.retention import measure_retention

    card = Card.open(folder)
    if not card.manifest.has_model:
        return None
    revision = next_version.revision
    learned = {source.text for source in next_version.changes.learned}
    staying = [source for source in next_version.changes.corpus.passages if source.text not in learned]
    new = [Source(revision.now[row], "", 0) for row in revision.added]
    return measure_retention(
        card,
        next_version.before.card,
        staying,
        new,
        revision.removed,
        seed=next_version.options.seed,
        device=exam_device(card, next_version.options),
        on_event=next_version.on_event,
    )


def _mean(recall: "Mean | None") -> float:
    """Return the mean; 0 if None."""
    return 0.0 if recall is None else recall.mean


# Watch a folder, and sync its card after each change.

# Inode, time of the last change in ns and size of every file, by path; None for a file that can't be read
State = Mapping[str, tuple[int, int, int] | None]


# Options by name and type, for type checkers; written by docs/keywords.py from the declarations.


class SyncKeywords(TypedDict, total=False):
    dry_run: bool
    allow_removal: bool
    retrain: bool
    publish: bool
    exam: bool
    study: Path | str | None
    field: str | None
    knowledge_date: str | None
    device: str | None
    micro_batch: int | None
    gradient_checkpointing: bool | None
    processes: int | None


# End of what docs/keywords.py writes.


@takes(sync, leave_out={"folder", "card"})
def watch(
    folder: Path | str,
    card: str | Path,
    *,
    interval: float = 2.0,
    done: Callable[[SyncResult], None],
    failed: Callable[[KcardError], None],
    wait: Callable[[float], None] = time.sleep,
    on_event: OnEvent = ignore,
    **options: Unpack[SyncKeywords],
) -> None:
    """Sync now, and again once the folder has changed and then stayed the same for `interval` seconds; until Ctrl-C.

    The files are polled every `interval` seconds, which works on network file systems, too. `done` is called after
    each sync, `failed` if one raised an error, which leaves the card as it was; the next change is tried again.
    `on_event` and the options are those of kcard.sync. Raises UsageError for a wrong interval, KeyboardInterrupt, and
    TrainingInterrupted.
    """
    if not interval > 0:
        raise UsageError(f"interval {interval} must be above 0")
    root, seen = Path(folder).expanduser(), None
    while True:
        state = _state(root)
        if state != seen:
            # Wait until the folder is no longer written to.
            while seen is not None:
                wait(interval)
                if (later := _state(root)) == state:
                    break
                state = later
            try:
                done(sync(root, card, on_event=on_event, **options))
            except TrainingInterrupted:
                raise
            except KcardError as error:
                failed(error)
            seen = state
        wait(interval)


def _state(root: Path) -> State:
    """Return the state of a folder's files, without hidden ones and links to folders, or that of a file."""
    paths = [root] if root.is_file() else []
    if not paths:
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths += [Path(folder, name) for name in names if not name.startswith(".")]
    state: dict[str, tuple[int, int, int] | None] = {}
    for path in paths:
        try:
            status = path.stat()
            state[str(path)] = (status.st_ino, status.st_mtime_ns, status.st_size)
        except OSError:
            state[str(path)] = None
    return state
