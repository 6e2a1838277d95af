"""kcard log: what ask and chat answered is there to read again, for its owner alone, and never in the way."""

import io
import json
import os
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from kcard.errors import QuestionLogError
from kcard.question_log import QuestionLog, log_answer
from kcard.types import Answer, Citation, Decision, Passage, Source
from tests.command import Kcard
from tests.disks import file_size_limit

NEVER = Decision("never", 1.0, fired=False)
CAPITAL = ("ask", "What is the capital of France?", "--mode", "direct")


def answered(question: str, answer: str) -> Answer:
    """An answer that cites a passage."""
    text = "Triton was discovered by William Lassell in 1846."
    passage = Passage("neptune", text, kept=True, source=Source(text, "moons.md", 3))
    citation = Citation(answer, 0, 0.9, text, 3)
    return Answer(question, answer, "top-down", NEVER, passages=(passage,), citations=(citation,))


def test_ask_and_chat_are_logged_with_their_sources(
    kcard: Kcard, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kcard(*CAPITAL).out.startswith("Paris\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("What is the capital of Italy?\n"))
    assert kcard("chat", "--mode", "direct").out.startswith("Rome\n")
    QuestionLog().add(answered("Who discovered Triton?", "William Lassell"), "local:x", "ask")
    rows = json.loads(kcard("log", "--json").out)
    assert [(row["number"], row["command"], row["llm"], row["answer"]) for row in rows] == [
        (3, "ask", "local:x", "William Lassell"),
        (2, "chat", "embedded", "Rome"),
        (1, "ask", "embedded", "Paris"),
    ]
    assert rows[0]["sources"] == [
        {
            "quote": "Triton was discovered by William Lassell in 1846.",
            "from": ["neptune (retrieval, support 0.90)", "moons.md:3"],
            "claim": "",
            "verdict": "supported",
        }
    ]
    shown = kcard("log", "show", "3").out
    assert "Who discovered Triton?\n\nWilliam Lassell\n" in shown
    assert '"Triton was discovered by William Lassell in 1846." <- neptune' in shown
    assert json.loads(kcard("log", "show", "3", "--json").out) == rows[0]
    listed = kcard("log", "--limit", "1").out
    assert "William Lassell" in listed
    assert "Paris" not in listed
    assert "the log has no question 9" in kcard("log", "show", "9").error
    assert (home / "log.sqlite").stat().st_mode & 0o777 == 0o600


def test_every_word_is_searched_in_questions_and_answers_in_any_case(kcard: Kcard) -> None:
    log = QuestionLog()
    log.add(answered("Wer gründete das Museum?", "In langer Arbeit tat das TOBIAS Renk, 1958."), "x", "ask")
    log.add(answered("Who discovered it?", "Lassell"), "x", "chat")
    assert "TOBIAS" in kcard("log", "search", "GRÜNDETE", "tobias").out
    assert "no question and no answer" in kcard("log", "search", "tobias", "lassell").err
    assert [one.number for one in log.search(["%"], 9)] == [], "a sign of SQL is a sign like any other"
    log.add(answered("Who discovered Triton?", "Lassell"), "x", "chat", typed="Who discovered it?")
    assert [one.number for one in log.search(["discovered it"], 9)] == [3, 2]
    assert "typed as: Who discovered it?" in kcard("log", "show", "3").out


def test_batches_and_what_is_asked_while_the_log_is_off_are_not_logged(
    kcard: Kcard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "What is the capital of France?"}\n', encoding="utf-8")
    batch = ("ask", "--input", questions, "--output", tmp_path / "answers.jsonl", "--mode", "direct")
    assert kcard(*batch).code == 0
    assert "the log is empty: " in kcard("log").err
    assert kcard("log", "off").code == 0
    kcard(*CAPITAL)
    assert "`kcard log on`" in kcard("log").err
    kcard("log", "on")
    monkeypatch.setenv("KCARD_LOG", "off")
    kcard(*CAPITAL)
    assert len(QuestionLog()) == 0
    monkeypatch.delenv("KCARD_LOG")
    kcard(*CAPITAL)
    assert "the log keeps 1 question: " in kcard("log", "off").err


def test_a_project_can_not_switch_the_log_on(
    kcard: Kcard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kcard.toml").write_text("log = true\n", encoding="utf-8")
    assert "log can't be set in a project file" in kcard("log").error


def test_the_log_is_cleared_after_a_confirmation_alone(kcard: Kcard, home: Path) -> None:
    assert kcard("log", "clear").err == "there is no log\n"
    kcard(*CAPITAL)
    assert "add --yes" in kcard("log", "clear").error
    assert len(QuestionLog()) == 1
    assert kcard("log", "clear", "--yes").code == 0
    assert not (home / "log.sqlite").exists()


def test_several_processes_write_at_the_same_time() -> None:
    def write(name: str) -> None:
        for _ in range(10):
            QuestionLog().add(answered(name, "x"), "x", "ask")

    writers = [threading.Thread(target=write, args=(str(number),)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [one.number for one in QuestionLog().last(100)] == [*range(40, 0, -1)]


def test_a_log_that_can_not_be_written_costs_a_note_and_no_answer(
    kcard: Kcard, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "log.sqlite").mkdir(parents=True)
    done = kcard(*CAPITAL)
    assert done.code == 0
    assert done.out.startswith("Paris\n")
    assert done.err.count("note: not logged, since the log ") == 1
    assert "KCARD_LOG=off" in done.err
    monkeypatch.setattr(
        sys, "stdin", io.StringIO("What is the capital of Italy?\nWhat is the capital of Spain?\n")
    )
    done = kcard("chat", "--mode", "direct")
    assert "Madrid" in done.out
    assert done.err.count("not logged") == 1, "a chat says so once"
    # A home that is no folder, as on a disk that can't be written to.
    (tmp_path / "file").touch()
    monkeypatch.setenv("KCARD_HOME", str(tmp_path / "file"))
    assert "not logged" in log_answer(answered("Who?", "He."), None, "ask")


def test_a_full_disk_costs_a_note_and_what_was_logged_stays() -> None:
    QuestionLog().add(answered("Who?", "He."), "x", "ask")
    size = QuestionLog().path.stat().st_size
    with file_size_limit(size):
        problem = log_answer(answered("Who?", "He. " * 10_000), "x", "ask")
    assert "not logged" in problem
    assert [one.answer for one in QuestionLog().last(9)] == ["He."]


def test_a_damaged_log_and_one_of_a_newer_version_are_named(kcard: Kcard, home: Path) -> None:
    home.mkdir()
    (home / "log.sqlite").write_bytes(os.urandom(5000))
    message = "log.sqlite can't be used: file is not a database; `kcard log clear` deletes it"
    assert message in kcard("log").error
    assert "not logged" in kcard(*CAPITAL).err
    kcard("log", "clear", "--yes")
    kcard(*CAPITAL)
    changes = {
        "UPDATE questions SET sources = '[1]'": "is damaged",
        "PRAGMA user_version = 9": "written by a newer version of kcard",
    }
    for change, message in changes.items():
        with closing(sqlite3.connect(home / "log.sqlite")) as file, file:
            file.execute(change)
        assert message in kcard("log").error
    with pytest.raises(QuestionLogError):
        QuestionLog().add(answered("Who?", "He."), "x", "ask")


def test_text_that_is_no_text_and_signs_that_a_terminal_obeys_are_harmless(kcard: Kcard) -> None:
    QuestionLog().add(answered("Who?", "He\x1b[31m \ud800."), "x", "ask")
    for arguments in ((), ("show", "1"), ("--json",)):
        done = kcard("log", *arguments)
        assert done.code == 0
        assert "\x1b" not in done.out
