"""Analyses of a run's results: counts that can be checked by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import analyse, analysis_names, run_applicable
from kcard.evaluation.analyses.answers import card_choice, cost, groups, lost_incumbents, mmlu_domains
from kcard.evaluation.analyses.factuality import factuality_bias
from kcard.evaluation.plots import Curves, Heat, Intervals
from kcard.evaluation.records import Mean
from kcard.evaluation.report.page import render
from kcard.evaluation.report.report import make_report
from kcard.evaluation.runs.results import EvalResult, RecordedCall
from tests.evaluation.made_up_runs import made_up_result, made_up_results, made_up_run

METRICS = {"midterm": "em"}


def result(
    number: int, setting: str, right: bool, group: str, selected: tuple[str, ...] = (), seconds: float = 1.0
) -> EvalResult:
    """Two cards wrote, unless the setting is direct; those in `kept` were kept."""
    wrote = () if setting == "direct" else ("house", "senate")
    passages = [{"card": card, "kept": card in selected} for card in wrote]
    calls = (RecordedCall("answer", "Who won?", "Ruiz"),)
    more = {"group": group, "calls": calls, "seconds": seconds, "trace": {"passages": passages}}
    return made_up_result(str(number), setting, right, **more)


RESULTS = [
    result(1, "direct", False, "house"),
    result(2, "direct", True, "senate"),
    result(1, "bottom-up", True, "house", ("house",), 2.0),
    result(2, "bottom-up", True, "senate", ("senate", "house"), 4.0),
    result(3, "bottom-up", False, "senate", ("senate",), 6.0),
]


def test_scores_are_given_by_group() -> None:
    analysis = groups(RESULTS, METRICS)
    assert analysis.columns == ("group", "questions", "direct", "bottom-up")
    rows = {row[0]: row[1:] for row in analysis.rows}
    assert rows["senate"][0] == 2
    means = {name: [mean.mean for mean in row[1:] if isinstance(mean, Mean)] for name, row in rows.items()}
    assert means == {"house": [0.0, 1.0], "senate": [1.0, 0.5]}
    heat = analysis.charts[0]
    assert isinstance(heat, Heat)
    assert heat.values == ((0.0, 1.0), (1.0, 0.5))
    # With several tasks, a group is named with its task.
    others = [replace(result, task="other") for result in RESULTS]
    names = {
        row[0] for row in groups([*RESULTS, *others], {**METRICS, "other": METRICS[RESULTS[0].task]}).rows
    }
    assert names == {
        f"{task}: {group}" for task in (RESULTS[0].task, "other") for group in ("house", "senate")
    }


def test_factuality_of_right_documents_is_compared_by_domain() -> None:
    def checked(number: int, group: str, *passages: tuple[bool, float | None]) -> EvalResult:
        documents = [{"card": "house", "holds": holds, "factuality": score} for holds, score in passages]
        return replace(result(number, "bottom-up", True, group), trace={"passages": documents})

    known = [checked(n, "cities", (True, 0.9), (False, 0.1)) for n in range(5)]
    rare = [checked(n, "hamlets", (True, 0.5), (True, None), (False, None)) for n in range(5, 10)]
    analysis = factuality_bias([*known, *rare], METRICS)
    by_domain = {row[0]: row for row in analysis.rows}
    cities, hamlets = by_domain["midterm: cities"], by_domain["midterm: hamlets"]
    assert list(cities[1:5]) == [10, 1.0, 5, 1.0]
    assert list(hamlets[1:5]) == [15, pytest.approx(1 / 3), 10, 0.5]
    assert [mean and mean.mean for mean in (*cities[5:], *hamlets[5:]) if isinstance(mean, Mean | None)] == [
        *(0.9, 0.1, 0.5, None)
    ]
    (plot,) = analysis.charts
    assert isinstance(plot, Curves)
    assert [(line.x, line.y) for line in plot.series] == [((1.0,), (0.9,)), ((pytest.approx(1 / 3),), (0.5,))]
    with pytest.raises(UsageError, match="--evidence wikipedia"):
        factuality_bias(RESULTS, METRICS)


def test_cards_are_counted_once_a_question() -> None:
    analysis = card_choice(RESULTS, METRICS)
    assert analysis.rows == (
        ("bottom-up", "midterm: house", "house", 1, 1.0, 1.0),
        ("bottom-up", "midterm: house", "senate", 1, 1.0, 0.0),
        ("bottom-up", "midterm: senate", "house", 2, 1.0, 0.5),
        ("bottom-up", "midterm: senate", "senate", 2, 1.0, 1.0),
    )
    assert len(analysis.charts) == 1


def test_a_run_with_one_group_has_one_map_with_its_settings_as_rows() -> None:
    ungrouped = [replace(r, group="") for r in RESULTS]
    others = [replace(r, setting="hybrid") for r in ungrouped if r.setting == "bottom-up"]
    (heat,) = card_choice([*ungrouped, *others], METRICS).charts
    assert isinstance(heat, Heat)
    assert heat.rows == ("bottom-up", "hybrid")


def test_latency_is_given_in_percentiles() -> None:
    analysis = cost(RESULTS, METRICS)
    bottom_up = dict(zip(analysis.columns, analysis.rows[1], strict=True))
    assert (bottom_up["setting"], bottom_up["median"], bottom_up["calls"]) == ("bottom-up", 4.0, 1.0)
    assert bottom_up["tokens in"] is None
    assert isinstance(analysis.charts[0], Intervals)


def test_races_whose_incumbent_lost_are_scored_apart(tmp_path: Path) -> None:
    file = tmp_path / "incumbents.csv"
    file.write_text(
        "race,incumbent\n1st district of Ohio,Bo Lind\n2nd district of Ohio,Cy Young\n", encoding="utf-8"
    )
    questions = {
        "1": "Who won the 1st district of Ohio?",
        "2": "Who won the 2nd district of Ohio?",
        "3": "Who won the 21st?",
    }
    results = [replace(r, question=questions[r.id]) for r in RESULTS]
    analysis = lost_incumbents(results, METRICS, file)
    rows = {row[1]: row[2:] for row in analysis.rows}
    assert {setting: row[0] for setting, row in rows.items()} == {"direct": 2, "bottom-up": 2}
    means = {setting: [mean.mean for mean in row if isinstance(mean, Mean)] for setting, row in rows.items()}
    assert means == {"direct": [0.5, 0.5], "bottom-up": [1.0, 0.0]}


def test_a_chosen_option_that_names_the_incumbent_counts(tmp_path: Path) -> None:
    file = tmp_path / "incumbents.jsonl"
    file.write_text('{"race": "race of Ohio", "incumbent": "Bo Lind"}', encoding="utf-8")
    question = "Who won the race of Ohio?"
    chosen = [
        replace(RESULTS[0], question=question, choices={"A": "Ana Ruiz", "B": "Bo Lind"}, prediction="B")
    ]
    row = lost_incumbents(chosen, METRICS, file).rows[0]
    assert isinstance(row[-1], Mean)
    assert row[-1].mean == 1.0


def test_a_file_of_incumbents_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "incumbents.csv"
    file.write_text("race,incumbent\nsenate race of Ohio,\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r'incumbents\.csv, .*: expected a "race" and an "incumbent"'):
        lost_incumbents(RESULTS, METRICS, file)
    file.write_text("race,incumbent\nsenate race of Ohio,Bo Lind\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no question of this run is about a race of"):
        lost_incumbents(RESULTS, METRICS, file)
    with pytest.raises(UsageError, match="needs a file"):
        analyse("lost-incumbents", RESULTS, METRICS)
    with pytest.raises(UsageError, match="cost takes no file"):
        analyse(f"cost={file}", RESULTS, METRICS)


def test_results_that_hold_nothing_for_an_analysis_are_refused() -> None:
    direct = [replace(r, group="", trace={}) for r in RESULTS]
    with pytest.raises(UsageError, match="no task of this run has groups"):
        groups(direct, METRICS)
    with pytest.raises(UsageError, match="no card wrote a passage"):
        card_choice(direct, METRICS)
    assert [found.name for found in run_applicable(direct, METRICS)] == ["cost"]


def test_every_analysis_that_finds_something_is_drawn_on_the_page() -> None:
    run = made_up_run(settings=("direct", "bottom-up", "top-down:auto"), questions=12)
    results = made_up_results(run)
    analyses = run_applicable(results, {"midterm": "em", "midterm-binary": "accuracy"})
    assert {"cards", "cost", "groups"} <= {each.name for each in analyses} <= set(analysis_names())
    page = render(make_report(run, results, analyses=analyses))
    for each in analyses:
        assert f">{each.title}</h2>" in page
    assert page.count("<img") == 2 * 3 + sum(len(each.charts) for each in analyses)
    with pytest.raises(UsageError, match="unknown analysis 'tides'"):
        analyse("tides", results, {})


def test_the_subjects_of_mmlu_are_taken_together_by_domain() -> None:
    subjects = {"virology": True, "anatomy": False, "sociology": True, "cooking": True}
    results = [
        replace(RESULTS[0], task="mmlu", id=s, group=s, scores={"accuracy": float(r)})
        for s, r in subjects.items()
    ]
    analysis = mmlu_domains(results, {"mmlu": "accuracy"})
    assert [row[:2] for row in analysis.rows] == [("other", 2), ("social sciences", 1)]
    assert [row[2].mean for row in analysis.rows if isinstance(row[2], Mean)] == [0.5, 1.0]
    with pytest.raises(UsageError, match="no task of this run has groups"):
        mmlu_domains(RESULTS, METRICS)
