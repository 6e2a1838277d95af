"""Answer a question: gate, cards, selectors, LLM. The parts are built in assembly.py."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kcard.batching import QUESTIONS, questions_together
from kcard.config import settings
from kcard.errors import LLMError, QuestionsFailed, UsageError
from kcard.gates.base import decide
from kcard.gates.registry import load_gate
from kcard.integrators.assembly import (
    CardSource,
    Integrator,
    card_llm,
    endpoint_of,
    gate_turns,
    make_integrator,
    make_llm,
    make_loader,
    make_pool,
    make_selectors,
)
from kcard.integrators.citations import (
    Context,
    cite,
    cite_quote,
    line_of,
    resolve_conflicts,
    without_headings,
)
from kcard.integrators.options import AskOptions, Mode
from kcard.integrators.pool_views import SingleCardPool
from kcard.interfaces import LLM, Evidence
from kcard.llms.client import LLMClient, TimedGenerator
from kcard.llms.prompts import load as load_examples
from kcard.text import language_name, language_of_question
from kcard.types import (
    Answer,
    Citation,
    Decision,
    Passage,
    Question,
    Reply,
    Request,
    Source,
    checked,
    choices_of,
    distinct_texts,
)

if TYPE_CHECKING:
    from kcard.cards.card import CardSet
    from kcard.cards.models.loader import Loader

__all__ = ["Pipeline", "PreparedQuestion", "ask", "questions_per_batch"]

PASSAGES = 256_000_000  # bytes that the passages of a batch may take
DOCUMENT, TOKEN = 2000, 6  # bytes of a passage's fixed part, and of each of its tokens


@dataclass(frozen=True)
class PreparedQuestion:
    """A question's gate decision and context, before the LLM answers. `seconds`: its share of the time so far."""

    decision: Decision
    gathered: Context
    seconds: float


