"""Files that clients upload to ask questions about: each becomes a draft, as with `kcard ask --corpus`.

    uploads/HOLDER/NAME   in the home; HOLDER: owner of the key that came with the file, else anonymous

Only its holder can ask a file.
"""

import asyncio
import filecmp
import os
import unicodedata
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from kcard.api.corpus_card import index_corpus
from kcard.config import settings
from kcard.errors import CardError, CorpusError, UsageError
from kcard.hub.checks.paths import DEVICES, FORBIDDEN, INVISIBLE_CATEGORIES
from kcard.hub.storage import is_full
from kcard.io import partial_beside
from kcard.manifest import DRAFT, MANIFEST, Manifest, file_digest
from kcard.serve.schema import ApiError, DiskIsFull, Overloaded
from kcard.training.draft_corpus import recorded_corpus
from kcard.training.readers.files import GZIP, format_of

MAX_UPLOAD_BYTES = 32 << 20
MAX_FILES = 100  # of one holder
MAX_NAME_BYTES = 200


@dataclass(frozen=True)
class UploadedFile:
    """A file that can be asked.

    card      the draft that it became, draft:NAME
    file      its name
    passages  how many it has
    digest    sha256 of the draft's manifest
    """

    card: str
    file: str
    passages: int
    digest: str

    def to_json(self) -> dict[str, str | int]:
        return {"card": self.card, "file": self.file, "passages": self.passages}


class UploadedFiles:
    """The uploaded files of a home. For one event loop."""

    def __init__(self) -> None:
        self._indexing = asyncio.Lock()

    def files(self, holder: str) -> list[UploadedFile]:
        """Return the files of a holder, by name."""
        folder = _folder(holder).resolve()
        files = []
        for manifest in settings().drafts.glob(f"[!.]*/{MANIFEST}"):
            draft = manifest.parent
            record = recorded_corpus(draft)
            if record is None or Path(record.corpus).parent != folder:
                continue
            with suppress(CardError, OSError):  # replaced or removed just now
                digest, passages = file_digest(manifest), Manifest.read(draft).training.passages
                if record.manifest == digest:  # else the draft was made anew, from something else
                    file = Path(record.corpus).name
                    files.append(UploadedFile(f"{DRAFT}{draft.name}", file, passages, digest))
        return sorted(files, key=lambda uploaded: uploaded.file)

    def describe(self, holder: str) -> dict[str, object]:
        """Return what the page shows a holder."""
        files = [uploaded.to_json() for uploaded in self.files(holder)]
        return {"max_bytes": MAX_UPLOAD_BYTES, "files": files}

    def find(self, holder: str, card: str) -> UploadedFile | None:
        """Return the file of a holder that is this card, draft:NAME; None if there is none."""
        for uploaded in self.files(holder):
            if uploaded.card == card:
                return uploaded
        return None

    async def add(self, holder: str, name: str, content: AsyncIterator[bytes]) -> UploadedFile:
        """Store a file in place of an earlier one of its name, and index it.

        One file is indexed at a time. If that fails, the earlier file and its index stay. Raises Overloaded while
        another one is indexed, DiskIsFull, and ApiError for a file that can't be read.
        """
        if self._indexing.locked():
            raise Overloaded("another file is being read: try again later", retry_after=5)
        target = _folder(holder) / safe_name(name)
        if target.suffix == GZIP or format_of(target, named=True) is None:
            raise ApiError(f"{target.name} can't be read: choose a text, PDF, office, web or data file")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            others = [path for path in target.parent.glob("[!.]*") if path != target]
            if len(others) >= MAX_FILES:
                raise ApiError(f"{MAX_FILES} files are here already: the operator can delete some")
            with partial_beside(target, _create) as partial:
                with partial.open("wb") as stream:
                    async for piece in content:
                        stream.write(piece)
                async with self._indexing:
                    card = await _index(partial, target)
        except (CorpusError, UsageError) as error:
            raise ApiError(str(error).replace(str(target), target.name)) from error
        except (OSError, CardError) as error:
            cause: BaseException | None = error
            if isinstance(error, CardError):
                cause = error.__cause__
            if isinstance(cause, OSError) and is_full(cause):
                raise DiskIsFull("the disk of the endpoint has no room for this file") from error
            raise
        uploaded = self.find(holder, card)
        if uploaded is None:
            raise CardError(f"the draft of {target} was removed while it was made")
        return uploaded


async def _index(new: Path, target: Path) -> str:
    """Put a new file in its place, and return its card, draft:NAME; if it can't be indexed, undo that."""
    earlier = target.with_name(f".{target.name}.earlier")
    if target.exists():
        if filecmp.cmp(new, target, shallow=False):
            return await asyncio.to_thread(index_corpus, target)
        target.replace(earlier)
    new.replace(target)
    try:
        card = await asyncio.to_thread(index_corpus, target)
    except BaseException:  # the end of the process too
        target.unlink(missing_ok=True)
        if earlier.exists():
            earlier.replace(target)
        raise
    earlier.unlink(missing_ok=True)
    return card


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _folder(holder: str) -> Path:
    """Return the folder of a holder's files; a name in a file of keys may have any characters."""
    return settings().home / "uploads" / quote(holder, safe="").replace(".", "%2E")


def safe_name(name: str) -> str:
    """Reduce what a client calls a file to a name that is a plain, visible file on every system.

    Raises ApiError if nothing is left of it.
    """
    name = unicodedata.normalize("NFC", name).replace("\\", "/").rpartition("/")[2]
    allowed = ""
    for character in name:
        if unicodedata.category(character) not in INVISIBLE_CATEGORIES and character not in FORBIDDEN:
            allowed += character
    name = allowed.strip(" .")
    if name.partition(".")[0].rstrip(" ").casefold() in DEVICES:
        name = f"_{name}"
    # Cut the stem, since the suffix is the format.
    suffix = Path(name).suffix
    room = MAX_NAME_BYTES - len(suffix.encode())
    stem = name.removesuffix(suffix).encode()[: max(room, 0)].decode(errors="ignore").rstrip(" .")
    if not stem:
        raise ApiError(f"the file's name, {name[:40]!r}, can't be used: rename it")
    return stem + suffix
