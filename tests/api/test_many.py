"""Many corpora, cards and questions: each is done as it would be alone, here and by workers of Ray."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import kcard as library
from kcard.api.evaluate import evaluate
from kcard.api.exam import audit, audit_many
from kcard.api.train import corpora_by_card
from kcard.cluster import RayOptions, mapped
from kcard.errors import HubError, LLMError, UsageError
from kcard.evaluation.runs.run import RunStorage
from kcard.events import Event
from kcard.hub.registry import Hub
from kcard.integrators.batch_files import answer_file, ask_on_cluster, read_questions
from kcard.integrators.options import AskOptions
from kcard.integrators.pipeline import Pipeline
from kcard.manifest import MANIFEST, Manifest
from tests.command import Kcard
from tests.core.test_cluster import ray_folder  # noqa: F401 (a fixture)
from tests.core.work import seen
from tests.fakes import counts_to, without_times
from tests.hub.client.cards import rivers

MOONS = {"Phobos": "Mars", "Titan": "Saturn", "Triton": "Neptune", "Io": "Jupiter", "Oberon": "Uranus"}
RIVERS = {"Arno": "Pisa", "Tagus": "Lisbon", "Oder": "Opole", "Main": "Mainz"}
OPTIONS = AskOptions(mode="bottom-up", cards="moons")
CLUSTER = RayOptions()


def make(folder: Path, facts: dict[str, str]) -> Path:
    sentences = [f"{thing} belongs to {place}." for thing, place in facts.items()]
    return rivers(folder, *sentences, name=folder.name, domain="space", language="en").folder


@pytest.fixture
def hub(home: Path, tmp_path: Path) -> Hub:
    hub = Hub(home)
    hub.publish(make(tmp_path / "moons", MOONS))
    return hub


def corpus(folder: Path, subject: str, count: int = 12) -> Path:
    folder.mkdir(parents=True)
    lines = [f"The {subject} number {n} is called {subject.title()}{n}." for n in range(count)]
    (folder / "facts.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_a_folder_of_corpora_becomes_cards_of_which_one_fails_and_is_tried_again(
    kcard: Kcard, tmp_path: Path, home: Path
) -> None:
    corpora = tmp_path / "corpora"
    corpus(corpora / "moons", "moon")
    corpus(corpora / ".git", "hook")
    (corpora / "README.md").write_text("About these corpora.", encoding="utf-8")
    (corpora / "empty").mkdir()
    done = kcard("train-many", corpora, "--kind", "retrieval", "--json")
    assert done.code == 1
    empty, moons = map(json.loads, done.out.splitlines())
    assert (empty["card"], moons["card"], moons["recall"]) == ("empty", "moons", None)
    assert str(corpora / "empty") in empty["error"]
    assert "1 of 2 cards failed; try them again with --resume" in done.err
    manifest = home / "drafts" / "moons" / MANIFEST
    written = manifest.stat().st_mtime_ns
    assert "add --resume" in kcard("train-many", corpora, "--kind", "retrieval").error
    (corpora / "empty").rmdir()
    corpus(corpora / "empty", "river")
    again = kcard("train-many", corpora, "--kind", "retrieval", "--resume")
    assert again.code == 0, again.err
    assert Manifest.read(home / "drafts" / "empty").kind == "retrieval"
    assert manifest.stat().st_mtime_ns == written
    names = [".empty.corpus.json", ".moons.corpus.json", "empty", "moons"]
    assert sorted(path.name for path in (home / "drafts").iterdir()) == names


def test_settings_of_train_hold_but_for_those_of_one_card(kcard: Kcard, tmp_path: Path, home: Path) -> None:
    corpus(tmp_path / "corpora" / "moons", "moon")
    home.mkdir()
    settings = '[train]\nkind = "retrieval"\nname = "mine"\ndomain = "space"\n'
    (home / "config.toml").write_text(settings, encoding="utf-8")
    done = kcard("train-many", tmp_path / "corpora")
    assert done.code == 0, done.err
    manifest = Manifest.read(home / "drafts" / "moons")
    assert (manifest.name, manifest.kind, manifest.domain) == ("moons", "retrieval", "space")


def test_a_table_gives_names_and_metadata_and_its_paths_start_from_its_folder(tmp_path: Path) -> None:
    moons = str(corpus(tmp_path / "data" / "Big Moons", "moon"))
    table = tmp_path / "data" / "corpora.csv"
    table.write_text("corpus,name,description,domain\nBig Moons,,Moons,\nBig Moons,tides,,space\n")
    assert corpora_by_card(table) == {
        "big-moons": {"corpus": moons, "name": "big-moons", "description": "Moons"},
        "tides": {"corpus": moons, "name": "tides", "domain": "space"},
    }


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("c.csv", "corpus,colour\nmoons,red\n", "line 2: expected the column corpus and"),
        ("c.csv", "name\nmoons\n", "line 2: expected the column corpus and"),
        ("c.csv", "corpus\nmars\n", "line 2: the corpus .*mars does not exist"),
        ("c.csv", "corpus\nmoons\nmoons\n", "would both become the card 'moons': name them in a table"),
        ("c.csv", "corpus\n", "contains no corpora"),
        ("c.txt", "moons", "contains no corpora: expected a folder with a sub-folder for each, or a table"),
    ],
)
def test_a_list_of_corpora_that_is_wrong_is_refused_before_anything_is_trained(
    tmp_path: Path, name: str, text: str, wrong: str
) -> None:
    corpus(tmp_path / "moons", "moon")
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=wrong):
        library.train_many(tmp_path / name)


def test_several_cards_are_audited_as_each_alone_and_a_broken_one_costs_itself(
    kcard: Kcard, hub: Hub, tmp_path: Path
) -> None:
    broken = make(tmp_path / "rivers", RIVERS)
    alone = audit("moons", documents=1, keep=False).to_json()
    out = tmp_path / "audits.jsonl"
    command = ("audit", "moons", broken, "--documents", "1", "--output", out)
    done = kcard(*command, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[0]) == json.loads(alone)
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [row["card"] for row in written] == ["moons@v1", str(broken)]
    out.write_bytes(out.read_bytes().splitlines(keepends=True)[0])
    (broken / "passages.jsonl").write_text("{}", encoding="utf-8")
    again = kcard(*command, "--resume")
    assert again.code == 1
    assert f"{broken}: card 'rivers'" in again.err
    assert "1 of 2 cards audited" in again.err
    assert [line.split()[0] for line in again.out.splitlines()] == ["card", "moons@v1"]
    assert kcard("audit", "moons", "pool:none", "--documents", "1").code == 1
    audit_many(["moons"], documents=1)
    assert [stored.finding.record for stored in hub.audits.list()] == [alone]


@pytest.mark.usefixtures("hub")
def test_wrong_options_and_cards_are_refused_before_anything_is_audited() -> None:
    with pytest.raises(UsageError, match="documents is 0"):
        audit_many(["moons"], documents=0)
    with pytest.raises(UsageError, match="resume needs output"):
        audit_many(["moons"], resume=True)
    with pytest.raises(UsageError, match="is an object"):
        audit_many(["moons"], checker=object())
    with pytest.raises(HubError, match="mars"):
        audit_many(["moons", "mars"])


@pytest.fixture(scope="module")
def connected(ray_folder: None) -> Iterator[None]:  # noqa: F811
    """This process is connected to a cluster of two workers, which the tests share."""
    del ray_folder
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("connected")
def test_workers_of_a_cluster_have_the_settings_but_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("KCARD_DATABASE_URL", "postgresql://me:secret@host/hub")
    monkeypatch.setenv("KCARD_LLM", "openai:gpt")
    monkeypatch.setenv("KCARD_LLM_URL", "http://127.0.0.1:9/v1")
    names = ["KCARD_LLM", "KCARD_LLM_URL", "KCARD_DATABASE_URL", "OPENAI_API_KEY"]
    ((_, outcome),) = mapped(seen, [{"names": names}], CLUSTER, "cpu")
    settings_there = [outcome["result"][name] for name in names]
    assert settings_there == ["openai:gpt", "http://127.0.0.1:9/v1", None, None]


@pytest.fixture
def questions(hub: Hub, tmp_path: Path) -> Path:
    """Questions about a published card that only looks up, and one that is empty."""
    del hub
    rows = [{"question": f"Where does {moon} belong?", "answers": [place]} for moon, place in MOONS.items()]
    rows = [*rows * 8, {"question": "", "answers": []}]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps({"id": n, **row}) + "\n" for n, row in enumerate(rows)), "utf-8")
    return path


def answers(path: Path) -> list[Any]:
    return [without_times(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
@pytest.mark.usefixtures("connected")
def test_questions_asked_on_workers_have_the_same_answers_also_after_an_interruption(
    kcard: Kcard, questions: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    answer_file(read_questions(questions), here, Pipeline(OPTIONS).outcomes)

    def interrupt(event: Event) -> None:
        if event.done == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask_on_cluster(questions, there, OPTIONS, cluster=CLUSTER, batch=4, on_event=interrupt)
    assert answers(there) == answers(here)[:9]
    count, totals = ask_on_cluster(questions, there, OPTIONS, cluster=CLUSTER, batch=4, resume=True)
    assert (count, totals.answered, totals.failed) == (41, 31, 1)
    assert answers(there) == answers(here)
    out = tmp_path / "out.jsonl"
    command = ("ask", "--input", questions, "--output", out, "--mode", "bottom-up", "--cards", "moons")
    done = kcard(*command, "--ray", "auto")
    assert (done.code, done.out) == (1, "")
    assert f"40 of 41 questions answered: {out}" in done.err
    with pytest.raises(LLMError, match=r"consecutive failures.*continue with --resume"):
        ask_on_cluster(questions, tmp_path / "mars.jsonl", cards="mars", batch=4, cluster=CLUSTER)


@pytest.mark.slow
@pytest.mark.usefixtures("connected")
def test_an_evaluation_on_workers_has_the_same_results(questions: Path, tmp_path: Path) -> None:
    task = tmp_path / "task.jsonl"
    task.write_text("".join(questions.read_text("utf-8").splitlines(keepends=True)[:-1]), "utf-8")
    options: dict[str, Any] = {"path": task, "settings": "direct,bottom-up", "cards": "moons"}
    here = evaluate("jsonl", **options)
    done: list[tuple[int, int | None]] = []
    there = evaluate("jsonl", **options, cluster=CLUSTER, on_event=counts_to(done))
    assert there.run.complete
    assert done[-1] == (80, 80)
    storage = RunStorage(Hub().runs)
    first, second = (
        [without_times(asdict(result)) for result in storage.results(settings_there.run.number)]
        for settings_there in (here, there)
    )
    assert first == second


@pytest.mark.slow
@pytest.mark.usefixtures("connected")
def test_cards_trained_and_audited_by_workers_are_those_of_this_process(kcard: Kcard, tmp_path: Path) -> None:
    for subject in ("moons", "winds"):
        corpus(tmp_path / "corpora" / subject, subject)
    train = ("train-many", tmp_path / "corpora", "--kind", "model", "--epochs", "1", "--no-exam", "--output")
    here, there = tmp_path / "here", tmp_path / "there"
    assert kcard(*train, here).code == 0
    done = kcard(*train, there, "--ray", "auto", "--json")
    assert done.code == 0, done.err
    folders = [json.loads(line)["folder"] for line in done.out.splitlines()]
    assert folders == [str(there / name) for name in ("moons", "winds")]
    weights = [
        [Manifest.read(card).files["model.safetensors"] for card in sorted(place.iterdir())]
        for place in (here, there)
    ]
    assert weights[0] == weights[1]
    audited = ("audit", *folders, "--documents", "1", "--limit", "4", "--output")
    for place, cluster in (("here", ()), ("there", ("--ray", "auto"))):
        done = kcard(*audited, tmp_path / f"{place}.jsonl", *cluster)
        assert done.code == 0, done.err
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()
