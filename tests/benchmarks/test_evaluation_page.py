"""The results of an evaluation replace the earlier ones in the page, and nothing else."""

from pathlib import Path

from benchmarks.evaluation_page import BEGIN, END, Measured, costs, scores, write_page

from kcard.evaluation.runs.summary import SettingSummary


def row(task: str, setting: str, value: float, p_holm: float | None = None, calls: int = 4) -> Measured:
    summary = SettingSummary(
        task=task,
        setting=setting,
        metric="em",
        n=4,
        value=value,
        low=value / 2,
        high=(1 + value) / 2,
        p=p_holm,
        p_holm=p_holm,
        em=value,
        f1=value,
        substring=value,
        accuracy=None,
        balanced_accuracy=None,
        macro_f1=None,
        calls=calls,
        tokens_in=10,
        tokens_out=2,
        cost=None,
        seconds=2.0,
        errors=0,
    )
    return Measured(summary, own=task == "known")


ROWS = [
    row("unknown", "direct", 0.25),
    row("unknown", "top-down", 0.5, 0.4, calls=12),
    row("known", "direct", 0.0),
    row("known", "top-down", 1.0, 0.01, calls=12),
]


def test_tasks_that_a_card_knows_come_first_and_sure_differences_are_marked() -> None:
    assert scores(ROWS) == [
        "| task | metric | direct | top-down |",
        "|---|---|---|---|",
        "| known | em | 0.00 | 1.00\\* |",
        "| | | — | — |",
        "| unknown | em | 0.25 | 0.50 |",
    ]


def test_costs_are_those_of_a_question() -> None:
    assert costs(ROWS)[2:] == ["| direct | 1.0 | 0.50 | 0 |", "| top-down | 3.0 | 0.50 | 0 |"]


def test_results_replace_earlier_ones_and_leave_the_rest_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    page = tmp_path / "evaluation.md"
    page.write_text(f"before\n\n{BEGIN}old{END}\n\nafter\n", encoding="utf-8")
    write_page(tmp_path, ROWS, ROWS[:1], ["musique"], 90.0)
    once = page.read_text(encoding="utf-8")
    assert once.startswith(f"before\n\n{BEGIN}\n4 questions of each task")
    assert once.endswith(f"{END}\n\nafter\n")
    assert "old" not in once
    assert "musique" in once
    assert {file.name for file in (tmp_path / "pictures").iterdir()} == {
        "evaluation.svg",
        "evaluation-cost.svg",
    }
    write_page(tmp_path, ROWS, ROWS[:1], ["musique"], 90.0)
    assert page.read_text(encoding="utf-8") == once
