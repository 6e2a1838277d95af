"""The kinds of files by name and first bytes, and checks of text and of binary formats.

No dangerous kind passes the check for an allowed one, except a pickle of protocol 0, which looks like text and is
detected by its opcodes.
"""

import codecs
import pickletools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePosixPath
from typing import BinaryIO, Literal, TypeAlias

from kcard import gguf_file
from kcard.hub.errors import Dangerous, Invalid, TooLarge

# Checks of text, read in parts: UTF-8 without NUL, so that neither binary data nor UTF-16 passes.

PART_BYTES = 1 << 20


def read_parts(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of the stream, a megabyte at a time."""
    while part := stream.read(PART_BYTES):
        yield part


def check_text_parts(path: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces, unchanged. Raises Invalid if they are not text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in pieces:
            decoder.decode(piece)
            if b"\0" in piece:
                raise Invalid(f"{path} is not text: it contains a NUL byte")
            yield piece
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not UTF-8 text ({error.reason}): save it as UTF-8") from None


def check_text(path: str, stream: BinaryIO) -> None:
    """Read the stream to its end. Raises Invalid if it is not text."""
    for _ in check_text_parts(path, read_parts(stream)):
        pass


START_BYTES = 4096  # bytes from the start of a file that identify its kind
MAX_SEARCHED_BYTES = (
    64 << 20
)  # bytes of a file that are searched for a pickle; in text, the search ends after a few
# A pickle of protocol 2 or later starts with PROTO and its version, which is invalid UTF-8.
PICKLE = re.compile(rb"\x80[\x02-\x05]")
STARTS: dict[bytes, str] = {
    b"PK\x03\x04": "a zip archive (torch.save writes one around a pickle)",
    b"PK\x05\x06": "a zip archive",
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"\x93NUMPY": "a numpy array",
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"\xfe\xed\xfa": "a program",
    b"\xce\xfa\xed\xfe": "a program",
    b"\xcf\xfa\xed\xfe": "a program",
    b"\xca\xfe\xba\xbe": "a program",
    b"\x00asm": "a program",
    gguf_file.MAGIC: "GGUF weights",
    b"\x1f\x8b": "a gzip archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ\x00": "an xz archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a rar archive",
    b"%PDF-": "PDF",
}
TAR = slice(257, 262)
# Opcodes that look up a callable, and that call it.
LOOKUP_OPCODES = frozenset(["GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4"])
CALL_OPCODES = frozenset(["REDUCE", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BUILD"])
# The module and the name of a callable: text such as "(i) first" has others.
CALLABLE_NAME = re.compile(r"[\w.]+ [\w.]+", re.ASCII)
NAMING_OPCODES = frozenset(["GLOBAL", "INST"])
ODD = bytes.maketrans(bytes([*range(0x80, 0x100), ord("\\")]), b"?" * 129)


def identify_dangerous(start: bytes) -> str | None:
    """Return what a file with these first START_BYTES bytes is, if it is dangerous.

    Some signatures are plain letters, so use it only for files that failed the check of their kind.
    """
    if is_pickle(BytesIO(start)):
        return "a pickle, which can run code"
    if start[TAR] == b"ustar":
        return "a tar archive"
    return next((what for magic, what in STARTS.items() if start.startswith(magic)), None)


def is_pickle(stream: BinaryIO) -> bool:
    """Return whether a file starts with pickles that call something when loaded, without running them."""
    start = stream.read(2)
    stream.seek(0)
    if PICKLE.match(start):
        return True
    lines = _Lines(stream)
    try:
        while True:  # genops ends with each pickle, and raises ValueError at the end of the stream
            named, stack = False, list[object]()
            for opcode, argument, _ in pickletools.genops(lines):  # type: ignore[arg-type]  # it needs no more
                if not _take_operands(opcode, stack):
                    raise ValueError(f"no operands for {opcode.name}")
                if opcode.name in NAMING_OPCODES and not CALLABLE_NAME.fullmatch(str(argument)):
                    raise ValueError(f"no callable is called {argument}")
                named = named or opcode.name in LOOKUP_OPCODES
                if named and opcode.name in CALL_OPCODES:
                    return True
    except (ValueError, OverflowError):  # not a valid opcode: text
        return False


class _Lines:
    """The first MAX_SEARCHED_BYTES bytes of a stream, with text arguments that pickletools always accepts.

    It refuses arguments that are not ASCII, while loaders with another encoding accept them.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._left = stream, MAX_SEARCHED_BYTES

    def read(self, size: int) -> bytes:
        return self._counted(self._stream.read(min(size, self._left)))

    def readline(self) -> bytes:
        return self._counted(self._stream.readline(self._left)).translate(ODD)

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        return data


def _take_operands(opcode: pickletools.OpcodeInfo, stack: list[object]) -> bool:
    """Return whether the opcode's operands are on the stack, which is updated.

    Nearly every letter is an opcode: without this, text that starts with `lo` would be a list and a call.
    """
    needed, mark = opcode.stack_before, pickletools.markobject
    if mark in needed:
        if mark not in stack:
            return False
        while stack.pop() is not mark:
            pass
        needed = needed[: needed.index(mark)]
    if len(needed) > len(stack):
        return False
    del stack[len(stack) - len(needed) :]
    stack.extend(opcode.stack_after)
    return True


# Checks of the allowed binary formats: numpy arrays of a card's index, pictures, Parquet, tokenizer models, LLMs.

ARRAY_START = b"\x93NUMPY\x01\x00"
# Exactly as numpy writes it.
ARRAY_HEADER = re.compile(
    rb"\{'descr': '(?:<[if]([48])', 'fortran_order': False, 'shape': \((\d{1,15}),\)"
    rb"|\|i(1)', 'fortran_order': False, 'shape': \((\d{1,15}), (\d{1,5})\)), \} *\n"
)
PICTURE_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")
# ModelProto's fields: pieces, trainer_spec, normalizer_spec, self_test_data, denormalizer_spec; each with a length.
VOCABULARY_TAGS = frozenset(number << 3 | 2 for number in range(1, 6))
VOCABULARY_PIECE = 0x0A
MAX_VARINT_BYTES = 5
MAX_VOCABULARY_PIECES = 2_000_000  # the largest vocabularies have 262,144 pieces


def check_array(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Dangerous unless it is a row of numbers or a table of bytes, Invalid if it is incomplete."""
    start = stream.read(len(ARRAY_START) + 2)
    length = int.from_bytes(start[len(ARRAY_START) :], "little")
    header = ARRAY_HEADER.fullmatch(stream.read(length))
    if not start.startswith(ARRAY_START) or header is None:
        raise Dangerous(
            f"{path} is not a numpy array of 4- or 8-byte numbers or a table of bytes: rebuild the card's index"
        )
    numbers = int(header[2] or header[4]) * int(header[5] or 1)
    if len(start) + length + int(header[1] or header[3]) * numbers != size:
        raise Invalid(f"{path} is incomplete: its header says {numbers} numbers")


def check_picture(path: str, stream: BinaryIO) -> None:
    """Raise Invalid unless it is a PNG, JPEG, WebP or GIF."""
    start = stream.read(12)
    if not start.startswith(PICTURE_STARTS) and not (start.startswith(b"RIFF") and start[8:] == b"WEBP"):
        raise Invalid(f"{path} is not a PNG, JPEG, WebP or GIF")


def check_parquet(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Invalid unless it starts and ends like Parquet."""
    start = stream.read(4)
    stream.seek(max(0, size - 8))
    end = stream.read(8)
    # The last four bytes follow the length of the footer.
    described = int.from_bytes(end[:4], "little")
    if start != b"PAR1" or end[4:] != b"PAR1" or described > size - 12:
        raise Invalid(f"{path} is not a complete Parquet file")


def check_gguf(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Invalid unless it is a GGUF file whose header is complete and whose tensors are in it; no more is read."""
    start = stream.read(gguf_file.MAX_HEADER_BYTES)
    if not start.startswith(gguf_file.MAGIC):
        raise Invalid(f"{path} is not a GGUF file")
    try:
        gguf_file.read_header(start, size, with_lists=False)
    except EOFError:
        raise Invalid(f"{path} is cut off after {size} bytes: upload the whole file") from None
    except ValueError as error:
        raise Invalid(f"{path} is not a valid GGUF file: {error}") from None


def check_vocabulary(path: str, size: int, stream: BinaryIO) -> None:
    """Raise Invalid unless it is a sentencepiece model, or tiktoken's text under the same name."""
    data = stream.read(size + 1)
    if data[:1] != bytes([VOCABULARY_PIECE]):
        stream.seek(0)
        return check_text(path, stream)
    place, fields, end = 0, 0, len(data)
    while place < end and data[place] in VOCABULARY_TAGS:
        length, place = _read_varint(data, place + 1)
        place += length
        fields += 1
        if fields > MAX_VOCABULARY_PIECES:
            raise Invalid(
                f"{path} is not a sentencepiece model: it has more than {MAX_VOCABULARY_PIECES} pieces"
            )
    if place != end:
        raise Invalid(f"{path} is not a sentencepiece model: invalid at byte {min(place, size)}")
    return None


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a varint and the place after it, which is beyond the data if the varint is incomplete."""
    if place < len(data) and data[place] < 0x80:  # most are short
        return data[place], place + 1
    number = 0
    for shift, byte in enumerate(data[place : place + MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, place + shift + 1
    return 0, len(data) + 1


# The allow-list of files, by name: tensors, text, pictures.
#
# Everything else is refused, such as archives and files that can run code.

Form: TypeAlias = Literal[
    "text",
    "json",
    "jsonl",
    "yaml",
    "readme",
    "safetensors",
    "gguf",
    "array",
    "vocabulary",
    "picture",
    "parquet",
]
MB = 1 << 20


@dataclass(frozen=True)
class FileKind:
    """The required form of a file. `largest`: the limit in bytes of files that readers load into memory."""

    form: Form
    largest: int | None = None


SMALL_TEXT = FileKind("text", 8 * MB)
TEXT = FileKind("text")
KINDS: dict[str, FileKind] = {
    ".safetensors": FileKind("safetensors"),
    ".gguf": FileKind("gguf"),
    ".json": FileKind("json", 64 * MB),
    ".jsonl": FileKind("jsonl"),
    ".md": SMALL_TEXT,
    ".txt": TEXT,
    ".csv": TEXT,
    ".tsv": TEXT,
    ".yaml": FileKind("yaml", MB),
    ".yml": FileKind("yaml", MB),
    ".jinja": FileKind("text", MB),
    ".bib": SMALL_TEXT,
    ".cff": FileKind("yaml", MB),
    ".sha256": TEXT,
    ".model": FileKind("vocabulary", 64 * MB),
    ".spm": FileKind("vocabulary", 64 * MB),
    ".tiktoken": FileKind("text", 64 * MB),
    ".parquet": FileKind("parquet"),
    ".png": FileKind("picture", 32 * MB),
    ".jpg": FileKind("picture", 32 * MB),
    ".jpeg": FileKind("picture", 32 * MB),
    ".webp": FileKind("picture", 32 * MB),
    ".gif": FileKind("picture", 32 * MB),
}
# Allowed full names, in any case.
NAMES = {".gitattributes", ".gitignore", "authors", "changelog", "citation", "copying", "license", "licence"}
NAMES |= {"notice", "readme", "use_policy", "version"}
README = FileKind("readme", 8 * MB)
# numpy arrays can contain pickles. Those of a card's index are allowed, and checked to be numbers.
ARRAYS = {f"index/{part}.csc.index.npy": FileKind("array") for part in ("data", "indices", "indptr")}
ARRAYS["index/embeddings.npy"] = FileKind("array")

# Reasons and remedies for what is refused most often.
REASONS = (
    (
        ".bin .ckpt .cloudpickle .dill .h5 .hdf5 .joblib .keras .mar .msgpack .nemo .npy .npz .pickle .pkl .pt .pt2 "
        ".pth .skops",
        "they may contain pickles, which can run code when loaded: save as .safetensors (`save_pretrained` does)",
    ),
    (".ggml .llamafile .mlmodel .onnx .pb .tflite", "save weights as .safetensors, an LLM as .gguf"),
    (
        ".bash .bat .c .cmd .cpp .cu .dll .dylib .exe .h .ipynb .jar .js .lua .mjs .pl .ps1 .py .pyc .pyd .pyi .rb "
        ".sh .so .wasm .whl",
        "code is not allowed in repositories: put what a card needs in a library",
    ),
    (".htm .html .pdf .svg .xhtml .xml", "they can run scripts in browsers: use .png, .jpg, .webp or .md"),
    (".7z .bz2 .gz .lz4 .rar .tar .tgz .xz .zip .zst", "upload the files in the archive instead"),
)


def kind_of(path: str, size: int) -> FileKind:
    """Return the kind of a file by its name. Raises Dangerous or Invalid for a name that is not allowed, TooLarge."""
    name = PurePosixPath(path)
    suffix = name.suffix.lower()
    kind = README if path == "README.md" else ARRAYS.get(path) or KINDS.get(suffix)
    if kind is None and name.name.lower() in NAMES:
        kind = SMALL_TEXT
    if kind is None:
        reason = next((why for endings, why in REASONS if suffix in endings.split()), None)
        if reason:
            raise Dangerous(f"{path}: {suffix} files are not allowed: {reason}")
        raise Invalid(
            f"{path}: unknown kind of file; allowed are {', '.join(KINDS)}, licences and .gitattributes"
        )
    if kind.largest is not None and size > kind.largest:
        raise TooLarge(f"{path} has {size} bytes: the limit for this kind of file is {kind.largest}")
    return kind
