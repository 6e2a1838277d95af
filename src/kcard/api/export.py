"""export: cards as an existing engine runs them: vLLM or llama.cpp."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from kcard.errors import UsageError
from kcard.options import Option, check_values, documented

if TYPE_CHECKING:
    from kcard.cards.export import Engine, Expected, ExportableCard

__all__ = ["Export", "ExportedCard", "export"]

RECORD = "export.json"  # tells the folder of an export from any other


@dataclass(frozen=True)
class ExportedCard:
    """A card of an export.

    sha256    of its manifest
    base      name and revision
    template  of its prompts, with the bos token in front where the engine does not add it itself
    expected  tokens that come next after some prompts, by its fingerprint: they show whether the engine applies it
    """

    name: str
    sha256: str
    form: Literal["adapter", "merged", "whole"]
    base: tuple[str, str | None]
    template: str
    expected: "tuple[Expected, ...]"


@dataclass(frozen=True)
class Export:
    """A written export: `files` are paths in `folder`, `command` starts the engine there."""

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
    report: Callable[[str], None] | None = None,
) -> Export:
    """Write a folder with the weights of cards as an engine reads them, and return the command that starts it there.

    The folder appears whole or not at all. Its export.json records the command, how each card is prompted, and tokens
    by which whoever runs the engine can see that it applies the cards. `report` is called with a sentence where
    something takes long or is left out.

    Raises UsageError for wrong arguments and cards that can't be served together, CardError for a card that the engine
    would not run as it was trained (the message says what to do instead), ModelUnavailable where a base is needed and
    can't be had, MissingExtra for GGUF files without the extra gguf, and what finding a card raises.
    """
    check_values(export, {"to": to})
    from kcard.cards import export as cards_export
    from kcard.cards import gguf
    from kcard.cards.export import ENGINES, LLAMA_CPP, check_together, prepare
    from kcard.cards.gguf import Converter
    from kcard.evaluation.target import find_target
    from kcard.hub.storage import beside, sync_folder

    engine, say = ENGINES[to], report or (lambda _: None)
    target = _check_target(Path(out), force)
    if engine.name == "vllm" and (converter is not None or base is not None):
        raise UsageError(f"--converter and --base are for llama.cpp, not for {engine.title}")
    if merge and base is not None:
        raise UsageError("--merge makes a whole model, which needs no --base: give one of them")
    names = [cards] if isinstance(cards, str | Path) else [*cards]
    if not names:
        raise UsageError("name a card to export")
    prepared = [prepare(find_target(card).card, engine, merge) for card in names]
    check_together(prepared, engine)
    tool = Converter(converter) if engine is LLAMA_CPP else None
    if base is not None and prepared[0].adapter is None:
        raise UsageError("--base is for adapters, and a whole model is exported: leave it out")
    for card in prepared:
        if card.card.manifest.index:
            say(f"{card.name}: its index stays behind: the engine writes only what the model learned")
        if card.rewords:
            say(
                f"{card.name}: the engine reads questions as they are; kcard puts them into the corpus' words first"
            )
    with beside(target) as scratch:
        new = scratch / "new"
        new.mkdir()
        command = (
            cards_export.write(prepared, new, say)
            if tool is None
            else gguf.write(prepared, new, tool, base, say)
        )
        result = write_record(prepared, engine, new, target, command)
        _check_target(target, force)  # once more: an export may take long
        # The new folder takes the target's place; where that fails, the old one stays.
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
    """Write export.json; return the export as the caller sees it."""
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
    from kcard.hub.storage import check_new

    target = out.expanduser().absolute()
    if not target.is_symlink() and (target / RECORD).is_file():
        if force:
            return target
        raise UsageError(f"{target} holds an earlier export: replace it with --force, or choose a new folder")
    return check_new(out)
