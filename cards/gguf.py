"""Cards as GGUF files for llama.cpp.

llama.cpp's converters match the version that will read the files, so kcard runs them instead of writing GGUF itself.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kcard.cards.export import ExportableCard, PeftAdapter, copy_adapter, copy_model, merge
from kcard.cards.models.loader import SMALL, Loader, base_files
from kcard.errors import CardError, MissingExtra, ModelUnavailable, UsageError, one_line
from kcard.events import OnEvent, note

MODEL, LORA = "convert_hf_to_gguf.py", "convert_lora_to_gguf.py"


class Converter:
    """llama.cpp's converters.

    Raises UsageError if `path` is neither convert_hf_to_gguf.py nor the folder that contains it and
    convert_lora_to_gguf.py, MissingExtra if the package gguf is not installed.
    """

    def __init__(self, path: Path | str | None) -> None:
        if path is None:
            raise UsageError(
                f"GGUF files are written by llama.cpp's own converter: give it with --converter path/to/{MODEL} "
                "(git clone https://github.com/ggml-org/llama.cpp)"
            )
        location = Path(path).expanduser().absolute()
        self.folder = location if location.is_dir() else location.parent
        if missing := [name for name in (MODEL, LORA) if not (self.folder / name).is_file()]:
            raise UsageError(f"--converter {path}: {self.folder} has no {' and no '.join(missing)}")
        if find_spec("gguf") is None:
            raise MissingExtra("checking GGUF files needs gguf: pip install 'kcard[gguf]'")

    def model(self, folder: Path, target: Path, small: bool) -> None:
        """Convert a whole model and its tokenizer; in float32 if `small`, else in its stored float type."""
        self._run(MODEL, [str(folder), "--outfile", str(target), "--outtype", "f32" if small else "auto"])

    def adapter(self, folder: Path, base: Path, target: Path) -> None:
        """Convert a LoRA adapter, reading only the base's config."""
        self._run(LORA, [str(folder), "--base", str(base), "--outfile", str(target), "--outtype", "f32"])

    def _run(self, script: str, arguments: Sequence[str]) -> None:
        command = [sys.executable, str(self.folder / script), *arguments]
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if process.returncode:
            messages = [line for line in process.stderr.splitlines() if line.strip()] or ["no message"]
            last = one_line(Exception(messages[-1]))
            raise CardError(
                f"{script} ended with code {process.returncode} on {arguments[0]}: {last}: "
                "check that your llama.cpp supports this model"
            )


def check_adapter(path: Path, adapter: PeftAdapter, base: Path) -> None:
    """Raise CardError unless the file holds this adapter, for the architecture of the GGUF `base`."""
    reader = _open_gguf(path)
    actual = {
        "type": _field(reader, "general.type"),
        "adapter type": _field(reader, "adapter.type"),
        "alpha": _field(reader, "adapter.lora.alpha"),
        "pairs": sum(1 for tensor in reader.tensors if tensor.name.endswith(".lora_a")),
        "rank": max((int(t.shape[-1]) for t in reader.tensors if t.name.endswith(".lora_a")), default=0),
        "architecture": _field(reader, "general.architecture"),
    }
    expected = {
        "type": "adapter",
        "adapter type": "lora",
        "alpha": adapter.alpha,
        "pairs": adapter.pairs,
        "rank": adapter.rank,
        "architecture": architecture(base),
    }
    _check_equal(path, actual, expected)


def check_model(path: Path, tokens: int, bos: bool | None) -> None:
    """Raise CardError unless the file holds a model with at least `tokens` tokens. `bos`: whether the engine adds a bos
    token to a text; None if the model has none."""
    reader = _open_gguf(path)
    if (listed := reader.get_field("tokenizer.ggml.tokens")) is None or len(listed.data) < tokens:
        _check_equal(path, {"tokens": 0 if listed is None else len(listed.data)}, {"tokens": tokens})
    if bos is not None and (adds := _field(reader, "tokenizer.ggml.add_bos_token")) is not None:
        _check_equal(path, {"adds a bos token": adds}, {"adds a bos token": bos})
    if not reader.tensors:
        _check_equal(path, {"tensors": 0}, {"tensors": "some"})


def architecture(path: Path) -> str:
    """Return the architecture that a GGUF file declares. Raises UsageError for any other file."""
    return str(_field(_open_gguf(path, UsageError), "general.architecture"))


