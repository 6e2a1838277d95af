"""Self-ask in all wordings, with demonstrations from records, and the uncertainty of a draft."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcard.api import gates as gating
from kcard.errors import UsageError
from kcard.gates import base
from kcard.gates.base import Resources
from kcard.gates.records import Query, Record, digest
from kcard.gates.registry import load, load_gate, save
from kcard.gates.self_ask import (
    KNOWLEDGE_CARD_SELF_ASK,
    SKR_ICL,
    SKR_PROMPT,
    SelfAskSKR,
    SelfAskSKREnsemble,
)
from kcard.gates.uncertainty import CalibratedUncertainty, Uncertainty
from kcard.llms.client import LLMClient
from kcard.llms.embedded_llm import EmbeddedLLM
from kcard.llms.openai_endpoint import OpenAIEndpoint
from kcard.types import Example, Reply, Request, TokenScores
from tests.fakes import Replies, questions

RECORDS = [Record(f"known {i}", 1, 1) for i in range(5)] + [Record(f"unknown {i}", 0, 1) for i in range(3)]


def voting(votes: Mapping[int, float | None]) -> Replies:
    """An LLM that needs more information where a wording's vote says so."""
    return Replies(lambda request: Reply("", yes=votes[request.template]))


def test_skr_asks_in_its_own_wordings_and_the_majority_of_five_decides() -> None:
    llm = voting({3: 0.9, 4: 0.4, 5: 0.6, 6: 0.0, 7: None})
    shown = (Example("need", "2+2?", "No"),)
    assert SelfAskSKR(llm, shown).knows(questions("q")) == pytest.approx([0.1])
    assert SelfAskSKREnsemble(llm, shown).knows(questions("q")) == pytest.approx([0.4])
    assert [r.template for r in llm.requests] == [3, 3, 4, 5, 6, 7]
    assert {r.examples for r in llm.requests} == {shown}
    (decision,) = SelfAskSKREnsemble(llm).decide(questions("q"), "self-ask-skr-ensemble")
    assert decision.fired


def test_a_yes_of_an_endpoint_is_read_by_the_polarity_of_the_wording(serve: Callable[..., Any]) -> None:
    server = serve({"text": "Yes", "top": [["Yes", -0.1], ["No", -2.35]]})
    llm = OpenAIEndpoint("tiny", url=server.url)
    needs = [llm.reply(Request("need", "q", template=i)).yes for i in range(8)]
    assert needs == pytest.approx([0.905] * 6 + [0.095] * 2, abs=0.01)
    # three of five wordings say that it needs more, two that it can answer
    assert SelfAskSKREnsemble(llm).knows(questions("q")) == pytest.approx([0.4])
    asked = [r["body"]["messages"][-1]["content"].splitlines()[-1] for r in server.requests]
    assert asked[7] == "Q: Can you solve this question now? A:"


def test_the_embedded_llm_gives_the_same_need_in_every_wording_and_words_it_to_fit() -> None:
    replies = [
        EmbeddedLLM().reply(Request("need", "What is the capital of France?", template=i)) for i in range(8)
    ]
    assert len({reply.yes for reply in replies}) == 1
    assert [reply.text for reply in replies] == ["No"] * 6 + ["Yes"] * 2


def test_demonstrations_are_drawn_in_turn_from_both_sides_and_shown_to_the_llm(tmp_path: Path) -> None:
    llm = voting(dict.fromkeys(range(8), 0.3))
    gate = SKR_ICL.fit(RECORDS, {}, Resources(llm=llm))
    assert [e.reply for e in gate.examples] == ["No", "Yes", "No", "Yes"]
    assert all(e.question.startswith("known" if e.reply == "No" else "unknown") for e in gate.examples)
    assert gate.scores([Query("q")]) == pytest.approx([0.7])
    assert llm.requests[0].examples == gate.examples
    assert llm.requests[0].template == 3
    save(gate, tmp_path / "gate", digest(RECORDS))
    again = load(tmp_path / "gate", Resources(llm=llm))
    assert again.scores([Query("q")]) == pytest.approx([0.7])
    assert llm.requests[1] == llm.requests[0]
    other = SKR_ICL.fit(RECORDS, {"seed": 1}, Resources(llm=llm))
    assert other.examples != gate.examples
    assert SKR_ICL.fit(RECORDS, {"seed": 1}, Resources()).examples == other.examples


@pytest.mark.parametrize(
    ("settings", "templates"),
    [
        ({"wording": "skr", "ensemble": True}, [3, 4, 5, 6, 7]),
        ({"wording": "knowledge-card", "ensemble": True}, [0, 1, 2]),
        ({"wording": "knowledge-card"}, [0]),
    ],
)
def test_a_fitted_self_ask_asks_in_the_chosen_wordings(
    settings: dict[str, Any], templates: list[int]
) -> None:
    llm = voting(dict.fromkeys(range(8), 0.9))
    gate = SKR_ICL.fit(RECORDS, {**settings, "demonstrations": 20}, Resources(llm=llm))
    assert gate.scores([Query("q")])[0] < gate.threshold
    assert [r.template for r in llm.requests] == templates
    assert len(gate.examples) == 6, "three of either side are all there are"


