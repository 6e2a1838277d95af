"""The papers' tables name data, model, settings and commands that kcard has, and what is missing to run them."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from kcard.api.eval_settings import parse_settings
from kcard.api.paper_table import reproduction
from kcard.cli.main import app
from kcard.errors import UsageError
from kcard.evaluation.papers import PaperTable, paper_table, paper_tables
from kcard.evaluation.tasks.registry import task_names
from tests.command import Kcard

ROOT = Path(__file__).resolve().parents[2]
PATHS = ["a.json", "b.json", "c.json"]


def named(table: PaperTable) -> str:
    return f"{table.paper}-{table.number}"


def parsed(command: str) -> dict[str, Any]:
    """What the command line makes of a command, which is not run."""
    _, *words = shlex.split(command)
    found: Any = get_command(app)
    while hasattr(found, "get_command"):
        found = found.get_command(None, words.pop(0))
    values: dict[str, Any] = found.make_context(None, words).params
    return values


@pytest.mark.parametrize("table", paper_tables(), ids=named)
def test_every_command_of_a_table_is_one_that_kcard_takes(table: PaperTable) -> None:
    assert table.commands
    for command in table.filled(PATHS[: len(table.files)], "embedded"):
        if not command.startswith("kcard "):
            assert (ROOT / (command.split()[2].replace(".", "/") + ".py")).is_file()
            continue
        values = parsed(command.replace("RUN", "1"))
        if values.get("settings"):
            asked = {setting.name for setting in parse_settings(values["settings"])}
            gated = {name.rpartition("@")[2] for name in asked if "@" in name} - {"always"}
            assert gated <= set(table.gates)


@pytest.mark.parametrize("table", paper_tables(), ids=named)
def test_every_row_has_a_value_for_each_column_and_a_setting_that_a_command_asks(table: PaperTable) -> None:
    commands = " ".join(table.commands) + " direct,bottom-up@always,bottom-up@skr-prompt,bottom-up@skr-icl"
    commands += ",bottom-up@skr-fine-tuned,bottom-up@skr-knn" if table.paper == "skr" else ""
    for row in table.rows:
        assert len(row.values) == len(table.columns)
        assert row.setting in commands
    assert set(table.tasks) <= set(task_names())


def test_each_paper_has_all_of_its_tables() -> None:
    numbers: dict[str, list[int]] = {}
    for table in paper_tables():
        numbers.setdefault(table.paper, []).append(table.number)
    assert numbers == {
        "knowledge-card": [*range(1, 12)],
        "thrust": [*range(1, 7)],
        "skr": [*range(1, 5)],
        "adaptive-retrieval": [*range(1, 5)],
    }


def test_what_is_missing_here_is_named(tmp_path: Path, kcard: Kcard) -> None:
    rows = [{"id": n, "question": f"Who won {n}?", "answer": "Ana Ruiz"} for n in range(2)]
    file = tmp_path / "open book.json"
    file.write_text(
        json.dumps({"dataset": "MidtermQA-openbook", "demos": rows[:1], "testset": rows[1:]}),
        encoding="utf-8",
    )
    done = kcard("eval", "--table", "3", "--path", file, "--llm", "hf:nobody/nothing", "--json")
    found = json.loads(done.out)
    assert f"--path '{file}'" in found["commands"][0]
    assert "--llm hf:nobody/nothing" in found["commands"][0]
    said = "\n".join(found["missing"])
    assert "data: MidtermQA-binary.json" in said
    assert "openbook" not in said
    assert "weights: nobody/nothing is not on this machine" in said
    assert "weights: bunsenfeng/FactKB is not on this machine" in said
    assert "cards: the pool published" in said
    shown = kcard("eval", "--table", "1", "--paper", "adaptive-retrieval").out
    assert "kcard gate analyse recall" in shown


def test_data_that_can_not_be_read_is_missing_too(tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text("{", encoding="utf-8")
    missing = reproduction("knowledge-card", 2, path=[file]).missing
    assert any(str(file) in sentence for sentence in missing)


def test_an_unknown_table_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="skr has no table 9: it has 1, 2, 3, 4"):
        paper_table("skr", 9)
    with pytest.raises(UsageError, match="paper 'bert' is unknown: choose one of knowledge-card"):
        paper_table("bert", 1)
    with pytest.raises(UsageError, match="2 paths for the 1 files"):
        reproduction("knowledge-card", 1, path=["a", "b"])
