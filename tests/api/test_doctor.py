"""kcard doctor: it finds what is broken, says what to do, and asks nobody who was not chosen."""

import json
import shutil
from pathlib import Path

import pytest

import kcard
from kcard.api import doctor
from kcard.api.doctor import SUMS, Finding
from kcard.connections import silence
from kcard.embedded import opt, reader
from kcard.hub.registry import Hub
from kcard.llms import embedded_llm as llm
from kcard.selectors import minilm_checker as checker
from tests.command import Kcard
from tests.hub.client.cards import rivers
from tests.openai_script import GetServers as Serve


@pytest.fixture
def hub(home: Path, tmp_path: Path) -> Hub:
    """A hub with the card rivers."""
    hub = Hub(home)
    hub.publish(rivers(tmp_path / "rivers").folder)
    return hub


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may be slow to answer."""
    monkeypatch.setattr(doctor, "TIMEOUT_SECONDS", 60.0)


def finding_of(name: str) -> Finding:
    checks: list[Finding] = kcard.doctor()
    return next(check for check in checks if check.name == name)


def test_a_home_without_cards_is_an_error_with_its_remedy_and_is_not_made(home: Path) -> None:
    assert finding_of("hub") == Finding(
        "hub", "error", "no card is published yet", "kcard train --corpus PATH, then kcard publish"
    )
    assert finding_of("ask").status == "error"
    assert not home.exists()
    Hub(home)  # as any other command leaves it
    assert finding_of("hub").found == "no card is published yet"


@pytest.mark.usefixtures("hub")
def test_with_a_card_all_is_well_and_the_rest_is_told() -> None:
    checks = {check.name: check for check in kcard.doctor()}
    assert [check for check in checks.values() if check.status == "error"] == []
    assert "1 cards in 1 versions" in checks["hub"].found
    assert "HF_HUB_OFFLINE" in checks["hugging-face"].found
    assert "llm embedded (default), mode top-down (default)" in checks["ask"].found
    assert "self-ask" in checks["presets"].found
    assert {"config", "python", "machine", "gpu", "disk", "extras", "terminal"} <= set(checks)


def test_without_need_of_cards_an_empty_hub_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCARD_ASK_GATE", "never")
    assert finding_of("hub").status == "warning"
    assert finding_of("ask").status == "ok"
    assert "gate never (KCARD_ASK_GATE)" in finding_of("ask").found


def test_cards_and_files_that_are_not_there_are_an_error(
    home: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCARD_ASK_CARDS", "lakes")
    assert finding_of("hub").status == "error"
    assert "lakes" in finding_of("hub").found
    monkeypatch.delenv("KCARD_ASK_CARDS")
    sha256 = hub.get("rivers").files["passages.jsonl"]
    (home / "hub" / "blobs" / sha256[:2] / sha256).unlink()
    assert finding_of("hub").status == "error"
    assert "files are missing in rivers@v1" in finding_of("hub").found


WEIGHTS = {
    "reader": reader.READER_WEIGHTS,
    "memory": llm.WEIGHTS,
    "checker": checker.WEIGHTS,
    "base": opt.FOLDER,
}


@pytest.mark.parametrize(("name", "folder"), WEIGHTS.items())
def test_the_weights_that_come_with_kcard_are_those_of_their_list(name: str, folder: Path) -> None:
    listed = {line.split()[1] for line in (folder / SUMS).read_text(encoding="ascii").splitlines()}
    assert listed == {p.name for p in folder.iterdir() if p.name not in {SUMS, "README.md"}}
    assert finding_of(name).status == "ok"


def test_changed_or_missing_weights_are_an_error_where_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "reader"
    shutil.copytree(reader.READER_WEIGHTS, copy)
    monkeypatch.setattr(reader, "READER_WEIGHTS", copy)
    assert finding_of("reader").status == "ok"
    (copy / "reader.safetensors").write_bytes(b"changed")
    assert finding_of("reader").status == "error"
    assert "reader.safetensors differs from the release" in finding_of("reader").found
    (copy / "reader.safetensors").unlink()
    assert "No such file" in finding_of("reader").found
    monkeypatch.setenv("KCARD_LLM", "hf:elsewhere")
    assert finding_of("reader").status == "warning"


def test_an_unknown_llm_gate_or_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCARD_LLM", "telepathy")
    monkeypatch.setenv("KCARD_ASK_GATE", "oracle")
    monkeypatch.setenv("KCARD_ASK_DEVICE", "cuda:7")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    checks = {check.name: check for check in kcard.doctor() if check.status == "error"}
    assert "'telepathy'" in checks["llm"].found
    assert "'oracle'" in checks["gate"].found
    assert "cuda:7" in checks["gpu"].found


@pytest.mark.usefixtures("patient")
def test_an_endpoint_is_asked_for_its_models_only(serve_get: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = json.dumps({"object": "list", "data": [{"id": "qwen", "object": "model"}]})
    monkeypatch.setenv("KCARD_LLM_URL", serve_get(200, listed))
    monkeypatch.setenv("KCARD_LLM", "openai:qwen")
    assert finding_of("llm").status == "ok"
    assert "questions and knowledge are sent there" in finding_of("llm").found
    monkeypatch.setenv("KCARD_LLM", "openai:llama")
    assert finding_of("llm").status == "warning"
    assert "it lists qwen" in finding_of("llm").remedy
    assert set(serve_get.requests) == {"/v1/models"}


def test_an_endpoint_that_was_not_chosen_is_not_asked(
    serve_get: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", serve_get(200, "{}"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-anything")
    assert finding_of("llm").found.startswith("embedded, ")
    assert serve_get.requests == []


@pytest.mark.parametrize(
    ("status", "body"),
    [(401, '{"error": {"message": "bad key"}}'), (500, "{}"), (200, "<html>"), (200, "{}"), (None, "")],
)
@pytest.mark.usefixtures("patient")
def test_an_endpoint_that_is_down_refuses_or_makes_no_sense_is_an_error(
    serve_get: Serve, monkeypatch: pytest.MonkeyPatch, status: int | None, body: str
) -> None:
    url = "http://127.0.0.1:9/v1" if status is None else serve_get(status, body)
    monkeypatch.setenv("KCARD_LLM_URL", url)
    monkeypatch.setenv("KCARD_LLM", "openai:qwen")
    check = finding_of("llm")
    assert check.status == "error"
    assert url in check.found
    assert check.remedy
    assert finding_of("ask").remedy.startswith("fix: ")


def test_a_broken_config_is_one_error_and_the_machine_is_still_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "c.toml"
    config.write_text("llm = ", encoding="utf-8")
    monkeypatch.setenv("KCARD_CONFIG", str(config))
    checks = kcard.doctor()
    assert "c.toml is not valid TOML" in checks[0].found
    assert {"python", "machine", "encoder"} <= {check.name for check in checks}
    # So is one of a project that would send questions elsewhere.
    monkeypatch.delenv("KCARD_CONFIG")
    (tmp_path / "kcard.toml").write_text("llm = 'openai:gpt'\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "a project file may not choose" in kcard.doctor()[0].found


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_says_the_same_and_exits_1_where_ask_would_not_work(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, kcard: Kcard
) -> None:
    monkeypatch.setenv("KCARD_ASK_N1", "three")
    done = kcard("doctor", *(["--json"] if as_json else []))
    assert done.code == 1
    assert "KCARD_ASK_N1: ask.n1 is 'three'" in done.out
    if as_json:
        data = json.loads(done.out)
        assert data["ok"] is False
        assert {"name", "status", "found", "remedy"} == set(data["checks"][0])


def test_silence_is_told_from_an_answer(serve_get: Serve) -> None:
    assert silence(serve_get(404, ""), 5) == ""
    assert "refused" in silence("http://127.0.0.1:9", 5)
    assert silence("no url", 5)


def test_the_first_line_says_whether_all_is_ready(kcard: Kcard, tmp_path: Path) -> None:
    assert kcard("doctor").out.startswith("1 thing needs you before `kcard ask` can answer: hub\n")
    Hub().publish(rivers(tmp_path / "card").folder)
    assert kcard("doctor").out.startswith("everything is ready")
