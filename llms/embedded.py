"""The offline stand-in for an LLM: a small memory that knows what is widely known, and a reader of what cards wrote.

It answers requests directly, without prompts: need from the memory's confidence, what with the question itself,
choose by the nearest description, answer by extracting, a draft from the memory alone. It does not reason, and it
says so; where neither passages nor memory hold an answer, it says that it does not know.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from kcard.errors import LLMError
from kcard.llms import memory
from kcard.llms.extract import Extract, extract_all
from kcard.llms.named_option import named_option
from kcard.llms.quotation import language_of, quote
from kcard.llms.reader import ANSWERED
from kcard.llms.wordings import NEED
from kcard.numbers import agreement
from kcard.reader.network import QUESTION_TOKENS
from kcard.reader.reading import question_tokens
from kcard.request import Choice, Quote, Reply, Request

__all__ = ["UNKNOWN", "EmbeddedLLM"]

UNKNOWN = "I don't know."
MEANT = 0.5  # cosine, below which an answer out of passages is none of the options
REMEMBERED = 0.5  # probability that the memory is right, below which it is not asked
QUOTED = 0.5  # the same of a quotation in another language
UNREAD = {
    "what",
    "choose",
    "document",
    "knowledge",
    "recite",
    "study",
}  # kinds of requests whose passages are not read


class EmbeddedLLM:
    """Deterministic: it has no temperature. Weights are loaded when they are first needed.

    Its window is for the question alone: passages are read one by one, the long ones in pieces.
    """

    window = QUESTION_TOKENS
    concurrency = 4  # requests that are read together
    deterministic = True

    announcement = "LLM: the embedded reader, an offline stand-in: it extracts answers and does not reason"

    def count(self, request: Request) -> int:
        """The tokens of the question."""
        return question_tokens(request.question)

    def reply(self, request: Request) -> Reply:
        """Never an empty text, but for a document about what the memory does not know. For multiple choice, the text
        is the name (letter) of the chosen option, unless it does not know.

        Raises LLMError for a choice among nothing.
        """
        return _reply(request, _extracts([request])[0])

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """The same of each request, or its error; the passages of all are read together."""
        for request, found in zip(requests, _extracts(requests), strict=True):
            try:
                yield _reply(request, found)
            except LLMError as error:
                yield error


def _extracts(requests: Sequence[Request]) -> list[Extract | None]:
    """What the passages of each request answer; None where there is nothing to read."""
    read = [_is_read(request) for request in requests]
    asked = [request for request, reads in zip(requests, read, strict=True) if reads]
    found = iter(extract_all([(r.question, r.knowledge) for r in asked], [r.headings for r in asked]))
    return [next(found) if reads else None for reads in read]


def _is_read(request: Request) -> bool:
    if not request.knowledge or request.kind in UNREAD:
        return False
    return request.kind == "need" or bool(request.choices) or _language(request) == "en"


def _language(request: Request) -> str:
    return language_of(request.question, request.knowledge) if request.knowledge else "en"


def _reply(request: Request, found: Extract | None) -> Reply:
    """`found`: what the passages answer."""
    if request.kind == "need":
        return _need(request, found)
    if request.kind == "what":
        return Reply(request.question)
    if request.kind == "choose":
        return Reply(_nearest(request.question, request.choices))
    if request.kind == "study":
        raise LLMError("the embedded LLM writes no study material: name another")
    if request.kind in UNREAD:
        return Reply(_document(request.question))
    if request.choices:
        return _option(request, found)
    if request.draft and not request.knowledge:
        recollection = memory.shared().recall(request.question)
        return Reply(recollection.answer, tokens=recollection.tokens)
    return _answer(request, found)


def _need(request: Request, found: Extract | None) -> Reply:
    """Without knowledge: whether the memory knows. With knowledge: whether the reader finds an answer in it."""
    if request.knowledge:
        yes = _lacking(found.probability if found else 0.0)
    else:
        yes = 1 - memory.shared().recall(request.question).knows
    wants_yes = (yes > 0.5) == NEED[request.template].yes_needs
    return Reply("Yes" if wants_yes else "No", yes)


def _lacking(probability: float) -> float:
    """The probability of needing more: a half where an extract is as likely right as it must be to be given."""
    if probability >= ANSWERED:
        return 0.5 * (1 - probability) / (1 - ANSWERED)
    return 1 - 0.5 * probability / ANSWERED


def _answer(request: Request, found: Extract | None) -> Reply:
    """What stands in the passages; what the memory knows, where nothing does; else UNKNOWN and what comes nearest."""
    language = _language(request)
    if language != "en":
        return _quotation(request, language)
    if found is not None and found.probability >= ANSWERED:
        return Reply(found.text, confidence=found.probability, quote=Quote(found.quote, found.passage))
    recollection = memory.shared().recall(request.question)
    if recollection.knows >= REMEMBERED:
        return Reply(recollection.answer, confidence=recollection.knows)
    return _unknown(recollection.knows, found)


def _unknown(knows: float, found: Extract | None) -> Reply:
    """That it does not know, and what comes nearest."""
    quote = None if found is None else Quote(found.quote, found.passage)
    likeliest = max(knows, 0.0 if found is None else found.probability)
    return Reply(UNKNOWN, confidence=1 - likeliest, known=False, quote=quote)


def _nearest(question: str, choices: Sequence[Choice]) -> str:
    """The name of the choice whose description is nearest to the question, in meaning and in its numbers."""
    from kcard import embeddings

    if not choices:
        raise LLMError("there is nothing to choose from: give at least one card")
    asked, *described = embeddings.embed([question, *(choice.description for choice in choices)])
    agreed = [agreement(question, choice.description) for choice in choices]
    return choices[int(np.argmax(np.stack(described) @ asked * agreed))].name


def _quotation(request: Request, language: str) -> Reply:
    """Where the passages are in another language: quoted, without a claim that they answer."""
    found = quote(request.question, request.knowledge, language)
    remark = (
        f"the embedded reader supports English only: in {language} it quotes passages that share "
        "the question's words"
    )
    if found is None:
        return Reply(UNKNOWN, known=False, remark=remark)
    quoted = Quote(found.quote, found.passage)
    if found.probability >= QUOTED:
        return Reply(found.text, quote=quoted, remark=remark)
    return Reply(UNKNOWN, known=False, quote=quoted, remark=remark)


def _document(question: str) -> str:
    """What the memory knows, with the question that it belongs to; empty where it knows nothing."""
    recollection = memory.shared().recall(question)
    return f"{question.strip(' ?')}: {recollection.answer}." if recollection.knows >= REMEMBERED else ""


def _option(request: Request, found: Extract | None) -> Reply:
    """The option that the passages name, else the one that the memory knows; UNKNOWN where neither is sure."""
    if found is not None and found.probability >= ANSWERED:
        letter = _meant(found, request.choices)
        if letter is not None:
            quote = Quote(found.quote, found.passage)
            return Reply(letter, confidence=found.probability, choice=letter, quote=quote)
    recollection = memory.shared().recall(request.question)
    if recollection.knows >= REMEMBERED:
        letter = named_option(recollection.answer, request.choices) or _likeliest(request)
        return Reply(letter, confidence=recollection.knows, choice=letter)
    return _unknown(recollection.knows, found)


def _meant(found: Extract, choices: Sequence[Choice]) -> str | None:
    """The option that an answer out of passages names or, where it names none, its sentence, or comes nearest to."""
    from kcard import encoder

    letter = named_option(found.text, choices) or named_option(found.quote, choices)
    if letter is not None:
        return letter
    said, *described = encoder.embed([found.text, *(choice.description for choice in choices)])
    scores = np.stack(described) @ said
    best = int(np.argmax(scores))
    return choices[best].name if scores[best] >= MEANT else None


def _likeliest(request: Request) -> str:
    """The option that is likeliest to the memory."""
    recall = memory.shared()
    scores = [recall.log_probability(request.question, choice.description) for choice in request.choices]
    return request.choices[int(np.argmax(scores))].name
