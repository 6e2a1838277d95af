"""Thrust gates: what is stored of a sample, where the threshold lies, and samples that are odd."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kcard.errors import UsageError
from kcard.gates.base import QuestionGate, Resources
from kcard.gates.features import MiniLMRepresentation
from kcard.gates.records import Query, Record
from kcard.gates.thrust import VARIANTS, Table, Thrust, ThrustScore, Variant, clusters_by_rule
from kcard.interfaces import Array


class Points:
    """A representation that reads the vector off the question: "1 2 3"."""

    name, digest = "points", "0" * 64

    def vectors(self, questions: Sequence[str]) -> Array:
        return np.array([question.split() for question in questions], dtype=np.float32)


RESOURCES = Resources(representation=Points())


def text(vector: npt.NDArray[np.float64]) -> str:
    return " ".join(str(np.float32(x)) for x in vector)


def records(count: int, width: int = 4, labels: Sequence[str] = (), seed: int = 0) -> list[Record]:
    random = np.random.default_rng(seed)
    given = [labels[i % len(labels)] if labels else None for i in range(count)]
    return [
        Record(text(random.normal(size=width)), float(random.integers(2)), float(random.integers(2)), label=x)
        for x in given
    ]


def fit(given: Sequence[Record], /, **settings: Any) -> Thrust:
    return Thrust.fit(given, settings, RESOURCES)


def queries(sample: Sequence[Record]) -> list[Query]:
    return [record.query for record in sample]


@pytest.mark.parametrize(
    ("sample", "clusters"), [(1, 3), (81, 3), (82, 4), (200, 4), (256, 4), (257, 5), (1296, 6), (10**4, 10)]
)
def test_k_is_the_fourth_root_of_the_sample_size_rounded_up_and_at_least_three(
    sample: int, clusters: int
) -> None:
    assert clusters_by_rule(sample) == clusters


def test_every_class_is_clustered_and_only_centroids_and_sizes_are_stored() -> None:
    sample = records(90, labels=("no", "yes", "maybe"))
    gate = fit(sample)
    arrays, values = gate.state()
    assert arrays["centroids"].shape == (3 * 4, 4)
    assert arrays["weights"].sum() == 90
    assert set(arrays) == {"centroids", "weights"}
    assert values == {"encoder_sha256": "0" * 64}
    assert not any(record.question in str(gate.settings) for record in sample)


def test_without_labels_or_without_their_use_all_questions_are_one_class() -> None:
    assert len(fit(records(90)).table.weights) == 4
    assert len(fit(records(90, labels=("a", "b")), by_label=False).table.weights) == 4
    assert len(fit(records(90, labels=("a", "b")), clusters=10).table.weights) == 20


@pytest.mark.parametrize("percentile", [25, 50, 75])
def test_the_threshold_is_the_percentile_of_the_samples_own_scores(percentile: int) -> None:
    sample = records(100)
    gate = fit(sample, percentile=percentile)
    own = gate.scores(queries(sample))
    assert gate.threshold == pytest.approx(np.percentile(own.astype(np.float64), percentile), rel=1e-5)
    assert (own < gate.threshold).mean() == pytest.approx(percentile / 100, abs=0.02)


def test_left_out_scores_are_those_of_a_cluster_that_never_had_the_sample() -> None:
    sample = [Record(f"{x} 0", 1, 1) for x in (0, 1, 2, 30, 31)] + [Record("90 0", 1, 1)]
    expected = [
        (table(1.5, 2, 30.5, 2, 90, 1), 0),
        (table(1, 2, 30.5, 2, 90, 1), 1),
        (table(0.5, 2, 30.5, 2, 90, 1), 2),
        (table(1, 3, 31, 1, 90, 1), 30),
        (table(1, 3, 30, 1, 90, 1), 31),
        (table(1, 3, 30.5, 2), 90),
    ]
    scores = sorted(ThrustScore(rest)(np.array([[x, 0.0]]))[0] for rest, x in expected)
    found = [fit(sample, clusters=3, leave_one_out=True, percentile=20 * row).threshold for row in range(6)]
    np.testing.assert_allclose(found, scores, rtol=1e-6)


def test_left_out_inertia_is_that_of_the_rest_of_the_cluster() -> None:
    sample = [Record(f"{x} 0", 1, 1) for x in (0, 1, 2, 30, 31)]
    rests = [(1.5, 0.5, 30.5, 0.5), (1, 2, 30.5, 0.5), (0.5, 0.5, 30.5, 0.5), (1, 2, 31, 0), (1, 2, 30, 0)]
    asked = (0, 1, 2, 30, 31)
    scores = [
        ThrustScore(table(*rest), "inertia")(np.array([[x, 0.0]]))[0]
        for rest, x in zip(rests, asked, strict=True)
    ]
    found = [
        fit(sample, clusters=2, variant="inertia", leave_one_out=True, percentile=25 * row).threshold
        for row in range(5)
    ]
    np.testing.assert_allclose(found, sorted(scores), rtol=1e-6)


def table(*numbers: float) -> Table:
    centroids = [[x, 0.0] for x in numbers[::2]]
    return Table(np.array(centroids), np.array(numbers[1::2]))


def test_a_sample_that_is_its_own_cluster_raises_the_threshold_unless_it_is_left_out() -> None:
    sample = records(6)
    assert fit(sample, clusters=6).threshold > 1e6
    assert fit(sample, clusters=6, leave_one_out=True).threshold < 100


def test_percentile_none_takes_the_threshold_that_serves_the_sample_best() -> None:
    near = [Record(f"{x} 0", 1, 0) for x in np.linspace(-1, 1, 10)]
    far = [Record(f"{x} 9", 0, 1) for x in np.linspace(-9, 9, 5)]
    gate = fit([*near, *far], clusters=1, percentile=None)
    assert (gate.scores(queries(near)) >= gate.threshold).all()
    assert (gate.scores(queries(far)) < gate.threshold).all()
    always = fit([Record(f"{x} 0", 0, 1) for x in range(9)], percentile=None)
    assert (always.scores([Query("0 0"), Query("999 0")]) < always.threshold).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("leave_one_out", [True, False])
def test_the_order_of_the_records_does_not_matter(variant: Variant, leave_one_out: bool) -> None:
    sample = records(60, labels=("a", "b"))
    shuffled = [sample[i] for i in np.random.default_rng(0).permutation(60)]
    settings = {"variant": variant, "leave_one_out": leave_one_out, "sample": 50}
    one, other = fit(sample, **settings), fit(shuffled, **settings)
    np.testing.assert_array_equal(one.table.centroids, other.table.centroids)
    assert one.threshold == other.threshold


def test_at_most_200_records_are_used_unless_told_otherwise() -> None:
    sample = records(230)
    assert fit(sample).table.weights.sum() == 200
    assert fit(sample, sample=0).table.weights.sum() == 230
    other = fit(sample, seed=1)
    assert not np.array_equal(fit(sample).table.centroids, other.table.centroids)


def test_inertia_takes_the_place_of_sizes() -> None:
    gate = fit([Record(f"{x} 0", 1, 1) for x in (0, 1, 10, 12)], clusters=2, variant="inertia")
    assert sorted(gate.table.weights) == [0.5, 2.0]


def test_a_restored_gate_scores_as_it_did() -> None:
    sample = records(80, labels=("a", "b"))
    gate = fit(sample, variant="cosine-distance", percentile=75)
    again = Thrust.restore(gate.settings, gate.threshold, gate.state(), RESOURCES)
    np.testing.assert_array_equal(gate.scores(queries(sample)), again.scores(queries(sample)))
    assert (again.settings, again.threshold, again.kind) == (gate.settings, gate.threshold, "thrust")
    assert again.settings["clusters"] == 3


def test_a_class_with_fewer_questions_than_clusters_has_a_cluster_for_each() -> None:
    assert fit(records(2)).table.weights.tolist() == [1, 1]
    assert len(fit(records(31, labels=("a",) * 30 + ("b",))).table.weights) == 4
    assert len(fit(records(5), clusters=10).table.weights) == 5


def test_equal_embeddings_are_one_cluster_and_questions_on_it_are_known() -> None:
    gate = fit([Record("1 1", 1, 0)] * 20)
    assert gate.table.weights.tolist() == [20]
    on, off = gate.scores([Query("1 1"), Query("5 5")])
    assert np.isfinite(on)
    assert on >= gate.threshold > off


def test_no_records_and_labels_that_only_some_have_are_refused() -> None:
    with pytest.raises(UsageError, match="no records"):
        fit([])
    with pytest.raises(UsageError, match="1 of 3 records have no label"):
        fit([*records(2, labels=("a",)), *records(1)])


def test_a_vector_that_is_not_finite_is_refused_with_its_question() -> None:
    with pytest.raises(UsageError, match="encoder points gives '1 nan' a vector that is not finite"):
        fit([Record("1 2", 1, 1), Record("1 nan", 1, 1)])
    with pytest.raises(UsageError, match="a vector that is not finite"):
        fit(records(5, width=2)).scores([Query("inf 0")])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"percentile": 101}, "percentile is 101"),
        ({"clusters": -1}, "clusters is -1"),
        ({"variant": "other"}, "variant is 'other', but must be one of thrust, without-size"),
        ({"k": 3}, "unknown key 'k'"),
        ({"sample": "all"}, "sample must be a whole number"),
    ],
)
def test_settings_that_there_are_not_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"gate thrust: {message}"):
        Thrust.fit(records(5), settings, RESOURCES)


def test_questions_like_the_sample_are_known_and_others_are_not() -> None:
    """With the real encoder: asked about capitals, it knows capitals."""
    places = ["France", "Norway", "Peru", "Kenya", "Japan", "Chile", "Egypt", "Poland", "Canada", "Ghana"]
    sample = [Record(f"What is the capital of {place}?", 1, 1) for place in places]
    gate = QuestionGate(
        Thrust.fit(sample, {"leave_one_out": True}, Resources(representation=MiniLMRepresentation()))
    )
    near, far = gate.knows(["What is the capital of Spain?", "Does the gene BRCA1 encode a kinase?"])
    assert near > 2 * far
    assert far < gate.threshold
    assert len(gate.knows([])) == 0
