"""Checks of the content of files, and their verdicts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import yaml

from kcard import gguf_file
from kcard.errors import CardError
from kcard.hub.checks.formats import (
    START_BYTES,
    Form,
    check_array,
    check_gguf,
    check_parquet,
    check_picture,
    check_text,
    check_vocabulary,
    identify_dangerous,
    is_pickle,
    kind_of,
)
from kcard.hub.checks.json_scan import check_json, check_jsonl
from kcard.hub.checks.metadata import check_yaml, parse_readme
from kcard.hub.checks.paths import check_path, check_tree
from kcard.hub.checks.tensors import check_safetensors
from kcard.hub.errors import Dangerous, Invalid, Refused, TooLarge
from kcard.manifest import MANIFEST, Manifest, check_counts

# The version of the rules, to be incremented by every change that refuses more: content that passed earlier rules is
# then checked again.
RULES = 2


def check_file(path: str, size: int, open: Callable[[], BinaryIO]) -> None:  # noqa: A002
    """Raise Invalid, Dangerous or TooLarge unless the file is allowed at that path. Arguments as in `check_content`."""
    check_content(path, size, check_name(path, size), open)


def check_name(path: str, size: int) -> Form:
    """Return the form that a file must have, by its path. Raises Invalid, Dangerous or TooLarge."""
    check_path(path)
    return kind_of(path, size).form


def check_content(path: str, size: int, form: Form, open: Callable[[], BinaryIO]) -> None:  # noqa: A002
    """Raise Invalid, Dangerous or TooLarge unless the content has that form. The path is used in messages only.

    `open` returns the content, `size` bytes, as a seekable stream, which is read in parts; of safetensors and GGUF
    only the header is read.
    """
    with open() as stream:
        start = stream.read(START_BYTES)
        stream.seek(0)
        try:
            _check_form(path, size, form, stream)
        except Invalid as error:
            what = identify_dangerous(start)
            is_its_kind = form == "array" or (form == "gguf" and start.startswith(gguf_file.MAGIC))
            if what is None or isinstance(error, Dangerous) or is_its_kind:
                raise
            raise Dangerous(f"{path} is {what}, not what its name says: refused") from error
        stream.seek(0)
        if form != "safetensors" and is_pickle(stream):
            raise Dangerous(f"{path} is a pickle, which can run code: refused")


def _check_form(path: str, size: int, form: Form, stream: BinaryIO) -> None:
    match form:
        case "safetensors":
            check_safetensors(path, size, stream)
        case "gguf":
            check_gguf(path, size, stream)
        case "json":
            check_json(path, stream)
        case "jsonl":
            check_jsonl(path, stream)
        case "readme":
            check_text(path, stream)
            stream.seek(0)
            parse_readme(stream.read(size).decode())
        case "yaml":
            check_text(path, stream)
            stream.seek(0)
            try:
                check_yaml(stream.read(size).decode(), path)
            except yaml.YAMLError as error:
                raise Invalid(f"{path} is not valid YAML: {' '.join(str(error).split())[:200]}") from None
        case "array":
            check_array(path, size, stream)
        case "vocabulary":
            check_vocabulary(path, size, stream)
        case "picture":
            check_picture(path, stream)
        case "parquet":
            check_parquet(path, size, stream)
        case _:
            check_text(path, stream)


# Verdicts: results of content checks as values, which another process can return and a table can store.

REFUSALS = {refusal.__name__: refusal for refusal in (Invalid, Dangerous, TooLarge)}
PATH = "{path}"


@dataclass(frozen=True)
class ContentCandidate:
    """Content to check for a form; `open` returns it as a seekable stream, and can be pickled."""

    sha256: str
    size: int
    form: Form
    open: Callable[[], BinaryIO]


@dataclass(frozen=True)
class ContentVerdict:
    """The result of a check, independent of the path: empty, or the name of a refusal and its reason."""

    refusal: str = ""
    reason: str = ""

    def enforce(self, path: str) -> None:
        """Raise the refusal, if any, for a file at that path."""
        if self.refusal:
            raise REFUSALS[self.refusal](self.reason.replace(PATH, path))


def open_file(path: Path) -> BinaryIO:
    """Open a file on this machine, for `ContentCandidate.open`."""
    return path.open("rb")


def judge(candidates: Sequence[ContentCandidate]) -> list[ContentVerdict]:
    """Return the verdict on each candidate."""
    verdicts = []
    for candidate in candidates:
        try:
            check_content(PATH, candidate.size, candidate.form, candidate.open)
        except (Invalid, TooLarge) as error:
            verdicts.append(ContentVerdict(type(error).__name__, str(error)))
        else:
            verdicts.append(ContentVerdict())
    return verdicts


# Checks of a whole card, by the rules of a shared hub: its file names, and the content of each file.
#
# They guard every way into a hub or a folder, such as publishing and pulling, since the sender of a card may be
# hostile.

MAX_DESCRIPTION_CHARACTERS = 10_000  # characters


def check_names(manifest: Manifest) -> None:
    """Raise CardError, which names the file, unless every file has a safe path and an allowed kind.

    Hidden files are refused: `seal` lists none, but programs obey them (.git/config, .bashrc, .vscode).
    """
    with _naming_card(manifest):
        if len(manifest.description) > MAX_DESCRIPTION_CHARACTERS:
            raise TooLarge(
                f"the description is longer than {MAX_DESCRIPTION_CHARACTERS} characters: shorten it"
            )
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
    with _naming_card(manifest):
        for path in manifest.files:
            with opened(path) as stream:
                size = stream.seek(0, 2)
            check_file(path, size, lambda path=path: opened(path))  # type: ignore[misc]
    check_counts(manifest.name, manifest.files, opened)


@contextmanager
def _naming_card(manifest: Manifest) -> Iterator[None]:
    try:
        yield
    except Refused as error:
        raise CardError(f"card {manifest.name!r}: {error}") from error
