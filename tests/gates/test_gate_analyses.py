"""Analyses of records: made-up records whose right figures are known."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kcard.api.gates import analyse
from kcard.cli.main import app
from kcard.errors import UsageError
from kcard.gates.records import Record, write_records
from kcard.types import Reply, Request
from tests.fakes import Replies

TOPICS = ("cats", "rivers", "poems")


def record(number: int, without: float, with_: float, **given: Any) -> Record:
    question = f"What do {TOPICS[number % 3]} number {number} do?"
    return Record(question, without, with_, relation=TOPICS[number % 3], **given)


def popular(count: int = 120) -> list[Record]:
    """Without cards the LLM knows the subjects above a popularity of 1000; with cards it knows the others."""
    return [
        record(n, float(known), float(not known), popularity=float(10 ** (n % 7)), scores=costs(n))
        for n in range(count)
        for known in [n % 7 > 3]
    ]


def costs(number: int) -> dict[str, float]:
    return {"seconds_without": 1.0, "seconds_with": 3.0, "recall@1": float(number % 2)}


def rows(records: Any, name: str, **given: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in analyse(name, {"own": records}, **given).rows]


def test_accuracy_without_cards_goes_with_popularity() -> None:
    found = analyse("popularity-curves", {"own": popular()}, settings={"bins": 7})
    logs = np.log1p([r.popularity or 0.0 for r in popular()])
    expected = np.corrcoef(logs, [r.correct_without for r in popular()])[0, 1]
    every = found.rows[0]
    assert [row["relation"] for row in found.rows] == ["all", "cats", "poems", "rivers"]
    assert every["r_without"] == pytest.approx(expected)
    assert every["r_low"] < expected < every["r_high"]
    assert every["r_with"] == pytest.approx(-expected)
    without, with_ = found.chart.series
    assert (without.y[0], without.y[-1], with_.y[0], with_.y[-1]) == (0.0, 1.0, 1.0, 0.0)


def test_what_does_not_vary_has_no_correlation() -> None:
    (row,) = rows([Record(f"Q{n}?", 1.0, 0.0, popularity=n) for n in range(5)], "popularity-curves")
    assert np.isnan([row["r_without"], row["r_with"], row["r_low"]]).all()


def test_thresholds_by_relation_are_judged_on_records_that_they_were_not_chosen_on() -> None:
    found = analyse("popularity-splits", {"own": popular()}, settings={"splits": 20})
    by = {row["setting"]: row for row in found.rows}
    assert by["adaptive"]["accuracy"] == by["oracle"]["accuracy"] == 1.0
    assert by["never"]["share"] == 0.0
    assert by["adaptive"]["share"] == pytest.approx(4 / 7, abs=0.03)
    assert by["adaptive"]["seconds"] == pytest.approx(1 + 2 * by["adaptive"]["share"])
    assert by["adaptive"]["calls"] is None
    assert found.summary["seconds_saved"] == pytest.approx(1 - by["adaptive"]["seconds"] / 3)
    assert found.summary["gain"] == pytest.approx(1 - by["always"]["accuracy"])
    assert all(1e3 <= limit <= 1e4 for limit in found.summary["thresholds"].values())


def test_recall_is_told_apart_by_what_cards_did() -> None:
    outcomes = {(1, 1): [1, 1, 0, 1], (0, 1): [1, 1], (1, 0): [0, 0, 1], (0, 0): [0]}
    records = [
        Record(f"Q{n}{way}?", float(way[0]), float(way[1]), scores={"recall@1": float(recall)})
        for way, recalls in outcomes.items()
        for n, recall in enumerate(recalls)
    ]
    found = {row["group"]: (row["n"], row["recall@1"]) for row in rows(records, "recall")}
    assert found["right both ways"] == (4, 0.75)
    assert found["right only with cards"] == (2, 1.0)
    assert found["right only without cards"] == (3, pytest.approx(1 / 3))
    assert found["wrong both ways"] == (1, 0.0)
    assert found["all"] == (10, 0.6)


def knowing(records: Sequence[Record], boasting: int) -> Replies:
    """An LLM that says in every wording but one that it knows what it is right about; in that one it always knows."""
    known = {record.question: record.correct_without > 0 for record in records}

    def reply(request: Request) -> Reply:
        knows = request.template == boasting or known[request.question]
        return Reply("No" if knows else "Yes", yes=0.0 if knows else 1.0)

    return Replies(reply)


def test_the_word_of_an_llm_is_judged_in_each_wording() -> None:
    found = analyse("self-ask-templates", {"own": popular()}, llm=knowing(popular(), boasting=5))
    by = {row["template"]: row for row in found.rows}
    assert [(row["template"], row["paper"]) for row in found.rows][2:4] == [(2, "knowledge-card"), (3, "skr")]
    assert (by[0]["accuracy_known"], by[0]["accuracy"], by[0]["beneficial_guidance"]) == (1.0, 1.0, 1.0)
    assert (by[5]["known"], by[5]["accuracy"]) == (120, by[5]["accuracy_known"])
    assert by[5]["beneficial_guidance"] == pytest.approx(by[5]["accuracy_known"])
    assert found.summary["unanimous_knowledge-card"] == 1.0
    assert found.summary["unanimous_skr"] == pytest.approx(by[5]["accuracy_known"])


def test_what_records_say_of_the_wordings_is_not_asked_again() -> None:
    needs = {f"need_{template}": 1.0 for template in range(8)}
    found = analyse("self-ask-templates", {"own": [record(n, 1.0, 0.0, scores=needs) for n in range(4)]})
    assert {(row["known"], row["accuracy_known"], row["accuracy"]) for row in found.rows} == {(0, None, 0.0)}


def test_knowledge_is_given_first_to_what_scores_lowest() -> None:
    records = popular(60)
    found = analyse("thrust-shares", {"own": records})
    assert [(row["gate"], row["share"]) for row in found.rows] == [
        (gate, share) for gate in ("thrust", "bm25") for share in (0.25, 0.5, 0.75)
    ]
    without = sum(r.correct_without for r in records) / 60
    for row in found.rows:
        assert row["random"] == pytest.approx((1 - row["share"]) * without + row["share"] * (1 - without))
        assert row["gain"] == pytest.approx(row["accuracy"] - row["random"])
        assert row["low"] <= row["gain"] <= row["high"]
        assert row["f1"] is None
    for best in found.summary["best_below_90"].values():
        assert best["share"] < 0.9
        assert best["of_always"] == pytest.approx(best["accuracy"] / (1 - without))
    for row in found.rows:
        assert row["accuracy"] <= found.summary["best_below_90"][f"own {row['gate']}"]["accuracy"]
    ends = [(series.y[0], series.y[-1]) for series in found.chart.series]
    assert ends == [pytest.approx((without, 1 - without))] * 3


def test_scores_are_distributed_task_by_task() -> None:
    found = analyse("thrust-scores", {"first": popular(30), "second": popular(40)})
    assert [(row["task"], row["n"]) for row in found.rows] == [("first", 30), ("second", 40)]
    for row in found.rows:
        quantiles = [row[key] for key in ("p10", "p25", "p50", "p75", "p90")]
        assert quantiles == sorted(quantiles)
    assert [sum(series.y) for series in found.chart.series] == [pytest.approx(1.0)] * 2


def test_more_records_guide_better() -> None:
    """Cards help with rivers only, and say so in the question."""
    records = [record(n, float(n % 3 != 1), float(n % 3 == 1)) for n in range(90)]
    found = rows(records, "training-sizes", settings={"gates": "skr-knn", "repeats": 2})
    assert [(row["size"], row["records"]) for row in found] == [(0.1, 7), (0.25, 18), (0.5, 36), (1.0, 72)]
    assert found[-1]["fitted"] == 2
    assert found[-1]["accuracy"] == found[-1]["beneficial_guidance"] == 1.0
    assert [row["difference"] for row in found] == [pytest.approx(row["accuracy"] - 1) for row in found]
    assert all(row["low"] <= row["difference"] <= row["high"] for row in found)
    one_sided = [record(n, 0.0, 1.0) for n in range(20)]  # no gate can be fitted on them
    (row, *_) = rows(one_sided, "training-sizes", settings={"gates": "skr-knn", "repeats": 1})
    assert (row["fitted"], row["accuracy"], row["difference"]) == (0, None, None)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "popularity-curves",
            {},
            "the record of 'Who\\?' has no popularity: collect records on a task",
        ),
        ("popularity-splits", {"splits": 0}, "splits is 0 and share is 0.75, expected 1 or more splits"),
        (
            "popularity-splits",
            {"parts": 3},
            r"unknown key 'parts' \(its settings: splits, share, seed\)",
        ),
        ("recall", {}, 'no "recall@1" among its scores: collect records with'),
        ("self-ask-templates", {}, "so an LLM is needed: pass --llm"),
        ("training-sizes", {"gates": "nope"}, "unknown gate kind 'nope'"),
        ("nope", {}, "unknown analysis 'nope': choose one of popularity-curves, "),
    ],
)
def test_records_and_settings_that_do_not_serve_are_named(
    name: str, settings: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        analyse(name, {"own": [Record("Who?", 1.0, 0.0), Record("Why?", 0.0, 1.0)]}, settings=settings)


def test_the_command_prints_a_table_or_json_and_writes_the_plot(tmp_path: Path) -> None:
    write_records(tmp_path / "own.jsonl", popular(30))
    command = ["gate", "analyse", "popularity-curves", "--records", str(tmp_path / "own.jsonl")]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert "r without" in shown.stdout
    said = CliRunner().invoke(app, [*command, "--json", "--plot", str(tmp_path / "p.svg"), "--set", "bins=3"])
    data = json.loads(said.stdout)
    assert (data["name"], data["records"], len(data["chart"]["series"][0]["x"])) == (
        "popularity-curves",
        30,
        3,
    )
    assert "popularity of the subject" in (tmp_path / "p.svg").read_text()


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_records(tmp_path / folder / "own.jsonl", popular(3))
    with pytest.raises(UsageError, match="another file is also named own: rename one of them"):
        analyse("recall", [tmp_path / "a" / "own.jsonl", tmp_path / "b" / "own.jsonl"])
