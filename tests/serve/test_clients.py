"""Programs that people chat with: `llm` as it is, and the requests of Open WebUI."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from kcard.hub.registry import Hub
from kcard.integrators.options import AskOptions
from kcard.serve.app import create_app
from kcard.serve.pipelines import Pipelines
from kcard.serve.service import Service
from tests.serve.conftest import running

DISCOVERER = "William Lassell"


@pytest.fixture(scope="module")
def url(library: Path) -> Iterator[str]:
    with running(create_app(Service(Pipelines(AskOptions(), Hub(library), "embedded"), "top-down"))) as url:
        yield url


@pytest.mark.parametrize("options", [[], ["--no-stream"]])
def test_llm_asks_a_model_of_which_it_knows_the_base_url(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    from llm.cli import cli

    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: cards\n  model_name: embedded:neptune\n  api_base: {url}\n", encoding="utf-8"
    )
    done = CliRunner().invoke(cli, ["-m", "cards", *options, "--key", "none", "Who discovered Triton?"])
    assert (done.exit_code, done.stdout.strip()) == (0, DISCOVERER), done.stderr


@pytest.fixture
def web(url: str) -> Iterator[httpx.Client]:
    headers = {
        "Authorization": "Bearer sk-none",
        "Content-Type": "application/json",
        "X-OpenWebUI-User-Name": "Ada",
        "X-OpenWebUI-Chat-Id": "3f1c",
    }
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        yield client


def test_open_webui_lists_the_models(web: httpx.Client) -> None:
    models = web.get("models").json()["data"]
    assert {"embedded", "embedded:neptune"} <= {model["id"] for model in models}
    assert all(isinstance(model["owned_by"], str) for model in models)


def test_open_webui_streams_a_conversation(web: httpx.Client) -> None:
    body = {
        "stream": True,
        "model": "embedded",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "Hello!"},
            {"role": "assistant", "content": "Hello, Ada."},
            {"role": "user", "content": "Who discovered Triton?"},
        ],
        "temperature": 0.8,
        "stream_options": {"include_usage": True},
    }
    with web.stream("POST", "chat/completions", json=body) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        data = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert data.pop() == "[DONE]"
    chunks: list[Any] = [json.loads(line) for line in data]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == DISCOVERER
    assert "usage" in chunks[-1]


def test_open_webui_gets_a_reply_to_its_own_tasks(web: httpx.Client) -> None:
    task = "### Task:\nGenerate a title for the chat.\n### Chat History:\nUSER: Who discovered Triton?"
    body = {
        "model": "embedded",
        "messages": [{"role": "user", "content": task}],
        "stream": False,
        "max_tokens": 50,
    }
    reply = web.post("chat/completions", json=body)
    assert reply.status_code == 200
    assert isinstance(reply.json()["choices"][0]["message"]["content"], str)
