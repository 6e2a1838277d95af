"""Checks of the content of files, and their verdicts."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from kcard.errors import CardError
from kcard.hub.checks.formats import (
    NEEDED,
    Form,
    check_array,
    check_parquet,
    check_path,
    check_picture,
    check_text,
    check_text_parts,
    check_tree,
    check_vocabulary,
    identify_dangerous,
    is_pickle,
    kind_of,
    read_parts,
)
from kcard.hub.checks.metadata import check_yaml, parse_readme
from kcard.hub.errors import Dangerous, Invalid, Refused, TooLarge
from kcard.manifest import MANIFEST, Manifest, check_counts

# JSON is scanned for its nesting depth and for keys that make a loader run code.
#
# It is not parsed, since a tokenizer as Python objects takes ten times its size in memory. Regular expressions remove
# the strings, so that no Python code runs for each string or bracket.

DEEPEST = 64
LONGEST = 8 << 20  # bytes of a string
LONGEST_LINE = 32 << 20
# Keys that `trust_remote_code` obeys: the class and file, in this repository or another, to run.
CODE_KEYS = ("auto_map", "custom_pipelines")


def _json_spellings(letter: str) -> str:
    """Return a regular expression for a letter as JSON may spell it."""
    code = "".join(f"[{digit}{digit.upper()}]" for digit in f"{ord(letter):04x}")
    return rf"(?:{letter}|\\u{code})"


CODE_KEY = f'"(?:{"|".join("".join(map(_json_spellings, key)) for key in CODE_KEYS)})"'.encode()
TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
STRING = re.compile(TEXT, re.DOTALL)
# Everything up to a code key or an unterminated string.
ORDINARY = re.compile(rb'(?:[^"]++|(?!%s)%s)*+' % (CODE_KEY, TEXT), re.DOTALL)
KEY = re.compile(CODE_KEY)
VALUE = re.compile(rb"\s*+(:?)\s*+(.?)", re.DOTALL)
MOST_KEYS = 10_000  # that are harmless
STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
OTHERS = bytes(set(range(256)) - set(b"[{]}"))
DEEP_LINE = re.compile(rb"^(?:[^\n\[{]*+[\[{]){%d}[^\n]*" % (DEEPEST + 1), re.MULTILINE)


def check_json(path: str, stream: BinaryIO) -> None:
    """Raise Invalid for deeply nested or incomplete JSON, Dangerous for a key that makes a loader run code.

    Such a key is harmless if its value is a number, as in a vocabulary.
    """
    scan = _Scan(path)
    rest = b""
    for part in check_text_parts(path, read_parts(stream)):
        rest = scan.read(rest + part)
    scan.read(rest, last=True)


def check_jsonl(path: str, stream: BinaryIO) -> None:
    """Raise Invalid for lines that are too long or too deeply nested."""
    number = 1
    for lines in _cut_at_line_ends(path, check_text_parts(path, read_parts(stream))):
        at = 0
        for deep in DEEP_LINE.finditer(lines):
            number, at = number + lines.count(b"\n", at, deep.start()), deep.start()
            _Scan(f"{path}, line {number}", obeyed=False).read(deep[0], last=True)
        number += lines.count(b"\n", at)


def _cut_at_line_ends(path: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces, cut at the ends of lines."""
    rest = b""
    for piece in pieces:
        whole, end, rest = (rest + piece).rpartition(b"\n")
        if len(rest) > LONGEST_LINE:
            raise Invalid(f"{path}: a line is too long: the limit is {LONGEST_LINE} bytes")
        yield whole + end
    yield rest


class _Scan:
    """The state of a scan."""

    def __init__(self, path: str, *, obeyed: bool = True) -> None:
        self._path, self._obeyed, self._depth, self._keys = path, obeyed, 0, 0

    def read(self, text: bytes, *, last: bool = False) -> bytes:
        """Scan the text; return its incomplete end, which must be scanned with the next part."""
        end = self._skip_ordinary(text, 0)
        while key := KEY.match(text, end):
            value = VALUE.match(text, key.end())
            if (value is None or not value[2]) and not last:  # any amount of whitespace may follow a key
                return self._postpone(text[end:], "too much whitespace after a key", last)
            self._keys += 1
            if self._obeyed and value and value[1] and value[2] in b'[{"':
                raise Dangerous(
                    f"{self._path}: {key[0].decode()} makes loaders run code: remove it, and use a model that its "
                    "library supports"
                )
            if self._keys > MOST_KEYS:
                raise Invalid(f"{self._path}: the key {key[0].decode()} occurs more than {MOST_KEYS} times")
            end = self._skip_ordinary(text, key.end())
        if end < len(text):
            return self._postpone(text[end:], "unterminated string", last)
        if last and self._depth:
            raise Invalid(f"{self._path} is not valid JSON: {self._depth} unclosed brackets at the end")
        return b""

    def _skip_ordinary(self, text: bytes, start: int) -> int:
        """Return the end of the text from `start` that has neither code keys nor unterminated strings."""
        match = ORDINARY.match(text, start)
        end = match.end() if match else start
        # Count the brackets outside of strings.
        steps = memoryview(STRING.sub(b"", text[start:end]).translate(STEPS, OTHERS)).cast("b")
        depths = list(accumulate(steps, initial=self._depth))
        if max(depths) > DEEPEST:
            raise Invalid(f"{self._path}: JSON nested too deeply: the limit is {DEEPEST} levels")
        if min(depths) < 0:
            raise Invalid(f"{self._path} is not valid JSON: unbalanced closing bracket")
        self._depth = depths[-1]
        return end

    def _postpone(self, rest: bytes, what: str, last: bool) -> bytes:
        if last or len(rest) > LONGEST:
            raise Invalid(f"{self._path} is not valid JSON: {what}")
        return rest


