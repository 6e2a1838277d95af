"""Bring cards up to date with their folders, once or whenever these change."""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kcard.config import settings
from kcard.errors import CardError, KcardError, TrainingInterrupted, UsageError
from kcard.events import OnEvent, ignore, note
from kcard.io import build, canonical, write_text
from kcard.options import Option, documented

if TYPE_CHECKING:
    from kcard.training.changes import Changes
    from kcard.training.options import TrainOptions
    from kcard.training.update import Previous

# How a version was made: without a model, with one that was trained from scratch, or, by kcard before this was given
# up, with the last version's model trained further.
Way = Literal["indexed", "trained", "continued"]


@dataclass(frozen=True)
class SyncForecast:
    """How the next version would be made. `seconds`: that training took the last time; None if unknown."""

    way: Way
    seconds: float | None


# sync.json: what a sync changed in a card. It contains no text and no paths.

SYNC = "sync.json"


@dataclass(frozen=True)
class SyncRecord:
    """What a sync did.

    date      of the sync, ISO in UTC
    updates   sha256 of the last version
    way       how the new version was made
    added, changed, removed, moved  numbers of passages
    seconds   wall time, without the exam
    """

    date: str
    updates: str
    way: Way
    added: int
    changed: int
    removed: int
    moved: int
    seconds: float
    format: int = 1

    def write(self, folder: Path) -> None:
        write_text(folder / SYNC, canonical(self))


def read_sync(folder: Path) -> SyncRecord | None:
    """Read sync.json in a card's folder; None if there is none. Raises CardError for a malformed one."""
    path = folder / SYNC
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        for name in ("why", "recall", "first", "best"):  # which earlier versions of kcard wrote
            data.pop(name, None)
        return build(SyncRecord, data)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CardError(
            f"{path} can't be read: {error}: delete it, and sync the card with --retrain"
        ) from error


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
    record: SyncRecord | None = None
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
    retrain: Annotated[bool, Option("Make the next version even if nothing has changed.")] = False,
    publish: Annotated[bool, Option("Publish the next version on the local hub.", negatable=True)] = True,
    exam: Annotated[bool, Option("Examine the next version.")] = False,
    field: Annotated[str | None, Option("The corpus' field or column, as in training.")] = None,
    knowledge_date: Annotated[
        str | None, Option("The date up to which the folder is current, as YYYY-MM-DD.")
    ] = None,
    minutes: Annotated[
        float | None, Option("Maximum minutes for training, as in training.", default="the last version's")
    ] = None,
    device: Annotated[
        str | None, Option("Where to train and examine, as in training.", default="a GPU where there is one")
    ] = None,
    micro_batch: Annotated[
        int | None, Option("Passages or blocks that go through the model at once, as in training.")
    ] = None,
    gradient_checkpointing: Annotated[
        bool | None, Option("Recompute activations to save memory, as in training.", default="off")
    ] = None,
    on_event: OnEvent = ignore,
) -> SyncResult:
    """Compare a folder with what a card learned from it, and make the next version: its passages are indexed and its
    model trained anew, so it has learned what was added and has nothing of what was removed.

    `on_event` is called with the events of training and of the exam.

    The files of `folder` are only read, and the card stays as it is until the next version is complete. Raises
    UsageError if more than half of the passages are gone and `allow_removal` is not set, and for a card that can't be
    updated; CorpusError for a folder that is missing or empty; CardError if the card changes meanwhile; and what
    training raises.
    """
    from kcard.text import words
    from kcard.training.changes import compare
    from kcard.training.corpus import read_corpus
    from kcard.training.options import TrainOptions, check
    from kcard.training.output import check_output, recover_output
    from kcard.training.update import previous

    start = time.monotonic()

    # The card's last version, which needs the text of its passages.
    if isinstance(card, str) and Path(card).name == card:
        recover_output(settings().drafts / card)
    before = previous(card)
    name, last = before.card.name, before.card.manifest
    if last.evidence == "hashes":
        raise UsageError(
            f"{name} carries only hashes of its passages, which can't be compared with a folder: train it with "
            "evidence passages"
        )
    if last.has_model and not (before.is_embedded or last.base.name):
        raise UsageError(
            f"{name} does not name the base that it was trained on, so it can't be trained anew: train a new card on "
            "the folder with --base"
        )
    options = before.arguments(
        TrainOptions(
            field=field,
            knowledge_date=knowledge_date,
            minutes=minutes,
            device=device,
            micro_batch=micro_batch,
            gradient_checkpointing=gradient_checkpointing,
            update=card,
        )
    )
    check(options)

    # What has changed since.
    whole = last.has_model and options.objective == "clm"
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

    # A dry run ends here. Training takes as long as that of the last version did, if that was from scratch too.
    if dry_run:
        if not last.has_model:
            return SyncResult(name, changes, refused, foreseen=SyncForecast("indexed", None))
        record = read_sync(before.card.folder)
        was_trained = last.updates is None if record is None else record.way == "trained"
        seconds = last.training.seconds if was_trained else None
        return SyncResult(name, changes, refused, foreseen=SyncForecast("trained", seconds))
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
    from kcard.manifest import Manifest

    # What the sync makes stale: the exam unless it is taken again, and words of the user's description.
    if not exam and (before.card.folder / EXAM).is_file():
        on_event(
            note(
                "the exam of the last version does not apply to the next one: take it again "
                f"(kcard exam {name})"
            )
        )
    record = _write_next_version(before, changes, options, output, start, on_event)
    stale = set(words(Manifest.read(output).description))
    for source in changes.corpus.passages:
        stale.difference_update(words(source.in_context))
    forgotten: set[str] = set()
    for source in changes.forgotten:
        forgotten.update(words(source.text))
    stale &= forgotten
    if stale:
        text = ", ".join(sorted(stale))
        on_event(note(f"the description still says {text}, which only removed passages did"))
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


