"""The offline stand-in for an LLM: a small memory that knows what is widely known, and a reader of what cards wrote.

It answers requests directly, without prompts: need from the memory's confidence, what with the question itself,
choose by the nearest description, answer by extracting, a draft from the memory alone. It does not reason, and it
says so.
"""

import math
from collections.abc import Sequence

import numpy as np

from kcard.errors import LLMError
from kcard.llms import memory, reader
from kcard.llms.wordings import NEED
from kcard.numbers import agreement
from kcard.request import Choice, Reply, Request

__all__ = ["UNKNOWN", "EmbeddedLLM"]

UNKNOWN = "I don't know."
GUESS = 0.35  # what the memory knows less surely than this is letters strung together


class EmbeddedLLM:
    """Deterministic: it has no temperature. Weights are loaded when they are first needed.

    Its window is for the question alone: passages are read one by one, the long ones in pieces.
    """

    window = reader.QUESTION_TOKENS

    announcement = (
        "LLM: the embedded reader, an offline stand-in: it extracts answers from what cards wrote and knows some "
        "widely known facts; it does not reason"
    )

    def count(self, request: Request) -> int:
        """The tokens of the question."""
        return reader.question_tokens(request.question)

    def reply(self, request: Request) -> Reply:
        """Never an empty text, but for a document about what the memory does not know. For multiple choice, the text
        is the name (letter) of the chosen option.

        Raises LLMError for a choice among nothing.
        """
        if request.kind == "need":
            return _need(request)
        if request.kind == "what":
            return Reply(request.question)
        if request.kind == "choose":
            return Reply(_nearest(request.question, request.choices))
        if request.kind == "document":
            return Reply(_document(request.question))
        if request.draft:
            recollection = memory.shared().recall(request.question)
            return Reply(recollection.answer, tokens=recollection.tokens)
        return Reply(_option(request) if request.choices else _answer(request))


def _need(request: Request) -> Reply:
    """Without knowledge: whether the memory knows. With knowledge: whether the reader finds an answer in it."""
    if request.knowledge:
        score = reader.read(request.question, request.knowledge).score
        yes = 1 / (1 + math.exp(max(-60.0, min(60.0, score))))
    else:
        yes = 1 - memory.shared().recall(request.question).knows
    wants_yes = (yes > 0.5) == NEED[request.template].yes_needs
    return Reply("Yes" if wants_yes else "No", yes)


def _nearest(question: str, choices: Sequence[Choice]) -> str:
    """The name of the choice whose description is nearest to the question, in meaning and in its numbers."""
    from kcard import encoder

    if not choices:
        raise LLMError("there is nothing to choose from: give at least one card")
    asked, *described = encoder.embed([question, *(choice.description for choice in choices)])
    agreed = [agreement(question, choice.description) for choice in choices]
    return choices[int(np.argmax(np.stack(described) @ asked * agreed))].name


def _answer(request: Request) -> str:
    """What the reader finds; what the memory knows where it finds nothing; else the reader's best guess, or UNKNOWN."""
    span = reader.read(request.question, request.knowledge) if request.knowledge else reader.NOTHING
    if span.text and not span.null:
        return span.text
    recollection = memory.shared().recall(request.question)
    if span.text and recollection.knows <= 0.5:
        return span.text
    return recollection.answer if recollection.knows > GUESS else UNKNOWN


def _document(question: str) -> str:
    """What the memory knows, with the question that it belongs to; empty where it knows nothing."""
    recollection = memory.shared().recall(question)
    return f"{question.strip(' ?')}: {recollection.answer}." if recollection.knows > GUESS else ""


def _option(request: Request) -> str:
    """The name of the best option: nearest to what the reader finds, or likeliest to the memory."""
    span = reader.read(request.question, request.knowledge) if request.knowledge else reader.NOTHING
    if span.text and not span.null:
        return _nearest(span.text, request.choices)
    recall = memory.shared()
    scores = [recall.log_probability(request.question, choice.description) for choice in request.choices]
    return request.choices[int(np.argmax(scores))].name
