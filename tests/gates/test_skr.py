"""SKR's nearest neighbours and classifier: the paper's rule, literally, and what can't be fitted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcard.errors import ModelUnavailable, UsageError
from kcard.gates import base
from kcard.gates.base import Resources
from kcard.gates.heads import fit_calibrated
from kcard.gates.records import Query, Record, digest
from kcard.gates.registry import load, save
from kcard.gates.skr import Classifier, FineTuned, NearestNeighbours
from kcard.interfaces import Array


@dataclass
class Given:
    """Questions whose vectors the test names."""

    table: dict[str, tuple[float, ...]]
    name: str = "given"
    digest: str = "0" * 64
    asked: list[str] = field(default_factory=list)

    def vectors(self, questions: Sequence[str]) -> Array:
        self.asked += questions
        return np.array([self.table[q] for q in questions], dtype=np.float32).reshape(-1, 2)


def record(question: str, knows: bool) -> Record:
    return Record(question, float(knows), 1.0)


def circle(degrees: float) -> tuple[float, float]:
    return float(np.cos(np.deg2rad(degrees))), float(np.sin(np.deg2rad(degrees)))


def around(labels: Sequence[bool]) -> tuple[list[Record], Given]:
    """Records at 0, 5, 10 ... degrees; the question "q" lies at 0 and so has them as neighbours in their order."""
    table = {str(i): circle(5.0 * i) for i in range(len(labels))}
    return [record(str(i), knows) for i, knows in enumerate(labels)], Given({**table, "q": circle(0)})


def knn(records: Sequence[Record], encoder: Given, k: int | None = None) -> NearestNeighbours:
    return NearestNeighbours.fit(records, {} if k is None else {"k": k}, Resources(representation=encoder))


@pytest.mark.parametrize("near", range(1, 10))
def test_a_share_that_equals_that_of_all_records_is_known_however_it_is_rounded(near: int) -> None:
    gate = knn(*around([True] * near + [False] * (10 - near)), 10)
    assert float(gate.scores([Query("q")])[0]) == gate.threshold


def test_of_equally_near_records_the_first_ones_count_also_where_all_embeddings_are_equal() -> None:
    labels = [True, False, True, False, False, False]
    records = [record(str(i), knows) for i, knows in enumerate(labels)]
    same = Given({**{str(i): (0.3, 0.7) for i in range(6)}, "q": (0.3, 0.7)})
    np.testing.assert_allclose(knn(records, same, 1).scores([Query("q")]), [1.0])
    np.testing.assert_allclose(knn(records, same, 3).scores([Query("q"), Query("q")]), [2 / 3] * 2)
    assert np.isfinite(knn(records, same).scores([Query("q")])).all()


@pytest.mark.parametrize(
    ("records", "question", "score"),
    [
        pytest.param([(0.0, 0.0), (1.0, 0.0)], (1.0, 0.0), 0.0, id="zeros are similar to nothing"),
        pytest.param([(0.0, 0.0), (1.0, 0.0)], (0.0, 0.0), 1.0, id="and still finite"),
        pytest.param([(100.0, 100.0), (0.1, 0.0)], (5.0, 1.0), 0.0, id="only the direction counts"),
    ],
)
def test_the_nearest_record_is_that_of_the_smallest_angle(
    records: list[tuple[float, float]], question: tuple[float, float], score: float
) -> None:
    encoder = Given({"known": records[0], "unknown": records[1], "q": question})
    gate = knn([record("known", True), record("unknown", False)], encoder, 1)
    assert gate.scores([Query("q")]).tolist() == [score]
    assert gate.scores([]).shape == (0,)
    assert gate.settings["encoder"] == "given"


def test_records_wrong_both_ways_are_left_out_of_fitting() -> None:
    records, encoder = around([True, False, False])
    gate = knn([Record("0", 0, 0), *records], encoder, 3)
    assert gate.threshold == pytest.approx(1 / 3)
    assert len(gate.vectors) == 3


def literal_leave_one_out(labels: Sequence[bool], k: int) -> float:
    """How many answers are right with each record held out, its neighbours by angle; m, n without it."""
    right, judged = 0.0, 0
    for i, knows in enumerate(labels):
        others = sorted((j for j in range(len(labels)) if j != i), key=lambda j: (abs(j - i), j))
        m = sum(labels[j] for j in others)
        if m in {0, len(others)}:
            continue
        judged += 1
        near = sum(labels[j] for j in others[:k])
        known = Fraction(near, k) >= Fraction(m, len(others))
        right += float(knows) if known else 1.0
    return right / judged if judged else 0.0


@given(st.lists(st.booleans(), min_size=4, max_size=25))
@settings(max_examples=40)
def test_k_is_tuned_by_leaving_one_out_with_m_and_n_of_the_others(labels: list[bool]) -> None:
    labels = [True, *labels, False]
    tried = range(3, min(10, len(labels) - 1) + 1)
    by_hand = [literal_leave_one_out(labels, k) for k in tried]
    best = tried[int(np.argmax(np.round(by_hand, 9)))]
    assert knn(*around(labels)).k == best


@pytest.mark.parametrize("labels", [[True, False], [True, False, False], [True, True, False]])
def test_k_is_at_most_the_records_where_there_are_few(labels: list[bool]) -> None:
    gate = knn(*around(labels))
    assert gate.k <= len(labels)
    assert np.isfinite(gate.scores([Query("q")])).all()


@pytest.mark.parametrize("kind", ["skr-knn", "skr-classifier"])
@pytest.mark.parametrize(("knows", "said"), [(True, "better with cards"), (False, "as well without cards")])
def test_an_empty_side_is_refused(kind: str, knows: bool, said: str) -> None:
    records = [Record("x", 0, 0), *(record(str(i), knows) for i in range(4))]
    with pytest.raises(UsageError, match=f"gate {kind}: of 5 records none .* {said}: add") as caught:
        base.find(kind).fit(records, {}, Resources())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["skr-knn", "skr-classifier"])
def test_embeddings_that_are_no_numbers_are_refused_when_fitting_and_when_asking(kind: str) -> None:
    records, encoder = around([True, False, True, False])
    gate = base.find(kind).fit(records, {}, Resources(representation=encoder))
    encoder.table["q"] = (float("nan"), 0.0)
    with pytest.raises(UsageError, match="gives 'q' a vector that is not finite"):
        gate.scores([Query("q")])
    encoder.table["1"] = (float("inf"), 0.0)
    with pytest.raises(UsageError, match="gives '1' a vector that is not finite"):
        base.find(kind).fit(records, {}, Resources(representation=encoder))


def test_a_score_does_not_depend_on_the_other_questions() -> None:
    records, encoder = around([True, False, True, True, False] * 3)
    for gate in (knn(records, encoder), Classifier.fit(records, {}, Resources(representation=encoder))):
        queries = [Query(str(i)) for i in range(15)]
        alone = [float(gate.scores([query])[0]) for query in queries]
        np.testing.assert_allclose(gate.scores(queries), alone, rtol=1e-6)


def cloud(rng: np.random.Generator, count: int, apart: float) -> tuple[np.ndarray, np.ndarray]:
    truth = rng.random(count) < 0.4
    return rng.normal(size=(count, 20)) + apart * np.outer(truth - 0.5, np.eye(20)[0]), truth


def test_the_classifiers_probabilities_can_be_believed() -> None:
    rng = np.random.default_rng(0)
    head = fit_calibrated(*cloud(rng, 300, 2.0), seed=0)
    vectors, truth = cloud(rng, 4000, 2.0)
    said = head.probabilities(vectors)
    for low, high in ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)):
        held = (said >= low) & (said < high)
        assert held.sum() > 100
        assert truth[held].mean() == pytest.approx(said[held].mean(), abs=0.1)
    # the best that can be had is the sign of the first coordinate, moved for the unequal classes
    assert ((said > 0.5) == truth).mean() > 0.8


@pytest.mark.parametrize("labels", [[True, False], [True, False, False, False], [True] * 5 + [False]])
def test_a_classifier_of_hardly_any_records_is_finite(labels: list[bool]) -> None:
    records, encoder = around(labels)
    same = Given(dict.fromkeys(encoder.table, (1.0, 1.0)))
    for used in (encoder, same):
        gate = Classifier.fit(records, {}, Resources(representation=used))
        scores = gate.scores([Query("q"), Query("0")])
        assert np.isfinite(scores).all()
        assert ((scores >= 0) & (scores <= 1)).all()


# SKR's classifier with its encoder trained, tried on a tiny BERT that the test makes.

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "who",
    "won",
    "race",
    "capital",
    "of",
    "what",
    "is",
    "?",
]

RECORDS = [
    *(Record(f"what is the capital of {n}?", 1, 1) for n in range(6)),
    *(Record(f"who won the race of {n}?", 0, 1) for n in range(6)),
    Record("neither", 0, 0),
]
ASKED = [Query("what is the capital?"), Query("who won the race?"), Query("?")]


def make(folder: Path, words: list[str] = WORDS, seed: int = 0) -> str:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    pieces = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(
        folder
    )
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    BertModel(config).save_pretrained(folder)
    return f"hf:{folder}"


def fitted(encoder: str, **settings: object) -> FineTuned:
    return FineTuned.fit(
        RECORDS, {"encoder": encoder, "learning_rate": 0.02, "batch": 4, **settings}, Resources()
    )


def test_the_encoder_learns_to_tell_what_is_known_and_the_same_seed_gives_the_same_gate(
    tmp_path: Path,
) -> None:
    encoder = make(tmp_path / "bert")
    gate = fitted(encoder)
    scores = gate.scores(ASKED)
    assert scores[0] > 0.5 > scores[1]
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(fitted(encoder).scores(ASKED), scores)
    assert not np.array_equal(fitted(encoder, seed=1).scores(ASKED), scores)
    assert gate.scores([]).shape == (0,)
    np.testing.assert_allclose([gate.scores([query])[0] for query in ASKED], scores, atol=1e-5)


def test_a_saved_gate_scores_as_before_and_keeps_its_own_weights(tmp_path: Path) -> None:
    encoder = make(tmp_path / "bert")
    gate = fitted(encoder)
    save(gate, tmp_path / "gate", digest(RECORDS))
    make(tmp_path / "bert", seed=5)
    again = load(tmp_path / "gate")
    np.testing.assert_array_equal(again.scores(ASKED), gate.scores(ASKED))
    assert again.settings == gate.settings


def test_a_gate_whose_encoder_has_changed_its_words_is_refused_naming_both(tmp_path: Path) -> None:
    encoder = make(tmp_path / "bert")
    save(fitted(encoder, epochs=1), tmp_path / "gate", digest(RECORDS))
    make(tmp_path / "bert", [*WORDS, "more"])
    with pytest.raises(
        UsageError, match=r"fitted on the encoder hf:.* not on the model that now has this name"
    ):
        load(tmp_path / "gate")


def test_what_can_not_be_fitted_is_said(tmp_path: Path) -> None:
    encoder = make(tmp_path / "bert")
    with pytest.raises(UsageError, match="none has a question that was answered better with cards"):
        FineTuned.fit(RECORDS[:6], {"encoder": encoder}, Resources())
    with pytest.raises(UsageError, match="encoder is 'bert', expected minilm or hf:NAME"):
        fitted("bert")
    with pytest.raises(ModelUnavailable, match=r"the encoder hf:.*none can't be loaded"):
        fitted(f"hf:{tmp_path / 'none'}")
    with pytest.raises(UsageError, match="gate skr-fine-tuned: epochs and batch must be at least 1"):
        fitted(encoder, epochs=0)
