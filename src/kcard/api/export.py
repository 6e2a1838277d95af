"""Export cards for vLLM or llama.cpp."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from kcard.errors import UsageError
from kcard.events import OnEvent, ignore, note
from kcard.options import Option, check_values, documented

if TYPE_CHECKING:
    from kcard.cards.export import Engine, Expected, ExportableCard

RECORD = "export.json"  # marks the folder of an export


@dataclass(frozen=True)
class ExportedCard:
    """A card of an export.

    sha256    of its manifest
    base      name and revision
    template  of its prompts, with the bos token in front if the engine does not add it
    expected  tokens that follow some prompts according to its fingerprint, which show whether the engine applies it
    """

    name: str
    sha256: str
    form: Literal["adapter", "merged", "whole"]
    base: tuple[str, str | None]
    template: str
    expected: "tuple[Expected, ...]"


@dataclass(frozen=True)
class Export:
    """An export: `files` are paths in `folder`, `command` starts the engine there."""

    folder: Path
    engine: str
    command: tuple[str, ...]
    cards: tuple[ExportedCard, ...]
    files: tuple[str, ...]


@documented
def export(
    cards: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "Drafts' names, card folders or published cards (name@v2); several must have one base.",
            argument=True,
            command_line=list[str],
            completes="drafts",
        ),
    ],
    to: Annotated[Literal["vllm", "llama.cpp"], Option("The engine.")],
    out: Annotated[Path | str, Option("A new folder.", command_line=Path)],
    *,
    merge: Annotated[
        bool, Option("Add the adapter to its base and export a whole model, checked by the fingerprint.")
    ] = False,
    converter: Annotated[
        Path | str | None,
        Option("llama.cpp: its convert_hf_to_gguf.py.", command_line=Path | None),
    ] = None,
    base: Annotated[
        str | None,
        Option("llama.cpp: the base of the adapters as a GGUF file.", default="converted too"),
    ] = None,
    force: Annotated[bool, Option("Replace the folder if it holds an earlier export.")] = False,
    on_event: OnEvent = ignore,
) -> Export:
    """Write a folder with the weights of cards in the format of an engine, and return the command that starts it there.

    The folder appears atomically. Its export.json records the command, how each card is prompted, and expected tokens,
    which show whether the engine applies the cards. `on_event` is called with a note if something takes long or is
    left out.

    Raises UsageError for wrong arguments and for cards that can't be served together, CardError for a card that the
    engine would not run as it was trained (the message has a remedy), ModelUnavailable if a base can't be loaded,
    MissingExtra for GGUF files without the extra gguf, and what finding a card raises.
    """
    check_values(export, {"to": to})
    from kcard.cards import export as cards_export
    from kcard.cards import gguf
    from kcard.cards.export import ENGINES, LLAMA_CPP, check_together, prepare
    from kcard.cards.gguf import Converter
    from kcard.evaluation.target import find_target
    from kcard.hub.storage import partial_sibling, sync_folder

    # Check the arguments and the cards.
    engine = ENGINES[to]
    target = _check_target(Path(out), force)
    if engine.name == "vllm" and (converter is not None or base is not None):
        raise UsageError(f"--converter and --base are for llama.cpp, not for {engine.title}")
    if merge and base is not None:
        raise UsageError("--merge makes a whole model, which needs no --base: use one of them")
    names = [cards] if isinstance(cards, str | Path) else [*cards]
    if not names:
        raise UsageError("name a card to export")
    prepared = [prepare(find_target(card).card, engine, merge) for card in names]
    check_together(prepared, engine)
    tool = Converter(converter) if engine is LLAMA_CPP else None
    if base is not None and prepared[0].adapter is None:
        raise UsageError("--base is for adapters, but a whole model is exported: leave it out")
    # Report what the engine does not do.
    for card in prepared:
        if card.card.manifest.index:
            on_event(note(f"{card.name}: its index is not exported: the engine runs the model alone"))
        if card.rewords:
            on_event(
                note(
                    f"{card.name}: the engine reads questions unchanged; kcard rewrites them in the corpus' words first"
                )
            )
    # Write the export into a new folder.
    with partial_sibling(target) as scratch:
        new = scratch / "new"
        new.mkdir()
        command = (
            cards_export.write_vllm(prepared, new, on_event)
            if tool is None
            else gguf.write_gguf(prepared, new, tool, base, on_event)
        )
        result = write_record(prepared, engine, new, target, command)
        _check_target(target, force)  # again, since an export may take long
        # Replace the target by the new folder; if that fails, the old one stays.
        old = scratch / "old"
        if replaced := target.is_dir():
            target.rename(old)
        try:
            new.rename(target)
        except BaseException:
            if replaced:
                old.rename(target)
            raise
        sync_folder(target.parent)
    return result


def write_record(
    cards: "Sequence[ExportableCard]", engine: "Engine", folder: Path, target: Path, command: Sequence[str]
) -> Export:
    """Write export.json, and return the export with its final folder."""
    from dataclasses import asdict

    from kcard import __version__

    exported = tuple(
        ExportedCard(
            card.name,
            card.sha256,
            card.form,
            (card.base.name, card.base.revision),
            card.prompt.before + card.prompt.template,
            tuple(card.expected),
        )
        for card in cards
    )
    data = {
        "kcard": __version__,
        "engine": engine.name,
        "command": [*command],
        "cards": [asdict(card) for card in exported],
    }
    (folder / RECORD).write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return Export(target, engine.name, tuple(command), exported, tuple(files))


def _check_target(out: Path, force: bool) -> Path:
    """Return the absolute path. Raises UsageError for a folder that must not be replaced."""
    from kcard.hub.storage import check_new_folder

    target = out.expanduser().absolute()
    if not target.is_symlink() and (target / RECORD).is_file():
        if force:
            return target
        raise UsageError(
            f"{target} contains an earlier export: replace it with --force, or choose a new folder"
        )
    return check_new_folder(out)
