"""The folder of a card: its files, its README for the hub, and the profile by which it is chosen."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import EvalResult, ModelCard

import kcard
from kcard.cards.card import Card, finish
from kcard.cards.generators.external import load_model_of_card
from kcard.cards.model_card import ExamResult, readme, with_results
from kcard.cards.models.loader import Loader
from kcard.cards.passages import passages
from kcard.cards.profile import MAX_CENTROIDS, MAX_TERMS, Profile, profile_of, terms_of
from kcard.embedded import minilm
from kcard.errors import CardError, DamagedCard, HubError
from kcard.manifest import Base, Manifest, Training, seal
from kcard.types import Source

SCRATCH = Manifest(
    name="rivers", description="Rivers of Europe", domain="geography/rivers", licence="cc0-1.0"
)
PASSAGES = [
    Source("The Rhine flows into the North Sea.", "rivers.txt", 1),
    Source('It said "über\u2028stream"\nand went on.', "rivers.txt", 7),
]


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


def test_a_card_answers_is_examined_and_published_by_its_methods(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("Ines Okafor repairs the lathe.\nTom Reyes planted the apple trees.\n")
    card = kcard.train(notes, kind="retrieval", name="house", description="The house", exam=False)
    elsewhere = kcard.Card.open(shutil.move(card.folder, tmp_path / "elsewhere"))
    answer = elsewhere.ask("Who repairs the lathe?", llm="embedded")
    assert (answer.answer, answer.cards) == ("Ines Okafor", ("house",))
    assert elsewhere.ask("Who repairs the lathe?", "A=Tom Reyes; B=Ines Okafor").choice == "B"
    assert elsewhere.exam(limit=1).card == "house"
    assert elsewhere.publish().reference == "house@v1"
    with pytest.raises(HubError, match=r"127\.0\.0\.1:9 does not answer"):
        elsewhere.push("http://127.0.0.1:9")


def test_a_finished_card_opens_with_its_manifest_and_passages(tmp_path: Path) -> None:
    finished = finish(model_files(tmp_path), SCRATCH, PASSAGES)
    opened = Card.open(tmp_path)
    assert opened == finished
    assert opened.manifest.description == "Rivers of Europe"
    names = set(opened.manifest.files)
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} < names
    assert {"passages.jsonl", "routing.json", "index/vocab.index.json", "index/passages.sha256"} < names
    assert list(passages(tmp_path)) == PASSAGES


def test_what_is_no_whole_card_is_not_opened_and_not_finished(tmp_path: Path) -> None:
    with pytest.raises(CardError, match=r"not a card: it has no kcard\.json"):
        Card.open(model_files(tmp_path))
    finish(tmp_path, SCRATCH, PASSAGES)
    (tmp_path / "model.safetensors").write_text("other weights")
    with pytest.raises(DamagedCard, match=r"model\.safetensors.*damaged"):
        Card.open(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CardError, match=r"has no model\.safetensors"):
        finish(tmp_path, SCRATCH, PASSAGES)
    assert not (tmp_path / "kcard.json").exists()
    lora = Manifest(name="rivers", description="Rivers", method="lora", base=Base("tiny"))
    with pytest.raises(CardError, match=r"no adapter_config\.json"):
        finish(model_files(tmp_path), lora, [])
    assert finish(model_files(tmp_path / "lora", "lora"), lora, []).manifest.method == "lora"


def older(**manifest: object) -> str:
    return json.dumps({"format": 1, "name": "rivers", "description": "Rivers", **manifest})


@pytest.mark.parametrize(
    ("old", "kind", "method"),
    [
        ({"kind": "full", "index": True}, "both", "full"),
        ({"kind": "lora"}, "model", "lora"),
        ({}, "model", "full"),
        ({"kind": "retrieval", "index": False}, "retrieval", ""),
        ({"kind": "both", "method": "lora"}, "both", "lora"),
    ],
)
def test_the_kinds_of_older_manifests_are_read(old: dict[str, object], kind: str, method: str) -> None:
    read = Manifest.from_json(older(**old))
    assert (read.kind, read.method, read.index) == (kind, method, kind == "both")
    assert Manifest.from_json(read.to_json()) == read
    assert "index" not in json.loads(read.to_json())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "both", "method": "dora"}, "method 'dora' is unknown"),
        ({"kind": "full", "index": "yes"}, "index is 'yes', but must be true or false"),
    ],
)
def test_a_manifest_with_a_wrong_method_or_index_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(CardError, match=message):
        Manifest.from_json(older(**wrong))


@pytest.mark.parametrize(
    "old", [{"kind": "prefix", "index": True}, {"kind": "both", "method": "prefix"}, {"method": "lora"}]
)
def test_a_prefix_card_of_an_older_version_is_refused(old: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "PREFIX_TUNING"}')
    (tmp_path / "adapter_model.safetensors").touch()
    (tmp_path / "tokenizer.json").touch()
    (tmp_path / "kcard.json").write_text(older(base={"name": "tiny"}, **old))
    message = r"^card 'rivers': .*this kcard has no prefix cards: train it again with --method lora$"
    with pytest.raises(CardError, match=message):
        load_model_of_card(Card.open(tmp_path), Loader())


def test_an_unknown_kind_is_named_with_the_known_ones(tmp_path: Path) -> None:
    seal(model_files(tmp_path), Manifest(name="rivers", description="Rivers", kind="oracle"))
    kinds = "both, graph, llm, model, reference, retrieval, search"
    with pytest.raises(CardError, match=f"unknown kind 'oracle'; this kcard knows {kinds}"):
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
    base = Base("facebook/opt-1.3b", "a1b2")
    manifest = replace(SCRATCH, description="Rivers: of Europe", method="lora", base=base, training=trained)
    finish(model_files(tmp_path, "lora"), manifest, [])
    read = ModelCard.load(tmp_path / "README.md")
    data = read.data.to_dict()
    expected = {
        "base_model": "facebook/opt-1.3b",
        "base_model_relation": "adapter",
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "license": "cc0-1.0",
        "language": ["en"],
        "datasets": ["corpus-abababababab"],
        "tags": ["kcard", "knowledge-card", "geography", "rivers"],
    }
    assert {key: data[key] for key in expected} == expected
    for text in ("Rivers: of Europe", "exposures", "PeftModel.from_pretrained", "revision='a1b2'"):
        assert text in read.content
    finish(model_files(tmp_path / "scratch"), SCRATCH, PASSAGES)
    data = ModelCard.load(tmp_path / "scratch" / "README.md").data.to_dict()
    assert not {"base_model", "base_model_relation"} & data.keys()
    assert data["library_name"] == "transformers"


TEXTS = [f"Moon {n} of Saturn was seen by observer {n} in the year {1700 + n}." for n in range(60)]
PROFILE = profile_of("en", TEXTS[:2]).to_json()


def test_a_profile_is_read_as_it_was_written_with_few_centroids_near_to_what_they_stand_for() -> None:
    vectors = minilm.embed(TEXTS)
    made = profile_of("en", TEXTS, vectors)
    read = Profile.from_json(made.to_json())
    assert read is not None
    assert np.array_equal(read.centroids, made.centroids)
    assert np.array_equal(read.terms, made.terms)
    assert read.language == "en"
    rows = made.centroids.astype(np.float32) / 127
    assert len(rows) == MAX_CENTROIDS
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=0.01)
    assert (vectors @ rows.T).max(axis=1).min() > (vectors @ vectors.mean(axis=0)).min()


def test_terms_are_stems_without_small_words() -> None:
    assert terms_of("The moons were discovered", "en") == terms_of("discovering a moon", "en")
    assert terms_of("the of and", "en") == frozenset()
    assert terms_of("Der Mond", "de") == terms_of("Monde", "de")


def test_of_many_terms_those_of_most_texts_are_kept() -> None:
    texts = ["common " + " ".join(f"word{i}x{j}" for j in range(100)) for i in range(50)]
    made = profile_of("en", texts)
    assert len(made.terms) == MAX_TERMS
    assert set(terms_of("common", "en")) <= set(made.terms.tolist())


@pytest.mark.parametrize("damage", [{"terms": "!"}, {"centroids": "AAAA"}, {"terms": 3}])
def test_a_damaged_profile_is_reported(damage: dict[str, object]) -> None:
    with pytest.raises(CardError, match=r"routing\.json is damaged"):
        Profile.from_json(json.dumps(json.loads(PROFILE) | damage))


@pytest.mark.parametrize("other", [{"format": 2}, {"encoder_sha256": "0" * 64}])
def test_a_profile_of_another_format_or_encoder_is_not_used(other: dict[str, object]) -> None:
    assert Profile.from_json(json.dumps(json.loads(PROFILE) | other)) is None


def test_a_card_that_travels_with_hashes_has_none(tmp_path: Path) -> None:
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "search.json").write_text("{}")
    secret = Manifest("card", "x", kind="search", evidence="hashes")
    assert "routing.json" not in finish(tmp_path / "card", secret, [Source("A secret.")]).manifest.files


def test_an_exam_adds_the_questions_that_were_answered_right(tmp_path: Path) -> None:
    corpus = tmp_path / "moons.txt"
    corpus.write_text("\n\n".join(TEXTS))
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


# Results in a card's README.md: other tools read them, people too, and the rest of the page stays.


PAGE = readme(Manifest("rivers", "Rivers of Europe", "geography"))
RECALL = ExamResult("recall", "Recall", 0.9, 0.85, 0.94, "own corpus", "corpus-abc", "ab" * 32)
FACTUALITY = replace(
    RECALL, metric="factuality", name="Factuality against atlas.txt", mean=0.5, args={"evidence": "atlas.txt"}
)
GIVEN = replace(RECALL, mean=0.7, dataset="seas.jsonl", dataset_type="questions-def", sha256="cd" * 32)


def data_of(page: str) -> Any:
    """What the Hub's tools read of the page."""
    return ModelCard(page).data


