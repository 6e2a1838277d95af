"""What llama.cpp and Ollama read: GGUF files of adapters, bases and whole models, made by llama.cpp's converter."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.cards.export.files import copy_adapter, copy_model
from kcard.cards.export.gguf import Converter, architecture, check_adapter, check_model
from kcard.cards.export.merging import merge
from kcard.cards.export.prepared import Prepared
from kcard.cards.lm.loader import SMALL, Loader, base_files
from kcard.errors import ModelUnavailable, UsageError

__all__ = ["Weights", "convert"]

MODEL, BASE = "model.gguf", "base.gguf"


@dataclass(frozen=True)
class Weights:
    """`model`: the file in the folder, or what the user named as the base; `adapters`: files by card."""

    model: str
    adapters: dict[str, str]


def convert(
    cards: Sequence[Prepared],
    folder: Path,
    converter: Converter,
    base: str | None,
    report: Callable[[str], None],
) -> Weights:
    """Write the GGUF files of the cards into `folder`.

    base  the base of the adapters as the engine has it: a GGUF file, or a name in Ollama; None: converted here

    Raises ModelUnavailable where the base of an adapter is not on this machine, UsageError for a `base` that is another
    model, CardError where the converter fails or what it wrote is not the card.
    """
    first = cards[0]
    with tempfile.TemporaryDirectory(prefix=".convert-", dir=folder) as scratch:
        if first.adapter is None:
            source = Path(scratch) / "model"
            if first.merged:
                report(f"merging {first.name} into its base {first.base.name}")
                merge(first.card, source)
            else:
                copy_model(first.card.folder, source)
            _model(first, source, folder / MODEL, converter, report)
            return Weights(f"./{MODEL}", {})
        return _adapters(cards, folder, Path(scratch), converter, base, report)


def _adapters(
    cards: Sequence[Prepared],
    folder: Path,
    scratch: Path,
    converter: Converter,
    base: str | None,
    report: Callable[[str], None],
) -> Weights:
    first, found = cards[0], {}
    files = base_files(first.base.name, first.base.revision)
    if files is None:
        pinned = f" --revision {first.base.revision}" if first.base.revision else ""
        needed = "its config: `hf download {0} config.json{1}`" if base else "it: `hf download {0}{1}`"
        raise ModelUnavailable(
            f"card {first.name!r}: its base {first.base.name!r} is not on this machine, and the converter needs "
            + needed.format(first.base.name, pinned)
        )
    model = None if base is None else Path(base).expanduser()
    if model is not None and model.suffix == ".gguf":
        if not model.is_file():
            raise UsageError(f"--base {base} does not exist")
        architecture(model)
    if base is None:
        Loader().check_digest(first.card)
        _model(first, files, folder / BASE, converter, report)
        model = folder / BASE
    known = model if model is not None and model.is_file() else None
    for card in cards:
        if card.adapter is None:
            continue
        report(f"converting {card.name}")
        copy_adapter(card.card, scratch / card.name, card.base.name)
        converter.adapter(scratch / card.name, files, folder / f"{card.name}.gguf")
        check_adapter(folder / f"{card.name}.gguf", card.adapter, known)
        found[card.name] = f"./{card.name}.gguf"
    named = f"./{BASE}" if base is None else str(known.absolute()) if known is not None else base
    return Weights(named, found)


def _model(
    card: Prepared, source: Path, target: Path, converter: Converter, report: Callable[[str], None]
) -> None:
    report(f"converting {card.base.name if card.adapter is not None else card.name}")
    small = sum(path.stat().st_size for path in source.glob("*.safetensors")) < 4 * SMALL
    converter.model(source, target, small)
    tokenizer = Loader().tokenizer(card.card)
    check_model(target, 1, None if tokenizer.bos_token_id is None else not card.prompt.before)
