"""How the published versions of a card are signed, for its page. Whose keys they are, the hub does not know."""

from collections.abc import Mapping, Sequence

from kcard.errors import MissingExtra
from kcard.hub.checks.release import Signed, key_of, signed
from kcard.hub.repositories.values import Publication

__all__ = ["signatures"]

MOST = 5  # the newest ones: each signature is checked by a process, once


def signatures(
    repository: str, publications: Sequence[Publication], messages: Mapping[str, str]
) -> dict[str, str]:
    """By tag, the key that signed the version, or what is wrong; without those that need no remark.

    publications  newest first
    messages      of all tags
    """
    found: dict[str, str] = {}
    before: tuple[str, str] | None = None  # the last signed tag, and its key
    for publication in reversed(publications[:MOST]):
        tag = publication.tag
        sealed = signed(messages.get(tag, ""))
        if sealed is None:
            if before is not None:
                found[tag] = f"not signed, unlike {before[0]}"
            continue
        key = _key(sealed)
        if sealed.release.version != publication.version or key is None:
            found[tag] = "its signature is wrong"
            continue
        changed = f", another key than that of {before[0]}" if before is not None and before[1] != key else ""
        name = sealed.release.repository
        moved = f" as {name}" if name != repository else ""
        found[tag] = f"signed with {key}{moved}{changed}"
        before = tag, key
    return found


def _key(sealed: Signed) -> str | None:
    try:
        return key_of(sealed)
    except MissingExtra:
        return "a key that this hub can't check"