def test_the_results_are_read_by_the_tools_of_the_hub_and_by_people_and_the_page_stays_as_it_was() -> None:
    page = with_results(PAGE, "rivers", [RECALL, FACTUALITY, GIVEN], ["Asked of 200 passages."])
    data = data_of(page)
    assert data.model_name == "rivers"
    read = [(r.dataset_name, r.metric_type, r.metric_value, r.dataset_revision) for r in data.eval_results]
    assert read == [
        ("own corpus", "recall", 0.9, "ab" * 32),
        ("own corpus", "factuality", 0.5, "ab" * 32),
        ("seas.jsonl", "recall", 0.7, "cd" * 32),
    ]
    assert {r.task_type for r in data.eval_results} == {"question-answering"}
    assert data.eval_results[1].metric_args == {"evidence": "atlas.txt"}
    assert data.tags == ["kcard", "knowledge-card", "geography"]
    assert "| Recall | 0.90 | 0.85 to 0.94 | own corpus |" in page
    assert "Asked of 200 passages." in page
    body = PAGE.split("---\n", 2)[2]
    assert page.split("---\n", 2)[2].startswith(body.rstrip())
    assert page.endswith("\n")


def test_writing_them_again_changes_nothing_and_newer_ones_replace_them() -> None:
    once = with_results(PAGE, "rivers", [RECALL, GIVEN], ["One."])
    assert with_results(once, "rivers", [RECALL, GIVEN], ["One."]) == once
    newer = with_results(once, "rivers", [replace(RECALL, mean=0.95)], ["Two."])
    assert newer == with_results(PAGE, "rivers", [replace(RECALL, mean=0.95)], ["Two."])
    assert "seas.jsonl" not in newer


def test_what_others_measured_stays() -> None:
    theirs = EvalResult(
        task_type="text-generation",
        dataset_type="squad",
        dataset_name="SQuAD",
        metric_type="f1",
        metric_value=0.3,
    )
    card: Any = ModelCard(PAGE)
    card.data.model_name, card.data.eval_results = "their-name", [theirs]
    page = with_results(with_results(str(card), "rivers", [RECALL], []), "rivers", [RECALL], [])
    data = data_of(page)
    assert data.model_name == "their-name"
    assert [r.metric_type for r in data.eval_results] == ["f1", "recall"]


def test_names_are_text_and_never_markup() -> None:
    nasty = replace(RECALL, dataset="a|b <!-- end of exam --> <script>\n# c")
    page = with_results(PAGE, "rivers", [nasty], ["<b>| x"])
    assert "a\\|b &lt;!-- end of exam --> &lt;script> # c |" in page
    assert with_results(page, "rivers", [nasty], ["<b>| x"]) == page
    assert data_of(page).eval_results[0].dataset_name == nasty.dataset


def test_front_matter_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="metadata"):
        with_results("---\n- a list\n---\n# Page\n", "rivers", [RECALL], [])
