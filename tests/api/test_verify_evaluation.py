"""What a run states can be published in the Hub's formats and repeated by others."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import eval_result_entries_to_yaml, parse_eval_result_entries

import kcard as package
from kcard.api.verify_evaluation import export_evaluation, verify_evaluation
from kcard.errors import UsageError
from kcard.evaluation.runs.manifest import read_manifest
from kcard.hub.registry import Hub
from tests.command import Kcard

QUESTIONS = [("Who wrote Emma?", "Jane Austen"), ("What is the capital of France?", "Paris")]


@pytest.fixture
def task(tmp_path: Path) -> Path:
    file = tmp_path / "own.jsonl"
    lines = [json.dumps({"question": question, "answers": [answer]}) for question, answer in QUESTIONS]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_a_second_run_of_a_manifest_agrees_and_predicts_the_same(
    task: Path, tmp_path: Path, kcard: Kcard
) -> None:
    out = tmp_path / "out"
    done = kcard("eval", "jsonl", "--path", task, "--settings", "direct", "--results", out)
    assert done.code == 0, done.err
    again = kcard("eval", "--verify", out, "--json")
    assert again.code == 0, again.err
    row = json.loads(again.out)
    assert (row["agrees"], row["same_predictions"], row["difference"]) == (True, True, 0)
    assert "agrees within 0.02" in again.err


def test_the_files_are_those_that_the_hugging_face_hub_reads(task: Path, tmp_path: Path) -> None:
    found = package.evaluate("jsonl", path=task, settings="direct")
    files = export_evaluation(found.run.number, tmp_path / "out")
    assert [file.relative_to(tmp_path / "out").as_posix() for file in files] == [
        "manifest.json",
        "eval.yaml",
        f".eval_results/{found.run.plan.tasks[0].name}.yaml",
    ]
    read = yaml.safe_load(files[2].read_text(encoding="utf-8"))
    (entry,) = parse_eval_result_entries(read)
    assert entry.value == pytest.approx(found.rows[0].value)
    assert "setting direct; em" in (entry.notes or "")
    assert eval_result_entries_to_yaml([entry]) == read
    benchmark = yaml.safe_load(files[1].read_text(encoding="utf-8"))
    assert [each["id"] for each in benchmark["tasks"]] == [entry.task_id]


def test_a_value_that_nobody_can_reproduce_is_refused(task: Path, tmp_path: Path, kcard: Kcard) -> None:
    found = package.evaluate("jsonl", path=task, settings="direct")
    export_evaluation(found.run.number, tmp_path)
    file = tmp_path / "manifest.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    data["results"][0]["value"] += 0.03
    file.write_text(json.dumps(data), encoding="utf-8")
    done = kcard("eval", "--verify", file)
    assert done.code == 1
    assert "differs by more than 0.02" in done.err
    assert verify_evaluation(file, tolerance=0.05).agrees


def test_other_data_is_not_a_repetition(task: Path, tmp_path: Path) -> None:
    found = package.evaluate("jsonl", path=task, settings="direct")
    export_evaluation(found.run.number, tmp_path)
    moved = task.rename(tmp_path / "moved.jsonl")
    assert verify_evaluation(tmp_path, path=[moved]).agrees
    moved.write_text(moved.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match="is not what was evaluated"):
        verify_evaluation(tmp_path, path=[moved])


def test_a_manifest_does_not_choose_where_questions_go(
    task: Path, tmp_path: Path, serve: Callable[..., Any]
) -> None:
    served = serve({"text": "Paris"})
    found = package.evaluate("jsonl", path=task, settings="direct", llm="openai:m", llm_url=served.url)
    export_evaluation(found.run.number, tmp_path)
    with pytest.raises(UsageError, match="choose it with --llm openai:m"):
        verify_evaluation(tmp_path)
    asked = len(served.requests)
    assert verify_evaluation(tmp_path, llm="openai:m", llm_url=served.url).agrees
    assert len(served.requests) > asked


def test_cards_are_found_by_content_on_another_hub(task: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "books.txt").write_text("Jane Austen wrote Emma.\n\nParis is the capital of France.", "utf-8")
    made = package.train(corpus, kind="retrieval", name="books", description="books", exam=False)
    package.publish(made)
    found = package.evaluate("jsonl", path=task, settings="bottom-up")
    export_evaluation(found.run.number, tmp_path / "out")
    other = Hub(tmp_path / "other")
    other.publish(made.folder, aliases=["here"])
    verified = verify_evaluation(tmp_path / "out", hub=other)
    assert verified.agrees
    assert verified.results[0].same
    assert [run.number for run in other.runs.list()] == [verified.evaluation.run.number]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"form": 9}'])
def test_what_is_no_manifest_is_refused_with_its_name(text: str, tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"manifest.json is not the manifest of an evaluation"):
        read_manifest(tmp_path)
    with pytest.raises(UsageError, match="can't read the manifest"):
        read_manifest(tmp_path / "none.json")
