"""kcard exam as a user meets it: a table on stdout, JSON on demand, one line where something is wrong."""

import json
from pathlib import Path

import pytest

from kcard.cli.exam import summary
from kcard.evaluation.records import Exam, ExamRun, Mean
from tests.command import Kcard
from tests.hub.client.cards import rivers

MOONS = {"Phobos": "Mars", "Titan": "Saturn", "Triton": "Neptune", "Io": "Jupiter"}


@pytest.fixture
def moons(home: Path) -> Path:
    """A draft that only looks up, so that nothing need be trained."""
    sentences = [f"{moon} is a moon of {planet}." for moon, planet in MOONS.items()]
    return rivers(home / "drafts" / "moons", *sentences, name="moons", language="xx").folder


def test_the_numbers_are_a_table_and_as_json_the_exam_that_lies_in_the_card(
    kcard: Kcard, moons: Path, tmp_path: Path
) -> None:
    questions = tmp_path / "mine.csv"
    questions.write_text("question,answer\nWhich planet does Io circle?,Jupiter\n", encoding="utf-8")
    shown = kcard("exam", "moons", "--questions", str(questions))
    assert shown.code == 0, shown.err
    lines = {line.split("  ")[0]: line for line in shown.out.splitlines()}
    assert lines["moons"].split()[-1] == "mine.csv"
    assert lines["questions"].split() == ["questions", "3", "1"]
    assert lines["recall"].count("1.00 [") == 2
    assert "asking moons: " in shown.err
    again = kcard("exam", "moons", "--questions", str(questions), "--json")
    data = json.loads(again.out)
    assert data["exam"] == json.loads((moons / "exam.json").read_text(encoding="utf-8"))
    assert data["exam"]["own"]["recall"]["mean"] == 1.0
    assert (data["card"], data["folder"]) == ("moons", str(moons))


@pytest.mark.parametrize(
    ("questions", "sentence"),
    [
        (0, "moons: no question could be generated from its corpus"),
        (9, "moons: too few questions to tell what it recalls: its corpus yields 9"),
        (10, "moons: recall 0.50 [0.25, 0.75] on 10 questions"),
    ],
)
def test_a_summary_has_figures_of_enough_questions_only(questions: int, sentence: str) -> None:
    run = ExamRun("natural questions", "", questions, "", Mean(0.5, 0.25, 0.75))
    assert summary(Exam("moons", "0.1.0", run)).startswith(sentence)
