"""How a search card is made: it learns nothing and holds nothing but the name of what it searches."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import kcard
from kcard.cards.format.kinds import SEARCH
from kcard.cards.kinds.search import Search
from kcard.config import settings
from kcard.errors import CardError, UsageError
from kcard.manifest import Manifest, Training
from kcard.training.output import claim, fresh
from kcard.training.record import command_line

if TYPE_CHECKING:
    from kcard.cards.format.folder import Card

__all__ = ["make"]

LANGUAGE = re.compile(r"[a-z]{2,3}")


def make(searched: str | Path, name: str | None, manifest: Manifest, output: str | Path | None) -> "Card":
    """The card that searches what is registered under this name, such as wikipedia:de. Nothing is asked.

    `manifest`: as the user wants it; its description, language and licence are those of what is searched where
    they are left open. Raises UsageError for what can't be searched.
    """
    # A Path has one slash where an address had two.
    spec = re.sub(r"(?<=:)(https?):/+", r"\1://", str(searched))
    try:
        search = Search(spec)
        source = search.open()
    except CardError as error:
        raise UsageError(f"corpus {spec}: {error}") from error
    name = name or re.sub(r"[^a-z0-9._]+", "-", source.name.lower()).strip("-._")
    argument = spec.partition(":")[2]
    if manifest.language == "en" and LANGUAGE.fullmatch(argument):
        manifest = replace(manifest, language=argument)
    if manifest.licence == "unknown":
        manifest = replace(manifest, licence=getattr(source, "licence", "") or "unknown")
    record = Training(
        command=shlex.join(command_line()),
        objective="search",
        method=spec,
        corpus_licence=manifest.licence,
        libraries={"kcard": kcard.__version__},
    )
    made = replace(manifest, name=name, kind="search", training=record)
    folder = Path(output).expanduser().absolute() if output else settings().drafts / name
    claim(folder, name)
    from kcard.cards.format import folder as cards

    with fresh(folder) as partial:
        (partial / SEARCH).write_text(search.to_json(), encoding="utf-8")
        finished = cards.finish(partial, made, ())
    return cards.Card(folder, finished.manifest)
