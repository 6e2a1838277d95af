"""A card by reference: its weights lie in a repository of the Hugging Face Hub, pinned to one commit.

The card itself holds reference.json: repository, commit, and the sha256 of every file that is fetched. The
weights come into the Hugging Face cache when the card is first used; nothing unpinned is ever loaded.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.cards.format.code import refuse_code
from kcard.cards.format.folder import Card
from kcard.cards.format.importing.repository import Repository, fetch
from kcard.cards.format.kinds import REFERENCE
from kcard.cards.kinds import model
from kcard.cards.lm.engine.prefix import is_prefix
from kcard.cards.lm.loader import Loader
from kcard.errors import CardError
from kcard.json_values import build, parse
from kcard.manifest import Base

if TYPE_CHECKING:
    from kcard.cards.kinds.generator import CardGenerator

__all__ = ["REFERENCE", "Reference", "load", "resolved"]


@dataclass(frozen=True)
class Reference:
    """What is fetched: files of one commit, with their sha256 where the Hub tells them.

    `base` is the model that an adapter belongs to, pinned too; None for a whole model.
    """

    repository: str
    revision: str
    files: Mapping[str, str | None]
    base: Base | None = None

    @classmethod
    def to(cls, repository: Repository, base: Base | None) -> "Reference":
        files = {path: repository.files[path] for path in repository.needed}
        return cls(repository.name, repository.revision, files, base)

    @classmethod
    def read(cls, folder: Path) -> "Reference":
        """Raises CardError for a folder without a readable reference.json."""
        try:
            return build(cls, parse((folder / REFERENCE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise CardError(f"{folder / REFERENCE} is not a reference: {error!r}") from error

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def load(card: Card, models: Loader) -> "CardGenerator":
    """Fetch what the card refers to, check it, and load it as the full or LoRA card that it is.

    Raises ModelUnavailable where it can't be fetched or is not as pinned.
    """
    return model.load(resolved(card), models, pinned=True)


def resolved(card: Card) -> Card:
    """Fetch what the card refers to and check it: the full, LoRA or prefix card that it is, in the Hugging Face cache.

    Raises ModelUnavailable where it can't be fetched or is not as pinned.
    """
    reference = Reference.read(card.folder)
    folder = fetch(reference.repository, reference.revision, reference.files)
    refuse_code(folder, reference.repository, reference.files)
    if reference.base is None:
        manifest = replace(card.manifest, kind="full")
    else:
        kind = "prefix" if is_prefix(folder) else "lora"
        manifest = replace(card.manifest, kind=kind, base=reference.base)
    return Card(folder, manifest)
