"""Whatever goes wrong is one clear line on stderr and a non-zero exit code; nothing on stdout, nothing lost."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.command import Kcard, kcard_process

# Runs a command that must fail with this exit code; its one line of error.
Refused: TypeAlias = Callable[..., str]


@pytest.fixture
def refused(kcard: Kcard) -> Refused:
    def run(code: int, *arguments: str) -> str:
        done = kcard(*arguments)
        assert done.code == code, done.err
        return done.error

    return run


def test_a_failing_process_ends_with_the_code_and_the_line() -> None:
    done = kcard_process("show", "moons")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("kcard: ")
    assert len(done.stderr.splitlines()) == 1


# A thread that ends only after the command, when Python waits for it, and presses Ctrl-C then.
LEAVING = """
import os, signal, sys, threading, time
from kcard.cli.main import run

def press():
    threading.main_thread().join()
    time.sleep(0.3)  # until it waits: a signal just before would wake nobody
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(60)

threading.Thread(target=press).start()
sys.argv = ["kcard", "--version"]
run()
"""


def test_ctrl_c_while_a_command_is_leaving_is_silent() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


# A command in which Ctrl-C is pressed while a class is made by exec.
MAKING = """
import runpy
import kcard.cli.main

def app():
    exec("raise KeyboardInterrupt")

kcard.cli.main.app = app
runpy.run_module("kcard", run_name="__main__")
"""


def test_ctrl_c_within_an_exec_ends_python_m_with_the_same_code(tmp_path: Path) -> None:
    (tmp_path / "making.py").write_text(MAKING, encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "making"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "kcard: interrupted\n")


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("ray", "the package ray is not installed: pip install 'kcard[ray]'"),
        ("google.protobuf", "the package protobuf is not installed: pip install 'kcard[selectors]'"),
        ("httptools", "the package httptools is not installed: pip install kcard"),
        (
            "nowhere.to_be",
            "the module nowhere is not installed: pip install kcard, or the plugin that needs it",
        ),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, module: str, line: str, wrapped: bool
) -> None:
    def fail() -> None:
        missing = ModuleNotFoundError(f"No module named {module!r}", name=module)
        if wrapped:
            raise RuntimeError("Failed to import transformers.models.x") from missing
        raise missing

    monkeypatch.setattr("kcard.cli.main.app", fail)
    assert refused(1, "ask", "q") == f"kcard: {line}"


def test_a_package_that_another_library_asks_for_in_words_is_named_too(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ImportError("PegasusTokenizer requires the SentencePiece library but it was not found.")

    monkeypatch.setattr("kcard.cli.main.app", fail)
    monkeypatch.setattr("kcard.system.has_package", lambda _name: False)
    line = "the package sentencepiece is not installed: pip install 'kcard[selectors]'"
    assert refused(1, "ask", "q") == f"kcard: {line}"


def test_a_module_that_an_installed_package_lacks_is_not_called_missing(
    kcard: Kcard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'json.xml'", name="json.xml")

    monkeypatch.setattr("kcard.cli.main.app", fail)
    assert "a bug in kcard, ModuleNotFoundError" in kcard("ask", "q").err


def test_a_missing_corpus_is_named(refused: Refused, tmp_path: Path) -> None:
    assert "nowhere" in refused(1, "train", "--corpus", str(tmp_path / "nowhere"))


def test_an_empty_corpus_is_named_and_leaves_no_draft(refused: Refused, tmp_path: Path, home: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n", encoding="utf-8")
    assert "empty.txt" in refused(1, "train", "--corpus", str(tmp_path / "empty.txt"))
    assert not list(home.glob("drafts/*"))


def test_training_without_a_corpus_says_what_is_missing(refused: Refused) -> None:
    assert "--corpus" in refused(2, "train")


def test_an_adapter_wider_than_the_embedded_base_is_refused(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("Triton circles Neptune.\nTitan circles Saturn.\n", encoding="utf-8")
    arguments = ("--base", "embedded", "--method", "lora", "--rank", "129")
    assert "128 at most" in refused(2, "train", "--corpus", str(tmp_path / "c.txt"), *arguments)


def test_asking_an_empty_hub_says_how_to_fill_it(refused: Refused) -> None:
    message = refused(1, "ask", "Who discovered Triton?")
    assert "kcard train" in message
    assert "kcard publish" in message


def test_publishing_without_a_draft_says_so(refused: Refused) -> None:
    assert "train" in refused(1, "publish")


@pytest.mark.parametrize(
    "command", [["show", "moons"], ["ask", "q", "--cards", "moons"], ["pull", "moons", "x"]]
)
def test_an_unknown_card_is_named(refused: Refused, command: list[str]) -> None:
    refused(1, *command)


def test_an_endpoint_that_is_down_is_named(refused: Refused) -> None:
    url = "http://127.0.0.1:9/v1"
    message = refused(
        1, "ask", "q", "--mode", "direct", "--llm", "openai:any", "--llm-url", url, "--retries", "0"
    )
    assert url in message


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["ask"], "question"),
        (["ask", "  "], "empty"),
        (["ask", "q", "--gate", "oracle"], "oracle"),
        (["ask", "q", "--llm", "telepathy"], "telepathy"),
        (["ask", "q", "--llm", "openai"], "openai:MODEL"),
        (["ask", "q", "--n1", "0"], "n1"),
        (["ask", "q", "--device", "warp"], "warp"),
        (["ask", "q", "--mode", "direct", "--input", "x"], "--input"),
        (["ask", "--input", "nowhere.jsonl", "--output", "x"], "nowhere.jsonl"),
        (["ask", "--input", "x.jsonl", "--output", "./x.jsonl"], "x.jsonl"),
        (["ask", "q", "--examples", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_a_wrong_argument_is_named(refused: Refused, arguments: list[str], named: str) -> None:
    assert named in refused(2, *arguments)


def test_an_unknown_option_or_choice_is_a_usage_error(kcard: Kcard) -> None:
    for arguments in (["ask", "q", "--moed", "direct"], ["ask", "q", "--mode", "sideways"], ["fly"]):
        done = kcard(*arguments)
        assert done.code == 2
        assert "Traceback" not in done.err
    assert "'--mode': 'sideways' is not one of 'top-down'" in kcard("ask", "q", "--mode", "sideways").err


def test_a_config_file_that_is_no_toml_is_named(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "broken.toml"
    config.write_text("llm = ", encoding="utf-8")
    monkeypatch.setenv("KCARD_CONFIG", str(config))
    assert "broken.toml" in refused(2, "ask", "q", "--mode", "direct")


def test_an_api_key_in_the_environment_is_not_a_choice_of_llm(
    kcard: Kcard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-anything")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    done = kcard("ask", "What is the capital of France?", "--mode", "direct", "--json")
    assert done.code == 0, done.err
    assert "embedded" in done.err
