"""kcard chat: questions one after the other, on a terminal and from a pipe; an error ends nothing."""

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kcard
from tests.command import Done, Kcard
from tests.terminal import Terminal

TEXT = "Triton was discovered by William Lassell in 1846.\n\nNereid was found by Gerard Kuiper in 1949.\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a card about the moons of Neptune."""
    home = tmp_path_factory.mktemp("home")
    (home / "corpus").mkdir()
    (home / "corpus" / "neptune.txt").write_text(TEXT, encoding="utf-8")
    card = kcard.train(
        home / "corpus", kind="retrieval", name="neptune", description="moons", output=home / "d"
    )
    kcard.Hub(home).publish(card.folder)
    return home


@pytest.fixture
def piped(home: Path, kcard: Kcard, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Runs a command that reads these lines from a pipe."""
    monkeypatch.setenv("KCARD_HOME", str(home))

    def run(*arguments: str, lines: str) -> Done:
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        return kcard(*arguments)

    return run


def test_lines_of_a_pipe_are_questions_and_commands_and_an_error_ends_nothing(
    piped: Callable[..., Done],
) -> None:
    lines = ["/trace", "/cards", "Who discovered Triton?", "/trace", "/mode bottom-up", "/mode up", "/cards nobody",
             "/nonsense", "/mode", "Who found Nereid?", "And who discovered it?",
             "/help", "/quit", "Who discovered Triton?"]  # fmt: skip
    done = piped("chat", lines="\n".join(lines))
    assert done.code == 0
    assert [text for text in ("William Lassell\n", "Gerard Kuiper\n") if text in done.out] != []
    assert done.out.count("William Lassell\n") == 1, "nothing is read after /quit"
    assert done.out.startswith("neptune  moons\n")
    assert "kept neptune" in done.out
    assert done.out.count("mode: bottom-up\n") == 2
    assert "/cards [NAME,... | all]" in done.out
    assert done.err.count("each question is answered by itself") == 1
    errors = [line for line in done.err.splitlines() if line.startswith("kcard: ")]
    assert errors == [
        "kcard: there is no answer yet: ask a question first",
        "kcard: unknown mode 'up': choose one of top-down, bottom-up, hybrid, direct",
        "kcard: unknown card 'nobody': `kcard cards list` shows all cards",
        "kcard: unknown command /nonsense: /help lists them",
    ]


@pytest.mark.parametrize("question", [[], ["-"]])
def test_a_question_can_be_piped_to_ask(piped: Callable[..., Done], question: list[str]) -> None:
    done = piped("ask", *question, lines="Who discovered Triton?\n")
    assert done.out.startswith("William Lassell\n")
    assert piped("ask", *question, lines="").code == 2


@pytest.mark.parametrize("command", [pytest.param("ask", marks=pytest.mark.slow), "chat"])
def test_on_a_terminal_ctrl_c_leaves_nothing_behind_and_ctrl_d_leaves(home: Path, command: str) -> None:
    with Terminal(home, command) as terminal:
        terminal.wait_for(r"1 card; ask a question, or /help")
        terminal.wait_for(r"\? ")
        terminal.send("Who discovered Tri")
        terminal.wait_for("Who discovered Tri")
        time.sleep(0.3)  # between the prompt and its wait for keys, Python's readline misses a signal
        terminal.send("\x03")
        terminal.wait_for("Ctrl-D leaves")
        terminal.wait_for(r"\? ")
        terminal.send("Who discovered Triton?\r")
        terminal.wait_for("William Lassell")
        terminal.wait_for(r"\? ")
        terminal.send("\x04")
        assert terminal.process.wait(30) == 0
    history = home / "history"
    assert "Who discovered Triton?" in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o777 == 0o600
