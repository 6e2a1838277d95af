"""What is shown for an LLM's reply: the checked reply, the cards' own words in its place, or "I don't know"."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import shorten

from kcard.integrators.citations import cite, cite_quote, line_of, without_headings
from kcard.integrators.verification import verify
from kcard.interfaces import Checker
from kcard.llms.embedded_llm import UNKNOWN_ANSWER, EmbeddedLLM
from kcard.llms.parsing import admits_ignorance
from kcard.text import spaced_words
from kcard.types import Citation, Passage, Quote, Reply, Request, Source

MIN_READER_CONFIDENCE = 0.5  # from which the embedded reader's answer takes the place of an LLM's
MIN_SHARED_CONFIDENCE = 0.7  # the same, where the LLM gave that answer too and it was withheld
MAX_WITHHELD_CHARACTERS = 200  # of a withheld reply in the note on it
NEXT_QUESTION = re.compile(r"\n\s*Question:.*", re.DOTALL)  # a small LLM goes on with the words of the prompt
REPLACED_NOTE = "the answer is in the cards' own words, found by the embedded reader"


@dataclass(frozen=True)
class CheckedReply:
    """An answer as it is shown; the fields are those of Answer.

    quote  the sentence that the answer rests on or, where none is known, that comes nearest to one
    """

    text: str
    known: bool = True
    citations: tuple[Citation, ...] = ()
    confidence: float | None = None
    is_calibrated: bool = True
    quote: Quote | None = None
    notes: tuple[str, ...] = ()


def check_reply(
    request: Request,
    reply: Reply,
    passages: Sequence[Passage],
    checker: Checker,
    llm: str,
    *,
    strict: bool = False,
    may_withhold: bool = True,
) -> CheckedReply:
    """Check a reply against the passages that the LLM read, which are marked as kept.

    strict        whether every sentence must be supported
    may_withhold  whether another answer may take the reply's place
    """
    reply = replace(reply, text=NEXT_QUESTION.sub("", reply.text))
    text, known = reply.text, reply.known
    # A choice is no claim, and an LLM that tells its confidence and its quotation has checked itself.
    if request.choices or reply.quote is not None or reply.confidence is not None:
        citations: tuple[Citation, ...] = ()
        if known:
            citations = cited(reply, passages, checker)
        return CheckedReply(text, known, citations, reply.confidence, quote=reply.quote)
    verification = verify(request.question, reply, passages, checker, llm)
    notes: tuple[str, ...] = ()
    if verification.note:
        notes = (verification.note,)
    checked = CheckedReply(
        verification.text,
        known,
        verification.citations,
        verification.confidence,
        verification.is_calibrated,
        verification.nearest,
        notes,
    )
    if known and admits_ignorance(checked.text):  # behind a mark
        checked = replace(checked, known=False, citations=(), confidence=None, is_calibrated=True)
    if not may_withhold:
        return checked
    if checked.known and verification.is_withheld(strict):
        withheld = shorten(checked.text, MAX_WITHHELD_CHARACTERS, placeholder=" …")
        confidence = checked.confidence
        if confidence is not None:
            confidence = 1 - confidence
        checked = replace(
            checked,
            text=UNKNOWN_ANSWER,
            known=False,
            citations=(),
            confidence=confidence,
            notes=(*checked.notes, f"withheld, because the cards don't support it: {withheld}"),
        )
    # The reader reads English, as the verification does that has found a nearest sentence.
    if checked.known or strict or verification.nearest is None:
        return checked
    own = EmbeddedLLM().reply(request)
    least = MIN_READER_CONFIDENCE
    if spaced_words(own.text) in spaced_words(text):
        least = MIN_SHARED_CONFIDENCE
    if not own.known or own.quote is None or own.confidence is None or own.confidence < least:
        return checked
    return CheckedReply(
        own.text,
        citations=cited(own, passages, checker),
        confidence=own.confidence,
        quote=own.quote,
        notes=(*checked.notes, REPLACED_NOTE),
    )


def cited(reply: Reply, passages: Sequence[Passage], checker: Checker) -> tuple[Citation, ...]:
    """Return the citations of an answer that was taken from the passages."""
    line = " ".join(reply.text.split())
    if reply.quote is not None and line != reply.quote.text and line in reply.quote.text:
        return cite_quote(reply.text, reply.quote, passages)
    return cite(reply.text, passages, checker)


def nearest_source(quote: Quote | None, passages: Sequence[Passage]) -> Source | None:
    """Return the quote that comes nearest to an answer that is not known, and its place."""
    shown = [p for p in passages if p.kept]
    if quote is None or quote.passage >= len(shown):
        return None
    passage = shown[quote.passage]
    place = passage.source or passage.evidence or Source("")
    text = without_headings(quote.text, passages)
    return replace(place, text=text, line=line_of(text, place), lines=())