def _open_gguf(path: Path, kind: "type[CardError] | type[UsageError]" = CardError) -> Any:
    from gguf import GGUFReader

    try:
        return GGUFReader(path)
    except (OSError, ValueError, IndexError) as error:
        raise kind(f"{path} is not a GGUF file: {one_line(error)}") from error


def _field(reader: Any, name: str) -> Any:
    field = reader.get_field(name)
    return None if field is None else field.contents()


def _check_equal(path: Path, actual: dict[str, Any], expected: dict[str, Any]) -> None:
    for key, value in expected.items():
        if actual[key] != value:
            raise CardError(
                f"{path.name} was not converted as it should be: {key} is {actual[key]!r}, not {value!r}: use the "
                "converter of another llama.cpp"
            )


# The files and command for llama.cpp: adapters, bases and whole models as GGUF, made by its own converter.

LLAMA_CPP_MODEL, BASE = "model.gguf", "base.gguf"


def write_gguf(
    cards: Sequence[ExportableCard],
    folder: Path,
    converter: Converter,
    base: str | None,
    on_event: OnEvent,
) -> list[str]:
    """Write the GGUF files of the cards into `folder`; return the command that starts llama.cpp's server there.

    base  the base of the adapters as a GGUF file; None: converted here

    Raises ModelUnavailable if the base of an adapter is not on this machine, UsageError if `base` is another model,
    CardError if the converter fails or its output is not the card.
    """
    first = cards[0]
    with tempfile.TemporaryDirectory(prefix=".convert-", dir=folder) as scratch:
        if first.adapter is None:
            source = Path(scratch) / "model"
            if first.merged:
                on_event(note(f"merging {first.name} into its base {first.base.name}"))
                merge(first.card, source)
            else:
                copy_model(first.card.folder, source)
            _write_model(first, source, folder / LLAMA_CPP_MODEL, converter, on_event)
            return ["llama-server", "-m", f"./{LLAMA_CPP_MODEL}"]
        model = _write_adapters(cards, folder, Path(scratch), converter, base, on_event)
    adapters = [word for card in cards for word in ("--lora", f"./{card.name}.gguf")]
    # Each request names its card. The server's prompt cache ignores adapters and would reuse one card's keys and values
    # for another card with the same prompt, so it is disabled.
    return ["llama-server", "-m", model, *adapters, "--lora-init-without-apply", "--cache-ram", "0"]


def _write_adapters(
    cards: Sequence[ExportableCard],
    folder: Path,
    scratch: Path,
    converter: Converter,
    base: str | None,
    on_event: OnEvent,
) -> str:
    """Write a GGUF file for each adapter, and for the base unless given; return the base's file."""
    first = cards[0]
    files = base_files(first.base.name, first.base.revision)
    if files is None:
        pinned = f" --revision {first.base.revision}" if first.base.revision else ""
        needed = "its config: `hf download {0} config.json{1}`" if base else "it: `hf download {0}{1}`"
        raise ModelUnavailable(
            f"card {first.name!r}: its base {first.base.name!r} is not on this machine, and the converter needs "
            + needed.format(first.base.name, pinned)
        )
    if base is None:
        Loader().check_digest(first.card)
        _write_model(first, files, folder / BASE, converter, on_event)
        model = folder / BASE
    else:
        model = Path(base).expanduser().absolute()
        if not model.is_file():
            raise UsageError(f"--base {base} does not exist")
        architecture(model)
    for card in cards:
        if card.adapter is None:
            continue
        on_event(note(f"converting {card.name}"))
        copy_adapter(card.card, scratch / card.name, card.base.name)
        converter.adapter(scratch / card.name, files, folder / f"{card.name}.gguf")
        check_adapter(folder / f"{card.name}.gguf", card.adapter, model)
    return f"./{BASE}" if base is None else str(model)


def _write_model(
    card: ExportableCard, source: Path, target: Path, converter: Converter, on_event: OnEvent
) -> None:
    on_event(note(f"converting {card.base.name if card.adapter is not None else card.name}"))
    small = sum(path.stat().st_size for path in source.glob("*.safetensors")) < 4 * SMALL
    converter.model(source, target, small)
    tokenizer = Loader().tokenizer(card.card)
    check_model(target, 1, None if tokenizer.bos_token_id is None else not card.prompt.before)
