"""A card's metadata, from the front matter of its README.md, and the tags derived from it."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kcard.hub.checks.front_matter import MOST_NODES, load_yaml, split
from kcard.hub.refusals import Invalid, TooLarge

if TYPE_CHECKING:
    from kcard.manifest import Manifest

__all__ = ["LONGEST_DESCRIPTION", "check_manifest", "library", "pipeline_tag", "read", "tags"]

LONGEST_DESCRIPTION = 2000  # characters
LONGEST_TEXT = 200  # of the other texts of a manifest that pages show
LONGEST_TAG = 200
MOST_TAGS = 500
RELATIONS = ("adapter", "finetune", "merge", "quantized")
ADAPTER = "adapter_config.json"


def read(readme: str, most: int | None = MOST_NODES) -> tuple[dict[str, Any], str]:
    """The metadata as JSON values, and the text below it. Raises Invalid, Dangerous, TooLarge.

    `most`: keys and values; None, for what is stored already: any number.
    """
    front, body = split(readme)
    card = load_yaml(front, "README.md", most) if front.strip() else {}
    if card is None:
        return {}, body
    if not isinstance(card, dict):
        raise Invalid(f"README.md: the front matter is a {type(card).__name__}: use `key: value` lines")
    return card, body


def check_manifest(manifest: "Manifest") -> None:
    """Raise TooLarge if a text that lists and pages show is too long."""
    for name, text, longest in (
        ("description", manifest.description, LONGEST_DESCRIPTION),
        ("domain", manifest.domain, LONGEST_TEXT),
        ("kind", manifest.kind, LONGEST_TEXT),
        ("language", manifest.language, LONGEST_TEXT),
        ("licence", manifest.licence, LONGEST_TEXT),
        ("knowledge_date", manifest.knowledge_date or "", LONGEST_TEXT),
        ("base.name", manifest.base.name, LONGEST_TEXT),
    ):
        if len(text) > longest:
            raise TooLarge(
                f"kcard.json: the {name} has {len(text)} characters, the limit is {longest}: shorten it, and put long "
                "texts in README.md"
            )


def tags(
    card: Mapping[str, Any], paths: Iterable[str], manifest: "Manifest | None" = None
) -> tuple[str, ...]:
    """The tags of a repository, derived as on the Hugging Face Hub: words and `key:value`.

    With the manifest of a knowledge card, also kcard, kcard:kind:…, and domain:… for its domain and each one above.
    Invalid tags (empty, too long, with control characters) are omitted.
    """
    files = frozenset(paths)
    found = dict.fromkeys(tag for tag in _derived(card, files, manifest) if _is_tag(tag))
    return tuple(found)[:MOST_TAGS]


def library(card: Mapping[str, Any], paths: Iterable[str]) -> str | None:
    """The library that loads it, from the metadata, else from its files."""
    if named := _text(card.get("library_name")):
        return named
    files = frozenset(paths)
    if ADAPTER in files:
        return "peft"
    if "modules.json" in files:
        return "sentence-transformers"
    return "transformers" if "config.json" in files and _has_tensors(files) else None


def pipeline_tag(card: Mapping[str, Any]) -> str | None:
    """Its task, from the metadata."""
    return _text(card.get("pipeline_tag"))


def _derived(card: Mapping[str, Any], files: frozenset[str], manifest: "Manifest | None") -> Iterator[str]:
    yield from filter(None, [library(card, files)])
    if _has_tensors(files):
        yield "safetensors"
    if ADAPTER in files:
        yield "peft"
    yield from filter(None, [pipeline_tag(card)])
    yield from _texts(card.get("tags"))
    # YAML reads the language code `no` as a boolean.
    yield from ("no" if code == "False" else code for code in _texts(card.get("language")))
    yield from (f"dataset:{name}" for name in _texts(card.get("datasets")))
    yield from _bases(card, files)
    yield from (f"license:{name.lower()}" for name in _texts(card.get("license")))
    if manifest is not None:
        yield "kcard"
        yield f"kcard:kind:{manifest.kind}"
        yield from (f"domain:{domain}" for domain in _upward(manifest.domain))


def _bases(card: Mapping[str, Any], files: frozenset[str]) -> Iterator[str]:
    names = [*_texts(card.get("base_model"))]
    relation = card.get("base_model_relation")
    if relation not in RELATIONS:
        adapter = ADAPTER in files or card.get("library_name") == "peft"
        relation = "adapter" if adapter else "merge" if len(names) > 1 else "finetune"
    for name in names:
        yield f"base_model:{name}"
        yield f"base_model:{relation}:{name}"


def _upward(domain: str) -> Iterator[str]:
    """biomedical, biomedical/oncology for biomedical/oncology."""
    return accumulate(domain.split("/"), lambda outer, inner: f"{outer}/{inner}")


def _has_tensors(files: frozenset[str]) -> bool:
    return any(path.endswith(".safetensors") for path in files)


def _is_tag(tag: str) -> bool:
    return 0 < len(tag) <= LONGEST_TAG and tag.isprintable() and tag == tag.strip()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and _is_tag(value) else None


def _texts(value: object) -> Iterator[str]:
    """The value, or the items of a list."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str | int | float):
            yield str(item)
