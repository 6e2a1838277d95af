"""The prompt style `tokens`: the question is filled into a template and tokenised."""

from collections.abc import Sequence
from typing import Any

from kcard.cards.lm.generation import Prompts

__all__ = ["all_prompt_ids", "encode", "prompt_ids"]


def prompt_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a prompt, as in training: the tokenizer's own special tokens, but one that begins the text
    wherever the tokenizer has a bos token, and none that ends it."""
    return _framed(tokenizer, tokenizer(text)["input_ids"])


def all_prompt_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The ids of several prompts, made at once, which is much faster."""
    return [_framed(tokenizer, ids) for ids in tokenizer(list(texts))["input_ids"]]


def _framed(tokenizer: Any, ids: list[int]) -> list[int]:
    if tokenizer.eos_token_id is not None and len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
        ids = ids[:-1]
    if tokenizer.bos_token_id is not None and ids[:1] != [tokenizer.bos_token_id]:
        ids = [tokenizer.bos_token_id, *ids]
    return ids


def encode(tokenizer: Any, template: str, questions: Sequence[str], longest: int) -> Prompts:
    """Prompts of at most `longest` tokens each: of a longer question the first words are left out."""
    # Not str.format: a question may contain braces, and so may a template.
    rows = [prompt_ids(tokenizer, template.replace("{question}", question.strip())) for question in questions]
    return Prompts(ids=tuple(tuple(_shortened(row, longest, tokenizer.bos_token_id)) for row in rows))


def _shortened(ids: list[int], longest: int, bos: int | None) -> list[int]:
    if len(ids) <= longest:
        return ids
    return ids[-longest:] if ids[0] != bos else [ids[0], *ids[len(ids) - longest + 1 :]]
