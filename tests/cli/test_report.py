"""kcard report as a user meets it: a table, a page, CSV files, analyses."""

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kcard.evaluation.runs.run import RunStorage
from kcard.hub.registry import Hub
from tests.command import Kcard
from tests.evaluation.made_up_runs import made_up_results, made_up_run


@pytest.fixture
def run(home: Path) -> int:
    """The number of a stored run."""
    example, storage = made_up_run({"midterm": "em"}, ("direct", "top-down:auto")), RunStorage(Hub(home).runs)
    stored = storage.create(example.plan)
    storage.append(stored, made_up_results(example))
    return stored.number


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_run_is_a_table_on_stdout_and_a_page_in_the_folder(
    run: int, kcard: Kcard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = kcard("report", str(run))
    assert done.code == 0, done.err
    assert "midterm: top-down:auto has the highest exact match" in done.out
    assert "page written: run-1.html" in done.err
    page = (tmp_path / "run-1.html").read_text(encoding="utf-8")
    assert "Cards by task" in page
    assert "Latency and cost" in page


def test_the_page_the_table_and_the_questions_go_where_they_are_wanted(
    run: int, kcard: Kcard, tmp_path: Path
) -> None:
    files = {"--output": tmp_path / "a.html", "--csv": tmp_path / "b.csv", "--questions": tmp_path / "c.csv"}
    done = kcard("report", str(run), "--limit", "3", *(str(part) for pair in files.items() for part in pair))
    assert done.code == 0, done.err
    assert files["--output"].read_text(encoding="utf-8").count('<details class="q ') == 3
    assert [line["setting"] for line in lines_of(files["--csv"])] == ["direct", "top-down:auto"]
    assert len(lines_of(files["--questions"])) == 60


def test_json_has_a_line_for_each_task_and_setting(run: int, kcard: Kcard) -> None:
    done = kcard("report", str(run), "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [(line["task"], line["setting"], line["n"]) for line in lines] == [
        ("midterm", "direct", 30),
        ("midterm", "top-down:auto", 30),
    ]
    assert lines[0]["low"] < lines[0]["value"] < lines[0]["high"]
    assert done.err == ""


@pytest.mark.parametrize(
    ("name", "heading"), [("cards", "kept"), ("cost", "median"), ("groups", "top-down:auto")]
)
def test_an_analysis_is_a_table_and_lines_of_json_and_csv(
    run: int, kcard: Kcard, tmp_path: Path, name: str, heading: str
) -> None:
    path = tmp_path / "analysis.csv"
    done = kcard("report", str(run), "--analysis", name, "--csv", str(path))
    assert done.code == 0, done.err
    assert heading in done.out.splitlines()[0]
    lines = [
        json.loads(line) for line in kcard("report", str(run), "--analysis", name, "--json").out.splitlines()
    ]
    assert len(lines_of(path)) == len(lines) > 1


def test_an_unknown_analysis_or_a_run_without_results_is_refused(run: int, kcard: Kcard, home: Path) -> None:
    empty = RunStorage(Hub(home).runs).create(made_up_run().plan)
    assert f"run {empty.number} has no results yet" in kcard("report", str(empty.number)).error
    assert "choose one of adding, cards, cost" in kcard("report", str(run), "--analysis", "tides").error


def test_charts_of_an_analysis_are_pictures_that_need_nothing_else(
    run: int, kcard: Kcard, tmp_path: Path
) -> None:
    done = kcard("report", str(run), "--analysis", "cost", "--plot", str(tmp_path / "cost.svg"))
    assert done.code == 0, done.err
    drawn = ElementTree.parse(tmp_path / "cost.svg").getroot()
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [element for element in drawn.iter() if element.tag.endswith(("image", "script"))]
    assert "add --analysis NAME" in kcard("report", str(run), "--plot", str(tmp_path / "x.svg")).error
