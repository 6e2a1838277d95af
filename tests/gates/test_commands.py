"""kcard gate, kcard calibrate and ask --gate as a user meets them; cards that an LLM writes."""

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

from kcard.api import add as adding
from kcard.api import gates as gating
from kcard.api.collect import Collection, collect
from kcard.cards.card import finish
from kcard.errors import UsageError
from kcard.gates.records import Record, read_records, write_records
from kcard.hub.registry import Hub
from kcard.integrators.pipeline import Pipeline
from kcard.manifest import Manifest
from kcard.types import Reply, Request, Source
from tests.command import Kcard
from tests.fakes import Replies

ANSWERS = {"Which planet does Io circle?": "Jupiter", "Which planet does Titan circle?": "Saturn"}


def knowing(request: Request) -> Reply:
    """Io's planet is known; otherwise the knowledge is repeated."""
    if request.kind == "document":
        return Reply(f"The LLM's own text on {request.question.rstrip('?')}.")
    if "Io" in request.question and not request.knowledge:
        return Reply("Jupiter")
    return Reply(" ".join(request.knowledge) or "I don't know.")


@pytest.fixture
def titan(home: Path) -> Hub:
    """A hub with a card on Titan that only looks up."""
    folder = home / "drafts" / "titan"
    folder.mkdir(parents=True)
    finish(folder, Manifest("titan", "Titan", kind="retrieval"), [Source("Titan circles the planet Saturn.")])
    hub = Hub()
    hub.publish(folder)
    return hub