# The header of a safetensors file is checked by the rules of the format (tensors without gaps), with tighter limits.

LARGEST_HEADER = 25_000_000
MOST_TENSORS = 50_000
MOST_NUMBERS = 20 * MOST_TENSORS
HIGHEST_RANK = 16
LONGEST_NAME = 1024
METADATA = "__metadata__"
BITS = {
    **dict.fromkeys(["F4"], 4),
    **dict.fromkeys(["F6_E2M3", "F6_E3M2"], 6),
    **dict.fromkeys(["BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"], 8),
    **dict.fromkeys(["I16", "U16", "F16", "BF16"], 16),
    **dict.fromkeys(["I32", "U32", "F32"], 32),
    **dict.fromkeys(["I64", "U64", "F64", "C64"], 64),
}


def check_safetensors(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Invalid unless the header describes exactly the bytes after it. `size`: of the whole file."""
    start = stream.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length < 2 or length > min(LARGEST_HEADER, size - 8):
        raise _invalid_safetensors(path, f"header of {length} bytes in a file of {size}")
    text = stream.read(length)
    if len(text) < length or not text.startswith(b"{"):
        raise _invalid_safetensors(path, "the header is not a JSON object")
    # Before parsing, which would take far more memory than the text.
    if text.count(b"{") + text.count(b"[") > 3 * (MOST_TENSORS + 2) or text.count(b",") > MOST_NUMBERS:
        raise _invalid_safetensors(path, f"more than {MOST_TENSORS} tensors, or too many dimensions")
    try:
        parsed = json.loads(
            text.decode(), object_pairs_hook=_reject_duplicates, parse_constant=_reject_constant
        )
        json.dumps(parsed, ensure_ascii=False).encode()  # half a surrogate pair, as \ud800, is no character
    except (ValueError, RecursionError) as error:
        raise _invalid_safetensors(path, f"invalid header: {str(error)[:100]}") from None
    tensors = dict(parsed)
    about = tensors.pop(METADATA, {})
    if not isinstance(about, dict) or not all(isinstance(value, str) for value in about.values()):
        raise _invalid_safetensors(path, f"{METADATA} is not an object of strings")
    if len(tensors) > MOST_TENSORS:
        raise _invalid_safetensors(path, f"more than {MOST_TENSORS} tensors")
    spans = [_check_tensor(path, name, tensor) for name, tensor in tensors.items()]
    # Every byte of the data belongs to exactly one tensor.
    reached, following = 0, size - 8 - length
    for begin, end in sorted(spans):
        if begin != reached:
            raise _invalid_safetensors(path, "tensors overlap" if begin < reached else "gap between tensors")
        reached = end
    if reached != following:
        raise _invalid_safetensors(
            path, f"its tensors have {reached} bytes, but {following} follow the header"
        )


def _check_tensor(path: str, name: str, tensor: object) -> tuple[int, int]:
    """Return the tensor's offsets after the header."""
    shown = repr(name[:80])
    if len(name) > LONGEST_NAME or not isinstance(tensor, Mapping):
        raise _invalid_safetensors(path, f"tensor {shown} has an invalid name or description")
    if tensor.keys() != {"dtype", "shape", "data_offsets"}:
        raise _invalid_safetensors(path, f"tensor {shown} must have dtype, shape and data_offsets only")
    dtype, shape, offsets = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _invalid_safetensors(path, f"tensor {shown} has the unknown dtype {str(dtype)[:40]!r}")
    if not _are_sizes(shape) or len(shape) > HIGHEST_RANK:
        raise _invalid_safetensors(
            path, f"tensor {shown}: shape must be at most {HIGHEST_RANK} whole numbers"
        )
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _invalid_safetensors(path, f"tensor {shown}: data_offsets must be two whole numbers")
    begin, end = offsets
    # The product can't overflow in Python.
    if prod(shape) * BITS[dtype] != 8 * (end - begin):
        raise _invalid_safetensors(path, f"tensor {shown}: {dtype} x {shape} is not {end - begin} bytes")
    return begin, end


def _are_sizes(value: object) -> bool:
    """Return whether it is a list of non-negative 64-bit integers."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _reject_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. Raises ValueError for a duplicate key, which readers resolve differently."""
    items: dict[str, Any] = {}
    for key, value in pairs:
        if key in items:
            raise ValueError(f"duplicate key {key[:80]!r}")
        items[key] = value
    return items


def _reject_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _invalid_safetensors(path: str, why: str) -> Invalid:
    return Invalid(f"{path} is not a valid safetensors file: {why}; save it again")


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

    `open` returns the content, `size` bytes, as a seekable stream, which is read in parts; of safetensors only the
    header is read.
    """
    with open() as stream:
        start = stream.read(NEEDED)
        stream.seek(0)
        try:
            _check_form(path, size, form, stream)
        except Invalid as error:
            what = identify_dangerous(start)
            if what is None or isinstance(error, Dangerous) or form == "array":
                raise
            raise Dangerous(f"{path} is {what}, not what its name says: refused") from error
        stream.seek(0)
        if form != "safetensors" and is_pickle(stream):
            raise Dangerous(f"{path} is a pickle, which can run code: refused")


def _check_form(path: str, size: int, form: Form, stream: BinaryIO) -> None:
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

LONGEST_DESCRIPTION = 10_000  # characters


def check_names(manifest: Manifest) -> None:
    """Raise CardError, which names the file, unless every file has a safe path and an allowed kind.

    Hidden files are refused: `seal` lists none, but programs obey them (.git/config, .bashrc, .vscode).
    """
    with _naming_card(manifest):
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
