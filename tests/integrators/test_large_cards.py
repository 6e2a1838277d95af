"""Cards that take turns in a pipeline: answers do not depend on memory or batches; a file is asked in large batches."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kcard
from kcard.cards.models import weights
from kcard.cli.main import app
from kcard.errors import KcardError
from kcard.hub.registry import Hub
from kcard.integrators.options import AskOptions
from kcard.integrators.pipeline import Pipeline
from tests.cards.engine.cards import full
from tests.fakes import counts_to

NAMES = ["rivers", "lakes", "moons", "mills"]
QUESTIONS = [f"Who built the {n}th mill of the Rhine?" for n in range(12)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("large")
    return [full(root, "opt", name, seed).folder for seed, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def published(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("published") / "home"
    for folder in folders:
        Hub(home).publish(folder)
    return home


@pytest.fixture
def size(folders: list[Path], published: Path, home: Path) -> int:
    """The bytes of a card's weights; the home's hub has all four."""
    shutil.copytree(published, home)
    return weights.size(folders[0], "cpu")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of cards whose weights were read from files."""
    found: list[str] = []
    plain = weights.read

    def noted(card: Any, models: Any) -> Any:
        found.append(card.name)
        return plain(card, models)

    monkeypatch.setattr(weights, "read", noted)
    return found


def told(answers: list[kcard.Answer]) -> list[kcard.Answer]:
    return [replace(answer, seconds=0.0, usage=None) for answer in answers]


@pytest.mark.parametrize("mode", ["bottom-up", "top-down", "hybrid"])
def test_answers_do_not_depend_on_memory_or_batches(size: int, mode: str) -> None:
    options = AskOptions(mode=mode, cards=NAMES, card_tokens=4, card_temperature=1.0)  # type: ignore[arg-type]
    expected = told(Pipeline(options)(QUESTIONS[:3]))
    tight = Pipeline(options, memory=2 * size)
    assert told(tight(QUESTIONS[:3])) == expected
    assert told([tight([question])[0] for question in QUESTIONS[:3]]) == expected


def test_where_cards_take_turns_a_file_is_asked_in_large_batches(size: int, folders: list[Path]) -> None:
    options = AskOptions(mode="bottom-up", cards=NAMES, concurrency=1)
    files = sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
    assert Pipeline(options, memory=3 * files).batch == 16
    assert Pipeline(options, memory=3 * files, concurrency=8).batch == 32
    assert Pipeline(options, memory=2 * size).batch > 1000
    assert Pipeline(options, memory=2 * size, mode="direct").batch == 16


def test_each_card_is_loaded_once_for_a_whole_file(size: int, tmp_path: Path, loads: list[str]) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"question": q}) + "\n" for q in QUESTIONS))
    arguments = ["ask", "--input", str(source), "--output", str(out), "--mode", "bottom-up"]
    arguments += ["--cards", ",".join(NAMES), "--card-tokens", "4", "--memory", str(2 * size)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert sorted(loads) == sorted(NAMES)
    together = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["question"] for line in together] == QUESTIONS
    out.unlink()
    loads.clear()
    assert CliRunner().invoke(app, [*arguments, "--batch", "6"]).exit_code == 0
    assert len(loads) == 4 + 2
    for one, other in zip(together, map(json.loads, out.read_text().splitlines()), strict=True):
        assert (one["answer"], one.get("passages")) == (other["answer"], other.get("passages"))


def test_how_many_cards_have_written_is_reported(size: int) -> None:
    seen: list[tuple[int, int | None]] = []
    pipeline = Pipeline(
        AskOptions(mode="bottom-up", cards=NAMES, card_tokens=4, memory=2 * size),
        on_event=counts_to(seen),
    )
    pipeline(QUESTIONS[:2])
    assert seen == [(n, 4) for n in range(5)]


def test_a_batch_size_without_a_file_is_refused() -> None:
    done = CliRunner().invoke(app, ["ask", "Who?", "--batch", "3"])
    assert isinstance(done.exception, KcardError)
    assert "--batch needs --input" in str(done.exception)
