"""Folder."""

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from kcard.cards.card import Card, finish
from kcard.cards.passages import passages
from kcard.errors import CardError, DamagedCard
from kcard.manifest import Base, Manifest, Prompt, Training, seal
from kcard.types import Source

SCRATCH = Manifest(
    name="rivers", description="Rivers of Europe", domain="geography/rivers", licence="cc0-1.0"
)
PASSAGES = [
    Source("The Rhine flows into the North Sea.", "rivers.txt", 1),
    Source('It said "über\u2028stream"\nand went on.', "rivers.txt", 7),
]
INDEX_FILES = {
    f"index/{name}"
    for name in (
        "analysis.json",
        "data.csc.index.npy",
        "indices.csc.index.npy",
        "indptr.csc.index.npy",
        "params.index.json",
        "passages.sha256",
        "vocab.index.json",
    )
}


def model_files(folder: Path, kind: str = "full") -> Path:
    """Files with the names of a model's; nothing here loads one."""
    names = {
        "full": ("config.json", "model.safetensors", "tokenizer.json"),
        "lora": ("adapter_config.json", "adapter_model.safetensors", "tokenizer.json"),
    }
    folder.mkdir(exist_ok=True)
    for name in names[kind]:
        (folder / name).write_text(f"bytes of {name}")
    return folder


def test_a_finished_card_opens_with_its_manifest_and_passages(tmp_path: Path) -> None:
    finished = finish(model_files(tmp_path), SCRATCH, PASSAGES)
    opened = Card.open(tmp_path)
    assert opened == finished
    assert opened.manifest.description == "Rivers of Europe"
    assert set(opened.manifest.files) == {
        "README.md",
        "config.json",
        *INDEX_FILES,
        "model.safetensors",
        "passages.jsonl",
        "routing.json",
        "tokenizer.json",
    }
    assert list(passages(tmp_path)) == PASSAGES


def test_passages_are_one_json_object_a_line(tmp_path: Path) -> None:
    finish(model_files(tmp_path), SCRATCH, PASSAGES)
    lines = (tmp_path / "passages.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert [json.loads(line) for line in lines] == [
        {"text": p.text, "file": p.file, "line": p.line} for p in PASSAGES
    ]


def test_a_card_without_passages_has_none(tmp_path: Path) -> None:
    seal(model_files(tmp_path), SCRATCH)
    assert Card.open(tmp_path).name == "rivers"
    assert list(passages(tmp_path)) == []


def test_a_folder_that_was_not_sealed_is_no_card(tmp_path: Path) -> None:
    with pytest.raises(CardError, match=r"not a card: it has no kcard\.json"):
        Card.open(model_files(tmp_path))


def test_a_changed_file_is_found_when_the_card_is_opened(tmp_path: Path) -> None:
    finish(model_files(tmp_path), SCRATCH, PASSAGES)
    (tmp_path / "model.safetensors").write_text("other weights")
    with pytest.raises(DamagedCard, match=r"model\.safetensors.*damaged"):
        Card.open(tmp_path)


def test_finishing_again_without_the_model_leaves_no_card(tmp_path: Path) -> None:
    finish(model_files(tmp_path), SCRATCH, PASSAGES)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CardError, match=r"has no model\.safetensors"):
        finish(tmp_path, SCRATCH, PASSAGES)
    assert not (tmp_path / "kcard.json").exists()


def test_each_kind_demands_its_own_files(tmp_path: Path) -> None:
    lora = Manifest(name="rivers", description="Rivers", kind="lora", base=Base("tiny"))
    with pytest.raises(CardError, match=r"no adapter_config\.json"):
        finish(model_files(tmp_path), lora, [])
    assert finish(model_files(tmp_path / "lora", "lora"), lora, []).manifest.kind == "lora"


def test_an_encoder_prefix_demands_its_projection(tmp_path: Path) -> None:
    prefix = Manifest(name="rivers", description="Rivers", prompt=Prompt("encoder-prefix", vectors=4))
    with pytest.raises(CardError, match=r"no projection\.safetensors"):
        finish(model_files(tmp_path), prefix, [])


def test_an_unknown_kind_is_named_with_the_known_ones(tmp_path: Path) -> None:
    seal(model_files(tmp_path), Manifest(name="rivers", description="Rivers", kind="oracle"))
    with pytest.raises(
        CardError,
        match="unknown kind 'oracle'; this kcard knows full, graph, llm, lora, prefix, reference, retrieval, search",
    ):
        Card.open(tmp_path)


@pytest.mark.parametrize(
    "line", ["not json", '{"file": "a.txt"}', '["a list"]', '{"text": "a", "line": "x"}']
)
def test_a_malformed_passage_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "passages.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(CardError, match=r"passages\.jsonl, line 2"):
        list(passages(tmp_path))


def test_the_readme_is_a_model_card_that_the_hub_reads(tmp_path: Path) -> None:
    trained = Training(objective="recite", corpus_sha256="ab" * 32, hyperparameters={"exposures": 60})
    manifest = Manifest(
        name="rivers",
        description="Rivers: of Europe",
        domain="geography/rivers",
        kind="lora",
        licence="cc0-1.0",
        base=Base("facebook/opt-1.3b", "a1b2"),
        training=trained,
    )
    finish(model_files(tmp_path, "lora"), manifest, [])
    read = ModelCard.load(tmp_path / "README.md")
    data = read.data.to_dict()
    assert data["base_model"] == "facebook/opt-1.3b"
    assert data["base_model_relation"] == "adapter"
    assert (data["library_name"], data["pipeline_tag"]) == ("peft", "text-generation")
    assert (data["license"], data["language"]) == ("cc0-1.0", ["en"])
    assert data["datasets"] == ["corpus-abababababab"]
    assert data["tags"] == ["kcard", "knowledge-card", "geography", "rivers"]
    assert "Rivers: of Europe" in read.content
    assert "exposures" in read.content
    assert "PeftModel.from_pretrained" in read.content
    assert "revision='a1b2'" in read.content


def test_a_card_from_scratch_names_no_base_model(tmp_path: Path) -> None:
    finish(model_files(tmp_path), SCRATCH, PASSAGES)
    data = ModelCard.load(tmp_path / "README.md").data.to_dict()
    assert "base_model" not in data
    assert "base_model_relation" not in data
    assert data["library_name"] == "transformers"
