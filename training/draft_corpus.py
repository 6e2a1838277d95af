"""Which corpus a draft was made from, recorded beside its folder as drafts/.NAME.corpus.json.

    {"corpus": "/home/ada/notes", "state": SHA256, "manifest": SHA256}

    corpus    the absolute path
    state     of the corpus' files when they were read (state_of)
    manifest  sha256 of the manifest of the card that was made from them

The record is no part of the card: a path of this machine is never published.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from kcard.config import settings
from kcard.errors import UsageError
from kcard.io import write_text
from kcard.manifest import MANIFEST, file_digest
from kcard.training.readers.files import TEMPLATE_FILE, files_of


@dataclass(frozen=True)
class DraftCorpus:
    """What the record of a draft holds; see above."""

    corpus: str
    state: str
    manifest: str

    def is_current(self, folder: Path, state: str) -> bool:
        """Return whether the draft in `folder` is the card that was made from a corpus of this state."""
        manifest = folder / MANIFEST
        return self.state == state and manifest.is_file() and self.manifest == file_digest(manifest)


def state_of(corpus: Path) -> str:
    """Return a sha256 over the name, size and time of change of every file that is read of a corpus, "" for one that
    is not a file or folder here. Raises CorpusError if it can't be read."""
    if not corpus.exists():
        return ""
    digest = hashlib.sha256()
    for file, name in files_of(corpus)[0]:
        for path in (file, file.with_name(TEMPLATE_FILE)):
            if path.is_file():
                status = path.stat()
                digest.update(f"{name}\0{path.name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def record_corpus(folder: Path, corpus: Path, state: str) -> None:
    """Record the corpus that the draft in `folder` was made from; other folders, and data sets, get no record."""
    if folder.parent != settings().drafts or not state:
        return
    record = DraftCorpus(str(corpus.resolve()), state, file_digest(folder / MANIFEST))
    write_text(_record_path(folder), json.dumps(asdict(record)) + "\n")


def recorded_corpus(folder: Path) -> DraftCorpus | None:
    """Return what is recorded of the draft in `folder`; None without a record that can be read."""
    try:
        data = json.loads(_record_path(folder).read_text(encoding="utf-8"))
        return DraftCorpus(**{name: str(data[name]) for name in DraftCorpus.__dataclass_fields__})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def check_same_corpus(folder: Path, corpus: Path) -> None:
    """Raise UsageError if the draft in `folder` was made from another corpus, which is still there."""
    record = recorded_corpus(folder)
    if record is None or not (folder / MANIFEST).is_file():
        return
    if record.corpus != str(corpus.resolve()) and Path(record.corpus).exists():
        name = folder.name
        raise UsageError(
            f"the draft {name!r} was made from {record.corpus}: choose another name for this card with --name, or "
            f"replace that one with --name {name}"
        )


def _record_path(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.corpus.json")
