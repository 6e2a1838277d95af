"""Front matter of a README.md, and tags derived from it."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import yaml

from kcard.hub.errors import Dangerous, Invalid, TooLarge

if TYPE_CHECKING:
    from kcard.manifest import Manifest


# Untrusted YAML: limited in size, without anchors, aliases, tags and duplicate keys; front matter of a README.

MAX_YAML_CHARACTERS = 512 << 10  # characters of front matter
MAX_YAML_NODES = 30_000  # keys, values, lists and mappings; building them takes 150 ms
MAX_YAML_DEPTH = 32
MAX_NUMBER_DIGITS = 100
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
FENCE = re.compile(r"---[ \t]*\r?\n(?:(.*?)\r?\n)?---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def split_front_matter(text: str) -> tuple[str, str]:
    """Return the front matter of a README ("" if none), and the text after it."""
    text = text.removeprefix("\ufeff")
    match = FENCE.match(text)
    if match is None:
        return "", text
    return match[1] or "", text[match.end() :]


def load_yaml(text: str, where: str, most: int | None = MAX_YAML_NODES) -> Any:
    """Return the value of one YAML document as JSON values: dates, NaN and infinities become strings.

    `most`: nodes of the document; None: any number. Raises Dangerous for anchors, aliases and tags, Invalid for
    malformed or deeply nested YAML, TooLarge.
    """
    if len(text) > MAX_YAML_CHARACTERS:
        raise TooLarge(
            f"{where} has {len(text)} characters of YAML: the limit is {MAX_YAML_CHARACTERS}; move data to a file of "
            "its own"
        )
    loader = None
    try:
        check_yaml(text, where, most)
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_node(node, where)
        return _plain(loader.construct_document(node))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Invalid(f"{where}: invalid YAML: {' '.join(str(error).split())[:200]}") from None
    finally:
        if loader is not None:
            loader.dispose()


def check_yaml(text: str, where: str, most: int | None = None) -> None:
    """Check the documents without building them. Raises as `load_yaml` does, and YAMLError."""
    depth, nodes = 0, 0
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise Dangerous(f"{where}: YAML anchors and aliases are not allowed: write the values out")
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise Dangerous(f"{where}: the YAML tag {str(tag)[:80]!r} is not allowed: use a plain value")
        nodes += isinstance(event, yaml.NodeEvent)
        if most is not None and nodes > most:
            raise TooLarge(
                f"{where} has more than {most} keys and values of YAML: move data to a file of its own"
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_YAML_DEPTH:
            raise Invalid(f"{where}: YAML nested too deeply: the limit is {MAX_YAML_DEPTH} levels")


def _check_node(node: yaml.Node, where: str) -> None:
    """Check that keys are unique strings and numbers short: parsing a long one takes quadratic time."""
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise Invalid(f"{where}: YAML keys must be strings")
            if key.value in keys:
                raise Invalid(f"{where}: duplicate key {key.value[:80]!r}: keep one")
            keys.add(key.value)
            _check_node(key, where)
            _check_node(value, where)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check_node(value, where)
    elif node.tag in NUMBERS and len(node.value) > MAX_NUMBER_DIGITS:
        raise Invalid(f"{where}: a number has {len(node.value)} digits: the limit is {MAX_NUMBER_DIGITS}")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        value.encode()  # fails for a lone surrogate, which can't be stored
        return value
    if value is None or isinstance(value, bool | int | float):
        return value
    raise ValueError(f"{type(value).__name__} is not a JSON value")


MAX_DESCRIPTION_CHARACTERS = 2000  # characters
MAX_TEXT_CHARACTERS = 200  # of the other texts of a manifest that pages show
MAX_TAG_CHARACTERS = 200
MAX_TAGS = 500
RELATIONS = ("adapter", "finetune", "merge", "quantized")
ADAPTER = "adapter_config.json"


def parse_readme(readme: str, most: int | None = MAX_YAML_NODES) -> tuple[dict[str, Any], str]:
    """Return the metadata as JSON values, and the text below it. Raises Invalid, Dangerous, TooLarge.

    `most`: limit of keys and values; None: any number, for what is already stored.
    """
    front, body = split_front_matter(readme)
    card = load_yaml(front, "README.md", most) if front.strip() else {}
    if card is None:
        return {}, body
    if not isinstance(card, dict):
        raise Invalid(f"README.md: the front matter is a {type(card).__name__}: use `key: value` lines")
    return card, body


def check_manifest(manifest: "Manifest") -> None:
    """Raise TooLarge if a text that lists and pages show is too long."""
    for name, text, longest in (
        ("description", manifest.description, MAX_DESCRIPTION_CHARACTERS),
        ("domain", manifest.domain, MAX_TEXT_CHARACTERS),
        ("kind", manifest.kind, MAX_TEXT_CHARACTERS),
        ("language", manifest.language, MAX_TEXT_CHARACTERS),
        ("licence", manifest.licence, MAX_TEXT_CHARACTERS),
        ("knowledge_date", manifest.knowledge_date or "", MAX_TEXT_CHARACTERS),
        ("base.name", manifest.base.name, MAX_TEXT_CHARACTERS),
    ):
        if len(text) > longest:
            raise TooLarge(
                f"kcard.json: the {name} has {len(text)} characters, the limit is {longest}: shorten it, and put long "
                "texts in README.md"
            )


def derive_tags(
    card: Mapping[str, Any], paths: Iterable[str], manifest: "Manifest | None" = None
) -> tuple[str, ...]:
    """Return the tags of a repository, derived as on the Hugging Face Hub: words and `key:value`.

    With the manifest of a knowledge card, also kcard, kcard:kind:…, kcard:method:…, and domain:… for its domain and
    each one above. Invalid tags (empty, too long, with control characters) are omitted.
    """
    files = frozenset(paths)
    # The library, and what the files are.
    derived = [find_library(card, files)]
    if _has_tensors(files):
        derived.append("safetensors")
    if any(path.endswith(".gguf") for path in files):
        derived.append("gguf")
    if ADAPTER in files:
        derived.append("peft")
    # The task, tags, languages and data sets. YAML reads the language code `no` as a boolean.
    derived += [find_pipeline_tag(card), *_texts(card.get("tags"))]
    derived += [{"False": "no"}.get(code, code) for code in _texts(card.get("language"))]
    derived += [f"dataset:{name}" for name in _texts(card.get("datasets"))]
    # The base models, and the relation to them.
    names = [*_texts(card.get("base_model"))]
    relation = card.get("base_model_relation")
    if relation not in RELATIONS:
        relation = "finetune"
        if ADAPTER in files or card.get("library_name") == "peft":
            relation = "adapter"
        elif len(names) > 1:
            relation = "merge"
    for name in names:
        derived += [f"base_model:{name}", f"base_model:{relation}:{name}"]
    derived += [f"license:{name.lower()}" for name in _texts(card.get("license"))]
    # The kind and the domain of a knowledge card; biomedical/oncology has biomedical and biomedical/oncology.
    if manifest is not None:
        derived += ["kcard", f"kcard:kind:{manifest.kind}"]
        if manifest.method:
            derived.append(f"kcard:method:{manifest.method}")
        domains = accumulate(manifest.domain.split("/"), lambda outer, inner: f"{outer}/{inner}")
        derived += [f"domain:{domain}" for domain in domains]
    unique = dict.fromkeys(tag for tag in derived if tag and _is_tag(tag))
    return tuple(unique)[:MAX_TAGS]


def find_library(card: Mapping[str, Any], paths: Iterable[str]) -> str | None:
    """Return the library that loads the repository, from its metadata or else from its files."""
    named = _text(card.get("library_name"))
    if named:
        return named
    files = frozenset(paths)
    if ADAPTER in files:
        return "peft"
    if "modules.json" in files:
        return "sentence-transformers"
    return "transformers" if "config.json" in files and _has_tensors(files) else None


def find_pipeline_tag(card: Mapping[str, Any]) -> str | None:
    """Return the task of the repository, from its metadata."""
    return _text(card.get("pipeline_tag"))


def _has_tensors(files: frozenset[str]) -> bool:
    return any(path.endswith(".safetensors") for path in files)


def _is_tag(tag: str) -> bool:
    return 0 < len(tag) <= MAX_TAG_CHARACTERS and tag.isprintable() and tag == tag.strip()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and _is_tag(value) else None


def _texts(value: object) -> Iterator[str]:
    """Yield the value, or the items of a list."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str | int | float):
            yield str(item)
