"""A paper's experiment on gates in one command: records, gates per task, figures on what was held out, analyses."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kcard.api.experiment import EXPERIMENTS, GatePaper, experiment
from kcard.cards.card import finish
from kcard.errors import UsageError
from kcard.evaluation.gates.analyses.analysis import ANALYSES
from kcard.gates import base
from kcard.gates.records import read_records
from kcard.hub.registry import Hub
from kcard.interfaces import LLM
from kcard.manifest import Manifest
from kcard.types import Reply, Request, Source
from tests.command import Kcard
from tests.fakes import notes_to

MOONS = [f"Moon{chr(97 + i)}{chr(97 + j)}" for i in range(4) for j in range(4)]


class KnowsSome(LLM):
    """Knows the planet of every other moon, says so if it is asked, and otherwise repeats its knowledge."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        known = any(moon in request.question for moon in MOONS[::2])
        if request.kind == "need":
            return Reply("No" if known else "Yes", yes=float(not known))
        if known:
            return Reply("Planet" if not request.knowledge or len(request.question) % 3 else "nothing")
        return Reply(" ".join(request.knowledge) or "I don't know.")


@pytest.fixture
def hub(home: Path) -> Hub:
    folder = home / "drafts" / "moons"
    folder.mkdir(parents=True)
    facts = [Source(f"{moon} circles the planet Planet.") for moon in MOONS[1::2]]
    finish(folder, Manifest("moons", "Moons", kind="retrieval"), facts)
    hub = Hub()
    hub.publish(folder)
    return hub


