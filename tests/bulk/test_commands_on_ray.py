"""Commands with --ray: the same results as without, whatever happens to workers, nodes and the command itself."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kcard.answer import Source
from kcard.api.ask_on_cluster import ask_on_cluster
from kcard.api.eval_asking import Told
from kcard.api.evaluate import evaluate
from kcard.bulk.options import RayOptions
from kcard.cards.format.folder import finish
from kcard.errors import LLMError, UsageError
from kcard.evaluation.runs.storage import RunStorage
from kcard.hub.registry import Hub
from kcard.integrators.batch import answer_file, read_questions
from kcard.integrators.options import AskOptions
from kcard.integrators.pipeline import Pipeline
from kcard.manifest import Manifest
from tests.bulk.ray_nodes import NODE, kill_a_worker, ray_nodes
from tests.command import Kcard

pytest.importorskip("ray")

MOONS = {"Phobos": "Mars", "Titan": "Saturn", "Triton": "Neptune", "Io": "Jupiter", "Oberon": "Uranus"}
OPTIONS = AskOptions(mode="bottom-up", cards="moons")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with ray_nodes(2) as cluster:
        yield cluster


@pytest.fixture
def questions(home: Path, tmp_path: Path) -> Path:
    """Questions about a published card that only looks up."""
    folder = tmp_path / "moons"
    folder.mkdir()
    said = [Source(f"{moon} is a moon of {planet}.") for moon, planet in MOONS.items()]
    finish(folder, Manifest("moons", "Moons", "space", kind="retrieval", language="en"), said)
    Hub(home).publish(folder)
    path = tmp_path / "questions.jsonl"
    rows = [{"id": i, "question": f"Which planet is {moon} a moon of?"} for i, moon in enumerate(MOONS)]
    rows = [{**row, "id": n} for n, row in enumerate(rows * 12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"id": 60, "question": ""}]), "utf-8")
    return path


def answers(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of answers, but for the times."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row.pop("seconds", None)
        row.get("usage", {}).pop("llm_seconds", None)
        row.get("usage", {}).pop("card_seconds", None)
    return rows


class Interrupted(Exception):
    pass


@pytest.mark.slow
def test_a_killed_worker_a_lost_node_and_an_interruption_change_no_answer(
    nodes: Any, questions: Path, tmp_path: Path
) -> None:
    cluster = RayOptions(ray=nodes.address)
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    answer_file(read_questions(questions), here, Pipeline(OPTIONS).outcomes)

    third = nodes.add_node(**NODE)

    def disturb(done: int, _: int) -> None:
        if done == 8:
            kill_a_worker(nodes)
            nodes.remove_node(third, allow_graceful=False)
        if done == 30:
            raise Interrupted

    with pytest.raises(Interrupted):
        ask_on_cluster(questions, there, OPTIONS, cluster=cluster, batch=4, told=Told(progress=disturb))
    kept = there.with_name("there.jsonl.journal")
    assert len(answers(there)) == 30
    assert len(kept.read_text(encoding="utf-8").splitlines()) >= 32
    found = ask_on_cluster(questions, there, OPTIONS, cluster=cluster, batch=4, resume=True)
    assert (found.questions, found.earlier, found.totals.failed) == (61, 30, 1)
    assert answers(there) == answers(here)
    assert not kept.exists()


@pytest.mark.slow
def test_an_evaluation_that_loses_a_worker_and_a_node_has_the_same_results(
    nodes: Any, questions: Path, tmp_path: Path
) -> None:
    task = tmp_path / "task.jsonl"
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()[:60]]
    answered = [
        {**row, "answers": [planet]} for row, planet in zip(rows, [*MOONS.values()] * 12, strict=True)
    ]
    task.write_text("".join(json.dumps(row) + "\n" for row in answered), "utf-8")
    given: dict[str, Any] = {"path": task, "settings": "direct,bottom-up", "cards": "moons"}
    here = evaluate("jsonl", **given)
    third = nodes.add_node(**NODE)
    done: list[int] = []

    def disturb(now: int, _: int) -> None:
        done.append(now)
        if len(done) == 2:
            kill_a_worker(nodes)
            nodes.remove_node(third, allow_graceful=False)

    there = evaluate("jsonl", **given, cluster=RayOptions(ray=nodes.address), told=Told(progress=disturb))
    assert there.run.complete
    assert done[-1] == 120
    assert results(there.run.number) == results(here.run.number)


def results(number: int) -> list[Any]:
    """Those of a run as JSON has them, without times."""
    return [without_times(asdict(result)) for result in RunStorage(Hub().runs).results(number)]


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(inner) for key, inner in value.items() if "seconds" not in key}
    return [*map(without_times, value)] if isinstance(value, list | tuple) else value


@pytest.mark.slow
def test_cards_trained_and_audited_on_a_cluster_are_those_of_this_machine(
    kcard: Kcard, nodes: Any, tmp_path: Path
) -> None:
    for subject in ("moons", "winds"):
        folder = tmp_path / "corpora" / subject
        folder.mkdir(parents=True)
        lines = [f"The number {n} of the {subject} is {subject.title()}{n}." for n in range(12)]
        (folder / "facts.txt").write_text("\n".join(lines), encoding="utf-8")
    train = ("train-many", tmp_path / "corpora", "--kind", "model", "--epochs", "1", "--no-exam", "--output")
    here, there = tmp_path / "here", tmp_path / "there"
    assert kcard(*train, here).code == 0
    done = kcard(*train, there, "--ray", nodes.address, "--json")
    assert done.code == 0, done.err
    assert [json.loads(line)["folder"] for line in done.out.splitlines()] == [
        str(there / name) for name in ("moons", "winds")
    ]
    assert weights(there) == weights(here)
    audit = ("audit", *(there / name for name in weights(there)), "--documents", "1", "--limit", "4")
    for place, cluster in (("here", ()), ("there", ("--ray", nodes.address))):
        audited = kcard(*audit, "--output", tmp_path / f"{place}.jsonl", *cluster)
        assert audited.code == 0, audited.err
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()


def weights(folder: Path) -> dict[str, str]:
    """The sha256 of each card's weights."""
    return {card.name: Manifest.read(card).files["model.safetensors"] for card in sorted(folder.iterdir())}


