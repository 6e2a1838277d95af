"""The draft gate learns from what the LLM wrote without cards when cards would improve the answer."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcard.api import gates as gating
from kcard.errors import UsageError
from kcard.evaluation.gates.outcome import GateRanking, calibration_error
from kcard.gates import draft_features, registry
from kcard.gates.base import GateState, QuestionGate, Resources
from kcard.gates.draft import Draft
from kcard.gates.records import Record, digest, read_records
from kcard.types import Reply, TokenScores
from tests.fakes import LetterCounts, Replies, questions

LETTERS = Resources(representation=LetterCounts())


def replayed(count: int, seed: int = 0) -> list[Record]:
    """Questions on mayors: where the draft hedges, cards help mostly; where it does not, they mostly harm."""
    random = np.random.default_rng(seed)
    found = []
    for i in range(count):
        hedges, noise = bool(random.integers(2)), random.random() < 0.1
        draft = "It is not known. So the answer is: unknown." if hedges else f"So the answer is: Ann {i % 7}."
        knows = hedges == noise
        question = f"Who was mayor of town {random.integers(10**6)}?"
        found.append(Record(question, float(knows), float(not knows), draft=draft))
    return found


def drafting(sure: float | None = -0.1) -> Replies:
    """An LLM that knows one question."""
    tokens = None if sure is None else (TokenScores(sure, 0.5, 0.5),)
    return Replies(
        lambda request: Reply("Ann 3" if "known" in request.question else "unknown", tokens=tokens)
    )


@pytest.fixture(scope="module")
def gate() -> Draft:
    return Draft.fit(replayed(200), {}, LETTERS)


def test_questions_whose_draft_hedges_use_cards_and_the_others_do_not(gate: Draft) -> None:
    others = replayed(200, seed=1)
    seeks = np.asarray(gate.scores([record.query for record in others])) < gate.threshold
    assert np.mean(seeks == np.array(["unknown" in record.draft for record in others])) > 0.95


def test_what_a_hedge_says_may_depend_on_the_question() -> None:
    """Surface features count together: here a hedge calls for cards only if the question has a number."""

    def swapped(record: Record, i: int) -> Record:
        if i % 2:
            return record
        question = record.question.replace("mayor", "mayor 1 or 2")
        return replace(
            record,
            question=question,
            correct_without=record.correct_with,
            correct_with=record.correct_without,
        )

    fitted, others = ([swapped(r, i) for i, r in enumerate(replayed(400, seed))] for seed in (0, 1))
    gate = Draft.fit(fitted, {"share": 1}, LETTERS)
    seeks = np.asarray(gate.scores([record.query for record in others])) < gate.threshold
    helps = np.array([record.correct_with > record.correct_without for record in others])
    assert np.mean(seeks == helps) > 0.85


def test_a_gate_of_an_earlier_version_is_refused_and_the_remedy_named(tmp_path: Path) -> None:
    class Earlier(Draft):
        def state(self) -> GateState:
            arrays, values = super().state()
            return GateState({name: arrays[name] for name in ("weights", "bias", "centre")}, values)

    gate = Draft.fit(replayed(40), {}, LETTERS)
    registry.save(Earlier(**vars(gate)), tmp_path / "g", digest(replayed(40)))
    with pytest.raises(UsageError, match=r"an earlier kcard.*kcard gate fit"):
        registry.load(tmp_path / "g", LETTERS)


@pytest.mark.parametrize("share", [0.2, 0.4, 1.0])
def test_at_most_the_share_uses_cards_even_where_they_always_help(share: float) -> None:
    random = np.random.default_rng(0)
    records = [
        replace(record, correct_without=float(random.random() < 0.1), correct_with=1.0)
        for record in replayed(500)
    ]
    gate = Draft.fit(records[:200], {"share": share}, LETTERS)
    seeks = np.asarray(gate.scores([record.query for record in records[200:]])) < gate.threshold
    assert seeks.mean() <= share + 0.05
    assert share < 1 or seeks.mean() > 0.9


def test_when_asked_the_llm_drafts_and_without_one_the_gate_says_that_it_needs_one(gate: Draft) -> None:
    with pytest.raises(UsageError, match="--llm"):
        QuestionGate(gate).knows(questions("Who was mayor of known town?"))
    llm = drafting()
    known, other = QuestionGate(replace(gate, llm=llm)).knows(
        questions("Who was mayor of known town?", "Who was mayor?")
    )
    assert known > other
    assert [request.draft for request in llm.requests] == [True, True]


def test_fitted_with_an_llm_it_reads_that_llms_drafts_and_log_probabilities() -> None:
    records = replayed(30)
    llm = drafting()
    gate = Draft.fit(records, {}, replace(LETTERS, llm=llm))
    assert len(llm.requests) == len(records)
    assert gate.drafted
    assert gate.sure
    assert not Draft.fit(records[:10], {}, replace(LETTERS, llm=drafting(sure=None))).sure


def test_where_only_the_answer_is_known_the_score_is_near_that_of_the_whole_draft(gate: Draft) -> None:
    """A draft that is not known must not read like one of no words."""
    others = replayed(100, seed=1)
    bare = [replace(r, draft="", answer_without=draft_features.answer_of(r.draft)) for r in others]
    whole, short = (np.asarray(gate.scores([r.query for r in records])) for records in (others, bare))
    assert np.abs(whole - short).mean() < 0.2
    assert np.mean((whole < gate.threshold) == (short < gate.threshold)) > 0.9


def test_records_without_any_draft_are_refused() -> None:
    records = [replace(record, draft="") for record in replayed(10)]
    with pytest.raises(UsageError, match="draft or answer_without"):
        Draft.fit(records, {}, LETTERS)
    same = [replace(record, correct_with=record.correct_without) for record in replayed(10)]
    with pytest.raises(UsageError, match="no difference"):
        Draft.fit(same, {}, LETTERS)


def test_where_the_llm_is_never_right_alone_the_gate_still_fits() -> None:
    records = [replace(record, correct_without=0.0) for record in replayed(60)]
    gate = Draft.fit(records, {"share": 1}, LETTERS)
    assert (np.asarray(gate.correct_without([record.query for record in records])) < 0.05).all()


def test_the_answer_is_what_follows_the_reasoning_without_letters_for_characters() -> None:
    said = draft_features.plain('He is \\"K\\" of M\\u00fcnster.\nSo the answer is: M\\u00fcnster.')
    assert said == 'He is "K" of Münster. So the answer is: Münster.'
    assert draft_features.answer_of(said) == "Münster"
    assert draft_features.answer_of("Ann Lee.") == "Ann Lee"
    for question, answer, draft in (("", "", ""), ("?", "\\u12", None), ("Who?", "x", "x" * 5000)):
        assert len(draft_features.features(question, answer, draft)) == draft_features.SURFACE_FEATURES


def test_files_of_other_projects_are_read_as_they_are_and_judged_in_one_command(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "id": f"q{i}",
            "question": record.question,
            "gold": ["Ann"],
            "answer_without": record.draft.removeprefix("So the answer is: ") if i % 5 else None,
            "answer_with": "Ann",
            "draft": record.draft if i % 3 else None,
            "em_without": bool(record.correct_without),
            "em_with": False,
            "correct_without": bool(record.correct_without),
            "correct_with": bool(record.correct_with),
        }
        for i, record in enumerate(replayed(80))
    ]
    paths = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    for path, part in zip(paths, (rows[:60], rows[60:]), strict=True):
        with gzip.open(path, "wt", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in part)
    assert read_records(tmp_path) == read_records(paths[0]) + read_records(paths[1])
    first = read_records(paths[0])[1]
    assert (first.answers, first.scores["em_with"], first.correct_without) == (
        ("Ann",),
        0,
        first.correct_without,
    )
    gating.fit(paths[0], "draft", output=tmp_path / "g")
    found = gating.evaluate(paths[1], str(tmp_path / "g")).to_json()
    assert found["n"] == 20
    assert found["accuracy"] > max(found["always"], found["never"])
    assert found["share"] <= 0.8
    assert {"oracle", "accuracy_at_50", "accuracy_at_70", "accuracy_at_85", "over_asking", "ece"} <= set(
        found
    )


def test_the_calibration_error_is_the_mean_distance_of_bins_from_the_truth() -> None:
    right = np.array([1.0, 0.0, 1.0, 1.0])
    assert calibration_error(np.array([1.0, 0.0, 1.0, 1.0]), right) == 0
    assert calibration_error(np.array([0.75] * 4), right) == 0
    assert calibration_error(np.array([0.05, 0.05, 0.95, 0.95]), right) == pytest.approx(
        (abs(0.1 - 1) + abs(1.9 - 2)) / 4
    )


def test_accuracy_at_a_share_ranks_by_score_and_draws_among_equal_ones() -> None:
    records = [Record("a", 0, 1), Record("b", 0, 1), Record("c", 1, 0), Record("d", 1, 0)]
    assert GateRanking.of(records, np.array([0.1, 0.2, 0.3, 0.4])).accuracy_at[0.5] == 1
    assert GateRanking.of(records, np.zeros(4)).accuracy_at == pytest.approx({0.5: 0.5, 0.7: 0.5, 0.85: 0.5})
