"""Gates on disk: one small file each, that says what it was fitted on, and refuses what it does not fit."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from kcard.errors import UsageError
from kcard.gates import registry
from kcard.gates.base import FittedGate, Resources, find
from kcard.gates.records import Query, Record, digest
from kcard.interfaces import Array
from tests.fakes import LetterCounts

QUESTIONS = [
    f"Who wrote the {number}th book of the {place} library?" for number in range(8) for place in "abc"
]
RECORDS = [
    Record(question, float(i % 2), float(i % 3 > 0), draft="It is unknown." if i % 3 else f"Ann {i}")
    for i, question in enumerate(QUESTIONS)
]
KINDS = ["thrust", "bm25", "random", "skr-knn", "skr-classifier", "draft"]


class Others(LetterCounts):
    name, digest = "others", "2" * 64


RESOURCES = Resources(representation=LetterCounts())


def fitted(kind: str, **settings: Any) -> FittedGate:
    return find(kind).fit(RECORDS, settings, RESOURCES)


def saved(tmp_path: Path, kind: str = "thrust") -> Path:
    path = tmp_path / "some" / "x.gate"
    registry.save(fitted(kind), path, digest(RECORDS))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_gate_is_the_one_that_was_saved(kind: str, tmp_path: Path) -> None:
    gate, loaded = fitted(kind), registry.load(saved(tmp_path, kind), RESOURCES)
    queries = [*(record.query for record in RECORDS), Query("something else", draft="?"), Query("")]
    np.testing.assert_array_equal(gate.scores(queries), loaded.scores(queries))
    assert gate.scores(queries).dtype == np.float32
    assert (loaded.kind, loaded.threshold, loaded.settings) == (kind, gate.threshold, gate.settings)
    assert b"library?" not in (tmp_path / "some" / "x.gate").read_bytes(), "it holds no question"


def test_the_file_is_small_tells_what_it_was_fitted_on_and_has_the_same_bytes_again(tmp_path: Path) -> None:
    path = saved(tmp_path)
    before = path.read_bytes()
    told = registry.header(path)
    assert told.records == digest(RECORDS)
    assert (told.kind, told.settings["encoder"]) == ("thrust", "letters")
    assert told.values["encoder_sha256"] == "1" * 64
    assert len(before) < 4000
    assert saved(tmp_path).read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["x.gate"]


@pytest.mark.parametrize("kind", ["thrust", "skr-knn", "skr-classifier", "draft"])
def test_a_gate_fitted_on_another_encoder_is_refused_naming_both(kind: str, tmp_path: Path) -> None:
    path = saved(tmp_path, kind)
    with pytest.raises(UsageError, match="unknown representation 'letters'"):
        registry.load(path)
    with pytest.raises(UsageError, match=r"x.gate: .*encoder letters \(1{12}…\), not on others \(2{12}…\)"):
        registry.load(path, Resources(representation=Others()))


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    (length,) = struct.unpack("<Q", whole[:8])
    places = [*range(0, 40), *random.integers(40, length, 60), *random.integers(length, len(whole), 20)]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UsageError, match=r"^gate [^\n]*x.gate[^\n]*$"):
            registry.load(path, RESOURCES)


def test_files_that_are_no_gates_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UsageError, match="is not a gate or is damaged"):
        registry.load(path)
    with pytest.raises(UsageError, match="no such file: fit it again with kcard gate fit"):
        registry.load(tmp_path / "none.gate")
    with pytest.raises(UsageError, match="no such file"):
        registry.load(tmp_path)
    path.write_text('{"question": "q"}')
    with pytest.raises(UsageError, match="is not a gate or is damaged"):
        registry.load(path)
    save_file({"weight": np.ones(3)}, path)
    with pytest.raises(UsageError, match="holds arrays, but is not a gate"):
        registry.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has format 2; this kcard reads 1"),
        ({"format": None}, "has format None"),
        ({"threshold": "high"}, "threshold must be a number"),
        ({"threshold": 1e999}, "threshold is not a number"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"threshold": 0.25}, "its sha256 does not match"),
        ({"kind": "thrust!"}, "its sha256 does not match"),
    ],
)
def test_headers_of_another_form_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gate"
    gate = fitted("thrust")
    told = registry.GateHeader("thrust", 1.0, dict(gate.settings), {}, "0" * 64)
    given = json.loads(told.to_json()) | change
    save_file({}, path, {registry.HEADER_KEY: json.dumps(given)})
    with pytest.raises(UsageError, match=message):
        registry.load(path, RESOURCES)


@pytest.mark.parametrize(
    "kind", ["bm25", "thrust", "popularity", "draft", "skr-knn", "skr-classifier", "uncertainty"]
)
def test_a_gate_needs_records(kind: str) -> None:
    with pytest.raises(UsageError, match=f"gate {kind}: (there are no|no|of 0) records"):
        find(kind).fit([], {}, RESOURCES)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("random", {"share": -0.1}, "share is"),
        ("random", {"share": 1.1}, "share is"),
        ("random", {"share": float("nan")}, "share is"),
        ("thrust", {"percentile": 101}, "percentile is 101"),
        ("thrust", {"clusters": -1}, "clusters is -1"),
        ("thrust", {"variant": "other"}, "variant is 'other', but must be one of thrust, without-size"),
        ("thrust", {"sample": "all"}, "sample must be a whole number"),
        ("skr-knn", {"k": 2.5}, "k must be"),
        ("skr-knn", {"k": 0}, "k is 0, expected 1 to 20, the records"),
        ("skr-knn", {"k": 21}, "k is 21, expected 1 to 20, the records"),
        ("skr-knn", {"n": 3}, "unknown key 'n'"),
        ("skr-knn", {"encoder": 3}, "encoder must be a text"),
        ("skr-icl", {"demonstrations": -1}, "demonstrations is -1"),
        ("skr-icl", {"wording": "mine"}, "wording is 'mine'"),
    ],
)
def test_a_wrong_setting_is_named_with_its_gate(kind: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"gate {kind}: {message}"):
        fitted(kind, **settings)


class Misfit:
    """Told like a gate, with a state that is not its kind's."""

    threshold = 1.0

    def __init__(self, kind: str, settings: dict[str, Any], **arrays: Any) -> None:
        self.kind, self.settings, self._arrays = kind, settings, arrays

    def scores(self, queries: Sequence[Query]) -> Array:
        raise NotImplementedError

    def state(self) -> Any:
        return self._arrays, {"encoder_sha256": "1" * 64}