def _write_next_version(
    before: "Previous",
    changes: "Changes",
    options: "TrainOptions",
    output: Path,
    start: float,
    on_event: OnEvent,
) -> SyncRecord:
    """Train the next version into `output`, sealed with a record of the sync. `start`: of the sync, in monotonic time.

    Raises CardError, and writes nothing, if the card has changed since it was read.
    """
    from kcard.manifest import MANIFEST, file_digest, seal
    from kcard.training.output import replacing_output
    from kcard.training.train import train_anew

    with replacing_output(output) as partial:
        try:
            card = train_anew(before, changes.corpus, options, partial, on_event)
        except TrainingInterrupted:
            raise TrainingInterrupted(
                f"the sync of {before.card.name} was stopped; the card is as it was: sync it again"
            ) from None
        record = SyncRecord(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            updates=before.sha256,
            way="trained" if card.manifest.has_model else "indexed",
            added=len(changes.added),
            changed=len(changes.changed),
            removed=len(changes.removed),
            moved=changes.moved,
            seconds=round(time.monotonic() - start, 1),
        )
        record.write(partial)
        seal(partial, card.manifest)
        if output == before.card.folder and file_digest(output / MANIFEST) != before.sha256:
            raise CardError(f"{output} was changed during the sync: sync it again")
    return record


# Watch a folder, and sync its card after each change.

# Inode, time of the last change in ns and size of every file, by path; None for a file that can't be read
State = Mapping[str, tuple[int, int, int] | None]


def watch(
    folder: Path | str,
    card: str | Path,
    *,
    interval: float = 2.0,
    done: Callable[[SyncResult], None],
    failed: Callable[[KcardError], None],
    wait: Callable[[float], None] = time.sleep,
    on_event: OnEvent = ignore,
    **options: Any,
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
                later = _state(root)
                if later == state:
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
    paths = [root]
    if not root.is_file():
        paths = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                if not name.startswith("."):
                    paths.append(Path(folder, name))
    state: dict[str, tuple[int, int, int] | None] = {}
    for path in paths:
        try:
            status = path.stat()
            state[str(path)] = (status.st_ino, status.st_mtime_ns, status.st_size)
        except OSError:
            state[str(path)] = None
    return state
