"""Baselines of the Thrust paper: questions drawn at random, and BM25 over the sample."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from kcard.gates.base import Always, Never, RandomShare, Resources
from kcard.gates.bm25 import BM25
from kcard.gates.records import Query, Record
from kcard.gates.self_ask import SelfAsk, SelfAskEnsemble
from kcard.index import Index
from kcard.interfaces import Array, Gate
from kcard.text import words
from kcard.types import Example, Question, Reply, Request
from tests.fakes import Replies, questions

SAMPLE = [
    "Who wrote Emma?",
    "Who wrote the novel Persuasion, and who wrote Sanditon?",
    "In which city was Jane Austen born?",
    "What is the capital of Peru?",
]
RECORDS = [Record(question, 1, 1) for question in SAMPLE]
QUERIES = [Query(f"Question {number}?") for number in range(4000)]


def bm25(question: str) -> float:
    """The mean over the sample of BM25 as Lucene has it, but for a constant factor, written out."""
    rows = [Counter(words(text)) for text in SAMPLE]
    average = sum(row.total() for row in rows) / len(rows)
    total = 0.0
    for word in set(words(question)):
        found = sum(word in row for row in rows)
        rarity = math.log(1 + (len(rows) - found + 0.5) / (found + 0.5))
        for row in rows:
            saturation = 1.5 * (1 - 0.75 + 0.75 * row.total() / average)
            total += rarity * row[word] / (row[word] + saturation)
    return total / len(rows)


@pytest.mark.parametrize("question", [*SAMPLE, "Who was born in Peru?", "Who who who?", "gene therapy", ""])
def test_bm25_is_the_mean_relevance_to_the_questions_of_the_sample(question: str) -> None:
    gate = BM25.fit(RECORDS, {}, Resources())
    assert gate.scores([Query(question)])[0] == pytest.approx(bm25(question), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("percentile", [25, 50, 75])
def test_bm25s_threshold_is_a_percentile_of_the_samples_scores_each_without_itself(percentile: int) -> None:
    gate = BM25.fit(RECORDS, {"percentile": percentile}, Resources())
    others = [[text for text in SAMPLE if text != question] for question in SAMPLE]
    own = [Index.build(rest).scores(question).mean() for rest, question in zip(others, SAMPLE, strict=True)]
    assert gate.threshold == pytest.approx(np.percentile(own, percentile))


def test_bm25_gets_along_with_one_record_and_with_questions_without_a_word() -> None:
    assert BM25.fit(RECORDS[:1], {}, Resources()).threshold == 0
    gate = BM25.fit([Record("???", 1, 1)], {}, Resources())
    assert gate.scores([Query("???")]).tolist() == [0.0]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_random_seeks_for_the_share_that_it_was_given(share: float) -> None:
    gate = RandomShare.fit(RECORDS, {"share": share}, Resources())
    seeks = (gate.scores(QUERIES) < gate.threshold).mean()
    assert seeks == pytest.approx(share, abs=0.03 if 0 < share < 1 else 0)


def test_random_decides_by_seed_and_question_alone() -> None:
    gate = RandomShare.fit(RECORDS, {"seed": 1}, Resources())
    alone = [gate.scores([query])[0] for query in QUERIES[:50]]
    np.testing.assert_array_equal(alone, gate.scores(QUERIES)[:50])
    other = RandomShare.fit(RECORDS, {"seed": 2}, Resources()).scores(QUERIES)
    assert abs(np.corrcoef(other, gate.scores(QUERIES))[0, 1]) < 0.1


# Gates give a score; one comparison decides.


def need_of_elections(request: Request) -> Reply:
    """More is needed wherever the question speaks of elections."""
    need = 0.9 if "election" in request.question else 0.2
    return Reply("Yes" if need > 0.5 else "No", yes=need)


def test_always_asks_cards_and_never_does_not_and_neither_asks_the_llm() -> None:
    llm = Replies(need_of_elections)
    assert [d.fired for d in Always(llm).decide(questions("a", "b"), "always")] == [True, True]
    assert [d.fired for d in Never(llm).decide(questions("a", "b"), "never")] == [False, False]
    assert llm.requests == []


def test_self_ask_scores_one_minus_the_need_with_one_request_a_question() -> None:
    llm = Replies(need_of_elections)
    examples = (Example("need", "2+2?", "No"),)
    decisions = SelfAsk(llm, examples).decide(questions("Who won the election?", "What is 2+2?"), "self-ask")
    assert [d.fired for d in decisions] == [True, False]
    np.testing.assert_allclose([d.score for d in decisions], [0.1, 0.8], atol=1e-6)
    assert [(r.kind, r.knowledge, r.examples) for r in llm.requests] == [("need", (), examples)] * 2


def test_a_score_on_the_threshold_does_not_ask_the_cards() -> None:
    class Even(Gate):
        def knows(self, questions: Sequence[Question]) -> Array:
            return np.full(len(questions), 0.5, dtype=np.float32)

    (decision,) = Even().decide(questions("q"), "even")
    assert not decision.fired


@pytest.mark.parametrize(
    ("votes", "score", "fired"),
    [
        ((0.9, 0.6, 0.51), 0, True),
        ((0.99, 0.1, 0.4), 2 / 3, False),
        ((0.51, 0.6, 0.0), 1 / 3, True),
        ((0.0, 0.5, 1.0), 2 / 3, False),
        ((None, None, None), 0, True),
        ((None, 0.0, 0.9), 1 / 3, True),
        ((None, 0.0, 0.0), 2 / 3, False),
    ],
)
def test_of_three_wordings_the_majority_decides(
    votes: Sequence[float | None], score: float, fired: bool
) -> None:
    left = list(votes)
    llm = Replies(lambda _: Reply("", yes=left.pop(0)))
    (decision,) = SelfAskEnsemble(llm).decide(questions("q"), "self-ask-ensemble")
    assert decision.score == pytest.approx(score, abs=1e-6)
    assert decision.fired is fired
    assert [request.template for request in llm.requests] == [0, 1, 2]
