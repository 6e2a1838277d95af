"""Long evidence in chunks of whole sentences, as long as a model reads at a time by its own tokenizer's count."""

from itertools import pairwise
from typing import Any

from kcard.sentences import split

__all__ = ["chunks", "cut"]


def chunks(text: str, tokenizer: Any, most: int) -> list[str]:
    """Consecutive chunks of at most `most` tokens; a sentence that is longer is cut. Nothing for an empty text.

    A text that fits stays as it is, but for white space around it.
    """
    text = text.strip()
    if not text:
        return []
    if _count([text], tokenizer)[0] <= most:
        return [text]
    pieces = [piece for sentence in split(text) for piece in _pieces(sentence, tokenizer, most)]
    found: list[str] = []
    room = 0
    for piece, tokens in zip(pieces, _count(pieces, tokenizer), strict=True):
        if found and tokens <= room:
            found[-1] += f" {piece}"
            room -= tokens
        else:
            found.append(piece)
            room = most - tokens
    return found


def cut(text: str, tokenizer: Any, most: int) -> str:
    """The text's first `most` tokens."""
    return next(iter(_pieces(text.strip(), tokenizer, most)), "")


def _pieces(text: str, tokenizer: Any, most: int) -> list[str]:
    """The text in pieces of `most` tokens."""
    spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)[
        "offset_mapping"
    ]
    if len(spans) <= most:
        return [text] if text else []
    starts = [*range(0, len(spans), most)]
    edges = [0, *(spans[start][0] for start in starts[1:]), len(text)]
    found = [text[begin:end].strip() for begin, end in pairwise(edges)]
    return [piece for piece in found if piece]


def _count(texts: list[str], tokenizer: Any) -> list[int]:
    return [len(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]]
