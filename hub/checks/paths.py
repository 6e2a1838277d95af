"""Checks of paths inside a repository.

Paths are never used on the server's disk, where files are named by their sha256. But clients create them on all kinds
of systems, so a path is refused if any system could resolve it to another place, another file or a device.
"""

import unicodedata
from collections.abc import Iterable
from itertools import accumulate

from kcard.hub.errors import Dangerous, Invalid, TooLarge

MAX_PATH_BYTES = 1024  # bytes of a path
MAX_NAME_BYTES = 255  # bytes between two slashes: what file systems hold
MAX_PATH_DEPTH = 32
MAX_FILES = 10_000
# Device names on Windows, whatever follows their first dot.
DEVICES = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"]
)
# Categories: Cc control, Cf format, Cs surrogate, Co private use, Cn unassigned, Zl and Zp line and paragraph ends.
INVISIBLE_CATEGORIES = frozenset(["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])
FORBIDDEN = frozenset('\\:<>"|?*')


def check_path(path: str) -> str:
    """Return the path, if it is safe on every system. Raises Invalid or Dangerous."""
    if len(path) > MAX_PATH_BYTES or len(path.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise Invalid(f"path {path[:80]!r}… is too long: the limit is {MAX_PATH_BYTES} bytes")
    names = path.split("/")
    if len(names) > MAX_PATH_DEPTH:
        raise Invalid(f"path {path[:80]!r}… is too deep: the limit is {MAX_PATH_DEPTH} folders")
    for name in names:
        reason = _find_name_fault(name)
        if reason:
            raise Dangerous(f"unsafe path {path!r}: {reason}")
    return path


def check_tree(paths: Iterable[str]) -> None:
    """Check that the files of a commit can coexist on any disk, and their number. Raises Invalid, TooLarge.

    Ignoring case and Unicode normalisation, paths must be unique, and none may be both a file and a folder.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        key = fold_path(path)
        if key in files:
            raise Invalid(
                f"{path!r} and {files[key]!r} are the same file on case-insensitive disks: rename one"
            )
        files[key] = path
        if len(files) > MAX_FILES:
            raise TooLarge(
                f"too many files: the limit is {MAX_FILES}; merge files, or use several repositories"
            )
        # The parent folders, from the top.
        for folder in accumulate(path.split("/")[:-1], lambda outer, inner: f"{outer}/{inner}"):
            other = folders.setdefault(fold_path(folder), folder)
            if len(folders) > MAX_FILES:
                raise TooLarge(f"too many folders: the limit is {MAX_FILES}; use fewer levels")
            if other != folder:
                raise Invalid(
                    f"{folder!r} and {other!r} are the same folder on case-insensitive disks: rename one"
                )
    clash = files.keys() & folders.keys()
    if clash:
        path = files[min(clash)]
        raise Invalid(f"{path!r} is both a file and a folder: rename one")


def fold_path(path: str) -> str:
    """Return a key that is equal for paths that differ only in case or Unicode normalisation."""
    # Case folding may denormalise text, so normalise before and after.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def _find_name_fault(name: str) -> str | None:
    """Return why a segment of a path is unsafe; None if it is safe."""
    if not name:
        return "it is empty, or has an empty segment"
    if name in (".", ".."):
        return f"{name!r} is a relative segment"
    odd = next((c for c in name if unicodedata.category(c) in INVISIBLE_CATEGORIES), None)
    if odd:
        return f"it contains the invisible character U+{ord(odd):04X}"
    odd = next((c for c in name if c in FORBIDDEN), None)
    if odd:
        return f"it contains {odd!r}"
    if name[0] == " " or name[-1] in " .":
        return f"{name!r} starts with a space, or ends with a space or a dot"
    # Some file systems resolve .GIT, or on Windows git~1, to .git.
    if unicodedata.normalize("NFKC", name).casefold() in (".git", "git~1"):
        return f"{name!r} is reserved for git"
    if fold_path(name).partition(".")[0].rstrip(" ") in DEVICES:
        return f"{name!r} is a device name on Windows"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"{name[:40]!r}… is too long: the limit is {MAX_NAME_BYTES} bytes"
    return None
