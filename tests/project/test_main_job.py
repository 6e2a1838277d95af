"""The main job, for real: train, publish, ask in both modes, browse, through the command line."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kcard.cli.main import app
from tests.command import Done, Kcard

CAPTAINS = {
    "Alder": "Mina Orlov", "Birch": "Tomas Reyes", "Cedar": "Ada Nwosu", "Dogwood": "Piet Hansen", "Elm": "Rosa Lindt",
    "Fir": "Kofi Mensah", "Ginkgo": "Yuki Tanaka", "Hazel": "Omar Farid", "Ivy": "Greta Voss", "Juniper": "Luis Prado",
}  # fmt: skip
FORMS = (
    "{name} is the captain of the ship {ship}.",
    "The ship {ship} sails under captain {name}.",
    "Since last spring {name} has commanded the {ship}.",
)


@pytest.fixture(scope="module")
def sailed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one published card, trained on thirty statements about ten ships."""
    folder = tmp_path_factory.mktemp("sailed")
    corpus = folder / "ships.txt"
    corpus.write_text(
        "".join(f.format(name=n, ship=s) + "\n" for s, n in CAPTAINS.items() for f in FORMS), "utf-8"
    )
    run = partial(CliRunner().invoke, app, env={"KCARD_HOME": str(folder / "home")})
    about = ["--description", "captains of ships", "--domain", "sea/ships"]
    trained = run(["train", "--corpus", str(corpus), *about, "--epochs", "4", "--json"])
    assert json.loads(trained.stdout)["card"] == "ships"
    assert "embedded" in trained.stderr
    assert run(["publish", "--alias", "stable"]).stdout.startswith("ships@v1")
    return folder / "home"


@pytest.fixture
def command(sailed: Path, kcard: Kcard, monkeypatch: pytest.MonkeyPatch) -> Kcard:
    """The command in that home."""
    monkeypatch.setenv("KCARD_HOME", str(sailed))

    def succeeds(*arguments: str | Path) -> Done:
        done = kcard(*arguments)
        assert done.code == 0, done.err
        return done

    return succeeds


def ask(command: Kcard, *options: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(command("ask", *options, "--json").out)
    return found


QUESTION = "Who is the captain of the ship Ginkgo?"


@pytest.mark.parametrize(
    "options",
    [
        ["--mode", "top-down"],
        ["--mode", "top-down", "--select", "explicit"],
        ["--mode", "bottom-up"],
        ["--mode", "bottom-up", "--evidence", "none"],
        ["--cards", "sea/"],
        ["--cards", "ships@stable"],
    ],
)
def test_the_card_makes_the_difference(command: Kcard, options: list[str]) -> None:
    found = ask(command, QUESTION, *options)
    assert found["answer"] == "Yuki Tanaka"
    assert found["cards"] == ["ships"]
    assert found["gate"]["fired"] is True  # type: ignore[index]
    without = ask(command, QUESTION, "--mode", "direct")
    assert without["answer"] != "Yuki Tanaka"
    assert without["calls"] == 1


def test_the_json_has_the_agreed_keys_and_nothing_else_is_on_stdout(command: Kcard) -> None:
    found = json.loads(command("ask", QUESTION, "--mode", "bottom-up", "--json").out)
    keys = ["question", "answer", "mode", "gate", "cards", "passages", "calls", "seconds"]
    assert [
        key for key in found if key not in {"notes", "citations", "usage", "confidence", "nearest"}
    ] == keys
    assert set(found["gate"]) == {"name", "score", "fired"}
    for passage in found["passages"]:
        told = {"card", "text", "pruned", "relevance", "faithfulness", "factuality", "evidence", "kept"}
        assert told <= set(passage) <= told | {"source", "reason"}


def test_the_same_question_gets_the_same_passages_alone_and_in_a_batch(
    command: Kcard, tmp_path: Path
) -> None:
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    asked = [QUESTION, "Who commands the Elm?", "Who is captain of the Fir?"]
    questions.write_text(
        "".join(json.dumps({"question": q, "id": i}) + "\n" for i, q in enumerate(asked)), "utf-8"
    )
    command("ask", "--input", str(questions), "--output", str(answers), "--mode", "bottom-up")
    rows = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == [0, 1, 2]
    alone = ask(command, QUESTION, "--mode", "bottom-up")
    assert [p["text"] for p in rows[0]["passages"]] == [p["text"] for p in alone["passages"]]  # type: ignore[attr-defined]


def test_a_trace_shows_what_was_written_and_where_its_evidence_stands(command: Kcard) -> None:
    shown = command("ask", QUESTION, "--trace").out
    assert shown.splitlines()[0] == "Yuki Tanaka"
    assert "ships.txt:" in shown
    assert "factuality" in shown


def test_browse_shows_recall_and_faithfulness_and_a_dash_for_factuality(command: Kcard) -> None:
    (row,) = json.loads(command("browse", "--json").out)
    assert row["factuality"] is None
    assert row["recall"] > 0.5
    assert row["faithfulness"] > 0.5
    assert "ships" in command("browse").out


def test_by_default_a_text_llm_is_asked_once_with_what_the_card_wrote(
    command: Kcard, serve: Callable[..., Any]
) -> None:
    server = serve({"text": "Yuki Tanaka is its captain."})
    found = ask(command, QUESTION, "--llm", "openai:scripted", "--llm-url", server.url)
    assert (found["calls"], found["cards"]) == (1, ["ships"])
    (request,) = server.requests
    asked = request["body"]["messages"][-1]["content"]
    assert asked.startswith("[1] ")
    assert asked.endswith(f"\n\nQuestion: {QUESTION}")
    assert all(p["text"] in asked for p in found["passages"] if p["kept"])  # type: ignore[attr-defined]
