"""The folder of a card: its files, its README for the hub, and the profile by which it is chosen."""

import json
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard

import kcard
from kcard.cards.card import CENTROIDS, TERMS, Card, Profile, finish, profile_of, terms_of
from kcard.cards.passages import passages
from kcard.errors import CardError, DamagedCard
from kcard.manifest import Base, Manifest, Prompt, Training, seal
from kcard.offline import minilm
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
    lora = Manifest(name="rivers", description="Rivers", method="lora", base=Base("tiny"))
    with pytest.raises(CardError, match=r"no adapter_config\.json"):
        finish(model_files(tmp_path), lora, [])
    assert finish(model_files(tmp_path / "lora", "lora"), lora, []).manifest.method == "lora"


@pytest.mark.parametrize(
    ("old", "kind", "method"),
    [
        ({"kind": "full", "index": True}, "both", "full"),
        ({"kind": "prefix", "index": False}, "model", "prefix"),
        ({"kind": "lora"}, "model", "lora"),
        ({}, "model", "full"),
        ({"kind": "retrieval", "index": False}, "retrieval", ""),
        ({"kind": "both", "method": "lora"}, "both", "lora"),
    ],
)
def test_the_kinds_of_older_manifests_are_read(old: dict[str, object], kind: str, method: str) -> None:
    read = Manifest.from_json(json.dumps({"format": 1, "name": "rivers", "description": "Rivers", **old}))
    assert (read.kind, read.method, read.index) == (kind, method, kind == "both")
    assert Manifest.from_json(read.to_json()) == read
    assert "index" not in json.loads(read.to_json())


@pytest.mark.parametrize("wrong", [{"kind": "both", "method": "dora"}, {"kind": "full", "index": "yes"}])
def test_an_unknown_method_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(
        CardError, match=r"method 'dora' is unknown|index is 'yes', but must be true or false"
    ):
        Manifest.from_json(json.dumps({"format": 1, "name": "rivers", "description": "Rivers", **wrong}))


def test_an_encoder_prefix_demands_its_projection(tmp_path: Path) -> None:
    prefix = Manifest(name="rivers", description="Rivers", prompt=Prompt("encoder-prefix", vectors=4))
    with pytest.raises(CardError, match=r"no projection\.safetensors"):
        finish(model_files(tmp_path), prefix, [])


def test_an_unknown_kind_is_named_with_the_known_ones(tmp_path: Path) -> None:
    seal(model_files(tmp_path), Manifest(name="rivers", description="Rivers", kind="oracle"))
    with pytest.raises(
        CardError,
        match="unknown kind 'oracle'; this kcard knows both, graph, llm, model, reference, retrieval, search",
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
        method="lora",
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


TEXTS = [f"Moon {n} of Saturn was seen by observer {n} in the year {1700 + n}." for n in range(60)]


def test_a_profile_is_read_as_it_was_written() -> None:
    made = profile_of("en", TEXTS, minilm.embed(TEXTS))
    read = Profile.from_json(made.to_json())
    assert read is not None
    assert np.array_equal(read.centroids, made.centroids)
    assert np.array_equal(read.terms, made.terms)
    assert read.language == "en"


def test_centroids_are_few_and_near_to_what_they_stand_for() -> None:
    vectors = minilm.embed(TEXTS)
    made = profile_of("en", TEXTS, vectors)
    rows = made.centroids.astype(np.float32) / 127
    assert len(rows) == CENTROIDS
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=0.01)
    assert (vectors @ rows.T).max(axis=1).min() > (vectors @ vectors.mean(axis=0)).min()


def test_terms_are_stems_without_small_words() -> None:
    assert terms_of("The moons were discovered", "en") == terms_of("discovering a moon", "en")
    assert terms_of("the of and", "en") == frozenset()
    assert terms_of("Der Mond", "de") == terms_of("Monde", "de")


def test_of_many_terms_those_of_most_texts_are_kept() -> None:
    texts = ["common " + " ".join(f"word{i}x{j}" for j in range(100)) for i in range(50)]
    made = profile_of("en", texts)
    assert len(made.terms) == TERMS
    assert set(terms_of("common", "en")) <= set(made.terms.tolist())


@pytest.mark.parametrize("change", [{"terms": "!"}, {"centroids": "AAAA"}, {"terms": 3}])
def test_a_damaged_profile_is_reported(change: dict[str, object]) -> None:
    data = json.loads(profile_of("en", TEXTS[:2]).to_json()) | change
    with pytest.raises(CardError, match=r"routing\.json is damaged"):
        Profile.from_json(json.dumps(data))


@pytest.mark.parametrize("change", [{"format": 2}, {"encoder_sha256": "0" * 64}])
def test_one_of_another_format_or_encoder_is_not_used(change: dict[str, object]) -> None:
    assert Profile.from_json(json.dumps(json.loads(profile_of("en", TEXTS[:2]).to_json()) | change)) is None


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "moons.txt"
    path.write_text("\n\n".join(TEXTS))
    return path


def test_training_writes_the_same_profile_for_the_same_corpus(corpus: Path, tmp_path: Path) -> None:
    first, second = (
        kcard.train(corpus, name="moons", kind="retrieval", output=tmp_path / name).manifest for name in "ab"
    )
    assert first.files["routing.json"] == second.files["routing.json"]


def test_a_card_that_travels_with_hashes_has_none(tmp_path: Path) -> None:
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "search.json").write_text("{}")
    secret = Manifest("card", "x", kind="search", evidence="hashes")
    assert "routing.json" not in finish(tmp_path / "card", secret, [Source("A secret.")]).manifest.files


def test_an_exam_adds_the_questions_that_were_answered_right(corpus: Path, tmp_path: Path) -> None:
    card = kcard.train(corpus, name="moons", kind="retrieval", output=tmp_path / "card")
    before = _centroids(card.folder)
    questions = tmp_path / "questions.jsonl"
    rows = [("Who saw moon 7 of Saturn?", "observer 7"), ("Who painted the Mona Lisa?", "Leonardo da Vinci")]
    questions.write_text("".join(json.dumps({"question": q, "answers": [a]}) + "\n" for q, a in rows))
    kcard.exam(card.folder, questions=questions, limit=1)
    after = _centroids(card.folder)
    asked, wrong = minilm.embed([question for question, _ in rows])
    assert len(after) > len(before)
    assert (after @ asked).max() > 0.97
    assert (after @ wrong).max() < 0.5
    type(card).open(card.folder)  # whose files are sealed


def _centroids(folder: Path) -> np.ndarray:
    found = Profile.from_json((folder / "routing.json").read_text(encoding="utf-8"))
    assert found is not None
    return found.centroids.astype(np.float32) / 127
