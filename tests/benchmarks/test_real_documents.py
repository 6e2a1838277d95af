"""How answers about real manuals are judged, and that the questions can be asked."""

import pytest
from benchmarks.real_documents import MANUALS, UNANSWERABLE, Outcome, questions, report, verdict_of
from recipes.packages import manuals

from kcard.llms.embedded_llm import UNKNOWN_ANSWER

GOLD = (("fetch-retries", "2"), ("two", "retries"))


@pytest.mark.parametrize(
    ("answer", "gold", "verdict"),
    [
        ("Set FETCH-retries to  2.", GOLD, "right"),
        ("There are two retries.", GOLD, "right"),
        ("fetch-retries", GOLD, "wrong"),
        ("two of them", GOLD, "wrong"),
        (UNKNOWN_ANSWER, GOLD, "unknown"),
        (UNKNOWN_ANSWER, (), "right"),
        ("Anything else.", (), "wrong"),
        ("It’s the owner's", (("it's", "owner’s"),), "right"),
    ],
)
def test_an_answer_is_right_that_holds_all_phrases_of_one_alternative(
    answer: str, gold: tuple[tuple[str, ...], ...], verdict: str
) -> None:
    assert verdict_of(answer, gold) == verdict


@pytest.mark.parametrize("name", sorted(manuals(MANUALS / "manuals.toml")))
def test_every_manual_has_25_questions_a_fifth_of_them_without_an_answer(name: str) -> None:
    sample = questions(MANUALS / f"{name}.jsonl", name)
    assert len({question.question for question in sample}) == 25
    assert sum(question.type == UNANSWERABLE for question in sample) == 5
    for question in sample:
        assert bool(question.gold) == (question.type != UNANSWERABLE)
        assert all(phrases and all(phrases) for phrases in question.gold)


def test_the_report_counts_by_manual_and_type_and_shows_the_surest_mistakes() -> None:
    def outcome(kind: str, answer: str, verdict: str, confidence: float) -> Outcome:
        return Outcome("both", "depot", kind, "Who?", answer, verdict, confidence, 0.1)

    outcomes = [
        outcome("fact", "Ada", "right", 0.9),
        outcome("fact", "Bo", "wrong", 0.6),
        outcome("fact", "Cy", "wrong", 0.8),
        outcome("why", UNKNOWN_ANSWER, "unknown", 0.7),
        outcome(UNANSWERABLE, UNKNOWN_ANSWER, "right", 0.7),
    ]
    lines = report(outcomes, worst=1).splitlines()
    assert "| depot | 1/2/1, 1 of 1 admitted |" in lines
    assert "| fact | 1/2/0 |" in lines
    assert f"| {UNANSWERABLE} | 1 of 1 admitted |" in lines
    assert lines[-1] == "- depot: 'Who?' -> 'Cy' (0.80)"
    assert not any("'Bo'" in line for line in lines)
