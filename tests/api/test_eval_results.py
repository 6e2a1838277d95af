"""What a run came to, in the Hub's formats."""

import json
from pathlib import Path

import pytest
import yaml
from huggingface_hub import eval_result_entries_to_yaml, parse_eval_result_entries

import kcard as package
from kcard.api.evaluate import export
from tests.command import Kcard

QUESTIONS = [("Who wrote Emma?", "Jane Austen"), ("What is the capital of France?", "Paris")]


@pytest.fixture
def task(tmp_path: Path) -> Path:
    file = tmp_path / "own.jsonl"
    lines = [json.dumps({"question": question, "answers": [answer]}) for question, answer in QUESTIONS]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_the_files_are_those_that_the_hugging_face_hub_reads(task: Path, tmp_path: Path) -> None:
    evaluation = package.evaluate("jsonl", path=task, settings="direct")
    files = export(evaluation.run.number, tmp_path / "out")
    assert [file.relative_to(tmp_path / "out").as_posix() for file in files] == [
        "eval.yaml",
        f".eval_results/{evaluation.run.plan.tasks[0].name}.yaml",
    ]
    read = yaml.safe_load(files[1].read_text(encoding="utf-8"))
    (entry,) = parse_eval_result_entries(read)
    assert entry.value == pytest.approx(evaluation.rows[0].value)
    assert "setting direct; em" in (entry.notes or "")
    assert eval_result_entries_to_yaml([entry]) == read
    benchmark = yaml.safe_load(files[0].read_text(encoding="utf-8"))
    assert [each["id"] for each in benchmark["tasks"]] == [entry.task_id]


def test_the_command_line_writes_the_same_files(task: Path, tmp_path: Path, kcard: Kcard) -> None:
    done = kcard("eval", "jsonl", "--path", task, "--settings", "direct", "--results", tmp_path / "out")
    assert done.code == 0, done.err
    number = done.err.split("run ")[1].split()[0]
    again = kcard("runs", "export", number, tmp_path / "again")
    assert len(again.out.splitlines()) == 2
    for file in again.out.splitlines():
        path = Path(file).relative_to(tmp_path / "again")
        assert (tmp_path / "out" / path).read_text("utf-8") == Path(file).read_text("utf-8")
