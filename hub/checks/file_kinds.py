"""The allow-list of files, by name: tensors, text, pictures.

Everything else is refused, such as files that can run code and archives.
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
    """The required form of a file. `largest`: limit in bytes for what readers load into memory."""

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
    (".ggml .gguf .llamafile .mlmodel .onnx .pb .tflite", "save weights as .safetensors"),
    (
        ".bash .bat .c .cmd .cpp .cu .dll .dylib .exe .h .ipynb .jar .js .lua .mjs .pl .ps1 .py .pyc .pyd .pyi .rb "
        ".sh .so .wasm .whl",
        "code is not allowed in repositories: put what a card needs in a library",
    ),
    (
        ".htm .html .pdf .svg .xhtml .xml",
        "they can run scripts in browsers: use .png, .jpg, .webp or .md",
    ),
    (".7z .bz2 .gz .lz4 .rar .tar .tgz .xz .zip .zst", "upload the files in the archive instead"),
)


def kind_of(path: str, size: int) -> FileKind:
    """The kind of a file by its name. Raises Dangerous or Invalid for a name that is not allowed, TooLarge."""
    kind = _found(path)
    if kind.largest is not None and size > kind.largest:
        raise TooLarge(f"{path} has {size} bytes: the limit for this kind of file is {kind.largest}")
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
        raise Dangerous(f"{path}: {suffix} files are not allowed: {reason}")
    raise Invalid(
        f"{path}: unknown kind of file; allowed are {', '.join(KINDS)}, licences and .gitattributes"
    )
