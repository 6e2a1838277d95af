"""What llama.cpp is started with: GGUF files of adapters, bases and whole models, made by its own converter."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from kcard.cards.export.files import copy_adapter, copy_model
from kcard.cards.export.gguf import Converter, architecture, check_adapter, check_model
from kcard.cards.export.merging import merge
from kcard.cards.export.prepared import Prepared
from kcard.cards.lm.loader import SMALL, Loader, base_files
from kcard.errors import ModelUnavailable, UsageError

__all__ = ["write"]

MODEL, BASE = "model.gguf", "base.gguf"


def write(
    cards: Sequence[Prepared],
    folder: Path,
    converter: Converter,
    base: str | None,
    report: Callable[[str], None],
) -> list[str]:
    """Write the GGUF files of the cards into `folder`; return the command that starts llama.cpp's server there.

    base  the base of the adapters as a GGUF file; None: converted here

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
            _write_model(first, source, folder / MODEL, converter, report)
            return ["llama-server", "-m", f"./{MODEL}"]
        model = _write_adapters(cards, folder, Path(scratch), converter, base, report)
    adapters = [word for card in cards for word in ("--lora", f"./{card.name}.gguf")]
    # Requests say which card is to answer. The server's cache of prompts, which does not know adapters, would give one
    # card's keys and values to another that is asked the same.
    return ["llama-server", "-m", model, *adapters, "--lora-init-without-apply", "--cache-ram", "0"]


def _write_adapters(
    cards: Sequence[Prepared],
    folder: Path,
    scratch: Path,
    converter: Converter,
    base: str | None,
    report: Callable[[str], None],
) -> str:
    """Write a GGUF file for each adapter, and for the base where it is not given; return the base's file."""
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
        _write_model(first, files, folder / BASE, converter, report)
        model = folder / BASE
    else:
        model = Path(base).expanduser().absolute()
        if not model.is_file():
            raise UsageError(f"--base {base} does not exist")
        architecture(model)
    for card in cards:
        if card.adapter is None:
            continue
        report(f"converting {card.name}")
        copy_adapter(card.card, scratch / card.name, card.base.name)
        converter.adapter(scratch / card.name, files, folder / f"{card.name}.gguf")
        check_adapter(folder / f"{card.name}.gguf", card.adapter, model)
    return f"./{BASE}" if base is None else str(model)


def _write_model(
    card: Prepared, source: Path, target: Path, converter: Converter, report: Callable[[str], None]
) -> None:
    report(f"converting {card.base.name if card.adapter is not None else card.name}")
    small = sum(path.stat().st_size for path in source.glob("*.safetensors")) < 4 * SMALL
    converter.model(source, target, small)
    tokenizer = Loader().tokenizer(card.card)
    check_model(target, 1, None if tokenizer.bos_token_id is None else not card.prompt.before)