class Pipeline:
    """Cards, gate, selectors and LLM, loaded once for many questions.

    Args:
        options: see AskOptions; options passed by name override its values.
        hub: where the cards are; None: the hub under KCARD_HOME.
        report: called with a sentence if something takes long.
        loader: holds the models of cards; pass one to share models between pipelines.
        retriever: adds retrieved passages to the cards' documents, as one more card would.
        progress: called with how many cards have generated for a batch, and of how many, if large cards take turns.

    Raises:
        UsageError for a wrong argument, HubError if no card is published or found, ModelUnavailable.
    """

    def __init__(
        self,
        options: AskOptions | None = None,
        *,
        hub: CardSource | None = None,
        report: Callable[[str], None] | None = None,
        loader: "Loader | None" = None,
        retriever: Evidence | None = None,
        progress: Callable[[int, int], object] | None = None,
        **changes: Any,
    ) -> None:
        self.options = options = replace(options or AskOptions(), **changes)
        # The LLM and the gate.
        self._examples = load_examples(options.examples)
        endpoint = endpoint_of(options, report)
        self.llm: LLM = make_llm(options.llm, options.temperature, endpoint)
        self._client = LLMClient(self.llm, options.concurrency)
        self._gate = load_gate(options.gate_name, self._client, self._examples)
        self._writer: TimedGenerator | None = None
        self._integrator: Integrator | None = None
        self._cards: CardSet | None = None
        self._left_out = ""
        # The cards, and the integrator that lets them generate.
        if self._gate.name != "never":
            llm = options.llm
            chosen = llm if isinstance(llm, str) else settings().llm if llm is None else ""
            find = partial(card_llm, chosen=chosen, answering=self._client, endpoint=endpoint)
            loader = loader or make_loader(options)
            if loader.engines is not None and report is not None:
                report(loader.engines.announcement)
            cards, self._writer, self._left_out = make_pool(options.card_names, hub, loader, find, progress)
            if retriever is not None:
                from kcard.integrators.baselines import RetrieverAsCard

                self._writer = TimedGenerator(RetrieverAsCard(self._writer, retriever))
            self._cards = cards
            self._integrator = make_integrator(
                options,
                make_selectors(options, cards, report),
                self._writer,
                self._client,
                self._examples,
                self._gate.gate,
            )
        # What the user should know before the first question.
        self._warned: set[str] = set()
        if report is not None:
            for warning in self._new_evidence_warnings():
                report(warning)

    @property
    def concurrency(self) -> int:
        """Concurrent requests to the LLM."""
        return self._client.concurrency

    @property
    def batch(self) -> int:
        """Questions of a file to answer at a time: many if large cards take turns, so that each is rarely loaded."""
        few = questions_together(self.concurrency)
        if self._writer is None or not self._writer.is_sequential:
            return few
        return max(few, questions_per_batch(self.options, len(self._writer.cards)))

    def variant(self, mode: Mode, card: str | None = None) -> "Pipeline":
        """Return a pipeline in another mode, or with one of the cards alone, which is then always used. It shares LLM,
        cards and selectors with this one, so only one of the two may answer at a time.

        Raises UsageError if this pipeline has no cards, and UnknownCard.
        """
        pipeline = copy(self)
        pipeline.options = options = replace(
            self.options, mode=mode, cards=card or self.options.cards, gate=None
        )
        if card is not None:
            options = pipeline.options = replace(options, min_relevance=0.0)
        elif mode != "direct":
            options = pipeline.options = replace(options, gate=self.options.gate)
        pipeline._gate = load_gate(options.gate_name, self._client, self._examples)
        if mode == "direct":
            pipeline._writer = pipeline._integrator = None
            return pipeline
        if self._writer is None or self._integrator is None:
            raise UsageError(f"mode {mode} needs cards, but this pipeline has none")
        writer = self._writer if card is None else SingleCardPool(self._writer, card)
        pipeline._integrator = make_integrator(
            options, self._integrator.selectors, writer, self._client, self._examples, pipeline._gate.gate
        )
        return pipeline

    def __call__(self, questions: Sequence[str | Question]) -> list[Answer]:
        """Answer each question, in order. Equal questions of one call are answered once.

        Raises UsageError for an empty question, or options that can't be told apart, and LLMError if the LLM fails.
        """
        return list(self.answers(questions))

    def answers(self, questions: Sequence[str | Question]) -> Iterator[Answer]:
        """Yield each answer as soon as it is ready.

        After an LLMError call it again for the missing ones: the LLM is not asked again for replies that it gave.
        """
        for outcome in self.outcomes(questions):
            if isinstance(outcome, LLMError):
                raise outcome
            yield outcome

    def outcomes(self, questions: Sequence[str | Question]) -> Iterator[Answer | LLMError]:
        """Yield one Answer per question, in order, or the LLM's error: a failure affects only its own question."""
        pending = [checked(question) for question in questions]
        done: dict[Question, Answer | LLMError] = {}
        for part in distinct_texts(dict.fromkeys(pending)):
            prepared, failed = self._try_to_prepare(part)
            requests = [self._request(question, ready) for question, ready in prepared.items()]
            arriving = self._client.reply_all(requests)
            for question in part:
                if question.text in failed:
                    done[question] = failed[question.text]
                else:
                    started, reply = time.perf_counter(), next(arriving)
                    done[question] = (
                        reply
                        if isinstance(reply, LLMError)
                        else self._answer(question, prepared[question], reply, started)
                    )
                while pending and pending[0] in done:
                    yield done[pending.pop(0)]

    def prepared(self, questions: Sequence[str]) -> list[PreparedQuestion | LLMError]:
        """Return what the LLM would read for each question, or the error that prevented it; for callers that ask the
        LLM for the answer themselves and then call `complete`."""
        checked_questions = [checked(question) for question in questions]
        by_text: dict[str, PreparedQuestion | LLMError] = {}
        for part in distinct_texts(dict.fromkeys(checked_questions)):
            ready, failed = self._try_to_prepare(part)
            by_text |= failed | {question.text: prepared for question, prepared in ready.items()}
        return [by_text[question.text] for question in checked_questions]

    def complete(self, question: str, prepared: PreparedQuestion, reply: Reply, seconds: float) -> Answer:
        """Return the Answer for a reply that an LLM gave in so many seconds."""
        asked_question = checked(question)
        self._client.enter(self._request(asked_question, prepared), reply, seconds)
        return self._answer(asked_question, prepared, reply, time.perf_counter() - seconds)

    def abandon(self, question: str) -> None:
        """Drop the state of a question that was prepared but will not be completed."""
        self._client.close(question)
        if self._writer is not None:
            self._writer.close(question)

    def _try_to_prepare(
        self, questions: Sequence[Question]
    ) -> tuple[dict[Question, PreparedQuestion], dict[str, LLMError]]:
        """Return the questions that are ready for the LLM and, by text, the errors of the others. Texts differ."""
        failed: dict[str, LLMError] = {}
        while ready := [question for question in questions if question.text not in failed]:
            try:
                return self._prepare(ready), failed
            except QuestionsFailed as error:  # the others are prepared again, from cached replies
                if failed.keys() >= error.failures.keys():
                    raise
                failed.update(error.failures)
        return {}, failed

    def stream(self, question: str | Question) -> Iterator[str | Answer]:
        """Yield the answer's text in pieces, as it arrives, then the Answer. An option, and the reply of an LLM that
        can't stream, come in one piece."""
        asked_question = checked(question)
        prepared = self._prepare([asked_question])[asked_question]
        started, reply = time.perf_counter(), Reply("")
        request = self._request(asked_question, prepared)
        whole = bool(asked_question.choices) or not self._client.streams
        for piece in [self._client.reply(request)] if whole else self._client.stream(request):
            if isinstance(piece, Reply):
                reply = piece
            else:
                yield piece
        answer = self._answer(asked_question, prepared, reply, started)
        if whole:
            yield answer.answer
        yield answer

    def _prepare(self, questions: Sequence[Question]) -> dict[Question, PreparedQuestion]:
        """Let the gate decide and, where it fires, the cards generate."""
        started = time.perf_counter()
        for question in questions:
            self._client.open(question)
        gate, texts = self._gate, [question.text for question in questions]
        decided = decide(gate.gate, gate.name, texts, gate.threshold)
        decisions = dict(zip(texts, decided, strict=True))
        fired = [text for text in texts if decisions[text].fired]
        gathered: dict[str, Context] = {}
        if self._integrator and fired:
            gathered = dict(zip(fired, self._integrator.gather(fired), strict=True))
        contexts: dict[str, Context] = {}
        stepwise = self.options.mode in {"top-down", "hybrid"}
        for text in texts:
            if text in gathered:
                contexts[text] = self._with_warnings(text, gathered[text])
            else:  # in modes with a transcript, it holds the LLM's No to the gate
                turns = gate_turns(gate.gate, fired=False) if stepwise else ()
                contexts[text] = Context(turns=turns)
        seconds = (time.perf_counter() - started) / max(len(questions), 1)
        return {q: PreparedQuestion(decisions[q.text], contexts[q.text], seconds) for q in questions}

    def _with_warnings(self, question: str, context: Context) -> Context:
        """Add notes on a question that the cards can't read as it is, and on cards that contradict each other."""
        names = dict.fromkeys(passage.card for passage in context.passages)
        cards = self._cards
        languages = {name: cards.manifest(name).language for name in names if cards and name in cards}
        context = replace(context, notes=(*context.notes, *reading_warnings(question, languages)))
        if self._writer is None or len(names) < 2:
            return context
        from kcard.offline.llm import SpanReader

        choices = {card.name: card for card in self._writer.cards}
        return resolve_conflicts(question, context, choices, SpanReader(), self.options.reorder_by_date)

    def _request(self, question: Question, prepared: PreparedQuestion) -> Request:
        gathered = prepared.gathered
        return Request(
            "answer",
            question.text,
            gathered.knowledge,
            self._examples,
            turns=gathered.turns,
            headings=gathered.headings,
        )

    def _answer(self, question: Question, prepared: PreparedQuestion, reply: Reply, started: float) -> Answer:
        """Return the Answer for the LLM's reply. `started`: when answering began."""
        # Of the kept passages only those that fit into the LLM's window reached it.
        count = len(self._client.truncate(self._request(question, prepared)).knowledge)
        gathered = prepared.gathered.passages
        cut = {*[i for i, passage in enumerate(gathered) if passage.kept][count:]}
        passages = tuple(replace(p, kept=False) if i in cut else p for i, p in enumerate(gathered))
        descriptions = {choice.name: choice.description for choice in question.choices}
        text = descriptions.get(reply.choice or "", reply.text).strip()
        text = without_headings(text, passages)
        account = self._client.close(question.text)
        card_seconds = self._writer.close(question.text) if self._writer else 0.0
        left_out = (self._left_out,) if self._left_out and prepared.decision.fired else ()
        seconds = prepared.seconds + time.perf_counter() - started
        notes = left_out + prepared.gathered.notes + account.notes + self._new_evidence_warnings()
        # Nothing is cited where the LLM does not know the answer.
        citations: tuple[Citation, ...] = ()
        if self._integrator is not None and reply.known:
            quote, line = reply.quote, " ".join(text.split())
            if quote and line != quote.text and line in quote.text:
                citations = cite_quote(text, quote, passages)
            else:
                citations = cite(text, passages, self._integrator.selectors.checker)
        return Answer(
            question=question.text,
            answer=text,
            mode=self.options.mode,
            gate=prepared.decision,
            cards=tuple(dict.fromkeys(p.card for p in passages)),
            passages=passages,
            calls=account.calls,
            seconds=seconds,
            notes=notes,
            citations=citations,
            confidence=reply.confidence,
            nearest=_nearest_source(reply, passages),
            choice=reply.choice,
            known=reply.known,
            usage=account.usage(card_seconds),
        )

    def _new_evidence_warnings(self) -> tuple[str, ...]:
        """Return warnings about the evidence that were not reported before: files left out or changed, remote hosts."""
        selectors = self._integrator.selectors if self._integrator else None
        opened = [*selectors.own.values(), selectors.independent] if selectors else []
        notes = [note for evidence in opened for note in getattr(evidence, "notes", ())]
        warnings = tuple(note for note in dict.fromkeys(notes) if note not in self._warned)
        self._warned.update(warnings)
        return warnings


