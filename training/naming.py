"""A card's default name and description, read off its corpus."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from kcard.errors import UsageError
from kcard.training.spans import SMALL, bare
from kcard.words import small_words

__all__ = ["describe", "name_from"]

_COMMON = """
about above again against almost along already although always among another around because became become being
between both called could different does done down during each early either enough even ever every first found from
full gave general gets give given goes going gone good great half have having held here high hold into itself just
keep kept kind known large last late later least left less like long made main make many might more most much must
near need never next none often once only open other others over part past people perhaps place rather really right
said same second seen several shall should since small some soon still such sure take taken than that their them
then there these thing things third this those though three through time times today together took toward under
until upon used using usually various very want well went were what where whether which while whole whom whose wide
will with within without work would year years your
also below chapter command default description example examples following note overview section synopsis usage
"""
SAMPLE = 20_000  # passages, spread over the corpus
COMMON = SMALL | set(_COMMON.split())


def name_from(path: Path) -> str:
    """The corpus' file or folder name, lower case, with '-' for whatever a card's name can't hold."""
    stem = path.resolve().name if path.is_dir() else path.stem
    slug = re.sub(r"[^a-z0-9._]+", "-", stem.lower()).strip("-._")[:96]
    if not slug:
        raise UsageError(f"can't derive a card name from {path.name!r}: give one with name (--name)")
    return slug


def describe(texts: Sequence[str], language: str = "en", terms: int = 6) -> str:
    """One line: the words and pairs of words that most passages share, in the form that they mostly have.

    The small words of the language are left out.
    """
    seen: Counter[str] = Counter()
    forms: dict[str, Counter[str]] = {}
    common = _common(language)
    for text in texts[:: max(1, len(texts) // SAMPLE)]:
        found = {term.lower(): term for term in _terms(text, common)}
        seen.update(found.keys())
        for key, form in found.items():
            forms.setdefault(key, Counter())[form] += 1
    chosen: list[str] = []
    for key, _ in sorted(seen.items(), key=lambda item: (-item[1] * (1 + item[0].count(" ")), item[0])):
        words = set(key.split())
        if not any(words & set(other.split()) for other in chosen):
            chosen.append(key)
        if len(chosen) == terms:
            break
    if not chosen:
        return f"{len(texts)} passages"
    return ", ".join(forms[key].most_common(1)[0][0] for key in chosen)


def _common(language: str) -> Collection[str]:
    """Words that say little; of English more than of other languages."""
    return COMMON | small_words(language) if language.startswith("en") else small_words(language)


def _terms(text: str, common: Collection[str]) -> list[str]:
    """Words of four letters and more that carry meaning, and pairs of such words side by side."""
    words = [bare(word).removesuffix("'s").removesuffix("’s") for word in text.split()]
    kept = [len(word) > 3 and word.lower() not in common and not word[0].isdigit() for word in words]
    single = [word for word, keep in zip(words, kept, strict=True) if keep]
    pairs = zip(words, words[1:], kept, kept[1:], strict=False)
    return single + [f"{a} {b}" for a, b, keep, also in pairs if keep and also]
