"""Answer a question: gate, cards, selectors, LLM. The parts are built in assembly.py."""

import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kcard.batching import QUESTIONS, questions_together
from kcard.config import settings
from kcard.conversation import rewrite_request, rewritten_question, stands_alone
from kcard.errors import KcardError, LLMError, UnknownCard, UsageError
from kcard.events import OnEvent, ignore, note
from kcard.gates.registry import load_gate
from kcard.integrators.assembly import (
    MAX_CARDS_OF_ROUND,
    Integrator,
    card_llm,
    endpoint_of,
    gate_turns,
    make_integrator,
    make_llm,
    make_loader,
    make_pool,
    make_selectors,
    with_documents,
)
from kcard.integrators.citations import without_headings
from kcard.integrators.disagreements import correct_by_corpus, resolve_conflicts
from kcard.integrators.options import AskOptions, Mode, Paper, with_preset
from kcard.integrators.replies import CheckedReply, check_reply, nearest_source
from kcard.interfaces import LLM, Answerer, Evidence, Generator
from kcard.llms.client import LLMClient
from kcard.llms.prompts import load as load_examples
from kcard.questions import all_checked, checked, choices_of, run_step
from kcard.text import language_name, language_of_question
from kcard.types import (
    Answer,
    Choice,
    Context,
    Decision,
    Passage,
    Question,
    Reply,
    Request,
    Turn,
)

if TYPE_CHECKING:
    from kcard.cards.card import CardSet
    from kcard.cards.models.loader import Loader
    from kcard.hub.registry import Hub
    from kcard.hub.selection import Selection

MAX_PASSAGE_BYTES = 256_000_000  # that the passages of a batch may take
PASSAGE_BYTES, TOKEN_BYTES = 2000, 6  # of a passage's fixed part, and of each of its tokens


@dataclass(frozen=True)
class PreparedQuestion:
    """A question, the gate's decision on it, and what the LLM reads to answer it."""

    question: Question
    decision: Decision
    context: Context


