"""One question becomes one Answer: gate, cards, selectors, LLM. Its parts are put together in assembly.py."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kcard.batching import questions_together
from kcard.config import settings
from kcard.errors import LLMError, QuestionsFailed, UsageError
from kcard.gates.base import decide
from kcard.gates.registry import named_gate
from kcard.integrators.assembly import (
    CardSource,
    Integrator,
    card_llm,
    endpoint_of,
    gate_turns,
    integrator,
    make_llm,
    make_loader,
    make_pool,
    selectors,
)
from kcard.integrators.batch_files import asked_together
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
from kcard.llms.client import Metered, TimedGenerator
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

__all__ = ["Pipeline", "Prepared", "ask"]


@dataclass(frozen=True)
class Prepared:
    """What is known of a question before the LLM answers it. `seconds`: its share of the time so far."""

    decision: Decision
    gathered: Context
    seconds: float


class Pipeline:
    """Cards, gate, selectors and LLM, loaded once for many questions.

    Args:
        options: see AskOptions; those that are given by name take the place of its own.
        hub: where the cards are; None: the hub under KCARD_HOME.
        report: called with a sentence where something takes long.
        loader: what holds the models of cards, for pipelines that share them.
        retriever: what finds passages that stand beside the cards' documents, as a card of its own would.
        progress: called with how many cards have written for a batch, and how many will, where they take turns.

    Raises:
        UsageError for a wrong argument, HubError where no card is published or found, ModelUnavailable.
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
        from kcard.llms.prompts import load as load_examples

        self._examples = load_examples(options.examples)
        endpoint = endpoint_of(options, report)
        self.llm: LLM = make_llm(options.llm, options.temperature, endpoint)
        self._metered = Metered(self.llm, options.concurrency)
        self._gate = named_gate(options.gate_name, self._metered, self._examples)
        self._writer: TimedGenerator | None = None
        self._integrator: Integrator | None = None
        self._cards: CardSet | None = None
        self._left_out = ""
        if self._gate.name != "never":
            llm = options.llm
            chosen = llm if isinstance(llm, str) else settings().llm if llm is None else ""
            find = partial(card_llm, chosen=chosen, answering=self._metered, endpoint=endpoint)
            loader = loader or make_loader(options)
            if loader.engines is not None and report is not None:
                report(loader.engines.announcement)
            cards, self._writer, self._left_out = make_pool(options.card_names, hub, loader, find, progress)
            if retriever is not None:
                from kcard.integrators.baselines import RetrieverAsCard

                self._writer = TimedGenerator(RetrieverAsCard(self._writer, retriever))
            self._cards = cards
            self._integrator = integrator(
                options,
                selectors(options, cards, report),
                self._writer,
                self._metered,
                self._examples,
                self._gate.gate,
            )
        self._told: set[str] = set()
        if report is not None:
            for news in self._news():
                report(news)

    @property
    def concurrency(self) -> int:
        """Requests to the LLM at a time."""
        return self._metered.concurrency

    @property
    def batch(self) -> int:
        """Questions of a file to ask at a time: many where cards take turns, so that each is seldom loaded."""
        few = questions_together(self.concurrency)
        if self._writer is None or not self._writer.take_turns:
            return few
        return max(few, asked_together(self.options, len(self._writer.cards)))

    def variant(self, mode: Mode, card: str | None = None) -> "Pipeline":
        """A pipeline in another mode, or of one of the cards, which it always asks. LLM, cards and selectors are
        shared, so that only one of the two may answer at a time.

        Raises UsageError where this pipeline has no cards, and UnknownCard.
        """
        pipeline = copy(self)
        pipeline.options = options = replace(
            self.options, mode=mode, cards=card or self.options.cards, gate=None
        )
        if card is not None:
            options = pipeline.options = replace(options, min_relevance=0.0)
        elif mode != "direct":
            options = pipeline.options = replace(options, gate=self.options.gate)
        pipeline._gate = named_gate(options.gate_name, self._metered, self._examples)
        if mode == "direct":
            pipeline._writer = pipeline._integrator = None
            return pipeline
        if self._writer is None or self._integrator is None:
            raise UsageError(f"mode {mode} needs cards, but this pipeline has none")
        writer = self._writer if card is None else SingleCardPool(self._writer, card)
        pipeline._integrator = integrator(
            options, self._integrator.selectors, writer, self._metered, self._examples, pipeline._gate.gate
        )
        return pipeline

    def __call__(self, questions: Sequence[str | Question]) -> list[Answer]:
        """Answer each question, in order. Equal questions of one call are answered once.

        Raises UsageError for an empty question, or options that can't be told apart, and LLMError where the LLM fails.
        """
        return list(self.answers(questions))

    def answers(self, questions: Sequence[str | Question]) -> Iterator[Answer]:
        """The same, each answer as soon as it is there.

        After an LLMError ask again for those that are missing: replies that the LLM gave are not asked for twice.
        """
        for outcome in self.outcomes(questions):
            if isinstance(outcome, LLMError):
                raise outcome
            yield outcome

    def outcomes(self, questions: Sequence[str | Question]) -> Iterator[Answer | LLMError]:
        """One Answer a question, in order, or why the LLM gave none: a failure costs only its own question."""
        pending = [checked(question) for question in questions]
        done: dict[Question, Answer | LLMError] = {}
        for part in distinct_texts(dict.fromkeys(pending)):
            prepared, failed = self._prepared(part)
            answers = self._finished(prepared)
            for question in part:
                done[question] = failed[question.text] if question.text in failed else next(answers)
                while pending and pending[0] in done:
                    yield done[pending.pop(0)]

    def prepared(self, questions: Sequence[str]) -> list[Prepared | LLMError]:
        """What the LLM would read for each question, or why it could not be asked about it; for those who ask the LLM
        for the answer themselves, and then call `complete`."""
        checked_questions = [checked(question) for question in questions]
        by_text: dict[str, Prepared | LLMError] = {}
        for part in distinct_texts(dict.fromkeys(checked_questions)):
            ready, failed = self._prepared(part)
            by_text |= failed | {question.text: prepared for question, prepared in ready.items()}
        return [by_text[question.text] for question in checked_questions]

    def complete(self, question: str, prepared: Prepared, reply: Reply, seconds: float) -> Answer:
        """The Answer whose reply an LLM gave in so many seconds."""
        about = checked(question)
        self._metered.enter(self._request(about, prepared), reply, seconds)
        return self._answer(about, prepared, reply, time.perf_counter() - seconds)

    def abandon(self, question: str) -> None:
        """Forget what is kept for a question that was prepared and will not be completed."""
        self._metered.close(question)
        if self._writer is not None:
            self._writer.close(question)

    def _prepared(
        self, questions: Sequence[Question]
    ) -> tuple[dict[Question, Prepared], dict[str, LLMError]]:
        """Questions that are ready to be answered, and by text why the others are not. No two have the same text."""
        failed: dict[str, LLMError] = {}
        while ready := [question for question in questions if question.text not in failed]:
            try:
                return self._prepare(ready), failed
            except QuestionsFailed as error:  # the others are prepared again, from replies that are kept
                if failed.keys() >= error.failures.keys():
                    raise
                failed.update(error.failures)
        return {}, failed

    def _finished(self, prepared: Mapping[Question, Prepared]) -> Iterator[Answer | LLMError]:
        """Let the LLM answer each."""
        requests = [self._request(question, known) for question, known in prepared.items()]
        arriving = self._metered.reply_all(requests)
        for question, ready in prepared.items():
            started = time.perf_counter()
            reply = next(arriving)
            yield reply if isinstance(reply, LLMError) else self._answer(question, ready, reply, started)

    def stream(self, question: str | Question) -> Iterator[str | Answer]:
        """The answer's text in pieces, as it arrives, then the Answer. An option, and what an LLM says that can't
        stream, are one piece."""
        about = checked(question)
        prepared = self._prepare([about])[about]
        started, reply = time.perf_counter(), Reply("")
        request = self._request(about, prepared)
        whole = bool(about.choices) or not self._metered.streams
        for piece in [self._metered.reply(request)] if whole else self._metered.stream(request):
            if isinstance(piece, Reply):
                reply = piece
            else:
                yield piece
        answer = self._answer(about, prepared, reply, started)
        if whole:
            yield answer.answer
        yield answer

    def _prepare(self, questions: Sequence[Question]) -> dict[Question, Prepared]:
        """Ask the gate and, where it fired, the cards."""
        started = time.perf_counter()
        for question in questions:
            self._metered.open(question)
        gate, texts = self._gate, [question.text for question in questions]
        decided = decide(gate.gate, gate.name, texts, gate.threshold)
        decisions = dict(zip(texts, decided, strict=True))
        fired = [text for text in texts if decisions[text].fired]
        gathered: dict[str, Context] = {}
        if self._integrator and fired:
            gathered = dict(zip(fired, self._integrator.gather(fired), strict=True))
        settled = {
            t: self._reconciled(t, self._noted(t, gathered[t])) if t in gathered else self._not_sought()
            for t in texts
        }
        seconds = (time.perf_counter() - started) / max(len(questions), 1)
        return {q: Prepared(decisions[q.text], settled[q.text], seconds) for q in questions}

    def _not_sought(self) -> Context:
        """Nothing; where the LLM is asked for cards step by step, with its No to the gate."""
        stepwise = self.options.mode in {"top-down", "hybrid"}
        return Context(turns=gate_turns(self._gate.gate, fired=False) if stepwise else ())

    def _noted(self, question: str, gathered: Context) -> Context:
        """With notes on a question that the cards can't read as it is."""
        written = dict.fromkeys(passage.card for passage in gathered.passages)
        cards = self._cards
        languages = {name: cards.manifest(name).language for name in written if cards and name in cards}
        notes = (*gathered.notes, *_too_long(question), *_foreign(question, languages))
        return replace(gathered, notes=notes)

    def _reconciled(self, question: str, gathered: Context) -> Context:
        if self._writer is None or len({p.card for p in gathered.passages}) < 2:
            return gathered
        from kcard.offline.llm import SpanReader

        cards = {card.name: card for card in self._writer.cards}
        return resolve_conflicts(question, gathered, cards, SpanReader(), self.options.reorder_by_date)

    def _request(self, question: Question, prepared: Prepared) -> Request:
        gathered = prepared.gathered
        return Request(
            "answer",
            question.text,
            gathered.knowledge,
            self._examples,
            turns=gathered.turns,
            headings=gathered.headings,
        )

    def _answer(self, question: Question, prepared: Prepared, reply: Reply, started: float) -> Answer:
        """The LLM's reply with what led to it. `started`: when the question began to be answered."""
        chosen = {choice.name: choice.description for choice in question.choices}
        text = chosen.get(reply.choice or "", reply.text).strip()
        read = self._metered.truncate(self._request(question, prepared)).knowledge
        passages = _shown(prepared.gathered, len(read))
        text = without_headings(text, passages)
        account = self._metered.close(question.text)
        card_seconds = self._writer.close(question.text) if self._writer else 0.0
        left_out = (self._left_out,) if self._left_out and prepared.decision.fired else ()
        return Answer(
            question=question.text,
            answer=text,
            mode=self.options.mode,
            gate=prepared.decision,
            cards=tuple(dict.fromkeys(p.card for p in passages)),
            passages=passages,
            calls=account.calls,
            seconds=prepared.seconds + time.perf_counter() - started,
            notes=left_out + prepared.gathered.notes + account.notes + self._news(),
            citations=self._cited(text, reply, passages),
            confidence=reply.confidence,
            nearest=_nearest(reply, passages),
            choice=reply.choice,
            known=reply.known,
            usage=account.usage(card_seconds),
        )

    def _cited(self, text: str, reply: Reply, passages: Sequence[Passage]) -> tuple[Citation, ...]:
        """Nothing, where the LLM does not know."""
        if self._integrator is None or not reply.known:
            return ()
        quote, one_line = reply.quote, " ".join(text.split())
        if quote and one_line != quote.text and one_line in quote.text:
            return cite_quote(text, quote, passages)
        return cite(text, passages, self._integrator.selectors.checker)

    def _news(self) -> tuple[str, ...]:
        """What is to be said of the evidence and was not said yet: what it lacks, where it asks, that it changed."""
        used = self._integrator.selectors if self._integrator else None
        opened = [*used.own.values(), used.independent] if used else []
        notes = [note for evidence in opened for note in getattr(evidence, "notes", ())]
        news = tuple(note for note in dict.fromkeys(notes) if note not in self._told)
        self._told.update(news)
        return news


