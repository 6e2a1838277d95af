"""Which files a repository may hold, by name: tensors, text, pictures. Everything else is refused.

What stands here is a list of what is known to be only read by whoever loads it. What can run code, and what hides other
files (archives), is not in it.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from kcard.hub.refusals import Dangerous, Invalid, TooLarge

__all__ = ["FileKind", "Form", "kind_of"]

Form: TypeAlias = Literal[
    "text", "json", "jsonl", "yaml", "readme", "safetensors", "array", "vocabulary", "picture", "parquet"
]
MB = 1 << 20


@dataclass(frozen=True)
class FileKind:
    """What a file must be. `largest` in bytes, where readers would hold it in memory; None: as large as others."""

    form: Form
    largest: int | None = None


SMALL_TEXT = FileKind("text", 8 * MB)
TEXT = FileKind("text")
KINDS: dict[str, FileKind] = {
    ".safetensors": FileKind("safetensors"),
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
# Files whose whole name says what they are; with an ending or without, whatever the case.
NAMES = {".gitattributes", ".gitignore", "authors", "changelog", "citation", "copying", "license", "licence"}
NAMES |= {"notice", "readme", "use_policy", "version"}
README = FileKind("readme", 8 * MB)
# numpy arrays can hold pickles. These are a card's index, and are checked to be numbers (arrays.py).
ARRAYS = {f"index/{part}.csc.index.npy": FileKind("array") for part in ("data", "indices", "indptr")}
ARRAYS["index/embeddings.npy"] = FileKind("array")

# Why what is refused most often is refused, and what to do instead.
REASONS = (
    (
        ".bin .ckpt .cloudpickle .dill .h5 .hdf5 .joblib .keras .mar .msgpack .nemo .npy .npz .pickle .pkl .pt .pt2 "
        ".pth .skops",
        "they may hold pickles, which run code when they are loaded: save .safetensors (`save_pretrained` does)",
    ),
    (".ggml .gguf .llamafile .mlmodel .onnx .pb .tflite", "weights are stored as .safetensors"),
    (
        ".bash .bat .c .cmd .cpp .cu .dll .dylib .exe .h .ipynb .jar .js .lua .mjs .pl .ps1 .py .pyc .pyd .pyi .rb "
        ".sh .so .wasm .whl",
        "code is not stored beside weights: what a card needs must be in a library",
    ),
    (
        ".htm .html .pdf .svg .xhtml .xml",
        "they can run scripts where they are shown: use .png, .jpg, .webp or .md",
    ),
    (".7z .bz2 .gz .lz4 .rar .tar .tgz .xz .zip .zst", "archives are not stored: upload what is in them"),
)


def kind_of(path: str, size: int) -> FileKind:
    """What the file of that name must be. Raises Dangerous or Invalid for a name that is not allowed, TooLarge."""
    kind = _found(path)
    if kind.largest is not None and size > kind.largest:
        raise TooLarge(f"{path} has {size} bytes: a file of this kind may have {kind.largest}")
    return kind


def _found(path: str) -> FileKind:
    if path == "README.md":
        return README
    if found := ARRAYS.get(path):
        return found
    name = PurePosixPath(path)
    suffix = name.suffix.lower()
    if found := KINDS.get(suffix):
        return found
    if name.name.lower() in NAMES:
        return SMALL_TEXT
    if reason := next((why for endings, why in REASONS if suffix in endings.split()), None):
        raise Dangerous(f"{path}: {suffix} files are refused: {reason}")
    raise Invalid(
        f"{path}: files named so are not stored; stored are {', '.join(KINDS)}, licences and .gitattributes"
    )