class Pipeline(Answerer):
    """Cards, gate, selectors and LLM, loaded once for many questions.

    Args:
        options: see AskOptions; options passed by name override its values.
        preset: a paper whose way of answering overrides `options`, but none passed by name.
        hub: where the cards are; None: the hub under KCARD_HOME.
        selection: the cards to use; None: those of the hub that `options.cards` selects.
        on_event: called with notes for the user, and with the number of cards that have generated for a batch, if large
            cards take turns.
        loader: holds the models of cards; pass one to share models between pipelines.
        retriever: adds retrieved passages to the cards' documents, as one more card would.

    Raises:
        UsageError for a wrong argument, HubError if no card is published or found, ModelUnavailable.
    """

    def __init__(
        self,
        options: AskOptions | None = None,
        *,
        preset: Paper | None = None,
        hub: "Hub | None" = None,
        selection: "Selection | CardSet | None" = None,
        on_event: OnEvent = ignore,
        loader: "Loader | None" = None,
        retriever: Evidence | None = None,
        **changes: Any,
    ) -> None:
        values = with_preset({"preset": preset, **changes})
        self.options = options = AskOptions.of(options, values)
        # The LLM and the gate.
        self._examples = load_examples(options.examples)
        endpoint = endpoint_of(options, on_event)
        self.llm: LLM = make_llm(options.llm, options.temperature, endpoint)
        self._client = LLMClient(self.llm, options.concurrency)
        self._gate = load_gate(options.gate_name, self._client, self._examples)
        self._pool: Generator | None = None
        self._integrator: Integrator | None = None
        self._cards: CardSet | None = None
        self._left_out = ""
        # The cards, and the integrator that lets them generate.
        if self._gate.name != "never":
            chosen = ""
            if options.llm is None:
                chosen = settings().llm
            elif isinstance(options.llm, str):
                chosen = options.llm
            find = partial(card_llm, chosen=chosen, answering=self._client, endpoint=endpoint)
            loader = loader or make_loader(options)
            if loader.engines is not None:
                on_event(note(loader.engines.announcement))
            self._cards, self._pool, self._left_out = make_pool(
                selection or options.card_names, hub, loader, find, on_event
            )
            if retriever is not None:
                from kcard.integrators.baselines import RetrieverAsCard

                self._pool = RetrieverAsCard(self._pool, retriever)
            self._integrator = make_integrator(
                options,
                make_selectors(options, self._cards, on_event),
                self._pool,
                self._client,
                self._examples,
                self._gate.gate,
            )
        # What the user should know before the first question.
        self._warned: set[str] = set()
        for warning in self._new_evidence_warnings():
            on_event(note(warning))

    @property
    def cards(self) -> Sequence[Choice]:
        """The cards that may be used; none in mode direct."""
        if self._pool is None:
            return ()
        return self._pool.cards

    @property
    def concurrency(self) -> int:
        """Concurrent requests to the LLM."""
        return self._client.concurrency

    @property
    def batch(self) -> int:
        """Questions of a file to answer at a time: many if large cards take turns, so that each is rarely loaded."""
        few = questions_together(self.concurrency)
        if self._pool is None or not self._pool.is_sequential:
            return few
        return max(few, questions_per_batch(self.options, len(self._pool.cards)))

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
            pipeline._pool = pipeline._integrator = None
            return pipeline
        if self._pool is None or self._integrator is None:
            raise UsageError(f"mode {mode} needs cards, but this pipeline has none")
        pool = self._pool
        if card is not None:
            # A view of the pool that offers one card.
            pool = copy(pool)
            pool.cards = tuple(choice for choice in self._pool.cards if choice.name == card)
            if not pool.cards:
                raise UnknownCard(f"no card {card!r} in this pool")
        pipeline._pool = pool
        pipeline._integrator = make_integrator(
            options, self._integrator.selectors, pool, self._client, self._examples, pipeline._gate.gate
        )
        return pipeline

    def __call__(self, questions: Sequence[str | Question]) -> list[Answer]:
        """Answer each question, in order. Equal questions of one call are answered once.

        Raises UsageError for an empty question, or options that can't be told apart, and LLMError if the LLM fails.
        """
        return list(self.answers(questions))

    def outcomes(self, questions: Sequence[str | Question]) -> Iterator[Answer | KcardError]:
        """Yield one Answer per question, in order, or its error: a failure affects only its own question."""
        pending = all_checked(questions)
        distinct = list(dict.fromkeys(pending))
        by_question, failures = run_step(self._prepare, distinct)
        ready = [by_question[question] for question in distinct if question in by_question]
        arriving = self._client.reply_all([self._request(prepared) for prepared in ready])
        done: dict[Question, Answer | KcardError] = {**failures}
        for prepared in ready:
            while pending and pending[0] in done:
                yield done[pending.pop(0)]
            started = time.perf_counter()
            reply = next(arriving)
            if isinstance(reply, LLMError):
                done[prepared.question] = reply
            else:
                done[prepared.question] = self._answer(prepared, reply, started)
        for question in pending:
            yield done[question]

    def prepared(self, questions: Sequence[str | Question]) -> list[PreparedQuestion | KcardError]:
        """Return each question with what the LLM would read, or the error that prevented it; for callers that ask the
        LLM for the answer themselves and then call `complete`."""
        pending = all_checked(questions)
        by_question, failures = run_step(self._prepare, list(dict.fromkeys(pending)))
        return [failures.get(question) or by_question[question] for question in pending]

    def complete(self, prepared: PreparedQuestion, reply: Reply, seconds: float) -> Answer:
        """Return the Answer for a reply that an LLM gave to a prepared question in so many seconds."""
        self._client.record(self._request(prepared), reply, seconds)
        return self._answer(prepared, reply, time.perf_counter() - seconds, may_withhold=False)

    def stream(self, question: str | Question) -> Iterator[str | Answer]:
        """Yield the answer's text in pieces, as it arrives, then the Answer. An option, the reply of an LLM that can't
        stream, and an answer that is checked before it is shown, come in one piece."""
        question = checked(question)
        (prepared,) = self._prepare([question])
        started = time.perf_counter()
        request = self._request(prepared)
        if question.choices or request.knowledge or not self._client.streams:
            answer = self._answer(prepared, self._client.reply(request), started)
            yield answer.answer
            yield answer
            return
        reply = Reply("")
        for piece in self._client.stream(request):
            if isinstance(piece, Reply):
                reply = piece
            else:
                yield piece
        yield self._answer(prepared, reply, started)

    def standalone(self, question: str | Question, turns: Sequence[tuple[str, str]]) -> Question:
        """Return a question of a conversation as the LLM rewrites it, so that it can be understood without the turns
        before it; the request counts as one about this question.

        turns  (user or assistant, text), the oldest first
        The question stays as it is if there are none, if it stands alone, or if the LLM can't rewrite or fails.
        """
        question = checked(question)
        if not turns or not self.llm.can_rewrite or stands_alone(question.text):
            return question
        started = time.perf_counter()
        try:
            reply = self._client.reply(rewrite_request(question, turns))
        except LLMError:
            return question
        question.trace.seconds += time.perf_counter() - started
        return replace(question, text=rewritten_question(question.text, reply.text))

    def _prepare(self, questions: Sequence[Question]) -> list[PreparedQuestion]:
        """Let the gate decide and, where it fires, the cards generate. The questions are distinct."""
        started = time.perf_counter()
        for question in questions:
            question.trace.begin()
        decisions = dict(zip(questions, self._gate.gate.decide(questions, self._gate.name), strict=True))
        # In modes with a transcript, it holds the LLM's No to the gate.
        turns: tuple[Turn, ...] = ()
        if self.options.mode in {"top-down", "hybrid"}:
            turns = gate_turns(self._gate.gate, fired=False)
        contexts = dict.fromkeys(questions, Context(turns=turns))
        fired, others = [], []
        for question in questions:
            if decisions[question].fired:
                fired.append(question)
            else:
                others.append(question)
        if self._integrator and fired:
            for question, context in zip(fired, self._integrator.gather(fired), strict=True):
                contexts[question] = self._with_warnings(question.text, context)
        if self.options.otherwise == "genread" and others:
            from kcard.integrators.baselines import written

            # The LLM reads its own document, after the gate's turn where there is a transcript.
            documents = written("genread", 1)(self._client, others, self._examples)
            for question, own in zip(others, documents, strict=True):
                passages = tuple(replace(passage, kept=True) for passage in own)
                contexts[question] = Context(passages, turns=with_documents(turns, len(own)))
        share = (time.perf_counter() - started) / len(questions)
        for question in questions:
            question.trace.seconds += share
        return [PreparedQuestion(question, decisions[question], contexts[question]) for question in questions]

    def _with_warnings(self, question: str, context: Context) -> Context:
        """Settle contradictions between a card's model and its corpus, and between cards; add notes on them, and on a
        question that the cards can't read as it is."""
        languages: dict[str, str] = {}
        for passage in context.passages:
            if self._cards and passage.card in self._cards:
                languages[passage.card] = self._cards.manifest(passage.card).language
        context = replace(context, notes=(*context.notes, *reading_warnings(question, languages)))
        if self._pool is None:
            return context
        from kcard.llms.embedded_llm import SpanReader

        if self.options.compare_index:
            context = correct_by_corpus(question, context, SpanReader())
        choices = {card.name: card for card in self._pool.cards}
        return resolve_conflicts(question, context, choices, SpanReader(), self.options.reorder_by_date)

    def _request(self, prepared: PreparedQuestion) -> Request:
        context = prepared.context
        is_grounded = self.options.prompts == "grounded"
        # Built-in examples are not about the user's cards, and a small LLM repeats what stands in its chat.
        examples, turns = self._examples, context.turns
        if is_grounded:
            turns = ()
            if self.options.examples is None:
                examples = ()
        return prepared.question.request(
            "answer",
            context.knowledge,
            examples,
            turns=turns,
            headings=context.headings,
            grounded=is_grounded,
        )

    def _answer(
        self, prepared: PreparedQuestion, reply: Reply, started: float, may_withhold: bool = True
    ) -> Answer:
        """Return the Answer for the LLM's reply. `started`: when answering began; `may_withhold`: whether nobody has
        seen the reply yet, so that another answer may take its place."""
        question, trace = prepared.question, prepared.question.trace
        # Of the kept passages only those that fit into the LLM's window reached it.
        request = self._client.truncate(self._request(prepared))
        passages = with_room_for(len(request.knowledge), prepared.context.passages)
        reply = replace(reply, text=without_headings(question.answer_text(reply), passages))
        trace.is_complete = True
        if self._integrator is None:
            checked = CheckedReply(reply.text, reply.known, confidence=reply.confidence, quote=reply.quote)
        else:
            checked = check_reply(
                request,
                reply,
                passages,
                self._integrator.selectors.checker,
                self._client.announcement,
                strict=self.options.strict,
                may_withhold=may_withhold and (self.options.strict or self.options.prompts == "grounded"),
            )
        notes = prepared.context.notes + trace.notes + self._new_evidence_warnings() + checked.notes
        if self._left_out and prepared.decision.fired:
            notes = (self._left_out, *notes)
        nearest = None
        if not checked.known:
            nearest = nearest_source(checked.quote, passages)
        return Answer(
            question=question.text,
            answer=checked.text,
            mode=self.options.mode,
            gate=prepared.decision,
            cards=tuple(dict.fromkeys(p.card for p in passages)),
            passages=passages,
            calls=len(trace.calls),
            seconds=trace.seconds + time.perf_counter() - started,
            notes=notes,
            citations=checked.citations,
            confidence=checked.confidence,
            nearest=nearest,
            choice=reply.choice,
            known=checked.known,
            usage=trace.usage,
            is_calibrated=checked.is_calibrated,
        )

    def _new_evidence_warnings(self) -> tuple[str, ...]:
        """Return warnings about the evidence that were not reported before: files left out or changed, remote hosts."""
        if self._integrator is None:
            return ()
        selectors = self._integrator.selectors
        warnings = []
        opened = list(selectors.own.values())
        if selectors.independent is not None:
            opened.append(selectors.independent)
        for evidence in opened:
            for warning in evidence.notes:
                if warning not in self._warned:
                    self._warned.add(warning)
                    warnings.append(warning)
        return tuple(warnings)