def ask(
    question: str | Question, choices: Sequence[str] | Mapping[str, str] | str = (), **options: Any
) -> Answer:
    """Answer one question. `choices`: the options of a multiple-choice question (see kcard.types). `options`: those of
    AskOptions, and Pipeline's `hub` and `report`; for many questions, make one Pipeline and call it."""
    if isinstance(question, str):
        question = Question(question, choices_of(choices))
    return Pipeline(**options)([question])[0]


def questions_per_batch(options: AskOptions, cards: int) -> int:
    """Return the batch size for large cards that take turns: as many questions as the memory for passages allows.

    cards  the number of cards
    """
    top_down = 3 if options.margin else 1
    cards_asked = {"top-down": top_down * options.max_iterations, "hybrid": 3 * options.max_iterations}.get(
        options.mode, options.max_cards
    )
    document = DOCUMENT + options.card_tokens * TOKEN
    return max(QUESTIONS, PASSAGES // (min(cards, cards_asked) * options.n1 * document))


def reading_warnings(question: str, languages: Mapping[str, str]) -> list[str]:
    """Return notes on a question that is too long for cards and the sentence encoder, or in another language than all
    cards. `languages`: of the cards, by name."""
    from kcard.offline import minilm

    notes = []
    if len(question) > minilm.MAX_TOKENS:
        tokens = minilm.words().count(question) + 2  # and two special ones
        if tokens > minilm.MAX_TOKENS:
            notes.append(
                f"the question has {tokens} tokens; cards and the sentence encoder read about {minilm.MAX_TOKENS} "
                "of them"
            )
    spoken, language = {*map(language_name, languages.values())}, language_of_question(question)
    own = None if language is None else language_name(language)
    if spoken and own is not None and own not in spoken and None not in spoken:
        theirs = " and ".join(sorted(filter(None, spoken)))
        cards = f"the card {next(iter(languages))} is" if len(languages) == 1 else "the cards are"
        notes.append(f"the question is in {own}, {cards} in {theirs}: ask in {theirs}")
    return notes


def _nearest_source(reply: Reply, passages: Sequence[Passage]) -> Source | None:
    """Return the quote that comes nearest to an answer that the LLM does not know, and its place."""
    shown = [p for p in passages if p.kept]
    if reply.known or reply.quote is None or reply.quote.passage >= len(shown):
        return None
    passage = shown[reply.quote.passage]
    place = passage.source or passage.evidence or Source("")
    quote = without_headings(reply.quote.text, passages)
    return replace(place, text=quote, line=line_of(quote, place), lines=())
