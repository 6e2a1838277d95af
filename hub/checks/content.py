"""Checks a file before it is committed: its content must match its name and be allowed."""

from collections.abc import Callable
from typing import BinaryIO

import yaml

from kcard.hub.checks.binary_formats import check_array, check_parquet, check_picture, check_vocabulary
from kcard.hub.checks.file_kinds import Form, kind_of
from kcard.hub.checks.front_matter import check_yaml
from kcard.hub.checks.json_scan import check_json, check_jsonl
from kcard.hub.checks.metadata import read
from kcard.hub.checks.paths import check_path
from kcard.hub.checks.signatures import NEEDED, is_pickle, what_it_is
from kcard.hub.checks.tensors import check_safetensors
from kcard.hub.checks.text import check_text
from kcard.hub.refusals import Dangerous, Invalid

__all__ = ["RULES", "check_content", "check_file", "check_name"]

# Raised with every change that refuses more: what passed the rules before is checked again.
RULES = 2


def check_file(path: str, size: int, open: Callable[[], BinaryIO]) -> None:  # noqa: A002
    """Raise Invalid, Dangerous or TooLarge unless the file is allowed at that path. Arguments as in `check_content`."""
    check_content(path, size, check_name(path, size), open)


def check_name(path: str, size: int) -> Form:
    """The form that a file must have, by its path. Raises Invalid, Dangerous or TooLarge if it is not allowed."""
    check_path(path)
    return kind_of(path, size).form


def check_content(path: str, size: int, form: Form, open: Callable[[], BinaryIO]) -> None:  # noqa: A002
    """Raise Invalid, Dangerous or TooLarge unless the content has that form. The path is used in messages only.

    `open` returns the content, `size` bytes, as a seekable stream, which is read in parts; of safetensors only the
    header is read.
    """
    with open() as stream:
        start = stream.read(NEEDED)
        stream.seek(0)
        try:
            _check(path, size, form, stream)
        except Invalid as error:
            what = what_it_is(start)
            if what is None or isinstance(error, Dangerous) or form == "array":
                raise
            raise Dangerous(f"{path} is {what}, not what its name says: refused") from error
        stream.seek(0)
        if form != "safetensors" and is_pickle(stream):
            raise Dangerous(f"{path} is a pickle, which can run code: refused")


def _check(path: str, size: int, form: Form, stream: BinaryIO) -> None:
    match form:
        case "safetensors":
            check_safetensors(path, size, stream)
        case "json":
            check_json(path, stream)
        case "jsonl":
            check_jsonl(path, stream)
        case "readme":
            check_text(path, stream)
            stream.seek(0)
            read(stream.read(size).decode())
        case "yaml":
            _check_yaml(path, size, stream)
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


def _check_yaml(path: str, size: int, stream: BinaryIO) -> None:
    check_text(path, stream)
    stream.seek(0)
    try:
        check_yaml(stream.read(size).decode(), path)
    except yaml.YAMLError as error:
        raise Invalid(f"{path} is not valid YAML: {' '.join(str(error).split())[:200]}") from None
