"""One experiment of each of the four papers through the command line, on small sets in the layouts of their tasks."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo.papers import write_sets

from kcard.api.experiment import EXPERIMENTS, GatePaper
from kcard.cards.card import finish
from kcard.evaluation.metrics import balanced_accuracy
from kcard.gates.records import Record, read_records
from kcard.gates.registry import header, load
from kcard.hub.registry import Hub
from kcard.manifest import Manifest
from kcard.types import Source
from tests.command import Kcard, kcard_process

CORPORA = Path(__file__).resolve().parents[2] / "demo" / "corpora"
CARDS = {
    "moons": "moons of the solar system, their planets and discoverers",
    "midterms-2022": "winners of the 2022 U.S. midterm elections",
}
# Knowledge Card's settings, with the selectors and the evidence that are there offline.
OFFLINE = ("--preset", "knowledge-card", "--selectors", "offline", "--evidence", "own", "--samples", "2")
SETTINGS = "direct,replug,gkp,recitation,genread,bottom-up@always,top-down:auto,top-down:explicit"


@dataclass(frozen=True)
class Bench:
    """A home with cards, and the small sets."""

    home: Path
    sets: Path

    def run(self, *arguments: str | Path) -> str:
        """Run kcard as a process of its own, and return what it prints."""
        done = kcard_process(*arguments, KCARD_HOME=str(self.home))
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    def evaluate(self, *arguments: str | Path) -> list[dict[str, Any]]:
        """Evaluate Knowledge Card's settings; return the rows."""
        options = ("--settings", SETTINGS, *OFFLINE, "--json")
        return list(map(json.loads, self.run("eval", *arguments, *options).splitlines()))

    def experiment(self, paper: GatePaper, *arguments: str | Path) -> dict[str, Any]:
        """Run the experiment of a paper; return its results."""
        data: dict[str, Any] = json.loads(
            self.run("gate", "experiment", paper, *arguments, "--cards", "moons", "--json")
        )
        return data

    def questions(self, run: int) -> list[dict[str, str]]:
        """Return every question of a run under every setting."""
        path = self.home / f"questions-{run}.csv"
        self.run("report", str(run), "--questions", path)
        with path.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Two retrieval cards in a hub, and the sets."""
    folder = tmp_path_factory.mktemp("bench")
    made = Bench(folder / "home", folder / "sets")
    write_sets(made.sets)
    for name, about in CARDS.items():
        options = ("--kind", "retrieval", "--name", name, "--description", about)
        made.run("train", "--corpus", CORPORA / name, *options)
        made.run("publish", name)
    return made


# Figures, computed again from what lies behind them.


def check_evaluation(
    bench: Bench, rows: Sequence[Mapping[str, Any]], tasks: Sequence[str], count: int
) -> None:
    """Check rows of Knowledge Card's settings against the questions of their run, and the run's report."""
    assert [(row["task"], row["setting"]) for row in rows] == [
        (task, setting) for task in tasks for setting in SETTINGS.split(",")
    ]
    (run,) = {row["run"] for row in rows}
    questions = bench.questions(run)
    for row in rows:
        own = [q for q in questions if (q["task"], q["setting"]) == (row["task"], row["setting"])]
        assert len(own) == row["n"] == count
        assert row["errors"] == sum(bool(q["error"]) for q in own) == 0
        assert row["calls"] == sum(int(q["calls"]) for q in own)
        if row["metric"] == "balanced-accuracy":
            right = [json.loads(q["answers"])[0] for q in own]
            chosen = [q["prediction"] for q in own]
            assert row["value"] == pytest.approx(balanced_accuracy(chosen, right), abs=1e-4)
        else:
            assert row["value"] == pytest.approx(np.mean([float(q["right"]) for q in own]), abs=1e-4)
        low, high = row["interval"]
        assert low <= row["value"] <= high
        assert low < high
        # Cards answer in their settings alone, and every setting makes the paper's number of calls.
        uses_cards = row["setting"].startswith(("bottom-up", "top-down"))
        kept = [json.loads(q["cards_kept"]) for q in own]
        assert uses_cards or not any(set(cards) & {*CARDS} for cards in kept)
        calls = {"direct": 1, "genread": 2, "bottom-up@always": 1, "replug": 10}.get(row["setting"])
        assert calls is None or {int(q["calls"]) for q in own} == {calls}
    page = bench.home / "run.html"
    bench.run("report", str(run), "--output", page)
    text = page.read_text(encoding="utf-8")
    assert all(setting in text for setting in SETTINGS.split(","))
    assert "nan" not in bench.run("report", str(run), "--analysis", "cost").lower()


def check_experiment(
    paper: GatePaper, data: Mapping[str, Any], folder: Path, tasks: Sequence[str]
) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Check the results of an experiment against its records and gates; return the rows by task and gate."""
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == data
    plan = EXPERIMENTS[paper]
    rows = {(row["task"], row["gate"]): row for row in data["gates"]}
    assert list(rows) == [(task, gate) for task in tasks for gate in plan.gates]
    for (task, gate), row in rows.items():
        records = read_records(folder / task / "records.jsonl")
        held_out = read_records(folder / task / "held-out.jsonl")
        assert (row["fitted_on"], row["held_out"]) == (len(records) - len(held_out), len(held_out))
        if row["skipped"]:
            continue
        without = np.array([record.correct_without for record in held_out])
        with_ = np.array([record.correct_with for record in held_out])
        assert row["never"] == pytest.approx(without.mean(), abs=1e-4)
        assert row["always"] == pytest.approx(with_.mean(), abs=1e-4)
        assert row["oracle"] == pytest.approx(np.maximum(without, with_).mean(), abs=1e-4)
        assert header(folder / task / gate).kind == gate
        if gate in ("skr-prompt", "skr-icl"):
            continue  # it asks the LLM
        fitted = load(folder / task / gate)
        seeks = fitted.scores([record.query for record in held_out]) < fitted.threshold
        assert row["share"] == pytest.approx(seeks.mean(), abs=1e-4)
        assert row["accuracy"] == pytest.approx(np.where(seeks, with_, without).mean(), abs=1e-4)
    assert list(data["analyses"]) == list(plan.analyses)
    total = sum(len(read_records(folder / task / "records.jsonl")) for task in tasks)
    for analysis in data["analyses"].values():
        assert analysis["records"] == total
        assert analysis["rows"]
        assert any(len(series["x"]) for series in analysis["chart"]["series"])
    return rows


