"""An evaluation compares settings on the same questions, survives kills and flaky endpoints, and can be repeated."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import eval_result_entries_to_yaml, parse_eval_result_entries

import kcard
import kcard as package
from kcard.api.eval_plan import prepare
from kcard.api.evaluate import rerun, resume
from kcard.cards.card import Card
from kcard.errors import UsageError
from kcard.evaluation.runs.run import RunStorage
from kcard.gates.records import Record, write_records
from kcard.hub.registry import Hub
from tests.command import Kcard
from tests.fakes import without_times
from tests.tiny_models import empty_cache

RACES = {"Oregon": "Ana Ruiz", "Texas": "Bo Lund", "Utah": "Cy Pratt", "Ohio": "Di Moss", "Iowa": "Ed Voss"}


@pytest.fixture
def races(tmp_path: Path) -> Path:
    """A task in MidtermQA's layout."""
    rows = [
        {"id": n, "question": f"Who won the senate race of {state}?", "answer": winner}
        for n, (state, winner) in enumerate(RACES.items())
    ]
    file = tmp_path / "races.json"
    data = {"dataset": "MidtermQA-openbook", "demos": rows[:1], "testset": rows[1:]}
    file.write_text(json.dumps(data), encoding="utf-8")
    return file


@pytest.fixture
def draft(tmp_path: Path) -> Card:
    """A card that knows the winners."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    text = "\n\n".join(f"{winner} won the senate race of {state}." for state, winner in RACES.items())
    (corpus / "races.txt").write_text(text, encoding="utf-8")
    return kcard.train(corpus, kind="retrieval", name="races", description="senate races", exam=False)


@pytest.fixture
def card(draft: Card) -> str:
    """The published card's reference."""
    reference: str = kcard.publish(draft).reference
    return reference


def results(number: int) -> list[Any]:
    """Those of a run, without times."""
    return [without_times(asdict(result)) for result in RunStorage(Hub().runs).results(number)]


def test_cards_beat_the_bare_llm_on_what_only_they_know(card: str, races: Path, kcard: Kcard) -> None:
    done = kcard("eval", "midterm", "--path", races, "--settings", "direct,top-down", "--json")
    assert done.code == 0, done.err
    direct, top_down = map(json.loads, done.out.splitlines())
    assert (direct["task"], direct["setting"], direct["n"]) == ("midterm-openbook", "direct", 4)
    assert top_down["setting"] == "top-down"
    assert direct["em"] < top_down["em"] == top_down["f1"] == 1.0
    assert direct["calls"] == top_down["calls"] == 4
    assert direct["seconds"] > 0
    assert direct["run"] == top_down["run"] == 1
    low, high = top_down["interval"]
    assert low < 1.0 <= high
    assert 0 < top_down["p"] <= top_down["p_holm"] <= 1
    run = RunStorage(Hub().runs).get(1)
    assert list(run.plan.cards) == [card]
    assert all(result["calls"] for result in results(1))


@pytest.mark.usefixtures("draft")
def test_a_run_with_a_draft_can_be_repeated_until_the_draft_changes(races: Path, kcard: Kcard) -> None:
    done = kcard(
        *("eval", "midterm", "--path", races, "--cards", "races"),
        *("--settings", "top-down,retrieval,bottom-up+cards=races", "--json"),
    )
    assert done.code == 0, done.err
    assert [json.loads(line)["em"] for line in done.out.splitlines()] == [1.0, 1.0, 1.0]
    assert list(RunStorage(Hub().runs).get(1).plan.cards) == ["draft:races"]
    assert kcard("eval", "--rerun", "1").code == 0
    package.train(races.parent / "corpus", kind="retrieval", name="races", description="other", exam=False)
    assert "card draft:races has changed since run 1" in kcard("eval", "--rerun", "1").error


