"""LLMs on a hub: published by huggingface_hub, fetched by `kcard llm pull`, and never taken for cards."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.constants import DOWNLOAD_CHUNK_SIZE
from huggingface_hub.errors import BadRequestError

from kcard.api.hub import credentials, listed, login, pull, pull_llm
from kcard.errors import HubError, UnknownCard
from kcard.hub.client.connection import Guard
from kcard.hub.registry import Hub
from tests.command import Kcard
from tests.hub.shared_hub import Shared
from tests.llms.gguf_files import gguf_with_tensor

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "llms.md").read_text(encoding="utf-8")
NAME = "kcard:clinic/qwen/qwen2.5-0.5b.gguf"
CONTENT = gguf_with_tensor(DOWNLOAD_CHUNK_SIZE // 2)  # two parts of a download


@pytest.fixture(scope="module")
def published(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Bob has run the lines of the documentation, in the organisation clinic."""
    shared.hub.accounts.add_organisation("clinic", owner="bob")
    folder = tmp_path_factory.mktemp("llm")
    (folder / "qwen2.5-0.5b.gguf").write_bytes(CONTENT)
    (example,) = re.findall(r"```python\n(import os\n.*?)```", PAGE, re.DOTALL)
    code = example.replace("http://hub:8080", shared.url).replace("kc_...", shared.tokens["bob"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("HF_HUB_DISABLE_XET", raising=False)
        exec(compile(code, "docs/llms.md", "exec"), {})
    return shared


@pytest.fixture
def logged_in(published: Shared, home: Path) -> Shared:
    del home
    login(published.url, published.tokens["bob"])
    return published


def test_it_is_pulled_verified_and_its_origin_recorded(logged_in: Shared, kcard: Kcard, home: Path) -> None:
    kcard("config", "set", "hub_url", logged_in.url)
    done = kcard("llm", "pull", NAME, "--json")
    assert done.code == 0, done.err
    pulled = json.loads(done.out)
    assert (pulled["source"], pulled["hub"]) == (NAME, logged_in.url)
    assert pulled["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert (home / "llms" / "qwen2.5-0.5b.gguf").read_bytes() == CONTENT
    assert f"hub           {logged_in.url}" in kcard("llm", "show", "qwen2.5-0.5b").out
    assert NAME in kcard("llm", "list").out
    # One of another origin is not taken for it.
    done = kcard("llm", "pull", "hf:clinic/qwen/qwen2.5-0.5b.gguf")
    assert f"another LLM qwen2.5-0.5b, from {NAME}: `kcard llm rm qwen2.5-0.5b` first" in done.error


def test_a_download_that_was_interrupted_is_resumed_and_a_verification_repeats_none(
    logged_in: Shared, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges: list[str | None] = []
    check, count = Guard.check_request, Guard._count_bytes

    def record(guard: Guard, request: Any) -> None:
        if request.method == "GET":
            ranges.append(request.headers.get("Range"))
        check(guard, request)

    def interrupt_download(guard: Guard, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in count(guard, parts):
            yield part
            if guard.received > DOWNLOAD_CHUNK_SIZE * 3 // 2:
                raise KeyboardInterrupt

    def interrupt_verification(_: Path) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Guard, "check_request", record)
    for target, interrupt in (
        ("kcard.hub.client.connection.Guard._count_bytes", interrupt_download),
        ("kcard.llms.local_models.file_digest", interrupt_verification),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, interrupt)
            with pytest.raises(KeyboardInterrupt):
                pull_llm(NAME, hub=logged_in.url)
    pull_llm(NAME, hub=logged_in.url)
    assert ranges == [None, f"bytes={DOWNLOAD_CHUNK_SIZE}-"]
    assert (home / "llms" / "qwen2.5-0.5b.gguf").read_bytes() == CONTENT
    names = sorted(path.name for path in (home / "llms").iterdir())
    assert names == ["qwen2.5-0.5b.gguf", "qwen2.5-0.5b.json"]


@pytest.mark.parametrize(
    ("name", "token", "message"),
    [
        (NAME, None, "requires a token: `kcard login --hub "),
        (NAME, "kc_" + "x" * 40, "rejected your token"),
        (NAME, "dan", "'clinic/qwen' not found, or private"),
        ("kcard:clinic/nothing/x.gguf", "bob", "'clinic/nothing' not found, or private"),
        ("kcard:clinic/qwen/x.gguf", "bob", "file 'x.gguf' not found in clinic/qwen"),
        ("kcard:clinic/qwen/README.md", "bob", "or kcard:OWNER/REPOSITORY/FILE.gguf of a kcard hub"),
    ],
)
def test_what_can_not_be_had_is_said_in_one_line_and_leaves_nothing(
    published: Shared, kcard: Kcard, home: Path, name: str, token: str | None, message: str
) -> None:
    home.mkdir()
    if token is not None:
        credentials().store(published.url, published.tokens.get(token, token))
    assert message in kcard("llm", "pull", name, "--hub", published.url).error
    assert list(home.glob("llms/*")) == []


def test_without_a_hub_or_with_another_kind_of_name_the_command_says_what_to_do(
    kcard: Kcard, home: Path
) -> None:
    del home
    assert kcard("llm", "pull", NAME).error == (
        "kcard: no hub given: use --hub URL, or set hub_url in your config.toml"
    )
    done = kcard("llm", "pull", "qwen2.5-0.5b", "--hub", "http://127.0.0.1:9")
    assert "--hub goes with kcard:OWNER/REPOSITORY/FILE.gguf" in done.error
    assert "does not answer" in kcard("llm", "pull", NAME, "--hub", "http://127.0.0.1:9").error


def test_a_content_that_is_not_what_the_hub_says_is_refused(
    logged_in: Shared, home: Path, monkeypatch: pytest.MonkeyPatch, kcard: Kcard
) -> None:
    monkeypatch.setattr("kcard.llms.local_models.file_digest", lambda _: "0" * 64)
    done = kcard("llm", "pull", NAME, "--hub", logged_in.url)
    assert "is not what it should be: sha256 000000000000…" in done.error
    assert list((home / "llms").iterdir()) == []


@pytest.mark.parametrize(
    ("path", "content", "why"),
    [
        ("x.gguf", CONTENT[: len(CONTENT) // 2], "x.gguf is cut off after"),
        ("x.gguf", b"GGUF" + bytes(100), "version 0 of the format is unknown"),
        ("x.gguf", b"PK\x03\x04" + bytes(100), "x.gguf is a zip archive"),
        ("x.safetensors", CONTENT, "x.safetensors is GGUF weights, not what its name says"),
    ],
)
def test_a_damaged_or_mislabelled_file_is_not_stored(
    published: Shared, path: str, content: bytes, why: str
) -> None:
    bob = published.api("bob")
    with pytest.raises(BadRequestError, match=why):
        bob.upload_file(repo_id="clinic/qwen", path_in_repo=path, path_or_fileobj=content)
    assert not bob.file_exists("clinic/qwen", path)


def test_its_repository_is_a_model_and_no_card(logged_in: Shared, tmp_path: Path) -> None:
    bob = logged_in.api("bob")
    bob.update_repo_settings("clinic/qwen", private=False)
    assert [model.id for model in bob.list_models(filter="gguf")] == ["clinic/qwen"]
    assert bob.model_info("clinic/qwen").pipeline_tag == "text-generation"
    # Nothing that looks for cards finds it, also when its commit has a tag.
    bob.create_tag("clinic/qwen", tag="v1")
    assert listed(logged_in.url) == []
    with pytest.raises(UnknownCard, match=r"is not a card: kcard\.json is missing"):
        pull("clinic/qwen", tmp_path / "card", hub=logged_in.url)
    assert Hub().list() == []
    assert logged_in.http("ada:admin").get("/api/kcard/unverified").json()["versions"] == []
    with pytest.raises(HubError, match="not a card"):
        pull("clinic/qwen@v1", hub=logged_in.url)
    # Its page says how to get it; no page shows figures, or that they are missing.
    visitor = logged_in.http()
    page = visitor.get("/clinic/qwen").text
    assert f"kcard llm pull {NAME} --hub {logged_in.url}\nkcard llm use qwen2.5-0.5b" in page
    assert "Use this model" in page
    home_page = visitor.get("/").text
    assert "clinic/qwen" in home_page
    for text in (page, home_page):
        assert "factuality not measured" not in text
        assert "unexamined" not in text
    for path in ("/leaderboard", "/feed.atom"):
        assert "clinic/qwen" not in visitor.get(path).text
