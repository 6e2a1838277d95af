"""The small sets of demo/papers.py are in the layouts of the papers' tasks, and their answers are facts of the demo."""

from pathlib import Path

import pytest
from demo.papers import COUNT, SHOTS, facts, races, write_sets

from kcard.evaluation.tasks.base import read_task


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    write_sets(folder)
    return folder


@pytest.mark.parametrize(
    ("task", "file", "count", "choices"),
    [
        ("mmlu", "mmlu", 2 * COUNT + len(races()) - 3 * SHOTS, 4),
        ("midterm", "MidtermQA-openbook.json", len(races()) - SHOTS, 0),
        ("midterm", "MidtermQA-binary.json", len(races()) - SHOTS, 2),
        ("midterm", "MidtermQA-fourchoice.json", len(races()) - SHOTS, 4),
        ("lun", "LUN4.json", COUNT - 16, 4),
        ("nq", "nq.jsonl", len(facts()), 0),
        ("popqa", "popQA.tsv", len(facts()), 0),
        ("truthfulqa", "truthfulqa.json", len(facts()), 4),
    ],
)
def test_a_set_is_read_by_its_task(folder: Path, task: str, file: str, count: int, choices: int) -> None:
    items = read_task(task, folder / file).items
    assert len(items) == count
    assert {len(item.choices or ()) for item in items} == {choices}


def test_the_right_option_of_a_question_is_its_fact(folder: Path) -> None:
    right = {fact.question: fact.answer for fact in facts()}
    items = read_task("truthfulqa", folder / "truthfulqa.json").items
    for item in items:
        options = {choice.name: choice.description for choice in item.choices}
        assert [options[letter] for letter in item.answers] == [right[item.question]]


def test_the_options_of_a_race_are_winners_and_the_right_one_is_its_own(folder: Path) -> None:
    winners = {f"Who won the Senate race of {state} in 2022?": winner for state, winner in races()}
    items = [item for item in read_task("mmlu", folder / "mmlu").items if item.question in winners]
    assert len(items) == len(winners) - SHOTS
    for item in items:
        options = {choice.name: choice.description for choice in item.choices}
        assert [options[letter] for letter in item.answers] == [winners[item.question]]
        assert {*options.values()} <= {*winners.values()}
