"""publish: a draft becomes a version of the hub, once it has passed what was asked of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, overload

from kcard.config import settings
from kcard.errors import HubError, UsageError
from kcard.option import Option, documented

if TYPE_CHECKING:
    from kcard.cards.format.folder import Card
    from kcard.hub.client.push import Published
    from kcard.hub.registry import Hub
    from kcard.hub.repositories.versions import Version

__all__ = ["publish"]

LARGE = 200_000_000  # bytes of weights; a larger model takes minutes to write fifty documents on a CPU


class HasFolder(Protocol):
    """A card, or anything else that lies in a folder."""

    @property
    def folder(self) -> Path: ...


@overload
def publish(
    card: "Path | str | HasFolder | None" = None,
    *,
    hub: "Hub | None" = None,
    aliases: Sequence[str] = (),
    min_recall: float | None = None,
    min_factuality: float | None = None,
    strict: bool = False,
    report: Callable[[str], None] | None = None,
) -> "Version": ...


@overload
def publish(
    card: "Path | str | HasFolder | None" = None,
    *,
    hub: str,
    repository: str | None = None,
    private: bool = False,
    aliases: Sequence[str] = (),
    min_recall: float | None = None,
    min_factuality: float | None = None,
    strict: bool = False,
    report: Callable[[str], None] | None = None,
    progress: bool = False,
) -> "Published": ...


@documented
def publish(
    card: Annotated[
        "Path | str | HasFolder | None",
        Option(
            "A draft's name or a card folder.",
            default="the last one trained",
            argument=True,
            command_line=str | None,
            completes="drafts",
        ),
    ] = None,
    *,
    hub: Annotated[
        "Hub | str | None",
        Option("A hub's URL, or local.", default="the setting hub_url, else local", command_line=str | None),
    ] = None,
    repository: Annotated[
        str | None, Option("On a remote hub: namespace/name.", default="yours, the card's name")
    ] = None,
    private: Annotated[bool, Option("On a remote hub: create the repository as private.")] = False,
    aliases: Annotated[
        Sequence[str],
        Option(
            "A name for this version, such as stable. Repeatable.", flag="--alias", command_line=list[str]
        ),
    ] = (),
    min_recall: Annotated[
        float | None, Option("Publish only if its exam has at least this recall.", least=0, most=1)
    ] = None,
    min_factuality: Annotated[
        float | None,
        Option("Publish only if its exam has at least this factuality.", least=0, most=1),
    ] = None,
    strict: Annotated[
        bool,
        Option(
            "Refuse a card with private data, and scan the output of large models too.",
            negatable=True,
        ),
    ] = False,
    report: Callable[[str], None] | None = None,
    progress: bool = False,
) -> "Version | Published":
    """Publish a card as its next version, which is immutable and verified on every read.

    `report` is called with a sentence on what the privacy scan found, and where the hub has this version already that
    the card is unchanged. A card is scanned once: what was found is remembered in the cache. `progress`: whether bars
    on stderr show the upload to a hub elsewhere, which is any that speaks the Hugging Face Hub's protocol.

    Raises HubError where there is no such draft, its exam is below what was asked (or was not taken), or
    `strict` finds private data; and what Hub.publish raises. Nothing is published then. For another hub: HubError
    where it refuses or does not answer; what was uploaded so far need not be uploaded again.
    """
    from kcard.cards.format.folder import Card
    from kcard.hub.drafts import draft
    from kcard.hub.registry import Hub

    elsewhere = hub if isinstance(hub, str) else None
    if elsewhere is None and (repository is not None or private):
        raise UsageError("repository and private need a remote hub: give it with --hub URL")
    named = card if card is None or isinstance(card, str | Path) else card.folder
    report = report or _silent
    source = Card.open(draft(settings().drafts, named))
    if min_recall is not None or min_factuality is not None:
        from kcard.evaluation.thresholds import check_exam

        check_exam(source, {"recall": min_recall, "factuality": min_factuality})
    _check_privacy(source, strict, report)
    if elsewhere is not None:
        from kcard.api.remote import push

        there = push(
            source.folder,
            elsewhere,
            repository=repository,
            private=private,
            aliases=aliases,
            progress=progress,
        )
        if there.unchanged:
            report(f"{there.reference} is unchanged")
        return there
    local = hub if isinstance(hub, Hub) else Hub()
    if (version := local.published(source.folder)) is not None:
        report(f"{version.reference} is unchanged")
    return local.publish(source.folder, aliases=aliases)


def _check_privacy(card: "Card", strict: bool, report: Callable[[str], None]) -> None:
    from kcard.evaluation.privacy import DOCUMENTS, summary

    large = card.manifest.has_model and _is_large(card)
    private = summary(card, documents=0 if large and not strict else DOCUMENTS)
    if private and strict:
        raise HubError(f"{card.name} is not published: it contains private data: {private}")
    if private:
        report(f"{card.name} contains private data: {private} (--strict refuses to publish it)")
    if large and not strict:
        report(
            f"{card.name}: its files were scanned for private data; the output of its model is scanned only "
            "with --strict"
        )


def _is_large(card: "Card") -> bool:
    """Whether loading it takes long: many weights, or some that lie elsewhere (a base, a card by reference)."""
    weights = [card.folder / name for name in card.manifest.files if name.endswith(".safetensors")]
    size = sum(path.stat().st_size for path in weights)
    return card.manifest.is_adapter or not 0 < size <= LARGE


def _silent(text: str) -> None:
    """A report that goes nowhere."""