def questions(path: Path, moons: Sequence[str] = MOONS) -> Path:
    rows = [
        {
            "question": f"Which planet does {moon} circle?",
            "answers": ["Planet"],
            "possible_answers": ["Planet"],
            "prop": "planet",
            "s_pop": n % 7,
        }
        for n, moon in enumerate(moons)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("paper", ["thrust", "adaptive-retrieval"])
def test_gates_are_fitted_per_task_and_evaluated_on_the_rest(
    hub: Hub, tmp_path: Path, paper: GatePaper
) -> None:
    file, llm = questions(tmp_path / "q.jsonl"), KnowsSome()
    folder = tmp_path / "out"
    result = experiment(paper, [f"jsonl={file}", f"popqa={file}"], folder, fitted=10, hub=hub, llm=llm)
    plan = EXPERIMENTS[paper]
    assert [(row.task, row.gate) for row in result.rows] == [
        (task, gate) for task in ("jsonl", "popqa") for gate in plan.gates
    ]
    for row in result.rows:
        assert (row.fitted_on, row.held_out) == (10, 6)
        assert row.outcome is not None
        assert row.outcome.n == 6
        assert (folder / row.task / row.gate).exists()
        assert 0 <= row.outcome.accuracy <= row.outcome.oracle
    assert set(result.analyses) == set(plan.analyses)
    written = json.loads((folder / "results.json").read_text())
    assert [gate["gate"] for gate in written["gates"]] == [row.gate for row in result.rows]
    # Again, nothing is asked: the records are there.
    asked = len(llm.requests)
    again = experiment(paper, [f"jsonl={file}", f"popqa={file}"], folder, fitted=10, hub=hub, llm=llm)
    assert len(llm.requests) == asked
    assert again.to_json() == result.to_json()


def test_skr_prompts_are_on_one_line_and_a_gate_that_can_not_be_fitted_is_told(
    hub: Hub, tmp_path: Path
) -> None:
    file, llm = questions(tmp_path / "q.jsonl", MOONS[::2]), KnowsSome()
    messages: list[str] = []
    places: dict[str, Any] = {"hub": hub, "llm": llm, "on_event": notes_to(messages)}
    result = experiment("skr", [f"jsonl={file}"], tmp_path / "out", **places)
    by_gate = {row.gate: row for row in result.rows}
    assert by_gate["skr-prompt"].outcome is not None
    assert by_gate["skr-prompt"].settings["wording"] == "skr-inline"
    assert {request.template for request in llm.requests if request.kind == "need"} >= {8}
    # The LLM knows all of these, so that D- is empty.
    for gate in ("skr-icl", "skr-fine-tuned", "skr-knn"):
        assert by_gate[gate].outcome is None
        assert any(by_gate[gate].skipped in message for message in messages)


@pytest.mark.slow
def test_the_random_gate_is_not_drawn_as_the_held_out_questions_are(hub: Hub, tmp_path: Path) -> None:
    file = questions(tmp_path / "q.jsonl", [f"{moon}{n}" for moon in MOONS for n in range(8)])
    result = experiment("thrust", [f"jsonl={file}"], tmp_path / "out", fitted=28, hub=hub, llm=KnowsSome())
    (share,) = [row.outcome.share for row in result.rows if row.gate == "random" and row.outcome]
    assert 0.35 < share < 0.65  # of 100 questions


def test_a_limit_draws_questions_and_the_held_out_records_are_a_file(hub: Hub, tmp_path: Path) -> None:
    file, folder = questions(tmp_path / "q.jsonl"), tmp_path / "out"
    places: dict[str, Any] = {"hub": hub, "llm": KnowsSome()}
    result = experiment("adaptive-retrieval", [f"popqa={file}"], folder, limit=12, **places)
    records = read_records(folder / "popqa" / "records.jsonl")
    held_out = read_records(folder / "popqa" / "held-out.jsonl")
    assert (len(records), len(held_out)) == (12, 3)
    assert set(map(repr, held_out)) <= set(map(repr, records))
    assert result.rows[0].outcome is not None
    assert result.rows[0].outcome.never == sum(r.correct_without for r in held_out) / 3
    assert {analysis.records for analysis in result.analyses.values()} == {12}


def test_records_of_other_options_are_not_taken_for_those_of_this_experiment(
    hub: Hub, tmp_path: Path
) -> None:
    file = questions(tmp_path / "q.jsonl")
    arguments: list[Any] = ["adaptive-retrieval", [f"popqa={file}"], tmp_path / "out"]
    experiment(*arguments, limit=8, hub=hub, llm=KnowsSome())
    with pytest.raises(UsageError, match="its records were answered with --llm KnowsSome, not embedded"):
        experiment(*arguments, limit=8, hub=hub, llm="embedded")
    with pytest.raises(UsageError, match="its records were answered with --n1 unset, not 2"):
        experiment(*arguments, limit=8, hub=hub, llm=KnowsSome(), n1=2)


def test_options_that_answered_nothing_bind_none_and_a_function_is_known_by_its_name(
    hub: Hub, tmp_path: Path
) -> None:
    file = questions(tmp_path / "q.jsonl")
    arguments: list[Any] = ["adaptive-retrieval", [f"popqa={file}"], tmp_path / "out"]
    with pytest.raises(UsageError, match="unknown llm 'nowhere'"):
        experiment(*arguments, limit=8, hub=hub, llm="nowhere")

    def run() -> dict[str, Any]:
        def planet(_prompt: str) -> str:
            return "Planet"

        return experiment(*arguments, limit=8, hub=hub, llm=planet).to_json()

    assert run() == run()


def test_an_unknown_encoder_is_told_before_any_question_is_asked(hub: Hub, tmp_path: Path) -> None:
    file, llm = questions(tmp_path / "q.jsonl"), KnowsSome()
    with pytest.raises(UsageError, match="unknown representation 'nowhere'"):
        experiment("skr", [f"jsonl={file}"], tmp_path / "out", encoder="nowhere", hub=hub, llm=llm)
    assert not llm.requests


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "no task: name data sets and their files"),
        (["nq"], "task 'nq': expected NAME=FILE"),
        (["nope=x"], "task 'nope' is unknown: choose among"),
        (["nq=a", "nq=b"], "task nq is given twice"),
    ],
)
def test_a_wrong_task_is_named(tasks: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        experiment("skr", tasks, tmp_path)


def test_every_gate_and_analysis_of_a_plan_exists() -> None:
    for plan in EXPERIMENTS.values():
        assert set(plan.gates) <= {*base.names()}
        assert set(plan.analyses) <= set(ANALYSES)


@pytest.mark.usefixtures("hub")
def test_the_command_prints_a_row_for_each_gate(kcard: Kcard, tmp_path: Path) -> None:
    file, folder = questions(tmp_path / "q.jsonl"), tmp_path / "out"
    arguments = ("--task", f"jsonl={file}", "--output", str(folder), "--fitted", "10")
    done = kcard("gate", "experiment", "thrust", *arguments, "--cards", "moons")
    assert done.code == 0, done.err
    gates, *analyses = done.out.split(" records\n")
    assert [line.split()[:3] for line in gates.splitlines() if line.strip().startswith("jsonl")] == [
        ["jsonl", gate, "6"] for gate in ("thrust", "bm25", "random")
    ]
    # Then a table for each analysis, in which no figure is printed as Python writes it.
    assert len(analyses) == len(EXPERIMENTS["thrust"].analyses)
    assert "best below 90 jsonl thrust: share 0." in analyses[0]
    assert "{" not in done.out
    assert len(read_records(folder / "jsonl" / "records.jsonl")) == len(MOONS)
    assert "Traceback" not in done.err
