"""The question that a conversation ends with, in words that stand alone: cards read no conversation."""

from collections.abc import Sequence

from kcard.serve.errors import ApiError
from kcard.serve.schema import Message, text_of
from kcard.serve.upstream import Upstream

__all__ = ["has_question", "last_question", "standalone"]

REWRITE = (
    "Rewrite the last question of this conversation so that it can be understood without the conversation: put names "
    "in place of pronouns, add what is left out, change nothing else. Reply with the question alone."
)
TURNS = 8  # the last ones
LONGEST = 2000  # characters of a turn
TOKENS = 128


def has_question(messages: Sequence[Message]) -> bool:
    """Whether the last turn of the user has a text."""
    return bool(_last_text(messages))


def last_question(messages: Sequence[Message]) -> str:
    """The text of the last turn of the user. Raises ApiError where there is none."""
    if text := _last_text(messages):
        return text
    raise ApiError("the last message of the user has no text", "messages")


def _last_text(messages: Sequence[Message]) -> str:
    return next((text_of(m).strip() for m in reversed(messages) if m.role == "user"), "")


async def standalone(messages: Sequence[Message], upstream: Upstream) -> str:
    """The last question as the LLM rewrites it, where something was said before; as it is where that fails."""
    question = last_question(messages)
    said = [m for m in messages if m.role in ("user", "assistant") and text_of(m).strip()]
    if len(said) < 2:
        return question
    turns = "\n".join(f"{m.role}: {' '.join(text_of(m).split())[:LONGEST]}" for m in said[-TURNS:])
    request = {
        "messages": [{"role": "system", "content": REWRITE}, {"role": "user", "content": turns}],
        "temperature": 0,
        "max_tokens": TOKENS,
    }
    try:
        reply = await upstream.complete(request)
        rewritten = " ".join(str(reply["choices"][0]["message"]["content"] or "").split())
    except ApiError:
        return question
    return rewritten.removeprefix("user: ") or question
