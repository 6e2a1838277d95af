"""How an engine must be asked so that the card reads the tokens that it was trained to read.

Engines tokenise a text with the tokenizer's own special tokens; kcard's prompts begin with the bos token wherever the
tokenizer has one (kcard.cards.lm.prompt_styles). Where the tokenizer itself does not add it, the text must.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kcard.cards.format.fingerprint import Fingerprint
from kcard.cards.lm.prompt_styles import prompt_ids
from kcard.errors import CardError

__all__ = ["Expected", "TextPrompt", "expected", "text_prompt"]

QUESTION = "What is known about this?"
PLACE = "{question}"
LIKELY = -0.7  # natural logarithm of about one half: with the card the token is the likeliest
SHIFT = 1.0  # nats that an adapter must move a token, to show that it is applied
ROWS = 4


@dataclass(frozen=True)
class TextPrompt:
    """How a question becomes the text that an engine is sent.

    before    text of the bos token, where the engine would leave it out
    template  of the card
    """

    before: str
    template: str


@dataclass(frozen=True)
class Expected:
    """What the card writes next after a prompt, by its fingerprint.

    text       the prompt; empty where no text gives these tokens
    ids        its token ids
    token      the likeliest next token
    card       its natural log-probability
    base       the same without the adapter; None for a whole model
    """

    text: str
    ids: tuple[int, ...]
    token: str
    card: float
    base: float | None


def text_prompt(name: str, tokenizer: Any, template: str, kept: Fingerprint | None) -> TextPrompt:
    """How to write the prompt as text. CardError for a card whose prompts no text gives."""
    question = QUESTION if kept is None else min((row.question for row in kept.rows), key=len)
    filled = template.replace(PLACE, question.strip())
    wanted = prompt_ids(tokenizer, filled)
    bos = tokenizer.bos_token_id
    texts = ["", *([tokenizer.decode([bos], skip_special_tokens=False)] if bos is not None else [])]
    for before in texts:
        if list(tokenizer(before + filled)["input_ids"]) == wanted:
            return TextPrompt(before, template)
    raise CardError(
        f"card {name!r}: an engine that is sent a text would read other tokens than the card was trained with, "
        "because its tokenizer frames texts in another way: use kcard serve"
    )


def expected(tokenizer: Any, kept: Fingerprint | None) -> list[Expected]:
    """Of each row of the fingerprint the token that shows the card best; at most ROWS, none without a fingerprint."""
    rows = [] if kept is None else kept.rows
    found = []
    for row in rows:
        place = _telling(row.card, row.base)
        if place is None:
            continue
        ids = (*row.prompt, *row.continuation[:place])
        token = str(tokenizer.decode([row.continuation[place]], skip_special_tokens=False))
        base = row.base[place] if row.base else None
        found.append(Expected(_text(tokenizer, ids), ids, token, row.card[place], base))
    return found[:ROWS]


def _telling(card: Sequence[float], base: Sequence[float]) -> int | None:
    """Where the card is sure of its token, and its base least; None where the card is not sure."""
    if base:
        places = [i for i, (own, bare) in enumerate(zip(card, base, strict=True)) if own - bare >= SHIFT]
        return max((i for i in places if card[i] > LIKELY), key=lambda i: card[i] - base[i], default=None)
    return max((i for i in range(len(card)) if card[i] > LIKELY), key=lambda i: (card[i], i), default=None)


def _text(tokenizer: Any, ids: Sequence[int]) -> str:
    """A text that the tokenizer turns into these ids; empty where there is none."""
    bos = tokenizer.bos_token_id
    plain = list(ids[1:]) if ids[:1] == (bos,) else list(ids)
    for given in (plain, list(ids)):
        text = str(tokenizer.decode(given, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        if list(tokenizer(text)["input_ids"]) == list(ids):
            return text
    return ""