@pytest.mark.parametrize(
    ("misfit", "message"),
    [
        (Misfit("nearest", {}), "unknown gate.kind 'nearest': choose one of .*thrust"),
        (Misfit("thrust", {"k": 3}), "unknown key 'k'"),
        (Misfit("thrust", {}), "not a gate of kind thrust: 'centroids'"),
        (
            Misfit("thrust", {"encoder": "letters"}, centroids=np.ones((2, 3)), weights=np.ones(3)),
            "arrays do not fit each other",
        ),
        (
            Misfit("thrust", {"encoder": "letters"}, centroids=np.full((2, 3), np.nan), weights=np.ones(2)),
            "arrays are not finite",
        ),
        (Misfit("bm25", {}, weights=np.ones(3)), "not a gate of kind bm25: 'words'"),
    ],
)
def test_a_state_that_its_kind_can_not_use_is_refused(misfit: Misfit, message: str, tmp_path: Path) -> None:
    registry.save(misfit, tmp_path / "x.gate", "0" * 64)  # type: ignore[arg-type] # it only has a state
    with pytest.raises(UsageError, match=message):
        registry.load(tmp_path / "x.gate", RESOURCES)


def test_a_place_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be written"):
        registry.save(fitted("random"), tmp_path / "file" / "x.gate", "0" * 64)