def check_recall(data: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Check Adaptive Retrieval's table 1: recall@1 by whether the answers are right."""
    whole = next(row for row in data["analyses"]["recall"]["rows"] if row["group"] == "all")
    assert whole["recall@1"] == pytest.approx(np.mean([r.scores["recall@1"] for r in records]), abs=1e-4)
    hits = [r.scores["recall@1"] for r in records if r.correct_with > r.correct_without]
    (helped,) = [row for row in data["analyses"]["recall"]["rows"] if row["group"] == "right only with cards"]
    assert helped["n"] == len(hits)
    assert not hits or helped["recall@1"] == pytest.approx(np.mean(hits), abs=1e-4)


# On the embedded LLM.


def test_the_papers_in_small(kcard: Kcard, home: Path, tmp_path: Path) -> None:
    """Thrust stands for the experiments on gates; the others are among the slow tests."""
    write_sets(tmp_path)
    for name, about in CARDS.items():
        (home / "drafts" / name).mkdir(parents=True)
        texts = (CORPORA / name).glob("[ps]*.txt")  # planets, senate
        passages = [Source(line) for text in texts for line in text.read_text(encoding="utf-8").splitlines()]
        finish(home / "drafts" / name, Manifest(name, about, kind="retrieval"), passages)
        Hub().publish(home / "drafts" / name)
    done = kcard(
        *("eval", "midterm", "--path", tmp_path / "MidtermQA-openbook.json", "--limit", "1", "--json"),
        *("--settings", "direct,replug,top-down:auto,top-down:explicit", *OFFLINE),
    )
    assert done.code == 0, done.err
    rows = list(map(json.loads, done.out.splitlines()))
    assert [(row["setting"], row["calls"], row["value"]) for row in rows] == [
        ("direct", 1, 0), ("replug", 10, 1), ("top-down:auto", 3, 1), ("top-down:explicit", 3, 1)
    ]  # fmt: skip
    options = ("--task", f"nq={tmp_path / 'nq.jsonl'}", "--limit", "10", "--cards", "moons", "--json")
    folder = tmp_path / "thrust"
    done = kcard("gate", "experiment", "thrust", *options, "--fitted", "0.5", "--output", folder)
    assert done.code == 0, done.err
    results = check_experiment("thrust", json.loads(done.out), folder, ["nq"])
    assert not any(row["skipped"] for row in results.values())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_knowledge_card_on_the_embedded_llm(bench: Bench) -> None:
    names = ("openbook", "binary", "fourchoice")
    files = [arg for name in names for arg in ("--path", bench.sets / f"MidtermQA-{name}.json")]
    rows = bench.evaluate("midterm", *files, "--limit", "6", "--shots", "5")
    check_evaluation(bench, rows, [f"midterm-{name}" for name in names], 6)
    value = {(row["task"], row["setting"]): row["value"] for row in rows}
    for name in names:
        assert value[f"midterm-{name}", "direct"] == 0  # the LLM knows none of the races, the card all
        for setting in ("bottom-up@always", "top-down:auto", "top-down:explicit"):
            assert value[f"midterm-{name}", setting] == 1
    rows = bench.evaluate("mmlu", "--path", bench.sets / "mmlu", "--limit", "12", "--shots", "5")
    check_evaluation(bench, rows, ["mmlu"], 12)
    by_setting = {row["setting"]: row["value"] for row in rows}
    assert 0 < by_setting["direct"] < by_setting["bottom-up@always"]
    run = str(rows[0]["run"])
    groups = list(map(json.loads, bench.run("report", run, "--analysis", "groups", "--json").splitlines()))
    assert {row["group"] for row in groups} == {
        "astronomy",
        "high_school_geography",
        "high_school_government_and_politics",
    }
    assert "humanities" not in bench.run("report", run, "--analysis", "mmlu-domains")
    files = [arg for name in ("LUN2", "LUN4") for arg in ("--path", bench.sets / f"{name}.json")]
    rows = bench.evaluate("lun", "lun", *files, "--limit", "4", "--shots", "16")
    check_evaluation(bench, rows, ["lun-2", "lun-4"], 4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_experiments_on_gates_on_the_embedded_llm(bench: Bench, tmp_path: Path) -> None:
    tasks = ("--task", f"nq={bench.sets / 'nq.jsonl'}", "--task", f"popqa={bench.sets / 'popQA.tsv'}")
    thrust = bench.experiment("thrust", *tasks, "--output", tmp_path / "thrust", "--fitted", "60")
    rows = check_experiment("thrust", thrust, tmp_path / "thrust", ["nq", "popqa"])
    assert 0.3 < rows["nq", "random"]["share"] < 0.7
    assert rows["nq", "thrust"]["never"] < rows["nq", "thrust"]["accuracy"] < rows["nq", "thrust"]["always"]

    task = ("--task", f"truthfulqa={bench.sets / 'truthfulqa.json'}", "--limit", "60")
    skr = bench.experiment("skr", *task, "--output", tmp_path / "skr")
    rows = check_experiment("skr", skr, tmp_path / "skr", ["truthfulqa"])
    # All four strategies tell capitals, which the LLM knows, from moons.
    assert [rows["truthfulqa", gate]["skipped"] for gate in EXPERIMENTS["skr"].gates] == [""] * 4
    assert all(row["beneficial_guidance"] > 0.8 for row in rows.values())

    task = ("--task", f"popqa={bench.sets / 'popQA.tsv'}", "--limit", "60")
    folder = tmp_path / "adaptive"
    adaptive = bench.experiment("adaptive-retrieval", *task, "--output", folder)
    rows = check_experiment("adaptive-retrieval", adaptive, folder, ["popqa"])
    check_recall(adaptive, read_records(folder / "popqa" / "records.jsonl"))
    thresholds = adaptive["analyses"]["popularity-splits"]["summary"]["thresholds"]
    assert thresholds == {"capital": "never", "discoverer": "always", "planet": "always"}
    # The gates are those of `kcard eval`, too.
    settings = f"direct,bottom-up@{folder / 'popqa' / 'popularity'},retrieval/genread@{folder / 'popqa' / 'popularity'}"
    options = ("--limit", "8", "--preset", "adaptive-retrieval", "--settings", settings, "--cards", "moons")
    lines = bench.run("eval", "popqa", "--path", bench.sets / "popQA.tsv", *options, "--json").splitlines()
    direct, gated, routed = map(json.loads, lines)
    assert direct["value"] < gated["value"] == 1
    assert routed["errors"] == 0
