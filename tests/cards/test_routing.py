"""routing.json: small, the same for the same corpus, and nothing of texts that may not travel."""

import json
from pathlib import Path

import numpy as np
import pytest

import kcard
from kcard.cards.card import CENTROIDS, TERMS, Profile, finish, profile_of, terms_of
from kcard.errors import CardError
from kcard.manifest import Manifest
from kcard.offline import minilm
from kcard.types import Source

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


def test_equal_texts_have_one_centroid() -> None:
    assert len(profile_of("en", ["One."], minilm.embed(["One."] * 5)).centroids) == 1


def test_no_vectors_give_no_centroids() -> None:
    assert profile_of("de", ["Karl herrschte."], minilm.embed([])).centroids.shape == (0, 384)


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