def asked(path: Path, **more: Any) -> Path:
    rows = [{"question": q, "answer": a, **more} for q, a in ANSWERS.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def untimed(lines: str) -> str:
    return re.sub(r'("seconds_with(out)?": )[0-9.e-]+', r"\1", lines)


def test_collecting_answers_both_ways_and_carries_over_what_the_file_tells(
    titan: Hub, tmp_path: Path
) -> None:
    source = asked(tmp_path / "q.jsonl", s_pop=7, prop="planet", label="moon")
    totals = collect(source, tmp_path / "r.jsonl", llm=Replies(knowing), mode="bottom-up", hub=titan)
    io, other = read_records(tmp_path / "r.jsonl")
    assert (io.correct_without, io.correct_with) == (1, 0)
    assert (other.correct_without, other.correct_with) == (0, 1)
    assert (io.relation, io.popularity, io.label, io.answers) == ("planet", 7.0, "moon", ("Jupiter",))
    assert io.answer_without == "Jupiter"
    assert io.scores["em_without"] == 1
    assert (io.scores["calls_without"], io.scores["calls_with"], other.scores["recall@1"]) == (1, 1, 1)
    assert io.scores["seconds_with"] > 0
    assert totals.calls == 4


def choosing(request: Request) -> Reply:
    """Option B is taken without knowledge, the option that the knowledge names with it."""
    read = " ".join(request.knowledge)
    return Reply(next((choice.name for choice in request.choices if choice.description in read), "B"))


def test_data_sets_are_collected_as_they_come_with_their_options_and_demonstrations(
    titan: Hub, tmp_path: Path
) -> None:
    rows = [
        {"question": f"What does Titan circle{end}?\nA. Saturn B. Jupiter", "answer": "A", "id": n}
        for n, end in enumerate(["", " in space"])
    ]
    demos = [{"question": "What does Io circle?\nA. Saturn B. Jupiter", "answer": "B", "id": 9}]
    data = {"dataset": "MidtermQA-binary", "demos": demos, "testset": rows}
    (tmp_path / "binary.json").write_text(json.dumps(data))
    llm = Replies(choosing)
    collect(tmp_path / "binary.json", tmp_path / "r.jsonl", llm=llm, mode="bottom-up", hub=titan)
    for record in read_records(tmp_path / "r.jsonl"):
        assert (record.correct_without, record.correct_with) == (0, 1)
        assert (record.answer_without, record.answer_with, record.answers) == ("B", "A", ("A",))
        assert record.scores["accuracy_with"] == record.scores["recall@1"] == 1
    shown = [
        example.question
        for request in llm.requests
        for example in request.examples
        if request.kind == example.kind == "answer"
    ]
    assert shown == ["What does Io circle?"] * 4
    (line, _) = (tmp_path / "r.jsonl").read_text().splitlines()
    assert (json.loads(line)["metric"], json.loads(line)["choices"]) == (
        "accuracy",
        {"A": "Saturn", "B": "Jupiter"},
    )


def test_questions_of_a_task_that_read_the_same_are_asked_once(titan: Hub, tmp_path: Path) -> None:
    rows = [
        {"input": "What genre is Io?", "output": json.dumps([genre]), "s_pop": 5, "id": n}
        for n, genre in enumerate(["opera", "novel"])
    ]
    (tmp_path / "popqa.json").write_text(json.dumps(rows))
    collect(tmp_path / "popqa.json", tmp_path / "r.jsonl", task="popqa", llm=Replies(knowing), hub=titan)
    (record,) = read_records(tmp_path / "r.jsonl")
    assert (record.answers, record.relation, record.popularity) == (("opera", "novel"), "genre", 5.0)


def test_resuming_asks_only_what_is_missing_and_another_metric_is_refused(titan: Hub, tmp_path: Path) -> None:
    source, target = asked(tmp_path / "q.jsonl"), tmp_path / "r.jsonl"
    collect(source, target, llm=Replies(knowing), mode="bottom-up", hub=titan)
    whole = target.read_text(encoding="utf-8")
    target.write_text(whole.splitlines(keepends=True)[0] + '{"quest', encoding="utf-8")
    llm = Replies(knowing)
    run = Collection(source, target, llm=llm, mode="bottom-up", hub=titan, resume=True)
    assert run.done == 1
    run.run()
    assert untimed(target.read_text(encoding="utf-8")) == untimed(whole)
    assert {request.question for request in llm.requests} == {"Which planet does Titan circle?"}
    with pytest.raises(UsageError, match="the input, which has changed"):
        Collection(source, target, llm=llm, hub=titan, resume=True, metric="em")


def test_collecting_refuses_what_would_make_no_records(titan: Hub, tmp_path: Path) -> None:
    source = asked(tmp_path / "q.jsonl")
    for options, message in (
        ({"mode": "direct"}, "leave out mode direct"),
        ({"metric": "bleu"}, "metric 'bleu'"),
    ):
        with pytest.raises(UsageError, match=message):
            Collection(source, tmp_path / "r.jsonl", llm=Replies(knowing), hub=titan, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is the questions file"):
        Collection(source, source, llm=Replies(knowing), hub=titan)
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.usefixtures("titan")
def test_ctrl_c_while_collecting_keeps_what_is_there(serve: Callable[..., Any], tmp_path: Path) -> None:
    source, target = asked(tmp_path / "q.jsonl"), tmp_path / "r.jsonl"
    server = serve({"text": "a"}, {"text": "b"}, {"text": "late", "delay": 60})
    options = ["--mode", "bottom-up", "--llm", "openai:m", "--llm-url", server.url, "--concurrency", "1"]
    command = [sys.executable, "-m", "kcard", "gate", "collect"]
    run = [*command, "--questions", str(source), "--output", str(target), *options]
    process = subprocess.Popen(run, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not target.exists() or not target.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline, "nothing was collected"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "repeat the command with --resume to continue" in printed
    assert len(read_records(target)) == 1


@pytest.mark.parametrize("mode", ["bottom-up", "top-down", "hybrid"])
def test_a_fitted_gate_decides_in_every_mode_by_its_own_threshold(titan: Hub, mode: Any) -> None:
    records = [Record(q, float("Io" in q), float("Titan" in q)) for q in ANSWERS]
    fitted, path = gating.fit([*records, *records], "skr-knn", settings={"k": 1})
    found = Pipeline(gate=str(path), mode=mode, llm=Replies(knowing), hub=titan)(list(ANSWERS))
    assert [answer.gate.fired for answer in found] == [False, True]
    assert {answer.gate.name for answer in found} == {"skr-knn"}
    assert fitted.threshold == 0.5
    assert [answer.cards for answer in found] == [(), ("titan",)]


def test_an_llm_writes_as_a_card_and_is_counted(titan: Hub) -> None:
    adding.add("llm:self", description="What the LLM knows", name="own", hub=titan)
    llm = Replies(knowing)
    (answer,) = Pipeline(gate="always", mode="bottom-up", cards=["own"], llm=llm, hub=titan)(
        ["Which planet does Titan circle?"]
    )
    assert [r.kind for r in llm.requests] == ["document", "answer"]
    assert answer.calls == 2
    assert [p.text for p in answer.passages] == ["The LLM's own text on Which planet does Titan circle."]


def test_a_card_does_not_choose_a_remote_llm_for_its_user(titan: Hub) -> None:
    adding.add("llm:openai:far", description="What a far LLM knows", hub=titan)
    (answer,) = Pipeline(gate="always", mode="bottom-up", llm=Replies(knowing), hub=titan)(
        ["Which planet has Titan?"]
    )
    assert answer.cards == ("titan",)
    assert "left out: far@v1" in " ".join(answer.notes)
    pipeline = Pipeline(gate="always", mode="bottom-up", cards=["far"], llm=Replies(knowing), hub=titan)
    with pytest.raises(UsageError, match=r"'openai:far', which would send questions to a remote service"):
        pipeline(["q?"])


@pytest.mark.parametrize("source", ["llm:", "llm:self:x", "llm:openai", "llm:embedded:x", "llm:bogus:x"])
def test_an_llm_that_can_not_be_named_is_refused(source: str) -> None:
    with pytest.raises(UsageError):
        adding.add(source, description="x")


@pytest.mark.slow
def test_calibrating_at_the_command_line_writes_the_config_unless_dry(
    kcard: Kcard, home: Path, tmp_path: Path
) -> None:
    records = [
        Record(f"{'who wrote' if i % 2 else 'where is'} thing{i}?", i % 2, 1 - i % 2) for i in range(60)
    ]
    write_records(tmp_path / "r.jsonl", records)
    options = ["--records", str(tmp_path / "r.jsonl"), "--gates", "skr-classifier,skr-knn", "--json"]
    dry = json.loads(kcard("calibrate", *options, "--dry-run").out)
    assert dry["recommendation"]["written"] is None
    assert not (home / "config.toml").exists()
    done = kcard("calibrate", *options)
    told = json.loads(done.out)["recommendation"]
    assert told["beats"]
    assert told["written"] in (home / "config.toml").read_text(encoding="utf-8")
    shown = kcard("config", "get", "ask.gate")
    assert shown.out.strip() == told["written"]
