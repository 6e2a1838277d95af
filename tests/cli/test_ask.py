"""kcard ask at the command line, with a scripted endpoint: streaming, cost, Ctrl-C and --resume."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import Done, Kcard

Ask = Callable[..., Done]  # the server's URL, arguments
DIRECT = ("--mode", "direct", "--llm", "openai:m", "--llm-url")


@pytest.fixture
def ask(kcard: Kcard) -> Ask:
    return lambda url, *arguments: kcard("ask", *arguments, *DIRECT, url)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def questions(path: Path, count: int) -> Path:
    path.write_text("".join(json.dumps({"question": f"q{i}"}) + "\n" for i in range(count)), "utf-8")
    return path


def test_a_streamed_answer_is_printed_once_and_its_cost_below(ask: Ask, serve: Callable[..., Any]) -> None:
    server = serve({"pieces": ["Ron", " Wyden"], "usage": [31, 4]})
    done = ask(server.url, "Who won?", "--stream", "--trace")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == "Ron Wyden"
    assert done.out.count("Wyden") == 1
    assert "m · no cards used (gate: never) · mode: direct · 1 LLM call · 31 + 4 tokens" in done.out
    done = ask(serve({"text": "Ron Wyden"}).url, "Who", "won?", "--no-stream")
    assert re.fullmatch(r"Ron Wyden\nm · no cards used · \d+\.\d\d s\n", done.out)


@pytest.mark.parametrize("script", [{"pieces": ["Ron\x1b]0;", "owned\x07"]}, {"text": "Ron\x1b]0;owned\x07"}])
def test_an_answer_does_not_reach_the_terminal(
    ask: Ask, serve: Callable[..., Any], script: dict[str, Any]
) -> None:
    done = ask(serve(script).url, "Who won?", "--stream" if "pieces" in script else "--no-stream")
    assert done.code == 0, done.err
    assert "Ron\\x1b]0;owned" in done.out
    assert not set("\x1b\x07") & set(done.out + done.err)


def test_where_stdout_is_no_terminal_nothing_is_streamed(ask: Ask, serve: Callable[..., Any]) -> None:
    server = serve({"text": "Ron Wyden", "usage": [31, 4]})
    done = ask(server.url, "Who won?", "--json")
    answer = json.loads(done.out)
    assert answer["usage"]["tokens_in"] == 31
    assert "stream" not in server.requests[0]["body"]


@pytest.mark.parametrize(
    ("options", "temperature"),
    [((), 0.1), (("--preset", "skr"), 0.0), (("--preset", "skr", "--temperature", "0.1"), 0.1)],
)
def test_a_preset_takes_the_place_of_defaults_and_of_nothing_that_was_typed(
    ask: Ask, serve: Callable[..., Any], options: tuple[str, ...], temperature: float
) -> None:
    server = serve({"text": "Ron Wyden"})
    assert ask(server.url, "Who won?", *options).code == 0
    assert server.requests[0]["body"]["temperature"] == temperature


def test_a_stream_that_breaks_off_is_one_line_of_error(ask: Ask, serve: Callable[..., Any]) -> None:
    done = ask(serve({"pieces": ["Ron", " Wyden"], "cut": 1}).url, "Who won?", "--stream")
    assert done.code == 1
    assert done.out == "Ron\n"
    (error,) = (line for line in done.err.splitlines() if line.startswith("kcard: "))
    assert "broke off" in error


def test_resume_asks_what_is_missing_or_failed_and_adds_up_the_cost(
    ask: Ask, serve: Callable[..., Any], tmp_path: Path
) -> None:
    source, target = questions(tmp_path / "in.jsonl", 3), tmp_path / "out.jsonl"
    earlier = [{"question": "q0", "error": "down"}, {"question": "q1", "answer": "one", "calls": 1}]
    target.write_text("".join(json.dumps(line) + "\n" for line in earlier) + '{"quest', "utf-8")
    server = serve({"text": "new", "usage": [5, 1]})
    files = ["--input", str(source), "--output", str(target)]
    refused = ask(server.url, *files)
    assert refused.code == 2
    assert "--resume" in refused.err
    done = ask(server.url, *files, "--resume")
    assert done.code == 0, done.err
    assert [row["answer"] for row in rows(target)] == ["new", "one", "new"]
    assert "3 of 3 questions answered" in done.err
    assert "2 LLM calls, 10 + 2 tokens" in done.err
    assert done.out == ""


def test_ctrl_c_does_not_wait_for_requests_in_flight(serve: Callable[..., Any], tmp_path: Path) -> None:
    source, target = questions(tmp_path / "in.jsonl", 8), tmp_path / "out.jsonl"
    server = serve({"text": "slow", "delay": 30})
    files = ["--input", str(source), "--output", str(target), "--concurrency", "3"]
    command = [sys.executable, "-m", "kcard", "ask", *files, *DIRECT, server.url]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(server.requests) < 3:
        assert time.monotonic() < deadline, "three requests were not in flight"
        time.sleep(0.05)
    pressed = time.monotonic()
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=60)[1]
    assert time.monotonic() - pressed < 15
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert len(server.requests) == 3


def test_options_are_chosen_from_by_letter_and_by_text(ask: Ask, serve: Callable[..., Any]) -> None:
    server = serve({"text": "The answer is (B)."})
    for choices in (
        ["--choices", "Ann; Ben"],
        ["--choices", "A=Ann;B=Ben"],
        ["--choices", "Ann", "--choices", "Ben"],
    ):
        answer = json.loads(ask(server.url, "Who won?", *choices, "--json").out)
        assert (answer["choice"], answer["answer"]) == ("B", "Ben")
    assert (
        server.requests[0]["body"]["messages"][-1]["content"] == "Question: Who won?\nA. Ann\nB. Ben\nAnswer:"
    )
    shown = ask(server.url, "Who won?", "--choices", "Ann; Ben").out
    assert shown.splitlines()[0] == "B. Ben"
    assert "letter 'A'" in ask(server.url, "Who won?", "--choices", "A=Ann; A=Ben").err


def test_rows_with_options_are_chosen_from_and_a_bad_row_is_named(
    ask: Ask, serve: Callable[..., Any], tmp_path: Path
) -> None:
    server, target = serve({"text": "B"}), tmp_path / "out.jsonl"
    source = tmp_path / "in.csv"
    source.write_text(
        'question,choices\nWho?,"Ann; Ben"\nWho?,"[""Cal"", ""Dan""]"\nWho?,\nWho?,Ann\n', encoding="utf-8"
    )
    done = ask(server.url, "--input", str(source), "--output", str(target))
    answers = rows(target)
    assert [(row.get("choice"), row.get("answer")) for row in answers] == [
        ("B", "Ben"),
        ("B", "Dan"),
        (None, "B"),
        (None, None),
    ]
    assert "one option, 'A'" in answers[3]["error"]
    assert "3 of 4 questions answered" in done.err


def test_a_long_question_is_cut_to_the_window_and_the_cut_is_told(
    ask: Ask,
    serve: Callable[..., Any],
) -> None:
    server = serve({"text": "x"})
    question = "Why? " * 4_000
    done = ask(server.url, question, "--llm-window", "1024")
    assert done.code == 0, done.err
    assert len(server.requests[0]["body"]["messages"][-1]["content"]) < 3 * 1024
    assert "left out: the question after its first" in done.err
    refused = ask(server.url, question + "?")
    assert "the question has 20,001 characters: shorten it" in refused.err
    assert refused.code != 0
