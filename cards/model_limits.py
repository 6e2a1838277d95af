"""Limits of what the configs of a model and the rules of its tokenizer may ask for.

A stranger's config may ask for a hundred million layers, and a tokenizer's rules may replace each letter by a megabyte.
Both are compared with the weights, or counted, before anything is built.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kcard.errors import CardError

# Sizes of models.

# Config keys that count layers, and those that count the experts of a layer.
LAYER_KEY = re.compile(r"(?:^|_)layers?$", re.IGNORECASE)
EXPERT_KEY = re.compile(r"(?:^|_)experts$", re.IGNORECASE)
# Every layer has a tensor of its own, and so have most experts; small models may count a few that they don't have.
FREE_LAYERS, FREE_EXPERTS = 1_000, 50_000
# Numbers of a model for each of its weights: more than one if several are packed into one.
MAX_EXPANSION = 16
FREE_NUMBERS = 50_000_000


def stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in a folder's safetensors files, by name, from their headers."""
    from safetensors import safe_open

    shapes = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                shapes[name] = tuple(file.get_slice(name).get_shape())
    return shapes


def refuse_oversized(folder: Path, name: str) -> None:
    """Raise CardError if the config of the whole model in a folder has more layers or experts than its weights.

    name  of the card, for the message
    """
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        return
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    layers = max(_numbers(config, LAYER_KEY), default=1)
    experts = max(_numbers(config, EXPERT_KEY), default=1)
    if layers <= FREE_LAYERS and layers * experts <= FREE_EXPERTS:
        return
    tensors = len(stored_shapes(folder))
    if layers > max(tensors, FREE_LAYERS) or layers * experts > max(tensors, FREE_EXPERTS):
        raise CardError(
            f"{name}: its config.json has {layers} layers of {experts} experts, but its weights are {tensors} tensors: "
            "refused"
        )


def _numbers(config: Any, key: re.Pattern[str]) -> Iterator[int]:
    """Yield the whole numbers under such keys, at any depth."""
    waiting: list[Any] = [config]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for name, value in item.items():
                if key.search(name) and isinstance(value, int):
                    yield value
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def check_memory(folder: Path) -> None:
    """Raise ValueError if the model in a folder would take far more memory than its weights, which transformers would
    fill with random numbers.

    Call it after `refuse_oversized`, which bounds the time that this takes.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shapes = stored_shapes(folder)
    if not shapes:
        return
    stored = sum(map(math.prod, shapes.values()))
    with torch.device("meta"):
        config: Any = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    needed = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    if needed > MAX_EXPANSION * stored + FREE_NUMBERS:
        raise ValueError(f"its config.json needs {needed} numbers, but its weights are {stored}: refused")


# Rules of tokenizers: what a text may grow to.

MAX_TOKENIZER_BYTES = 100_000_000
MAX_GROWTH = 1_000  # characters or tokens for each character
MAX_TOKEN_CHARACTERS = 10_000
MAX_PADDING = 1_000_000  # tokens
# How many characters one may become at most, by Unicode.
UNICODE_GROWTH = {"NFKC": 18, "NFKD": 18, "NFC": 3, "NFD": 4, "BertNormalizer": 12, "ByteLevel": 4}

# The field of a rule with the text that it may insert for each character.
INSERTED_TEXTS = {
    "Replace": "content",
    "Prepend": "prepend",
    "Metaspace": "replacement",
    "WordPiece": "prefix",
    "BPEDecoder": "suffix",
    "CTC": "word_delimiter_token",
}


def check_tokenizer(folder: Path) -> None:
    """Raise ValueError if the rules of a folder's tokenizer.json make texts grow without measure."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return
    if path.stat().st_size > MAX_TOKENIZER_BYTES:
        raise ValueError(f"its tokenizer.json has more than {MAX_TOKENIZER_BYTES} bytes: refused")
    check_rules(path.read_text(encoding="utf-8"))


def check_rules(text: str) -> None:
    """Raise ValueError if a tokenizer, as JSON, makes texts grow without measure."""
    try:
        rules = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its tokenizer.json is not JSON: {error}") from error
    if not isinstance(rules, dict):
        raise ValueError("its tokenizer.json is not a tokenizer: refused")
    growth = 1
    for part in ("normalizer", "pre_tokenizer", "post_processor"):
        growth *= _growth(rules.get(part))
    if max(growth, _growth(rules.get("decoder"))) > MAX_GROWTH:
        raise ValueError(
            f"its tokenizer.json has rules that make a text more than {MAX_GROWTH} times as long: refused"
        )
    padding = rules.get("padding")
    if max(_numbers(padding, re.compile("^(?:Fixed|pad_to_multiple_of)$")), default=0) > MAX_PADDING:
        raise ValueError(f"its tokenizer.json pads texts to more than {MAX_PADDING} tokens: refused")
    if _longest_token(rules) > MAX_TOKEN_CHARACTERS:
        raise ValueError(
            f"its tokenizer.json has a token of more than {MAX_TOKEN_CHARACTERS} characters: refused"
        )


def _growth(rule: Any) -> int:
    """Return by how much a rule, and those within it, may lengthen a text, as a factor."""
    if not isinstance(rule, Mapping):
        return 1
    kind = str(rule.get("type"))
    if kind in INSERTED_TEXTS:
        growth = 1 + _length(rule.get(INSERTED_TEXTS[kind]))
    elif kind == "Precompiled":
        growth = _precompiled_growth(rule.get("precompiled_charsmap"))
    elif kind == "TemplateProcessing":
        growth = _template_growth(rule)
    else:
        growth = UNICODE_GROWTH.get(kind, 1)
    for part in ("normalizers", "pretokenizers", "processors", "decoders"):
        for inner in rule.get(part) or ():
            growth *= _growth(inner)
            if growth > MAX_GROWTH:
                return growth
    return growth


def _length(text: Any) -> int:
    return len(text) if isinstance(text, str) else 0


def _precompiled_growth(charsmap: Any) -> int:
    """Return the length of the longest replacement in a map of SentencePiece: the size of a trie, the trie, and
    replacements that end in NUL."""
    try:
        content = base64.b64decode(charsmap or "")
    except (binascii.Error, TypeError, ValueError):
        return MAX_GROWTH + 1
    replacements = content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")
    return 1 + max(len(replacement.decode(errors="replace")) for replacement in replacements)


def _template_growth(rule: Mapping[str, Any]) -> int:
    """Return how many sequences and tokens a template makes of one text."""
    special_tokens = rule.get("special_tokens") or {}
    counts = [1]
    for template in (rule.get("single"), rule.get("pair")):
        count = 0
        for piece in template or ():
            count += 1
            if isinstance(piece, Mapping) and piece.get("SpecialToken") is not None:
                token = special_tokens.get(str(piece["SpecialToken"].get("id")))
                if isinstance(token, Mapping):
                    count += max(1, len(token.get("ids") or ())) - 1
        counts.append(count)
    return max(counts)


def _longest_token(rules: Mapping[str, Any]) -> int:
    """Return the characters of the longest token."""
    model, lengths = rules.get("model"), [0]
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocabulary, dict | list):
        for token in vocabulary:
            lengths.append(_length(token if isinstance(token, str) else token[0]))
    for token in rules.get("added_tokens") or ():
        lengths.append(_length(token.get("content")))
    return max(lengths)
