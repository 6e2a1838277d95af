"""What a report counts, compares, shows and writes."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from kcard.evaluation.analyses.analysis import run_applicable
from kcard.evaluation.report.page import render
from kcard.evaluation.report.report import MAX_TEXT_CHARACTERS, Report, headline, make_report, metrics_of
from kcard.evaluation.report.tables import question_lines, table_lines, write_csv
from kcard.evaluation.runs.results import EvalResult, RecordedCall, drop_texts
from kcard.evaluation.runs.run import Run
from tests.evaluation.made_up_runs import made_up_results, made_up_run

METRICS = {"midterm": "em"}
TWO = ("direct", "top-down:auto")


def priced(run: Run) -> Run:
    return replace(run, plan=replace(run.plan, options={"price_in": 1.0, "price_out": 10.0}))


def scores(value: float) -> dict[str, float]:
    return dict.fromkeys(("em", "f1", "substring"), value)


@pytest.fixture(scope="module")
def run() -> Run:
    return made_up_run(METRICS, TWO)


@pytest.fixture(scope="module")
def results(run: Run) -> list[EvalResult]:
    return made_up_results(run)


@pytest.fixture(scope="module")
def report(run: Run, results: list[EvalResult]) -> Report:
    return make_report(priced(run), results)


def test_a_row_has_the_means_of_scores_and_costs(report: Report, results: list[EvalResult]) -> None:
    direct, top_down = report.rows
    mine = [result for result in results if result.setting == "direct"]
    assert (direct.task, direct.setting, direct.n, direct.errors) == ("midterm", "direct", 30, 0)
    assert direct.value == pytest.approx(sum(r.scores["em"] for r in mine) / 30, abs=1e-4)
    assert direct.low < direct.value < direct.high
    assert (direct.calls, top_down.calls) == (30, 90)
    assert direct.seconds == pytest.approx(sum(r.seconds for r in mine))
    assert (direct.tokens_in, direct.tokens_out) == (30 * 210, 30 * 6)
    assert direct.cost == pytest.approx((30 * 210 * 1 + 30 * 6 * 10) / 1e6)


def test_settings_are_compared_question_by_question(report: Report, results: list[EvalResult]) -> None:
    right = {(r.setting, r.id) for r in results if r.scores["em"] == 1}
    ids = {r.id for r in results}
    pair = report.pair("midterm", "top-down:auto", "direct")
    assert pair is not None
    assert pair.only_first == sum(("top-down:auto", i) in right and ("direct", i) not in right for i in ids)
    assert pair.only_second == sum(("top-down:auto", i) not in right and ("direct", i) in right for i in ids)
    assert pair.difference.mean == pytest.approx((pair.only_first - pair.only_second) / 30, abs=1e-4)
    assert pair.difference.low > 0
    assert pair.p < 0.01
    assert "over direct (p" in headline(report, "midterm")


def test_a_difference_that_may_be_chance_is_called_so(run: Run, results: list[EvalResult]) -> None:
    level = [
        replace(r, scores=scores(float(r.id == ("q1" if r.setting == "direct" else "q2")))) for r in results
    ]
    better = [replace(r, scores=scores(1.0)) if r.id == "q3" and r.setting != "direct" else r for r in level]
    assert "which may be chance" in headline(make_report(run, better), "midterm")


def test_settings_with_balanced_accuracy_are_compared_by_accuracy() -> None:
    run = made_up_run({"lun": "balanced-accuracy"}, TWO)
    texts = {"A": "true", "B": "false"}
    results = [
        replace(r, choices=texts, answers=("A",), prediction="A" if r.scores["em"] else "B", scores=choice(r))
        for r in made_up_results(run)
    ]
    report = make_report(run, results)
    assert "; accuracy +" in headline(report, "lun")
    assert "Differences and p are of accuracy" in render(report)


def choice(result: EvalResult) -> dict[str, float]:
    return dict.fromkeys(("accuracy", "em", "f1", "substring"), result.scores["em"])


def test_tokens_that_are_not_known_of_every_question_are_not_summed(
    run: Run, results: list[EvalResult]
) -> None:
    row = make_report(priced(run), [replace(results[0], tokens_in=None), *results[1:]]).rows[0]
    assert (row.tokens_in, row.cost) == (None, None)


def test_only_questions_that_both_settings_were_asked_are_compared(
    run: Run, results: list[EvalResult]
) -> None:
    pair = make_report(run, results[:-10]).pair("midterm", "direct", "top-down:auto")
    assert pair is not None
    assert pair.questions == 20


def test_questions_on_which_settings_differ_are_shown_first(run: Run, results: list[EvalResult]) -> None:
    excerpt = make_report(run, results, questions=5).excerpt
    assert len(excerpt.questions) == 5
    assert all(shown.differ for shown in excerpt.questions)
    assert (excerpt.total, excerpt.left_out) == (30, 25)
    assert len({shown.question.group for shown in excerpt.questions}) == 3


def test_brief_results_make_the_same_report(run: Run, results: list[EvalResult]) -> None:
    short = [drop_texts(result) for result in results]
    assert all(call.prompt == "" for result in short for call in result.calls if call.kind != "need")
    metrics = metrics_of(run)
    report = make_report(run, short, 5, run_applicable(short, metrics), whole=results)
    assert report == make_report(run, results, 5, run_applicable(results, metrics))


def test_long_texts_are_cut_and_say_by_how_much(run: Run, results: list[EvalResult]) -> None:
    prompt = "a" * MAX_TEXT_CHARACTERS + "bcd"
    long = [replace(results[0], calls=(RecordedCall("answer", prompt, "yes"),)), *results[1:]]
    shown = make_report(run, long, questions=30).excerpt.questions[0].results[0][1].calls[0].prompt
    assert shown.startswith("aaa")
    assert shown.endswith("bcd")
    assert "[… 3 characters left out …]" in shown


def test_the_table_as_csv_has_a_line_for_each_setting(report: Report, tmp_path: Path) -> None:
    with write_csv(table_lines(report), tmp_path / "table.csv").open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert [line["setting"] for line in lines] == list(TWO)
    assert lines[0]["p"] == ""
    assert float(lines[1]["value"]) == round(report.rows[1].value, 4)
    assert float(lines[1]["difference"]) > 0


def test_every_question_is_written_as_csv(run: Run, results: list[EvalResult], tmp_path: Path) -> None:
    path = write_csv(question_lines(results, metrics_of(run)), tmp_path / "questions.csv")
    with path.open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == 60
    assert {line["right"] for line in lines} == {"0", "1"}
    assert lines[0]["question"] == results[0].question
    assert lines[-1]["cards_kept"] == '["midterms-2022"]'


def test_a_spreadsheet_computes_nothing_that_an_llm_wrote(
    run: Run, results: list[EvalResult], tmp_path: Path
) -> None:
    hostile = [replace(results[0], prediction='=HYPERLINK("http://example.org")')]
    text = write_csv(question_lines(hostile, metrics_of(run)), tmp_path / "q.csv").read_text(encoding="utf-8")
    assert "\"'=HYPERLINK(" in text
