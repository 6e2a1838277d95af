"""Ctrl-C, full disks, read-only homes, two at once: the real command in processes of its own, and what is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kcard.cards.card import Card
from kcard.hub.registry import Hub
from kcard.training.train import train
from tests.command import Done, Kcard
from tests.corpora import MOONS
from tests.disks import files_below, process_with_file_size_limit

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and limits")
SLOW = pytest.mark.slow
KCARD = (sys.executable, "-m", "kcard")


def ran(*arguments: str | Path, before: Sequence[str] = KCARD, **options: Any) -> Done:
    settings = {"capture_output": True, "text": True, "check": False, "stdin": subprocess.DEVNULL, **options}
    done = subprocess.run([*before, *map(str, arguments)], **settings)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def draft(corpus: Path) -> Card:
    return train(corpus, kind="retrieval")


# Ctrl-C


def folders(parent: Path) -> list[str]:
    """Return the names of the folders in a folder."""
    return [path.name for path in parent.iterdir() if path.is_dir()]


def interrupted(point: str, *arguments: str | Path) -> None:
    done = ran(point, *arguments, before=(sys.executable, "-m", "tests.cli.interrupted"))
    assert (done.code, done.error) == (130, "kcard: interrupted")


def pressed(ready: Callable[[], bool], *arguments: str | Path) -> Done:
    """Start the command, press Ctrl-C once it is ready for that, and wait for its end."""
    command = [*KCARD, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 240
        while not ready():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "it did not come so far"
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        return Done(process.returncode, out, err)


@pytest.mark.parametrize("point", ["replace kcard.json", pytest.param("rename .moons.replaced", marks=SLOW)])
def test_ctrl_c_while_a_card_is_written_leaves_the_one_before(corpus: Path, draft: Card, point: str) -> None:
    before = files_below(draft.folder)
    corpus.write_text(MOONS + "Deimos circles Mars.\n", encoding="utf-8")
    interrupted(point, "train", "--corpus", corpus, "--kind", "retrieval")
    assert files_below(Card.open(draft.folder).folder) == before
    assert folders(draft.folder.parent) == ["moons"]
    assert Card.open(train(corpus, kind="retrieval").folder).manifest.training.passages == 4


@SLOW
def test_ctrl_c_in_training_keeps_a_checkpoint_that_goes_on(corpus: Path, home: Path) -> None:
    facts = [f"The moon Moon{n} circles the planet Planet{n}, as Finder{n} saw." for n in range(120)]
    corpus.write_text("\n".join(facts) + "\n", encoding="utf-8")
    style = ("--prompt-style", "tokens", "--epochs", "200")
    arguments = ("train", "--corpus", corpus, "--base", "embedded", "--no-exam", *style)
    seen = home.parent / "notes"
    with seen.open("w") as notes:
        process = subprocess.Popen(
            [*KCARD, *map(str, arguments)], stdout=subprocess.PIPE, stderr=notes, text=True
        )
        while "training: " not in seen.read_text(encoding="utf-8"):
            assert process.poll() is None, seen.read_text(encoding="utf-8")
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    line = Done(130, out, seen.read_text(encoding="utf-8")).error
    assert "moons is an index (kind retrieval), usable now" in line
    assert "--resume" in line
    done = ran(*arguments, "--resume")
    assert done.code == 0, done.err
    assert "resuming after step" in done.err


@pytest.mark.parametrize("point", ["commit", pytest.param("insert", marks=SLOW)])
def test_ctrl_c_in_publishing_publishes_nothing(draft: Card, home: Path, point: str) -> None:
    interrupted(point, "publish", draft.folder)
    hub = Hub(home)
    assert hub.list() == []
    hub.publish(draft.folder)
    assert hub.verify() == []


def test_ctrl_c_in_an_exam_leaves_a_whole_card(draft: Card) -> None:
    interrupted("replace kcard.json", "exam", "moons", "--limit", "1")
    assert Card.open(draft.folder).manifest.name == "moons"


def test_ctrl_c_in_asking_says_so_in_a_word(serve: Callable[..., Any]) -> None:
    server = serve({"text": "late", "delay": 100})
    llm = ("--llm", "openai:m", "--llm-url", server.url, "--mode", "direct")
    done = pressed(lambda: len(server.requests) == 1, "ask", "Which planet?", *llm)
    assert (done.code, done.error) == (130, "kcard: interrupted")


def batch(source: Path, target: Path, url: str) -> tuple[str | Path, ...]:
    """Options of a file of questions for the endpoint at that URL."""
    llm = ("--llm", "openai:m", "--llm-url", url, "--mode", "direct", "--concurrency", "1")
    return (*llm, "--input", source, "--output", target)


def test_ctrl_c_in_a_batch_keeps_what_was_answered(
    tmp_path: Path, serve: Callable[..., Any], kcard: Kcard
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"question": "One?"}\n{"question": "Two?"}\n', encoding="utf-8")
    server = serve({"text": "one"}, {"text": "late", "delay": 100}, {"text": "two"})
    llm = batch(source, target, server.url)
    done = pressed(lambda: len(server.requests) == 2, "ask", *llm)
    assert done.code == 130
    assert "--resume" in done.err.splitlines()[-1]
    assert "Traceback" not in done.err
    assert [row["answer"] for row in rows(target)] == ["one"]
    resumed = kcard("ask", *llm, "--resume")
    assert resumed.code == 0, resumed.err
    assert [row["answer"] for row in rows(target)] == ["one", "two"]


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# Disks


def test_no_room_for_a_card_is_one_line_and_leaves_the_card_before(corpus: Path, draft: Card) -> None:
    before = files_below(draft.folder)
    corpus.write_text(
        MOONS + "".join(f"Moon {n} circles planet {n}.\n" for n in range(200)), encoding="utf-8"
    )
    assert ran("train", "--corpus", corpus, "--kind", "retrieval", **process_with_file_size_limit(2000)).error
    assert files_below(Card.open(draft.folder).folder) == before
    assert folders(draft.folder.parent) == ["moons"]


@pytest.mark.parametrize("size", [pytest.param(100, marks=SLOW), 20_000])
def test_no_room_in_the_hub_is_one_line_and_publishes_nothing(draft: Card, home: Path, size: int) -> None:
    assert ran("publish", draft.folder, **process_with_file_size_limit(size)).error
    hub = Hub(home)
    assert hub.list() == []
    hub.publish(draft.folder)
    assert hub.verify() == []


def test_no_room_for_answers_is_one_line_and_keeps_whole_lines(
    tmp_path: Path, serve: Callable[..., Any], kcard: Kcard
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(
        "".join(json.dumps({"question": f"Question {n}?"}) + "\n" for n in range(4)), encoding="utf-8"
    )
    server = serve({"text": "an answer"})
    llm = batch(source, target, server.url)
    assert ran("ask", *llm, **process_with_file_size_limit(500)).error
    resumed = kcard("ask", *llm, "--resume")
    assert resumed.code == 0, resumed.err
    assert [row["question"] for row in rows(target)] == [f"Question {n}?" for n in range(4)]
    assert {row["answer"] for row in rows(target)} == {"an answer"}


@pytest.fixture
def powerless() -> Sequence[str]:
    """How a command runs so that permissions hold for it, for root too."""
    if os.geteuid() != 0:
        return KCARD
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere")
    return ("setpriv", "--bounding-set=-all", "--inh-caps=-all", *KCARD)


def without_wal(home: Path) -> dict[str, bytes]:
    """Its files but for those that SQLite has beside an open database."""
    return {
        path: content for path, content in files_below(home).items() if not path.endswith(("-wal", "-shm"))
    }


def test_a_read_only_home_is_named_and_left_as_it_is(
    corpus: Path, draft: Card, home: Path, powerless: Sequence[str]
) -> None:
    Hub(home).publish(draft.folder)
    folders = [home, *(path for path in home.rglob("*") if path.is_dir())]
    before = without_wal(home)
    for folder in folders:
        folder.chmod(0o555)
    try:
        for command in (
            ("train", "--corpus", corpus, "--kind", "retrieval"),
            ("publish", draft.folder),
        ):
            assert str(home) in ran(*command, before=powerless).error
        done = ran("cards", "list", before=powerless)
        assert done.code == 0 or str(home) in done.error
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert without_wal(home) == before
    assert Hub(home).verify() == []


# Two at once


def test_a_draft_that_three_write_at_once_is_one_whole_card(corpus: Path, home: Path) -> None:
    command = (*KCARD, "train", "--corpus", str(corpus), "--kind", "retrieval")
    training = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in training:
        _, err = process.communicate(timeout=280)
        assert process.returncode == 0, err
    # Whether one is kept beside it (.moons.earlier) depends on which began before another had ended.
    drafts = folders(home / "drafts")
    assert [name for name in drafts if not name.startswith(".")] == ["moons"]
    assert {Card.open(home / "drafts" / name).name for name in drafts} == {"moons"}
