"""Paths inside a repository.

A path never becomes one on the server's disk, where files have only the names of their bytes. But clients lay
repositories out as folders, on systems of all kinds: what one of them would take for another place, another file, a
device or nothing at all is refused here.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from itertools import accumulate

from kcard.hub.refusals import Dangerous, Invalid, TooLarge

__all__ = ["MOST_FILES", "check_path", "check_tree", "folded"]

LONGEST = 1024  # bytes of a path
LONGEST_NAME = 255  # bytes between two slashes: what file systems hold
DEEPEST = 32
MOST_FILES = 10_000
# Windows takes these for devices, whatever follows their first dot.
DEVICES = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"]
)
# Cc control, Cf invisible (direction marks, joiners), Cs half of a character, Co and Cn without a meaning, Zl and Zp
# line and paragraph ends.
UNSEEN = frozenset(["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])
FORBIDDEN = frozenset('\\:<>"|?*')


def check_path(path: str) -> str:
    """The path itself, where it can be a file's on every system; else Invalid or Dangerous, which says why not."""
    # A name of n characters has at least n bytes; the long ones are not looked at any closer.
    if len(path) > LONGEST or len(path.encode("utf-8", "surrogatepass")) > LONGEST:
        raise Invalid(f"path {path[:80]!r}… is longer than {LONGEST} bytes")
    names = path.split("/")
    if len(names) > DEEPEST:
        raise Invalid(f"path {path[:80]!r}… leads through more than {DEEPEST} folders")
    for name in names:
        if reason := _fault(name):
            raise Dangerous(f"path {path!r} is not a plain path inside the repository: {reason}")
    return path


def check_tree(paths: Iterable[str]) -> None:
    """Refuse files of one commit that a disk could not hold beside each other, or too many of them.

    Where case or the way of writing accents make no difference, two paths must not be the same one, and a path must
    not be both a file and a folder. Raises Invalid, TooLarge.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        key = folded(path)
        if key in files:
            raise Invalid(f"{path!r} and {files[key]!r} are one file on disks that ignore case: rename one")
        files[key] = path
        if len(files) > MOST_FILES:
            raise TooLarge(
                f"a repository holds at most {MOST_FILES} files: pack them, or use more repositories"
            )
        for folder in _folders(path):
            other = folders.setdefault(folded(folder), folder)
            if other != folder:
                raise Invalid(
                    f"{folder!r} and {other!r} are one folder on disks that ignore case: rename one"
                )
    if clash := files.keys() & folders.keys():
        path = files[min(clash)]
        raise Invalid(f"{path!r} is a file, and a folder of other files: rename one")


def folded(path: str) -> str:
    """What is equal for paths that a disk may take for one: whatever the case, and however accents are written."""
    # Folding may take a text out of its normal form, so that it is normalised before and after.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def _folders(path: str) -> Iterator[str]:
    """Every folder that the path leads through, from the top."""
    return accumulate(path.split("/")[:-1], lambda outer, inner: f"{outer}/{inner}")


def _fault(name: str) -> str | None:
    if not name:
        return "it is empty, or has an empty part (a slash at an end, or two in a row)"
    if name in (".", ".."):
        return f"{name!r} leads elsewhere"
    if odd := next((c for c in name if unicodedata.category(c) in UNSEEN), None):
        return f"it holds the character U+{ord(odd):04X}, which is not seen"
    if odd := next((c for c in name if c in FORBIDDEN), None):
        return f"it holds {odd!r}"
    if name[0] == " " or name[-1] in " .":
        return f"{name!r} begins with a space, or ends with a space or a dot"
    if _is_git(name):
        return f"{name!r} is git's own"
    if folded(name).partition(".")[0].rstrip(" ") in DEVICES:
        return f"{name!r} is a device on Windows"
    if len(name.encode()) > LONGEST_NAME:
        return f"{name[:40]!r}… is longer than {LONGEST_NAME} bytes"
    return None


def _is_git(name: str) -> bool:
    """Whether a file system would find git's folder under that name: .GIT, and git~1, its short name on Windows."""
    return unicodedata.normalize("NFKC", name).casefold() in (".git", "git~1")