def test_without_demonstrations_one_side_is_enough_and_with_them_it_is_not() -> None:
    assert SKR_ICL.fit(RECORDS[:5], {"demonstrations": 0}, Resources()).examples == ()
    with pytest.raises(UsageError, match="none has a question that was answered better with cards"):
        SKR_ICL.fit(RECORDS[:5], {}, Resources())


def test_three_kinds_differ_in_their_defaults_and_are_found_by_name() -> None:
    llm = voting({0: 0.3, 3: 0.3})
    for name, kind, examples, template in (
        ("self-ask", KNOWLEDGE_CARD_SELF_ASK, 0, 0),
        ("skr-prompt", SKR_PROMPT, 0, 3),
        ("skr-icl", SKR_ICL, 4, 3),
    ):
        gate = base.find(name).fit(RECORDS, {}, Resources(llm=llm))
        assert base.find(name) is kind
        assert (gate.kind, gate.threshold) == (name, 0.5)
        assert gate.scores([Query("q")]) == pytest.approx([0.7])
        assert (len(llm.requests[-1].examples), llm.requests[-1].template) == (examples, template)


def drafting(drafts: Mapping[str, Sequence[TokenScores] | None]) -> Replies:
    """An LLM that is as sure of each token as the test says; None: it gives no log-probabilities."""

    def reply(request: Request) -> Reply:
        tokens = drafts[request.question]
        return Reply("a draft", tokens=None if tokens is None else tuple(tokens))

    llm = Replies(reply)
    llm.announcement = "LLM: a test"
    return llm


SURE, HALF, LOST = TokenScores(-0.01, 0.98, 0.05), TokenScores(-0.7, 0.5, 0.7), TokenScores(-2, 0.0, 3.0)


def test_uncertainty_is_the_mean_margin_of_a_draft_without_knowledge() -> None:
    llm = drafting({"a": [SURE, HALF], "b": [LOST]})
    shown = (Example("answer", "2+2?", "4"),)
    assert Uncertainty(llm, shown).knows(questions("a", "b")) == pytest.approx([0.74, 0.0])
    assert llm.requests[0] == Request("answer", "a", (), shown, draft=True)
    assert [d.fired for d in Uncertainty(llm).decide(questions("a", "b"), "uncertainty")] == [False, True]


def test_a_fitted_uncertainty_has_the_threshold_that_serves_the_records(tmp_path: Path) -> None:
    drafts = {"known": [SURE], "half": [HALF], "lost": [LOST], "q": [HALF, LOST]}
    records = [Record("known", 1, 0), Record("half", 0, 1), Record("lost", 0, 1)]
    for measure, threshold in (("margin", 0.74), ("entropy", -0.375)):
        llm = drafting(drafts)
        gate = CalibratedUncertainty.fit(records, {"measure": measure}, Resources(llm=llm))
        assert gate.threshold == pytest.approx(threshold)
        assert list(gate.scores([Query("known"), Query("q")]) < gate.threshold) == [False, True]
        save(gate, tmp_path / measure, digest(records))
        again = load(tmp_path / measure, Resources(llm=llm))
        assert (again.threshold, again.settings) == (gate.threshold, {"measure": measure})
        np.testing.assert_array_equal(again.scores([Query("q")]), gate.scores([Query("q")]))


def test_an_llm_that_gives_no_log_probabilities_is_named_also_behind_a_meter() -> None:
    for llm in (drafting({"a": None}), LLMClient(drafting({"a": None}))):
        with pytest.raises(UsageError, match="this LLM gives none: LLM: a test; choose") as caught:
            Uncertainty(llm).knows(questions("a"))
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="gives none: Replies"):
        Uncertainty(voting({0: None})).knows(questions("a"))


def test_a_gate_that_was_fitted_never_takes_the_name_of_one_that_needs_no_records() -> None:
    llm = drafting({record.question: [HALF] for record in RECORDS} | {"q": [LOST]})
    fitted, path = gating.fit(RECORDS, "uncertainty", llm=llm)
    assert path.name == "fitted-uncertainty"
    assert load_gate("uncertainty", llm).gate.threshold == 0.5
    named = load_gate("fitted-uncertainty", llm)
    assert (named.name, named.gate.threshold) == ("uncertainty", fitted.threshold)
    assert named.gate.threshold != 0.5
    assert list(named.gate.knows(questions("q"))) == [0.0]


def test_a_draft_that_says_nothing_is_as_unsure_as_can_be() -> None:
    silent = Replies(lambda request: Reply("", tokens=() if request.draft else None))
    assert list(Uncertainty(silent).knows(questions("a"))) == [0.0]
    gate = CalibratedUncertainty.fit([Record("a", 0, 1)], {"measure": "entropy"}, Resources(llm=silent))
    assert gate.scores([Query("a")])[0] == -20


@pytest.mark.parametrize("kind", ["self-ask", "skr-prompt", "skr-icl", "uncertainty"])
def test_a_gate_that_asks_the_llm_says_so_where_there_is_none(kind: str, tmp_path: Path) -> None:
    gate = base.find(kind).fit(RECORDS, {}, Resources(llm=drafting({r.question: [HALF] for r in RECORDS})))
    save(gate, tmp_path / "gate", digest(RECORDS))
    with pytest.raises(
        UsageError, match=f"gate {kind} needs .*LLM, and none is given: choose one with --llm"
    ):
        load(tmp_path / "gate").scores([Query("q")])