def test_the_table_has_a_row_for_each_setting_and_the_run_can_be_shown_and_deleted(
    card: str, races: Path, kcard: Kcard
) -> None:
    done = kcard("eval", "midterm", "--path", races, "--settings", "direct,bottom-up", "--limit", "2")
    assert [line.split()[0] for line in done.out.splitlines()] == [
        "midterm-openbook,",
        "setting",
        "direct",
        "bottom-up",
    ]
    assert "run 1" in done.err
    row = kcard("runs").out.splitlines()[1].split()
    assert (row[0], row[-3:]) == ("1", ["4", "0", "4"])
    listed = kcard("runs", "--json")
    assert json.loads(listed.out)["answered"] == json.loads(listed.out)["planned"] == 4
    shown = kcard("runs", "show", "1").out
    assert shown.startswith(done.out)
    assert f"--cards {card}" in shown.splitlines()[-1]
    assert kcard("runs", "delete", "1").code == 0
    assert kcard("runs").out == ""
    assert kcard("runs", "show", "1").error.endswith("run 1 not found: `kcard runs` lists the runs")


@pytest.mark.usefixtures("card")
def test_a_run_can_be_repeated_and_gives_the_same_unless_its_file_has_changed(races: Path) -> None:
    first = kcard.evaluate("midterm", path=races, settings="top-down,genread", limit=2, seed=5)
    again = rerun(first.run.number)
    assert again.run.number != first.run.number
    assert results(again.run.number) == results(first.run.number)
    assert again.run.plan == first.run.plan
    races.write_text(races.read_text(encoding="utf-8").replace("Ana Ruiz", "Ann Other"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"has changed since run 1 .* restore the file, or start a new run"):
        resume(first.run.number)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
@pytest.mark.usefixtures("card")
def test_a_run_that_was_stopped_and_resumed_is_the_same_as_one_that_was_not(
    how: str, races: Path, serve: Callable[..., Any], kcard: Kcard
) -> None:
    reply = {"text": "Bo Lund", "usage": [9, 2]}
    # It is stopped while it waits for the fourth reply.
    served = serve(reply, reply, reply, reply | {"delay": 30}, reply)
    options = ["midterm", "--path", str(races), "--settings", "direct,bottom-up", "--llm", "openai:m"]
    command = ["eval", *options, "--llm-url", served.url, "--concurrency", "1"]
    program = [sys.executable, "-m", "kcard", *command]
    with subprocess.Popen(program, env=dict(os.environ), stderr=subprocess.PIPE, text=True) as process:
        storage = RunStorage(Hub().runs)
        deadline = time.monotonic() + 60
        while not storage.list() or storage.get(1).answered < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.Signals[how])
        _, noted = process.communicate(timeout=60)
    if how == "SIGINT":
        assert process.returncode == 130
        assert "continue with `kcard eval --resume 1`" in noted
    killed = storage.get(1)
    assert 3 <= killed.answered < killed.plan.planned
    assert kcard("eval", "--resume", "1").code == 0
    assert storage.get(1).complete
    assert kcard(*command).code == 0
    assert results(1) == results(2)


def test_a_flaky_endpoint_ends_with_every_question_accounted_for_and_resuming_asks_those_that_failed(
    races: Path, serve: Callable[..., Any], kcard: Kcard
) -> None:
    served = serve(
        {"status": 429},
        {"raw": "<html>what?</html>", "type": "text/html"},
        {"status": 500},
        {"raw": "{", "cut": 1},
        {"text": "Cy Pratt", "usage": [9, 2]},
    )
    options = ["--llm", "openai:m", "--llm-url", served.url, "--retries", "0"]
    done = kcard("eval", "midterm", "--path", races, "--settings", "direct", *options, "--json")
    assert done.code == 0
    row = json.loads(done.out)
    assert (row["n"], row["missing"]) == (4, 0)
    assert row["errors"] > 0
    assert f"{row['errors']} questions failed and count as wrong" in done.err
    failed = [result for result in results(1) if result["error"]]
    assert {result["scores"]["em"] for result in failed} == {0.0}
    assert all(call["error"] for result in failed for call in result["calls"])
    again = kcard("eval", "--resume", "1", "--json")
    row = json.loads(again.out)
    assert (row["n"], row["errors"], row["em"]) == (4, 0, 0.25)