def with_room_for(count: int, passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """Return the passages, of which only the first `count` kept ones stay marked as kept."""
    marked = []
    for passage in passages:
        if passage.kept and count <= 0:
            passage = replace(passage, kept=False, reason="the LLM's context window was full")
        elif passage.kept:
            count -= 1
        marked.append(passage)
    return tuple(marked)


def ask(
    question: str | Question,
    choices: Sequence[str] | Mapping[str, str] | str = (),
    *,
    options: AskOptions | None = None,
    preset: Paper | None = None,
    hub: "Hub | None" = None,
    selection: "Selection | CardSet | None" = None,
    on_event: OnEvent = ignore,
    loader: "Loader | None" = None,
    retriever: Evidence | None = None,
    **changes: Any,
) -> Answer:
    """Answer one question; for many, make one Pipeline and call it.

    `choices`: the options of a multiple-choice question: their texts, or texts by letter. The other arguments are those
    of Pipeline, whose errors it raises; `changes`: options of AskOptions by name, such as mode="direct".
    """
    if isinstance(question, str):
        question = Question(question, choices_of(choices))
    pipeline = Pipeline(
        options,
        preset=preset,
        hub=hub,
        selection=selection,
        on_event=on_event,
        loader=loader,
        retriever=retriever,
        **changes,
    )
    return pipeline([question])[0]


def questions_per_batch(options: AskOptions, cards: int) -> int:
    """Return the batch size for large cards that take turns: as many questions as the memory for passages allows.

    cards  the number of cards
    """
    cards_asked = options.max_cards
    if options.mode == "hybrid" or (options.mode == "top-down" and options.margin):
        cards_asked = MAX_CARDS_OF_ROUND * options.max_iterations
    elif options.mode == "top-down":
        cards_asked = options.max_iterations
    document_bytes = PASSAGE_BYTES + options.card_tokens * TOKEN_BYTES
    return max(QUESTIONS, MAX_PASSAGE_BYTES // (min(cards, cards_asked) * options.n1 * document_bytes))


def reading_warnings(question: str, languages: Mapping[str, str]) -> list[str]:
    """Return notes on a question that is too long for cards and the sentence encoder, or in another language than all
    cards. `languages`: of the cards, by name."""
    from kcard.embedded import minilm

    notes = []
    if len(question) > minilm.MAX_TOKENS:
        tokens = minilm.words().count(question) + 2  # and two special ones
        if tokens > minilm.MAX_TOKENS:
            notes.append(
                f"the question has {tokens} tokens; cards and the sentence encoder read about {minilm.MAX_TOKENS} "
                "of them"
            )
    spoken = {*map(language_name, languages.values())}
    language = language_of_question(question)
    own = None
    if language is not None:
        own = language_name(language)
    if spoken and own is not None and own not in spoken and None not in spoken:
        theirs = " and ".join(sorted(filter(None, spoken)))
        cards = "the cards are"
        if len(languages) == 1:
            cards = f"the card {next(iter(languages))} is"
        notes.append(f"the question is in {own}, {cards} in {theirs}: ask in {theirs}")
    return notes
