"""The papers' baselines: what each asks of the LLM, how it settles on an answer, and what it costs."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kcard.api.eval_settings import EvalSetting, parse_settings
from kcard.errors import LLMError, UsageError
from kcard.gates.registry import NamedGate
from kcard.gates.self_ask import SelfAsk
from kcard.integrators.baselines import (
    BASELINES,
    BaselineAnswerer,
    KnowledgeSource,
    ReadingStrategy,
    baseline,
    ensemble,
    read_jointly,
    retrieved,
    take_majority,
    take_most_probable,
    written,
)
from kcard.integrators.options import AskOptions, BaselineOptions
from kcard.integrators.pool_views import GateRouter
from kcard.interfaces import LLM, Answerer, Array, Evidence, Gate
from kcard.llms.client import LLMClient
from kcard.llms.embedded_llm import EmbeddedLLM
from kcard.types import Answer, Choice, Decision, Example, Question, Reply, Request, Source, TokenScores
from tests.fakes import Replies, questions
from tests.integrators.conftest import HubOf

RAW, SCALED = partial(ensemble, relative=False), partial(ensemble, relative=True)
OPTIONS = (Choice("A", "Ann"), Choice("B", "Bob"))


def scripted(answer: Callable[[str], Reply]) -> Replies:
    """An LLM that writes numbered texts and answers with what `answer` makes of the knowledge."""

    def reply(request: Request) -> Reply:
        if request.kind != "answer":
            return Reply(f"text {request.sample}", tokens_in=5, tokens_out=2)
        return answer(" ".join(request.knowledge))

    return Replies(reply)


@dataclass(frozen=True)
class Found(Evidence):
    """A retriever with the same passages for every question."""

    sources: tuple[Source, ...]

    def find(self, claim: str, k: int) -> list[Source]:
        del claim
        return [*self.sources[:k]]


def sure(text: str, probability: float) -> Reply:
    token = TokenScores(math.log(probability), 0.0, 0.0)
    return Reply(text, tokens=(token, token))


def passages(*scored: tuple[str, float]) -> KnowledgeSource:
    return retrieved(Found(tuple(Source(text, "notes.txt", 1, score) for text, score in scored)), 10)


def ask(
    name: str,
    llm: LLM,
    source: KnowledgeSource,
    reading: ReadingStrategy,
    question: str | Question = "Who won?",
) -> Answer:
    [answer] = BaselineAnswerer(name, LLMClient(llm), source, reading).answers([question])
    return answer


def test_retrieval_shows_all_passages_at_once_and_keeps_their_places() -> None:
    llm = scripted(lambda knowledge: Reply(knowledge, tokens_in=7, tokens_out=3))
    source = passages(("Ann won.", 3.0), ("It rained.", 1.0))
    answer = ask("retrieval", llm, source, read_jointly)
    assert (answer.answer, answer.mode, answer.cards) == ("Ann won. It rained.", "retrieval", ("retrieval",))
    assert [(p.text, p.kept, p.source and p.source.score) for p in answer.passages] == [
        ("Ann won.", True, 3.0),
        ("It rained.", True, 1.0),
    ]
    assert (answer.calls, answer.usage and answer.usage.tokens_in) == (1, 7)


def test_genread_answers_from_the_document_that_the_llm_wrote() -> None:
    llm = scripted(Reply)
    answer = ask("genread", llm, written("genread", 1), read_jointly, Question("Who won?", OPTIONS))
    assert [request.kind for request in llm.requests] == ["document", "answer"]
    assert llm.requests[1].knowledge == ("text 0",)
    assert llm.requests[1].choices == OPTIONS
    assert (answer.answer, answer.calls) == ("text 0", 2)


def test_gkp_draws_statements_and_takes_the_surest_answer() -> None:
    chances = {"": sure("Carl", 0.2), "text 0": sure("Ann", 0.4), "text 1": sure("Bob", 0.9)}
    llm = scripted(lambda knowledge: chances.get(knowledge, sure("Ann", 0.5)))
    answer = ask("gkp", llm, written("gkp", 4), take_most_probable)
    drawn = [request for request in llm.requests if request.kind == "knowledge"]
    assert [request.sample for request in drawn] == [0, 1, 2, 3]
    assert {request.temperature for request in drawn} == {1.0}
    assert (answer.answer, answer.calls) == ("Bob", 9)


@pytest.mark.parametrize(
    ("name", "reading", "written_replies", "expected"),
    [
        pytest.param("gkp", take_most_probable, ["Ann", "Bob", "Ann"], "Ann", id="without probabilities"),
        pytest.param("recitation", take_majority, ["Bob", "ann", "Ann."], "ann", id="whatever the case"),
        pytest.param("recitation", take_majority, ["?", "?", "Ann"], "Ann", id="unknown is no vote"),
    ],
)
def test_the_most_frequent_answer_is_taken(
    name: str, reading: ReadingStrategy, written_replies: list[str], expected: str
) -> None:
    def answer(knowledge: str) -> Reply:
        text = written_replies[int(knowledge.split()[-1])] if knowledge else "Ann"
        return Reply(text, known=text != "?")

    llm = scripted(answer)
    assert ask(name, llm, written(name, 3), reading).answer == expected
    temperatures = {request.temperature for request in llm.requests if request.kind != "answer"}
    assert temperatures == {1.0 if name == "gkp" else 0.7}


def test_replug_weighs_answers_by_score_and_probability() -> None:
    """Two passages for Ann together outweigh the best passage, which is for Bob: by hand, softmax of 1.0, 0.8, 0.8."""
    chances = {"b": sure("Bob", 0.5), "a": sure("Ann", 0.4), "c": sure("ann", 0.3)}
    llm = scripted(chances.__getitem__)
    source = passages(("b", 1.0), ("a", 0.8), ("c", 0.8))
    best, other = (math.exp(score) / (math.exp(1.0) + 2 * math.exp(0.8)) for score in (1.0, 0.8))
    assert best * 0.5 < other * (0.4 + 0.3)
    answer = ask("replug", llm, source, RAW)
    assert (answer.answer, answer.calls) == ("Ann", 3)
    assert [request.knowledge for request in llm.requests] == [("b",), ("a",), ("c",)]


def test_replug_without_probabilities_counts_the_shares_of_the_passages() -> None:
    llm = scripted(lambda knowledge: Reply("Bob" if knowledge == "b" else "Ann"))
    source = passages(("b", 4.0), ("a", 1.0), ("c", 1.0))
    for reading in (RAW, SCALED):
        assert ask("replug", llm, source, reading).answer == "Bob"
    # Of raw scores ten apart the first would have all the weight.
    far = passages(("b", 40.0), ("a", 30.0), ("c", 30.0))
    assert ask("replug", llm, far, SCALED).answer == "Ann"


def test_replug_answers_without_knowledge_where_nothing_is_found() -> None:
    llm = scripted(lambda knowledge: Reply(knowledge or "nothing"))
    answer = ask("replug", llm, passages(), SCALED)
    assert (answer.answer, answer.passages, answer.cards) == ("nothing", (), ())


def test_a_questions_own_demonstrations_replace_those_for_answers_only() -> None:
    llm = scripted(Reply)
    built_in = (Example("answer", "1?", "one"), Example("recite", "1?", "One. It is a number."))
    own = (Example("answer", "2?", "two"),)
    runner = BaselineAnswerer("recitation", LLMClient(llm), written("recitation", 1), take_majority, built_in)
    [*runner.answers([Question("3?", examples=own)])]
    assert [request.shots for request in llm.requests] == [built_in[1:], own]


def test_of_several_options_the_chosen_ones_are_counted_however_they_are_named() -> None:
    replies = {"text 0": "A", "text 1": "(B)", "text 2": "The answer is B", "text 3": "neither"}
    llm = scripted(lambda knowledge: Reply(replies[knowledge]))
    answer = ask("recitation", llm, written("recitation", 4), take_majority, Question("Who won?", OPTIONS))
    assert (answer.choice, answer.answer) == ("B", "Bob")
    assert not any(request.draft for request in llm.requests)


def test_a_failure_costs_only_its_own_question_and_no_reply_is_asked_for_twice() -> None:
    def answer(knowledge: str) -> Reply:
        if llm.requests[-1].question == "b?" and len(llm.requests) < 9:
            raise LLMError("down")
        return Reply(knowledge)

    llm = scripted(answer)
    runner = BaselineAnswerer("genread", LLMClient(llm), written("genread", 1), read_jointly)
    asked = questions("a?", "b?", "c?")
    first, second, third = runner.outcomes(asked)
    assert isinstance(second, LLMError)
    assert isinstance(first, Answer)
    assert isinstance(third, Answer)
    assert [first.answer, third.answer] == ["text 0", "text 0"]
    with pytest.raises(LLMError, match="down"):
        [*runner.answers(asked[1:2])]
    sent = [(request.kind, request.question) for request in llm.requests]
    assert len(sent) == len(set(sent)) + 1 == 7  # only the answer to b? came twice


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "races.txt"
    path.write_text(
        "Mara Holt won the race for mayor of Quay Town in 2022.\n\nThe bakery of Quay Town opened in 1904.\n",
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("kind", ["bm25", "minilm"])
def test_the_embedded_llm_finds_the_answer_in_what_is_retrieved(corpus: Path, kind: str) -> None:
    asking = AskOptions(llm=EmbeddedLLM())
    options = BaselineOptions(corpus=corpus, retriever=kind, passages=1)
    question = "Who won the race for mayor of Quay Town?"
    for name in ("retrieval", "replug"):
        [answer] = baseline(name, asking, options).answers([question])
        assert answer.answer == "Mara Holt", name
        assert len(answer.passages) == 1
        assert "Mara Holt" in answer.passages[0].text
    both = BaselineOptions(corpus=corpus, retriever=kind)
    [together] = baseline("retrieval", asking, both).answers([question])
    [apart] = baseline("replug", asking, both).answers([question])
    assert len(together.passages) == len(apart.passages) == 2
    assert (together.calls, apart.calls) == (1, 2)


@pytest.fixture
def cards(hub_of: HubOf) -> None:
    hub_of({"moons": "Cassini discovered the moon Tethys.", "mills": "Osric built the mill of Tarn."})


@pytest.mark.usefixtures("cards")
def test_without_a_corpus_the_source_passages_of_the_chosen_cards_are_searched() -> None:
    asking = AskOptions(llm=EmbeddedLLM(), cards=["mills"])
    [answer] = baseline("retrieval", asking).answers(["Who built the mill of Tarn?"])
    assert answer.answer == "Osric"
    [answer] = baseline("retrieval", asking).answers(["Who discovered the moon Tethys?"])
    assert all("Cassini" not in passage.text for passage in answer.passages)


@pytest.mark.usefixtures("cards")
def test_cards_and_retrieved_passages_are_candidates_of_the_same_selectors(corpus: Path) -> None:
    asking = AskOptions(llm=EmbeddedLLM(), cards="moons,mills")
    runner = baseline("cards+retrieval", asking, BaselineOptions(corpus=corpus))
    [holt, tethys] = runner.answers(
        ["Who won the race for mayor of Quay Town?", "Who discovered the moon Tethys?"]
    )
    assert (holt.answer, tethys.answer) == ("Mara Holt", "Cassini")
    assert "retrieval" in {p.card for p in holt.passages if p.kept}
    assert "moons" in {p.card for p in tethys.passages if p.kept}
    assert all(p.relevance is not None for p in holt.passages)


def test_a_wrong_name_and_missing_passages_are_told_with_their_remedy() -> None:
    with pytest.raises(UsageError, match="baseline 'rag' is unknown: choose one of retrieval, genread"):
        baseline("rag")
    with pytest.raises(UsageError, match="samples is 0: it must be at least 1"):
        BaselineOptions(samples=0)
    assert len(BASELINES) == 6


def test_vectors_need_texts_that_can_be_read_through(monkeypatch: pytest.MonkeyPatch) -> None:
    class Online(Evidence):
        name, digest = "online", "0"

        def find(self, claim: str, k: int) -> list[Source]:
            del claim, k
            return []

    from kcard.selectors import evidence

    monkeypatch.setattr(evidence, "open_evidence", lambda _: Online())
    with pytest.raises(UsageError, match="retriever minilm needs the texts of wikipedia"):
        baseline("retrieval", None, BaselineOptions(corpus="wikipedia", retriever="minilm"))


# A gate between two ways of answering sends each question one way, and its own costs are counted.


class Short(Gate):
    """Short questions are popular."""

    def knows(self, questions: Sequence[Question]) -> Array:
        return np.array([1.0 if len(q.text) < 10 else 0.0 for q in questions], dtype=np.float32)


@dataclass
class Way(Answerer):
    """Answers with its name, but fails on one question."""

    name: str
    asked: list[str] = field(default_factory=list)

    def outcomes(self, questions: Sequence[str | Question]) -> Iterator[Answer | LLMError]:
        for question in questions:
            assert isinstance(question, Question)
            self.asked.append(question.text)
            calls = 1 + len(question.trace.calls)
            answer = Answer(question.text, self.name, self.name, Decision("always", 0.0, True), calls=calls)
            yield LLMError("no reply") if question.text == "broken" else answer


def routed() -> GateRouter:
    return GateRouter(NamedGate("popularity", Short()), Way("retrieval"), Way("genread"))


def test_each_question_goes_one_way_and_the_order_is_kept() -> None:
    questions: list[str | Question] = [
        "a rare question",
        "common",
        Question("another rare one"),
        "well",
        "common",
    ]
    found = list(routed().answers(questions))
    assert [answer.answer for answer in found] == ["retrieval", "genread", "retrieval", "genread", "genread"]
    assert [answer.gate.fired for answer in found] == [True, False, True, False, False]
    assert {answer.gate.name for answer in found} == {"popularity"}
    assert [answer.calls for answer in found] == [1] * 5


def test_what_the_gate_asks_the_llm_is_counted() -> None:
    llm = LLMClient(Replies(lambda request: Reply("Yes", yes=float("rare" in request.question))))
    ways = GateRouter(NamedGate("self-ask", SelfAsk(llm)), Way("retrieval"), Way("genread"))
    rare, common = ways.answers(["rare", "common"])
    assert (rare.answer, common.answer) == ("retrieval", "genread")
    assert [rare.calls, common.calls] == [2, 2]


def test_a_setting_names_both_ways_and_the_gate_between_them() -> None:
    (setting,) = parse_settings("retrieval/genread@popularity")
    assert setting.sides == (EvalSetting("retrieval"), EvalSetting("genread"))
    assert setting.options(AskOptions()).gate == "popularity"
    assert setting.uses_cards(BaselineOptions())
    assert not setting.uses_cards(BaselineOptions(corpus="texts"))
    assert EvalSetting("bottom-up@thrust").sides is None


@pytest.mark.parametrize(
    "name", ["retrieval/genread", "retrieval/@never", "a/b@never", "genread@never", "direct@x"]
)
def test_half_a_setting_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="unknown setting"):
        parse_settings(name)