def test_what_a_run_costs_is_counted_by_call_token_and_price(
    races: Path, serve: Callable[..., Any], kcard: Kcard
) -> None:
    served = serve({"text": "Cy Pratt", "usage": [1000, 100]})
    llm = ["--llm", "openai:m", "--llm-url", served.url, "--price-in", "2", "--price-out", "10"]
    done = kcard("eval", "midterm", "--path", races, "--settings", "direct", *llm, "--json")
    row = json.loads(done.out)
    assert (row["calls"], row["tokens_in"], row["tokens_out"]) == (4, 4000, 400)
    assert row["cost"] == pytest.approx(0.012)
    prompt = results(1)[0]["calls"][0]["prompt"]
    assert prompt.startswith("system: You are a helpful assistant.")
    assert prompt.endswith("\n\nQuestion: Who won the senate race of Texas?")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["midterm", "--settings", "direct"], "0 paths for midterm: give --path FILE for each task"),
        (["midterm", "--path", "RACES", "--settings", "bottom-out"], "unknown setting 'bottom-out'"),
        (["midterm", "--path", "RACES", "--settings", "direct@always"], "unknown setting 'direct@always'"),
        (["midterm", "--path", "RACES", "--settings", "direct,direct"], "setting 'direct' is named twice"),
        (["midterm", "--path", "RACES", "--settings", "bottom-up@thrust"], "must be fitted first"),
        (["midterm", "mmlu", "--path", "RACES"], "1 paths for midterm, mmlu"),
        (["midtern", "--path", "RACES", "--settings", "direct"], "unknown task 'midtern'"),
        (["midtern"], "unknown task 'midtern'"),
        (["--settings", "direct"], "no task: choose among"),
        (["--resume", "9"], "run 9 not found"),
        (["midterm", "--resume", "9"], "TASK does not go with a run, which has its own options"),
        (["midterm", "--path", "RACES", "--limit", "0"], "limit is 0"),
        (["midterm", "--path", "RACES", "--settings", "top-down"], "no card is published yet"),
    ],
)
def test_bad_input_is_refused_before_anything_is_asked(
    arguments: list[str], message: str, races: Path, kcard: Kcard
) -> None:
    done = kcard("eval", *(str(races) if a == "RACES" else a for a in arguments))
    assert message in done.error
    assert RunStorage(Hub().runs).list() == []


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(
    "settings",
    ["direct,genread,bottom-up@always", "direct,genread/bottom-up@always", "direct,cards+retrieval"],
)
def test_selectors_that_can_not_be_loaded_are_told_before_anything_is_asked(
    settings: str, races: Path, kcard: Kcard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_cache(tmp_path / "cache", monkeypatch)
    done = kcard("eval", "midterm", "--path", races, "--settings", settings, "--preset", "knowledge-card")
    assert done.error.startswith("kcard: --selectors paper: relevance 'mpnet-base'")
    assert "use `--selectors offline`" in done.error
    storage = RunStorage(Hub().runs)
    assert storage.list() == []
    # A run that was stored before they were lost, as it is resumed and as it is repeated.
    arguments = {"tasks": "midterm", "path": [str(races)], "settings": settings, "preset": "knowledge-card"}
    number = storage.create(prepare(arguments, Hub()).plan).number
    for option in ("--resume", "--rerun"):
        assert "--selectors paper: relevance 'mpnet-base'" in kcard("eval", option, str(number)).error
    assert [run.answered for run in storage.list()] == [0]


@pytest.mark.usefixtures("card")
def test_a_popularity_gate_gets_the_popularity_of_the_task(tmp_path: Path, kcard: Kcard) -> None:
    file, records = tmp_path / "popqa.jsonl", tmp_path / "records.jsonl"
    popular = {state: 100 * (n % 2) for n, state in enumerate(RACES)}
    rows = [
        {"question": f"Who won the senate race of {s}?", "possible_answers": [RACES[s]], "s_pop": popular[s]}
        for s in RACES
    ]
    file.write_text("".join(json.dumps({**row, "prop": "race"}) + "\n" for row in rows), encoding="utf-8")
    fitted = [
        Record(
            str(row["question"]),
            popular[s] / 100,
            1 - popular[s] / 100,
            relation="race",
            popularity=popular[s],
        )
        for row, s in zip(rows, RACES, strict=True)
    ]
    write_records(records, fitted)
    assert kcard("gate", "fit", "--records", records, "--kind", "popularity").code == 0
    settings = "bottom-up@popularity,retrieval/direct@popularity"
    done = kcard("eval", "popqa", "--path", file, "--settings", settings, "--json")
    assert done.code == 0, done.err
    gated, routed = map(json.loads, done.out.splitlines())
    unpopular = sum(not value for value in popular.values())
    # The embedded LLM knows none of the races, so that those are right for which the cards are used.
    assert gated["substring"] == routed["substring"] == unpopular / len(RACES)
    assert gated["errors"] == routed["errors"] == 0


def test_paths_are_matched_to_tasks_by_name_or_order(races: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text('{"question": "Who wrote Emma?", "answers": ["Jane Austen"]}\n', encoding="utf-8")
    cases: tuple[tuple[list[str], list[Path | str]], ...] = (
        (["midterm", "jsonl"], [races, own]),
        (["midterm", "jsonl"], [f"jsonl={own}", races]),
        ([f"midterm={races}", "jsonl"], [own]),
        ([f"midterm={races}", f"jsonl={own}"], []),
    )
    for tasks, paths in cases:
        plan = prepare({"tasks": tasks, "path": paths, "settings": "direct", "limit": 1}, Hub()).plan
        assert [Path(task.path) for task in plan.tasks] == [races, own]


@pytest.mark.usefixtures("card")
def test_a_preset_sets_what_is_not_given(races: Path) -> None:
    given: dict[str, Any] = {"selectors": "offline", "evidence": "none", "settings": "bottom-up", "n2": 2}
    given |= {"tasks": "midterm", "path": [str(races)], "preset": "knowledge-card"}
    options = prepare(given, Hub()).plan.options
    assert (options["floor"], options["n1"], options["n2"], options["n3"]) == (0.0, 3, 2, 3)
    assert options["settings"] == "bottom-up"
    assert "preset" not in options


@pytest.mark.usefixtures("card")
def test_a_gate_between_two_ways_is_a_setting_of_its_own(races: Path, kcard: Kcard) -> None:
    settings = "retrieval,genread,retrieval/genread@always,retrieval/genread@never"
    done = kcard("eval", "midterm", "--path", races, "--settings", settings, "--json")
    assert done.code == 0, done.err
    retrieval, genread, always, never = map(json.loads, done.out.splitlines())
    assert always["em"] == retrieval["em"] > never["em"] == genread["em"]


@pytest.mark.usefixtures("card")
def test_an_analysis_varies_a_setting_and_its_finding_is_printed_and_drawn(
    races: Path, kcard: Kcard, tmp_path: Path
) -> None:
    done = kcard(
        "eval", "midterm", "--path", races, "--analysis", "patch", "--settings", "bottom-up", "--limit", "2"
    )
    assert done.code == 0, done.err
    assert list(RunStorage(Hub().runs).get(1).plan.settings) == ["direct", "bottom-up+cards=races"]
    last = done.out.splitlines()[-1].split()
    assert last[:5] == ["midterm-openbook", "bottom-up", "races", "all", "2"]
    picture = tmp_path / "patch.svg"
    assert kcard("report", "1", "--analysis", "patch", "--plot", picture).code == 0
    assert ">races</text>" in picture.read_text(encoding="utf-8")
    again = kcard("eval", "--rerun", "1", "--json")
    assert [json.loads(line)["setting"] for line in again.out.splitlines()] == [
        "direct",
        "bottom-up+cards=races",
    ]


def test_exported_files_are_those_that_the_hugging_face_hub_reads(
    races: Path, tmp_path: Path, kcard: Kcard
) -> None:
    evaluation = package.evaluate("midterm", path=races, settings="direct")
    done = kcard("runs", "export", str(evaluation.run.number), tmp_path / "out")
    files = [Path(line) for line in done.out.splitlines()]
    assert [file.relative_to(tmp_path / "out").as_posix() for file in files] == [
        "eval.yaml",
        f".eval_results/{evaluation.run.plan.tasks[0].name}.yaml",
    ]
    read = yaml.safe_load(files[1].read_text(encoding="utf-8"))
    (entry,) = parse_eval_result_entries(read)
    assert entry.value == pytest.approx(evaluation.rows[0].value)
    assert "setting direct; em" in (entry.notes or "")
    assert eval_result_entries_to_yaml([entry]) == read
    benchmark = yaml.safe_load(files[0].read_text(encoding="utf-8"))
    assert [each["id"] for each in benchmark["tasks"]] == [entry.task_id]
