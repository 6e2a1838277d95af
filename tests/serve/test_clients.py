"""Programs that people chat with: `llm` as it is, and the requests of Open WebUI."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from tests.serve.conftest import DISCOVERER, answer


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


def test_open_webui_lists_the_models_streams_a_conversation_and_asks_for_a_title(url: str) -> None:
    headers = {
        "Authorization": "Bearer sk-none",
        "Content-Type": "application/json",
        "X-OpenWebUI-User-Name": "Ada",
        "X-OpenWebUI-Chat-Id": "3f1c",
    }
    turns = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "Hello, Ada."},
        {"role": "user", "content": "Who discovered Triton?"},
    ]
    sampling = {"stream": True, "temperature": 0.8, "stream_options": {"include_usage": True}}
    body: dict[str, Any] = {"model": "embedded", "messages": turns, **sampling}
    task = "### Task:\nGenerate a title for the chat.\n### Chat History:\nUSER: Who discovered Triton?"
    title = {"model": "embedded", "messages": [{"role": "user", "content": task}], "max_tokens": 50}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as web:
        models = web.get("models").json()["data"]
        with web.stream("POST", "chat/completions", json=body) as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")
            data = [line.removeprefix("data: ") for line in response.iter_lines() if line]
        assert answer(web.post("chat/completions", json=title))
    assert {("embedded", str), ("embedded:neptune", str)} <= {(m["id"], type(m["owned_by"])) for m in models}
    assert data.pop() == "[DONE]"
    chunks: list[Any] = [json.loads(line) for line in data]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == DISCOVERER
    assert "usage" in chunks[-1]
