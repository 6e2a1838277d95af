"""Checks of a whole card, by the rules of a shared hub: its file names, and the content of each file.

Every way into a hub or a folder passes them: publishing, pulling, restoring. Whoever sends a card may be hostile.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from kcard.counts import check_counts
from kcard.errors import CardError
from kcard.hub.checks.content import check_file
from kcard.hub.checks.file_kinds import kind_of
from kcard.hub.checks.paths import check_path, check_tree
from kcard.hub.refusals import Dangerous, Refused, TooLarge
from kcard.manifest import MANIFEST, Manifest

__all__ = ["check_contents", "check_names"]

LONGEST_DESCRIPTION = 10_000  # characters


def check_names(manifest: Manifest) -> None:
    """Raise CardError, which names the file, unless every file has a safe path and an allowed kind.

    Hidden files are refused: `seal` lists none, but programs obey them (.git/config, .bashrc, .vscode).
    """
    with _explained(manifest):
        if len(manifest.description) > LONGEST_DESCRIPTION:
            raise TooLarge(f"the description is longer than {LONGEST_DESCRIPTION} characters: shorten it")
        for path in manifest.files:
            check_path(path)
            if any(name.startswith(".") for name in path.split("/")):
                raise Dangerous(f"{path} is a hidden file, which programs may obey: remove it")
            kind_of(path, 0)
        check_tree([*manifest.files, MANIFEST])


def check_contents(manifest: Manifest, opened: Callable[[str], BinaryIO]) -> None:
    """Raise CardError, which names the file, unless `check_names` passes, every file is what its name says, and its
    counts are those of the card's passages.

    `opened` opens the file of a path as a seekable stream.
    """
    check_names(manifest)
    with _explained(manifest):
        for path in manifest.files:
            with opened(path) as stream:
                size = stream.seek(0, 2)
            check_file(path, size, lambda path=path: opened(path))  # type: ignore[misc]
    check_counts(manifest.name, manifest.files, opened)


@contextmanager
def _explained(manifest: Manifest) -> Iterator[None]:
    try:
        yield
    except Refused as error:
        raise CardError(f"card {manifest.name!r}: {error}") from error