@pytest.mark.slow
def test_the_command_asks_on_a_cluster(kcard: Kcard, nodes: Any, questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    asked = ("ask", "--input", questions, "--output", out, "--mode", "bottom-up", "--cards", "moons")
    done = kcard(*asked, "--ray", nodes.address)
    assert done.code == 1  # one question is empty
    assert done.out == ""
    assert f"60 of 61 questions answered: {out}" in done.err
    assert [row.get("answer") for row in answers(out)[:5]] == [*MOONS.values()]


@pytest.mark.slow
def test_a_piece_whose_pipeline_can_not_be_made_is_lines_of_errors(
    nodes: Any, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    with pytest.raises(LLMError, match=r"questions failed in a row.*continue with --resume"):
        ask_on_cluster(questions, out, cards="mars", cluster=RayOptions(ray=nodes.address))
    assert all("no card" in row["error"] or "mars" in row["error"] for row in answers(out))


def test_one_question_or_an_llm_that_is_an_object_is_not_for_a_cluster(
    kcard: Kcard, questions: Path, tmp_path: Path
) -> None:
    assert "--ray needs --input and --output" in kcard("ask", "Who?", "--ray", "auto").error
    with pytest.raises(UsageError, match="an LLM that is an object"):
        ask_on_cluster(
            questions, tmp_path / "o.jsonl", llm=lambda prompt: prompt, cluster=RayOptions(ray="127.0.0.1:1")
        )


def test_a_project_can_not_choose_the_cluster(
    kcard: Kcard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kcard.toml").write_text('[ask]\nray = "elsewhere:6379"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "give --ray each time" in kcard("ask", "Who?").error