def ask(
    question: str | Question, choices: Sequence[str] | Mapping[str, str] | str = (), **options: Any
) -> Answer:
    """Answer one question. `choices`: the options of a multiple-choice question (see kcard.types). `options`: see
    AskOptions, `hub` and `report` of Pipeline; for many questions, make one Pipeline and call it."""
    if isinstance(question, str):
        question = Question(question, choices_of(choices))
    return Pipeline(**options)([question])[0]


def _too_long(question: str) -> tuple[str, ...]:
    """A note where the question is longer than cards and the sentence encoder read."""
    from kcard.offline import minilm

    if len(question) <= minilm.MAX_TOKENS:
        return ()
    tokens = minilm.words().count(question) + 2  # and two special ones
    if tokens <= minilm.MAX_TOKENS:
        return ()
    return (
        f"the question has {tokens} tokens; cards and the sentence encoder read about {minilm.MAX_TOKENS} of them",
    )


def _foreign(question: str, cards: Mapping[str, str]) -> tuple[str, ...]:
    """A note where the question is in another language than all of these cards; by name, the language of each."""
    spoken, language = {*map(language_name, cards.values())}, language_of_question(question)
    asked_in = None if language is None else language_name(language)
    if not spoken or asked_in is None or asked_in in spoken or None in spoken:
        return ()
    theirs = " and ".join(sorted(filter(None, spoken)))
    named = f"the card {next(iter(cards))} is" if len(cards) == 1 else "the cards are"
    return (f"the question is in {asked_in}, {named} in {theirs}: ask in {theirs}",)


def _nearest(reply: Reply, passages: Sequence[Passage]) -> Source | None:
    """What comes nearest to an answer that the LLM does not know, and where it stands."""
    passages_read = [p for p in passages if p.kept]
    if reply.known or reply.quote is None or reply.quote.passage >= len(passages_read):
        return None
    place = (
        passages_read[reply.quote.passage].source or passages_read[reply.quote.passage].evidence or Source("")
    )
    quote = without_headings(reply.quote.text, passages)
    return replace(place, text=quote, line=line_of(quote, place), lines=())


def _shown(gathered: Context, count: int) -> tuple[Passage, ...]:
    """The passages, of which only the first `count` kept ones reached the LLM."""
    numbers = [i for i, passage in enumerate(gathered.passages) if passage.kept]
    cut = set(numbers[count:])
    return tuple(replace(p, kept=False) if i in cut else p for i, p in enumerate(gathered.passages))
