"""Ask a folder: its index is kept as a draft, and brought up to date whenever the folder has changed."""

import hashlib
from dataclasses import replace
from pathlib import Path

from kcard.config import settings
from kcard.errors import UsageError
from kcard.events import OnEvent, ignore, note
from kcard.integrators.options import AskOptions
from kcard.manifest import DRAFT, MANIFEST, Manifest
from kcard.training.description import name_from
from kcard.training.draft_corpus import record_corpus, recorded_corpus, state_of

PATH_DIGITS = 6  # of the sha256 of a path, in the name of a draft whose plain name is taken


def with_corpus(options: AskOptions, corpus: Path | str, on_event: OnEvent = ignore) -> AskOptions:
    """Return the options with the index of a corpus among the cards that they name. Raises as `index_corpus`."""
    if options.mode == "direct":
        raise UsageError("mode direct uses no cards: choose another mode, or leave out the corpus")
    named = options.card_names or ()
    return replace(options, cards=(*named, index_corpus(corpus, on_event)))


def index_corpus(corpus: Path | str, on_event: OnEvent = ignore) -> str:
    """Index a file or folder as a draft (kind retrieval), and return its name, draft:NAME, for `kcard.ask(cards=...)`.

    The draft is made the first time, and afterwards synced if the files have changed; a card with a model that was
    trained on the files as they are now serves as well. A draft made from anything else is left alone: then the name
    ends in digits of the path's sha256. `on_event` is called with the events of reading and indexing.

    Raises UsageError for a path that does not exist, and CorpusError if it can't be read or holds no text.
    """
    root = Path(corpus).expanduser()
    if not root.exists():
        raise UsageError(f"corpus {corpus} does not exist: name a file or folder of documents")
    root = root.resolve()
    state = state_of(root)
    folder = _draft_folder(root, state, on_event)
    record = recorded_corpus(folder)
    if record is not None and record.is_current(folder, state):
        return f"{DRAFT}{folder.name}"
    if (folder / MANIFEST).is_file():
        from kcard.api.sync import sync

        sync(root, folder, publish=False, allow_removal=True, on_event=on_event)
    else:
        from kcard.training.train import train

        train(root, kind="retrieval", name=folder.name, confirm_description=str, on_event=on_event)
    record_corpus(folder, root, state)
    return f"{DRAFT}{folder.name}"


def _draft_folder(root: Path, state: str, on_event: OnEvent) -> Path:
    """Return the folder of the draft for a corpus: one that is its index already, or else a free one."""
    digits = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:PATH_DIGITS]
    try:
        plain = name_from(root)
    except UsageError:  # no letter of the path's name may stand in that of a card
        plain = "folder"
    taken = ""
    for name in (plain, f"{plain}-{digits}"):
        folder = settings().drafts / name
        if not folder.exists():
            if taken:
                on_event(note(f"{taken}, so the index of {root} is the draft {name}"))
            return folder
        record = recorded_corpus(folder)
        if record is None or record.corpus != str(root):
            taken = f"the draft {name} was made from {'something else' if record is None else record.corpus}"
        elif record.is_current(folder, state) or not _has_model(folder):
            return folder
        else:
            taken = (
                f"the model of the draft {name} is older than the folder (kcard sync {root} --card {name})"
            )
    raise UsageError(f"{taken}: remove or rename {settings().drafts / name}")


def _has_model(folder: Path) -> bool:
    """Return whether the draft in a folder is a card with a model, or a training that was interrupted."""
    return not (folder / MANIFEST).is_file() or Manifest.read(folder).has_model
