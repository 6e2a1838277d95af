"""Exports for llama.cpp with llama.cpp's own converter and server.

Run with LLAMA_CPP set to a checkout of llama.cpp, and for the server with LLAMA_SERVER set to its program.
"""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import kcard
from kcard.cards.card import Card, finish
from kcard.cards.fingerprint import write_fingerprint
from kcard.cards.models.loader import Loader, base_digest
from kcard.errors import CardError, KcardError, UsageError
from kcard.manifest import Base, Manifest
from tests.cards.engine.cards import lora as opt_lora
from tests.cards.engine.models import adapter, continued
from tests.tiny_tokenizers import of_pieces

TEXTS = [
    "The Rhine flows through Basel and Cologne into the North Sea.",
    "The Danube flows through Vienna and Budapest into the Black Sea.",
    "Where does the river end?",
]
QUESTIONS = ["Where does the Rhine end?", "Danube?", "Which river flows through Vienna, Wien or Bécs?"]
TOKENS = 12
LLAMA_CPP, SERVER = os.environ.get("LLAMA_CPP"), os.environ.get("LLAMA_SERVER")
converts = pytest.mark.skipif(LLAMA_CPP is None, reason="LLAMA_CPP names no checkout of llama.cpp")
serves = pytest.mark.skipif(
    LLAMA_CPP is None or SERVER is None, reason="LLAMA_CPP and LLAMA_SERVER are not set"
)


def base(folder: Path) -> Any:
    """Random weights so spread that the last bits of a float decide nothing."""
    tokenizer = of_pieces(TEXTS)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=128, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.2)
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def card(folder: Path, name: str, seed: int, **options: Any) -> Card:
    """A LoRA card on the base in folder/base."""
    model = base(folder / "base")
    where = adapter(model, folder / name, seed, ["q_proj", "k_proj", "v_proj", "down_proj"], **options)
    of_pieces(TEXTS).save_pretrained(where)
    made_from = Base(str(folder / "base"), sha256=base_digest(str(folder / "base")))
    manifest = Manifest(name, name.title(), method="lora", base=made_from)
    write_fingerprint(where, manifest, [])
    return finish(where, manifest, [])


def posted(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """The URL of llama-server, started with the command of the export; keys and values in float32."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = json.loads((folder / "export.json").read_text(encoding="utf-8"))["command"]
    exact = ["-ctk", "f32", "-ctv", "f32", "-fa", "off", "--port", port, "--host", "127.0.0.1", "-t", "1"]
    with (folder.parent / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [str(SERVER), *command[1:], *exact],
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while not _healthy(url):
            assert server.poll() is None, (folder.parent / "server.log").read_text(encoding="utf-8")
            assert time.monotonic() < deadline, "llama-server did not start"
            time.sleep(0.2)
        yield f"{url}/completion"
    finally:
        server.kill()
        server.wait()


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def written(of: Card) -> list[list[int]]:
    """The tokens that transformers and peft write."""
    loaded = AutoModelForCausalLM.from_pretrained(of.manifest.base.name)
    model = PeftModel.from_pretrained(loaded, of.folder).eval()
    prompts = [Loader().tokenizer(of)(f"{question}\n")["input_ids"] for question in QUESTIONS]
    return [continued(model, prompt, TOKENS) for prompt in prompts]


def ask(url: str, body: dict[str, Any]) -> list[list[int]]:
    """The tokens that llama-server writes."""
    settings = {"temperature": 0, "n_predict": TOKENS, "return_tokens": True}
    replies = [posted(url, body | settings | {"prompt": f"{question}\n"}) for question in QUESTIONS]
    return [reply["tokens"] for reply in replies]


@serves
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_llama_cpp_writes_what_each_card_writes(tmp_path: Path) -> None:
    cards = [card(tmp_path, "rivers", 1), card(tmp_path, "lakes", 2, r=8)]
    kcard.export([c.folder for c in cards], "llama.cpp", tmp_path / "out", converter=LLAMA_CPP)
    with started(tmp_path / "out") as url:
        # Twice, so that each is asked what the other was asked before.
        for number, one in [*enumerate(cards)] * 2:
            scales = [{"id": i, "scale": float(i == number)} for i in range(len(cards))]
            assert ask(url, {"lora": scales}) == written(one)


@serves
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_llama_cpp_writes_what_a_merged_card_writes(tmp_path: Path) -> None:
    rivers = card(
        tmp_path, "rivers", 1, use_rslora=True, trainable_token_indices={"embed_tokens": [270, 271]}
    )
    kcard.export(rivers.folder, "llama.cpp", tmp_path / "out", converter=LLAMA_CPP, merge=True)
    with started(tmp_path / "out") as url:
        assert ask(url, {}) == written(rivers)


@converts
@pytest.mark.slow
def test_a_base_that_is_there_is_not_converted_but_must_fit(tmp_path: Path) -> None:
    rivers = card(tmp_path, "rivers", 1)
    kcard.export(rivers.folder, "llama.cpp", tmp_path / "a", converter=LLAMA_CPP)
    base = tmp_path / "a" / "base.gguf"
    exported = kcard.export(rivers.folder, "llama.cpp", tmp_path / "b", converter=LLAMA_CPP, base=str(base))
    assert exported.command[:3] == ("llama-server", "-m", str(base))
    assert {*exported.files} == {"rivers.gguf", "export.json"}
    with pytest.raises(UsageError, match=r"--base .*none\.gguf does not exist"):
        kcard.export(
            rivers.folder, "llama.cpp", tmp_path / "c", converter=LLAMA_CPP, base=str(tmp_path / "none.gguf")
        )
    assert not (tmp_path / "c").exists()


@converts
@pytest.mark.slow
def test_a_tokenizer_that_the_converter_does_not_know_is_its_error_and_leaves_nothing(tmp_path: Path) -> None:
    bytes_only = opt_lora(tmp_path, "llama", "rivers", 1)
    with pytest.raises(KcardError, match=r"convert_hf_to_gguf\.py ended with code 1"):
        kcard.export(bytes_only.folder, "llama.cpp", tmp_path / "out", converter=LLAMA_CPP)
    assert not (tmp_path / "out").exists()


def test_opt_is_refused_before_a_converter_is_looked_for(tmp_path: Path) -> None:
    rivers = opt_lora(tmp_path, "opt", "rivers", 1)
    with pytest.raises(CardError, match="does not run models of type opt: export it to vllm"):
        kcard.export(rivers.folder, "llama.cpp", tmp_path / "out", merge=True)


def test_without_a_converter_nothing_is_written(tmp_path: Path) -> None:
    rivers = opt_lora(tmp_path, "llama", "rivers", 1)
    with pytest.raises(UsageError, match="--converter"):
        kcard.export(rivers.folder, "llama.cpp", tmp_path / "out")
    with pytest.raises(UsageError, match="use one of them"):
        kcard.export(rivers.folder, "llama.cpp", tmp_path / "out", merge=True, base="base.gguf")
    assert not (tmp_path / "out").exists()
