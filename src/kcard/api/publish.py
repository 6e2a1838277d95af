"""publish: a draft becomes a version of the hub, once it has passed what was asked of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, overload

from kcard.config import settings
from kcard.errors import HubError, UsageError

if TYPE_CHECKING:
    from kcard.cards.folder import Card
    from kcard.hub.registry import Hub
    from kcard.hub.remote.push import Published
    from kcard.hub.versions import Version

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


def publish(
    card: "Path | str | HasFolder | None" = None,
    *,
    hub: "Hub | str | None" = None,
    repository: str | None = None,
    private: bool = False,
    aliases: Sequence[str] = (),
    min_recall: float | None = None,
    min_factuality: float | None = None,
    strict: bool = False,
    report: Callable[[str], None] | None = None,
    progress: bool = False,
) -> "Version | Published":
    """Publish a trained card: the Python twin of `kcard publish`.

    card            a card, its folder, the name of a draft, or None for the card trained last
    hub             the local hub, or the address of another one that speaks the Hugging Face Hub's protocol,
                    https://huggingface.co among them
    repository      there: namespace/name (default: the user's own namespace, the card's name)
    private         there: whether a repository that is made is private
    aliases         names for this version, such as stable
    min_recall      least recall in its exam, in [0, 1]
    min_factuality  least factuality in its exam, against independent evidence, in [0, 1]
    strict          refuse a card that gives away private data, instead of only saying so; and have it write
                    for the scan even if it is large
    report          told in a sentence what the privacy scan found, if it found something
    progress        whether bars on stderr show the upload

    Raises HubError where there is no such draft, its exam is below what was asked (or was not taken), or
    `strict` finds private data; and what Hub.publish raises. Nothing is published then. For another hub: HubError
    where it refuses or does not answer; what was uploaded so far need not be uploaded again.
    """
    from kcard.cards.folder import Card
    from kcard.evaluation.thresholds import check_exam
    from kcard.hub.drafts import draft
    from kcard.hub.registry import Hub

    elsewhere = hub if isinstance(hub, str) else None
    if elsewhere is None and (repository is not None or private):
        raise UsageError("a repository has a name and rights on a hub elsewhere: say which with --hub URL")
    named = card if card is None or isinstance(card, str | Path) else card.folder
    found = Card.open(draft(settings().drafts, named))
    check_exam(found, {"recall": min_recall, "factuality": min_factuality})
    _check_privacy(found, strict, report or _silent)
    if elsewhere is not None:
        from kcard.api.remote import push

        return push(
            found.folder,
            elsewhere,
            repository=repository,
            private=private,
            aliases=aliases,
            progress=progress,
        )
    return (hub if isinstance(hub, Hub) else Hub()).publish(found.folder, aliases=aliases)


def _check_privacy(card: "Card", strict: bool, report: Callable[[str], None]) -> None:
    from kcard.evaluation.privacy import DOCUMENTS, scan

    large = card.manifest.has_model and _is_large(card)
    privacy = scan(card, documents=0 if large and not strict else DOCUMENTS)
    if privacy.findings and strict:
        raise HubError(f"{card.name} is not published: it gives away private data: {privacy}")
    if privacy.findings:
        report(f"{card.name} gives away private data: {privacy} (--strict refuses to publish it)")
    if large and not strict:
        report(
            f"{card.name}: its files were scanned for private data; what its model writes only with --strict"
        )


def _is_large(card: "Card") -> bool:
    """Whether loading it takes long: many weights, or some that lie elsewhere (a base, a card by reference)."""
    weights = [card.folder / name for name in card.manifest.files if name.endswith(".safetensors")]
    size = sum(path.stat().st_size for path in weights)
    return card.manifest.kind == "lora" or not 0 < size <= LARGE


def _silent(text: str) -> None:
    """A report that goes nowhere."""
