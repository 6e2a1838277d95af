"""On a terminal, what is printed while a progress bar is drawn begins and ends its own line, and no bar stays."""

import re
from pathlib import Path

import pytest

from tests.terminal import BAR, Terminal, render

PRINTING = """
import sys, time
from kcard.cli.output import console, echo, note, print_json, progress, table
from kcard.events import Event, note as remark
with progress() as on_event:
    for done in range(4):
        on_event(Event("training", "loss 0.1", done, 4))
        time.sleep(0.15)  # the bar is drawn ten times a second
        if done == 1:
            on_event(remark("a remark"))
            note("a note")
        if done == 2:
            echo("a line of data")
            print_json({"a": 1})
    on_event(Event("index", "", 1, 2))
    on_event(remark("a remark below the second bar"))
    sys.exit(END)
"""
TEXTS = ["a remark", "a note", "a line of data", '{"a": 1}', "a remark below the second bar"]
TQDM = """
import time
from tqdm import tqdm
from kcard.cli.output import note
with tqdm(total=9, desc="model.safetensors") as bar:
    bar.update(3)
    note("the hub asks to wait")
    bar.update(6)
"""


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_text_that_is_printed_while_a_bar_is_drawn_has_lines_of_its_own(tmp_path: Path, term: str) -> None:
    with Terminal(tmp_path, "-c", PRINTING.replace("END", "0"), term=term) as terminal:
        assert terminal.finish() == 0
        assert [line for line in terminal.lines() if line] == TEXTS
        assert bool(BAR.search(terminal.transcript)) == (term == "xterm")
        assert ("loss 0.1" in terminal.transcript) == (term == "xterm")
    # It is drawn again below a note.
    after = terminal.transcript.partition("a note")[2]
    assert bool(BAR.search(after.partition("a line of data")[0])) == (term == "xterm")


def test_a_note_erases_the_bar_of_an_upload_too(tmp_path: Path) -> None:
    with Terminal(tmp_path, "-c", TQDM, term="xterm") as terminal:
        terminal.finish()
    shown = render(terminal.transcript)
    assert shown[0] == "the hub asks to wait"
    assert re.match(r"model\.safetensors: 100%\|", shown[1])


def test_an_error_starts_on_a_line_of_its_own(tmp_path: Path) -> None:
    code = PRINTING.replace("sys.exit(END)", "raise KeyboardInterrupt")
    with Terminal(tmp_path, "-c", code, term="xterm") as terminal:
        assert terminal.finish() != 0
        assert "Traceback (most recent call last):" in terminal.lines()


NOTES = "Triton was discovered by William Lassell in 1846.\n\nNereid was found by Gerard Kuiper in 1949.\n"
QUESTIONS = '{"question": "Who discovered Triton?", "answers": ["William Lassell"]}\n'


def test_commands_leave_their_lines_and_no_bars(tmp_path: Path) -> None:
    """A card is trained, published, compared and synced on a terminal: every line is a sentence or a row."""
    (tmp_path / "neptune").mkdir()
    (tmp_path / "neptune" / "neptune.txt").write_text(NOTES, encoding="utf-8")
    (tmp_path / "questions.jsonl").write_text(QUESTIONS, encoding="utf-8")
    commands = {
        "train --corpus neptune --description moons --kind retrieval --exam": r"next: .*`kcard publish neptune`",
        "publish neptune": r"^neptune@v1  \w{12}  ",
        "eval jsonl --path questions.jsonl --settings direct,top-down": r"^run 1$",
        "sync neptune --card neptune": r"^neptune: 0 added",
    }
    for command, shown in commands.items():
        with Terminal(tmp_path / "home", *command.split(), term="xterm", cwd=tmp_path) as terminal:
            assert terminal.finish(120) == 0, terminal.screen
            assert any(re.search(shown, line) for line in terminal.lines()), terminal.lines()
