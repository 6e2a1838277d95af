"""The pipeline as a library: pieces of an answer, its cost, what a failure leaves, without a card."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest

import kcard
from kcard.cards.card import CardSet
from kcard.errors import KcardError, LLMError, UnknownCard, UsageError
from kcard.gates.base import Never
from kcard.gates.self_ask import SelfAsk
from kcard.integrators.assembly import Integrator
from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.options import AskOptions
from kcard.integrators.pipeline import Pipeline, questions_per_batch
from kcard.integrators.pool_views import Selectors
from kcard.integrators.top_down import AutoChoice, CardChoice, ExplicitChoice, TopDown
from kcard.interfaces import LLM
from kcard.llms.embedded_llm import EmbeddedLLM
from kcard.llms.prompts import messages
from kcard.questions import checked
from kcard.selectors.factuality import Unchecked
from kcard.selectors.pruning import Extractive, Unpruned
from kcard.selectors.relevance import MiniLMRelevance
from kcard.types import Answer, Choice, Context, Example, Passage, Question, Reply, Request, Sampling
from tests.fakes import FirstBest, Replies, Says, Supports, WrittenCards, questions
from tests.integrators.conftest import HubOf


class Speaker(LLM):
    """Answers with the question in capitals, and how many passages it read."""

    def __init__(self) -> None:
        self.window: int | None = None

    def count(self, request: Request) -> int:
        return len(request.knowledge)

    def reply(self, request: Request) -> Reply:
        return Reply(f"{request.question.upper()} {len(request.knowledge)}", None, 7, 3)

    def stream(self, request: Request) -> Iterator[str | Reply]:
        reply = self.reply(request)
        yield from reply.text.split()
        yield reply


def test_an_answer_comes_in_pieces_and_then_as_a_whole_but_a_choice_in_one_piece() -> None:
    *pieces, answer = Pipeline(mode="direct", llm=Speaker()).stream("who")
    assert pieces == ["WHO", "0"]
    assert isinstance(answer, Answer)
    assert (answer.answer, answer.calls) == ("WHO 0", 1)
    text, answer = Pipeline(mode="direct", llm=Says("B")).stream(Question("Who won?", ANN_BEN))
    assert text == "Ben"


def test_an_answer_tells_its_cost_as_far_as_it_is_known() -> None:
    (known,) = Pipeline(mode="direct", llm=Speaker())(["who"])
    assert known.usage is not None
    assert (known.usage.tokens_in, known.usage.tokens_out) == (7, 3)
    assert set(known.to_json()["usage"]) == {"tokens_in", "tokens_out", "llm_seconds", "card_seconds"}
    (unknown,) = Pipeline(mode="direct", llm=Says("Paris"))(["What is the capital of France?"])
    assert "usage" not in unknown.to_json()
    assert unknown.usage is not None
    assert 0 < unknown.usage.llm_seconds <= unknown.seconds


class Three:
    """Gathers three kept passages and one that is not."""

    selectors = Selectors(MiniLMRelevance(), Extractive(), Supports(0.0), {})

    def gather(self, questions: Sequence[Question]) -> list[Context]:
        kept = [Passage("moons", f"note {i}", kept=i < 3) for i in range(4)]
        return [Context(tuple(kept)) for _ in questions]


def with_integrator(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[LLM], Integrator], **options: Any
) -> Pipeline:
    """A pipeline whose gate always fires, with the integrator that `make` makes for its LLM."""
    pool = CardSet([]), WrittenCards([], lambda *_: []), ""
    monkeypatch.setattr("kcard.integrators.pipeline.make_pool", lambda *_: pool)
    monkeypatch.setattr("kcard.integrators.pipeline.make_selectors", lambda *_: Three.selectors)
    monkeypatch.setattr("kcard.integrators.pipeline.make_integrator", lambda *parts: make(parts[3]))
    return Pipeline(mode="bottom-up", gate="always", **options)


def test_a_passage_that_did_not_fit_is_not_said_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = Speaker()
    llm.window = 2
    pipeline = with_integrator(monkeypatch, lambda _: Three(), llm=llm)
    question = Question("who")
    (answer,) = pipeline([question])
    reply = question.trace.calls[-1].reply
    assert reply is not None
    assert reply.text == "WHO 2"
    assert [p.kept for p in answer.passages] == [True, True, False, False]
    assert "1 of 3 passages" in answer.notes[0]


def test_a_long_question_is_answered_and_the_cut_is_told() -> None:
    question = "What is the capital of France? " + "And so on. " * 1800
    (answer,) = Pipeline(mode="direct", llm=EmbeddedLLM())([question])
    assert answer.answer
    assert answer.question == question
    assert "left out: the question after its first" in answer.notes[0]


def test_a_question_that_is_longer_than_cards_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = with_integrator(monkeypatch, lambda _: Three(), llm=Speaker())
    short, long = pipeline(["who " * 100, "who " * 400])
    assert not any("tokens" in note for note in short.notes)
    assert "cards and the sentence encoder read about 256" in long.notes[0]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"floor": 1.5}, "floor"),
        ({"floor": -0.1}, "floor"),
        ({"min_factuality": 1.1}, "min-factuality"),
        ({"card_temperature": -1.0}, "temperature"),
        ({"evidence": ["none", "own"]}, "none"),
        ({"llm": "openai:x", "llm_url": "http://127.0.0.1:9/v1", "retries": -1}, "retries"),
        ({"llm": "openai:x", "llm_url": "http://127.0.0.1:9/v1", "llm_window": 5}, "llm-window"),
    ],
)
def test_a_wrong_argument_is_named(options: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Pipeline(**{"mode": "direct", **options})  # type: ignore[arg-type]


# Cards of a pipeline by their names, as one text or a list.

QUESTION = "Who discovered the moon Tethys?"


@pytest.fixture
def cards(hub_of: HubOf) -> None:
    hub_of({"moons": "Cassini discovered the moon Tethys.", "mills": "Osric built the mill of Tarn."})


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("moons", ["moons"]),
        (" moons , mills,", ["moons", "mills"]),
        (["moons", "mills"], ["moons", "mills"]),
        (None, None),
    ],
)
def test_a_text_names_one_card_or_several(given: str | list[str] | None, names: list[str] | None) -> None:
    assert AskOptions(cards=given).card_names == names
    assert AskOptions(evidence=Path("notes")).evidence == (Path("notes"),)  # type: ignore[arg-type]


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize(
    ("options", "gate", "used", "kinds"),
    [
        ({}, "always", ("moons",), ["answer"]),
        ({"cards": "moons"}, "always", ("moons",), ["answer"]),
        ({"cards": ["moons"], "prompts": "paper"}, "always", ("moons",), ["answer"]),
        ({"prompts": "paper"}, "self-ask", (), ["need", "answer"]),
        ({"cards": "mills,moons", "gate": "self-ask"}, "self-ask", (), ["need", "answer"]),
    ],
)
def test_the_llm_is_asked_whether_it_needs_cards_only_in_the_papers_prompts_or_where_that_gate_is_given(
    options: dict[str, Any], gate: str, used: tuple[str, ...], kinds: list[str]
) -> None:
    llm = Replies(lambda _: Reply("No", yes=0.0))
    (answer,) = Pipeline(**options, select="question", llm=llm)([QUESTION])
    assert (answer.gate.name, answer.gate.fired, answer.cards) == (gate, bool(used), used)
    assert [request.kind for request in llm.requests] == kinds


@pytest.mark.usefixtures("cards")
def test_a_variant_with_one_card_leaves_its_pipeline_the_others() -> None:
    pipeline = Pipeline(mode="bottom-up", llm=Says("Lassell."))
    assert [card.name for card in pipeline.variant("top-down", "moons").cards] == ["moons"]
    assert {card.name for card in pipeline.cards} == {"moons", "mills"}
    with pytest.raises(UnknownCard, match="no card 'stones'"):
        pipeline.variant("top-down", "stones")


@pytest.mark.usefixtures("cards")
def test_a_question_that_no_card_fits_is_answered_by_the_llm_alone() -> None:
    llm = Says("An hour.")
    (answer,) = Pipeline(llm=llm)(["How long does bread bake?"])
    assert (answer.answer, answer.cards, llm.requests[0].knowledge) == ("An hour.", (), ())
    assert "no card used" in "".join(answer.notes)


@pytest.mark.usefixtures("cards")
def test_built_in_examples_stand_only_in_the_papers_prompts() -> None:
    for prompts, count in (("grounded", 0), ("paper", 2)):
        llm = Says("Ann")
        Pipeline(prompts=prompts, gate="always", select="question", llm=llm)([QUESTION])
        assert (llm.requests[-1].grounded, len(llm.requests[-1].shots)) == (prompts == "grounded", count)


@pytest.mark.usefixtures("cards")
def test_a_users_own_examples_stand_in_the_default_prompt_too(tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    file.write_text(
        '{"kind": "answer", "question": "Who won?", "reply": "Ann won.", "knowledge": ["Ann won."]}\n'
    )
    llm = Says("Lassell.")
    Pipeline(examples=file, llm=llm)([QUESTION])
    _, shown, reply, asked = messages(llm.requests[-1])
    assert (reply["role"], reply["content"]) == ("assistant", "Ann won.")
    assert shown["content"].startswith("[1] Ann won.\n\n")
    assert "Tethys" in asked["content"]


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize(
    ("question", "said"),
    [
        (
            "Wer hat den Mond Tethys entdeckt und wie hat er das gemacht?",
            "in German, the card moons is in English",
        ),
        ("¿Quién fue el que descubrió la luna Tethys?", "in Spanish, the card moons is in English"),
        (QUESTION, ""),
    ],
)
def test_a_question_in_another_language_than_the_cards_says_so(question: str, said: str) -> None:
    (answer,) = Pipeline(cards="moons")([question])
    assert said in "".join(answer.notes)
    assert bool(answer.notes) == bool(said)


def test_a_streamed_answer_has_no_heading_either(tmp_path: Path) -> None:
    manual = tmp_path / "manual.md"
    manual.write_text(
        "# Manual\n\n## 2.5 Depot > How?\n\nTo open the depot of Tarn you turn the big key twice.\n", "utf-8"
    )
    kcard.publish(kcard.train(manual, kind="retrieval", name="manual", description="depots").folder)
    *pieces, answer = Pipeline(cards="manual").stream("How do you open the depot of Tarn?")
    assert pieces == ["To open the depot of Tarn you turn the big key twice."]
    assert not isinstance(answer, str)
    assert answer.answer == pieces[0]


# A question's options and demonstrations reach the LLM, and its choice comes back as letter and text.

ANN_BEN = (Choice("A", "Ann"), Choice("B", "Ben"))
BEN_ANN = (Choice("A", "Ben"), Choice("B", "Ann"))


def test_the_answer_carries_the_letter_and_the_text_of_the_chosen_option() -> None:
    llm = Says("The answer is B.")
    (answer,) = Pipeline(mode="direct", llm=llm)([Question("Who won?", ANN_BEN)])
    assert (answer.choice, answer.answer, answer.notes) == ("B", "Ben", ())
    assert answer.to_json()["choice"] == "B"
    assert llm.requests[0].choices == ANN_BEN


def test_a_reply_that_names_no_option_counts_as_no_choice_and_is_told() -> None:
    (answer,) = Pipeline(mode="direct", llm=Says("Perhaps Cal"))([Question("Who won?", ANN_BEN)])
    assert (answer.choice, answer.answer) == ("", "Perhaps Cal")
    assert "'Perhaps Cal' names none of the options" in answer.notes[0]


def test_questions_with_equal_text_and_different_options_are_different() -> None:
    llm = Says("Ann")
    asked: list[str | Question] = [
        Question("Who won?", ANN_BEN),
        Question("Who won?", BEN_ANN),
        "Who won?",
        Question("Who won?", ANN_BEN),
    ]
    answers = Pipeline(mode="direct", llm=llm)(asked)
    assert [answer.choice for answer in answers] == ["A", "B", None, "A"]
    assert [answer.calls for answer in answers] == [1, 1, 1, 1]
    assert len(llm.requests) == 3


def test_demonstrations_of_a_question_take_the_place_of_the_built_in_ones_of_their_kind() -> None:
    shot = Example("answer", "Who lost?", "A", choices=BEN_ANN)
    llm = Says("B")
    Pipeline(mode="direct", llm=llm)([Question("Who won?", ANN_BEN, (shot,)), "Who won?"])
    assert llm.requests[0].shots == (shot,)
    assert shot not in llm.requests[1].examples


def test_the_gate_asks_with_the_options_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = Says("A")
    pipeline = Pipeline(mode="direct", llm=llm)
    monkeypatch.setattr(Never, "knows", lambda gate, questions: SelfAsk(gate.llm).knows(questions))
    pipeline([Question("Who won?", ANN_BEN)])
    assert [(r.kind, r.choices) for r in llm.requests] == [("need", ANN_BEN), ("answer", ANN_BEN)]


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("  ", "question is empty"),
        ("\ud800", "not UTF-8"),
        (Question("q", (Choice("A", "Ann"),)), "one option, 'A'"),
        (Question("q", (Choice("A", "Ann"), Choice("a", "Ben"))), "2 options have the letter 'A'"),
        (Question("q", (Choice("A", "Ann"), Choice("B", " "))), "option 'B' is ' '"),
    ],
)
def test_a_question_that_can_not_be_asked_is_refused(question: str | Question, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        checked(question)


# Several requests at a time: the same answers in the same order, and a failure costs its own question only.

QUESTIONS = [f"question {n}" for n in range(12)]


CARDS = (Choice("moons", "moons of planets"), Choice("races", "elections"))


class Writes:
    """A step in which each card writes a note that is kept."""

    selectors = Selectors(FirstBest(), Unpruned(), Unchecked(), {})

    def run(
        self, questions: Sequence[Question], cards: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[Context]:
        del sampling
        return [
            Context(tuple(Passage(name, f"{name} on {question.text}", kept=True) for name in names))
            for question, names in zip(questions, cards, strict=True)
        ]


class Slow(LLM):
    """Takes longer for earlier questions; fails at those that it is told to. Counts what runs at a time.

    The first requests wait until `expected` of them run, however late a thread starts.
    """

    def __init__(self, fails: Sequence[str] = (), expected: int = 1) -> None:
        self.fails, self.lock, self.running, self.most = set(fails), Lock(), 0, 0
        self.expected, self.met = expected, Event()
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Reply:
        with self.lock:
            self.requests.append(request)
            self.running += 1
            self.most = max(self.most, self.running)
            if self.running >= self.expected:
                self.met.set()
        self.met.wait(30)
        time.sleep(0.002 * (12 - int(request.question.split()[-1])))
        with self.lock:
            self.running -= 1
        if request.question in self.fails:
            raise LLMError(f"{request.question} is down")
        if request.kind == "choose":
            return Reply(request.choices[0].name)
        return Reply(f"{request.kind} {request.question}", 1.0 if request.kind == "need" else None, 5, 2)


class Batched(Slow):
    """The same as an LLM that takes batches."""

    def __init__(self, fails: Sequence[str] = (), expected: int = 1) -> None:
        super().__init__(fails)
        del expected  # it runs in one thread
        self.sizes: list[int] = []

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        self.sizes.append(len(requests))
        for request in requests:
            try:
                yield self.reply(request)
            except LLMError as error:
                yield error


def told(outcomes: Sequence[Answer | KcardError]) -> list[Any]:
    """What does not depend on the clock."""
    return [
        str(o)
        if isinstance(o, KcardError)
        else replace(
            o,
            seconds=0.0,
            usage=None if o.usage is None else replace(o.usage, llm_seconds=0.0, card_seconds=0.0),
        )
        for o in outcomes
    ]


@pytest.mark.parametrize("make", [Slow, Batched])
@pytest.mark.parametrize("concurrency", [3, 8, 50])
def test_answers_and_their_order_do_not_depend_on_concurrency(make: type[Slow], concurrency: int) -> None:
    fails = (QUESTIONS[3], QUESTIONS[7])
    one = told(list(Pipeline(mode="direct", llm=make(fails), concurrency=1).outcomes(QUESTIONS)))
    many = told(list(Pipeline(mode="direct", llm=make(fails), concurrency=concurrency).outcomes(QUESTIONS)))
    assert many == one
    assert [n for n, outcome in enumerate(one) if isinstance(outcome, str)] == [3, 7]


def test_so_many_requests_are_in_flight_and_each_is_made_once() -> None:
    llm = Slow(expected=4)
    Pipeline(mode="direct", llm=llm, concurrency=4)(QUESTIONS)
    assert llm.most == 4
    assert len(llm.requests) == len(QUESTIONS)


def test_an_llm_that_takes_batches_gets_batches_and_no_threads() -> None:
    llm = Batched()
    Pipeline(mode="direct", llm=llm, concurrency=5)(QUESTIONS)
    assert llm.sizes == [5, 5, 2]
    assert llm.most == 1


def test_the_backend_says_how_many_requests_it_takes_where_nobody_else_does() -> None:
    llm = Slow()
    assert Pipeline(mode="direct", llm=llm).concurrency == 1
    llm.concurrency = 4
    assert Pipeline(mode="direct", llm=llm).concurrency == 4
    assert Pipeline(mode="direct", llm=llm, concurrency=2).concurrency == 2


def test_where_the_gate_fails_on_a_question_the_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = Slow(fails=QUESTIONS[2:4])
    pipeline = Pipeline(mode="direct", llm=llm, concurrency=3)
    monkeypatch.setattr(Never, "knows", lambda gate, questions: SelfAsk(gate.llm).knows(questions))
    outcomes = list(pipeline.outcomes(QUESTIONS))
    assert [n for n, o in enumerate(outcomes) if isinstance(o, LLMError)] == [2, 3]
    needs = [r.question for r in llm.requests if r.kind == "need"]
    assert sorted(needs) == sorted(QUESTIONS), "what failed, and what did not, was asked once"


def test_answers_raises_in_the_place_of_the_failure_and_keeps_what_else_came() -> None:
    llm = Slow(fails=[QUESTIONS[1]])
    pipeline = Pipeline(mode="direct", llm=llm, concurrency=12)
    asked = questions(*QUESTIONS)
    answers = pipeline.answers(asked)
    assert next(answers).question == QUESTIONS[0]
    with pytest.raises(LLMError, match="question 1 is down"):
        next(answers)
    deadline = time.monotonic() + 60
    while not all(question.trace.calls for question in asked):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    llm.fails.clear()
    before = len(llm.requests)
    assert len(pipeline(asked[1:])) == 11
    assert [r.question for r in llm.requests[before:]] == [QUESTIONS[1]]


@pytest.mark.parametrize("select", ["auto", "explicit"])
def test_top_down_asks_about_several_questions_at_a_time(
    select: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("need", "what" if select == "auto" else "choose")
    told_by: dict[int, list[Any]] = {}
    for concurrency in (1, 6):
        llm = Slow(QUESTIONS[4:5], concurrency)
        choice = AutoChoice(CardRanker(FirstBest(), CARDS)) if select == "auto" else ExplicitChoice(CARDS)

        def top_down(client: LLM, choice: CardChoice = choice) -> TopDown:
            return TopDown(Writes(), Sampling(), client, choice, len(CARDS), max_iterations=2)

        pipeline = with_integrator(monkeypatch, top_down, llm=llm, concurrency=concurrency)
        told_by[concurrency] = told(list(pipeline.outcomes(QUESTIONS)))
        assert llm.most == concurrency
        assert {kind for kind in kinds if any(r.kind == kind for r in llm.requests)} == set(kinds)
    assert told_by[1] == told_by[6]
    assert [n for n, outcome in enumerate(told_by[6]) if isinstance(outcome, str)] == [4]


@pytest.mark.parametrize(
    ("options", "cards", "questions"),
    [
        ({"mode": "bottom-up"}, 26, 1262),
        ({"mode": "bottom-up", "max_cards": 2}, 26, 16410),
        ({"mode": "top-down"}, 26, 10940),
        ({"mode": "top-down", "margin": 0.0}, 26, 32820),
        ({"mode": "hybrid", "card_tokens": 1000}, 26, 3555),
        ({"mode": "bottom-up", "n1": 100, "card_tokens": 10_000}, 26, 16),
    ],
)
def test_a_batch_of_cards_that_take_turns_is_as_large_as_its_passages_allow(
    options: dict[str, Any], cards: int, questions: int
) -> None:
    assert questions_per_batch(AskOptions(**options), cards) == questions


def test_a_preset_overrides_options_but_none_that_is_passed_by_name() -> None:
    options = AskOptions(mode="direct", floor=0.5, n3=4)
    pipeline = Pipeline(options, preset="adaptive-retrieval", n3=2, gate="never")
    assert (pipeline.options.floor, pipeline.options.n1, pipeline.options.n3) == (0.0, 1, 2)
    assert pipeline.options.mode == "bottom-up"
    with pytest.raises(
        UsageError, match="preset 'bert' is unknown: choose one of knowledge-card, thrust, skr"
    ):
        Pipeline(options, preset="bert")  # type: ignore[arg-type]


def test_where_the_gate_knows_the_llm_may_read_its_own_document() -> None:
    llm = Says("Ulm lies on the Danube.", "the Danube")
    pipeline = Pipeline(mode="bottom-up", gate="never", llm=llm, otherwise="genread")
    (answer,) = pipeline(["Where is Ulm?"])
    assert [request.kind for request in llm.requests] == ["document", "answer"]
    assert llm.requests[1].knowledge == ("Ulm lies on the Danube.",)
    assert [(p.card, p.kept) for p in answer.passages] == [("genread", True)]
    assert not answer.gate.fired
