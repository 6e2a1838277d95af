"""The popularity gate: thresholds as brute force finds them, relations, and where popularity comes from."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kcard.errors import UsageError
from kcard.gates import popularity
from kcard.gates.base import Resources
from kcard.gates.features import MiniLMRepresentation
from kcard.gates.popularity import BOUND, Popularity, Relations, best_threshold, mask_names
from kcard.gates.records import Query, Record, digest
from kcard.gates.registry import load, save
from kcard.interfaces import Array

HALVES = st.sampled_from([0.0, 0.5, 1.0])
ROWS = st.tuples(st.one_of(st.integers(0, 5).map(float), st.floats(0, 690)), HALVES, HALVES)


def mean(rows: Sequence[tuple[float, float, float]], threshold: float) -> float:
    return sum(with_ if score < threshold else without for score, without, with_ in rows) / len(rows)


def brute_force(rows: Sequence[tuple[float, float, float]]) -> float:
    """Every threshold between two neighbouring scores, tried on every row; the lowest of the best."""
    values = sorted({score for score, _, _ in rows})
    between = [
        low / 2 + high / 2 if low / 2 + high / 2 > low else high for low, high in itertools.pairwise(values)
    ]
    tried = [-BOUND, *between, BOUND]
    return max(tried, key=lambda threshold: (mean(rows, threshold), -threshold))


@given(st.lists(ROWS, min_size=1, max_size=40))
@example([(1.0, 0.0, 1.0), (float(np.nextafter(1.0, 2.0)), 1.0, 0.0)])
@example([(3.0, 1.0, 0.0), (3.0, 0.0, 1.0), (3.0, 0.0, 1.0)])
@settings(max_examples=60)
def test_the_threshold_is_the_one_of_brute_force(rows: list[tuple[float, float, float]]) -> None:
    scores, without, with_ = zip(*rows, strict=True)
    assert best_threshold(scores, without, with_) == brute_force(rows)


def record(question: str, popularity: float | None, knows: bool, relation: str | None = None) -> Record:
    return Record(question, float(knows), float(not knows), relation=relation, popularity=popularity)


RECORDS = [
    *(record(f"Who directed film {n}?", n, n > 50, "director") for n in (10, 40, 60, 90)),
    *(record(f"Who wrote book {n}?", n, n > 1000, "author") for n in (500, 900, 1100, 2000)),
]


def scores(gate: Popularity, *queries: Query) -> list[bool]:
    """Which of the questions seek knowledge."""
    return list(gate.scores(queries) < gate.threshold)


def test_each_relation_has_its_own_threshold_and_one_score_decides_for_all() -> None:
    gate = Popularity.fit(RECORDS, {}, Resources())
    asked = [Query("?", relation, n) for relation in ("director", "author") for n in (45, 55, 950, 1050)]
    assert scores(gate, *asked) == [True, False, False, False, True, True, True, False]
    found = gate.scores([Query("?", "director", 55)])[0]
    middle = (np.log1p(40) + np.log1p(60)) / 2
    assert found == pytest.approx(np.log1p(55) - middle)


def test_a_relation_that_was_not_seen_takes_the_threshold_of_all() -> None:
    gate = Popularity.fit(RECORDS, {}, Resources())
    rows = [(float(np.log1p(r.popularity or 0)), r.correct_without, r.correct_with) for r in RECORDS]
    pooled = brute_force(rows)
    assert gate.pooled == pooled
    assert gate.scores([Query("?", "spouse", 300)])[0] == pytest.approx(np.log1p(300) - pooled, rel=1e-6)


def test_without_a_relation_the_nearest_one_of_the_records_counts_and_an_odd_question_has_none() -> None:
    gate = Popularity.fit(RECORDS, {}, Resources())
    films, books = Query("Who directed Emma?", None, 200), Query("Who wrote Emma?", None, 200)
    assert scores(gate, films, books) == [False, True]
    odd = Query("Is it going to rain over the hills tomorrow", None, 200)
    assert gate.scores([odd])[0] == pytest.approx(np.log1p(200) - gate.pooled, rel=1e-6)


def test_relations_are_compared_by_their_own_encoder_alone() -> None:
    class Unread:
        name, digest = "other", "2" * 64

        def vectors(self, questions: Sequence[str]) -> Array:
            raise AssertionError(questions)

    gate = Popularity.fit(RECORDS, {}, Resources(representation=Unread()))
    assert scores(gate, Query("Who directed Emma?", None, 200)) == [False]


def test_where_no_record_names_its_relation_templates_do() -> None:
    plain = [
        *(record(f"Who was the director of Film {n}?", n, n > 50) for n in (10, 40, 60, 90)),
        *(record(f"Who is the author of Book {n}?", n, n > 1000) for n in (500, 900, 1100, 2000)),
    ]
    gate = Popularity.fit(plain, {}, Resources())
    assert sorted(gate.thresholds) == ["author", "director"]
    assert scores(
        gate, Query("Who is the author of Old Times?", None, 950), Query("Who directed it?", None, 95)
    ) == [True, False]


def test_a_users_own_templates_are_read(tmp_path: Path) -> None:
    file = tmp_path / "templates.json"
    file.write_text(json.dumps({"river": "Which river flows through {}?"}))
    plain = [
        record(f"Which river flows through {name}?", n, n > 50) for name, n in (("Ulm", 10), ("Bonn", 90))
    ]
    gate = Popularity.fit(plain, {"templates": str(file)}, Resources())
    assert list(gate.thresholds) == ["river"]
    file.write_text(json.dumps({"river": "Which river?"}))
    with pytest.raises(UsageError, match=r"'river' is .* expected a question with \{\}"):
        popularity.templates(str(file))
    for text in ("[]", "{", "{}", '{"a": 3}'):
        file.write_text(text)
        with pytest.raises(UsageError, match="relation templates"):
            popularity.templates(str(file))
    with pytest.raises(UsageError, match="can't be read"):
        popularity.templates(str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Who was the director of Lost in Translation?", "Who was the director of it in it?"),
        ("What genre is the album Kid A, 2000?", "What genre is the album it?"),
        ("What is José Diogo's occupation?", "What is it's occupation?"),
        ("In what city was Ann Lee (b. 1950) born?", "In what city was it born?"),
        ("What sport does “The Rock” play?", "What sport does it play?"),
        ("who directed emma", "who directed emma"),
        ("", ""),
    ],
)
def test_names_are_masked_before_relations_are_compared(question: str, expected: str) -> None:
    assert mask_names(question) == expected


def test_a_question_whose_words_are_all_names_is_still_finite() -> None:
    found = Relations.of([("a", "Who?"), ("b", "Where?")], MiniLMRepresentation())
    assert found.nearest(["Ann Ben Cem"], MiniLMRepresentation(), -1) in (["a"], ["b"])
    assert found.nearest(["Who?"], MiniLMRepresentation(), 2.0) == [None]
    assert found.nearest([], MiniLMRepresentation(), 0) == []


def test_what_a_source_does_not_know_is_not_popular() -> None:
    known = {"Who directed film 70?": 70.0}
    gate = Popularity.fit(RECORDS, {}, Resources(popularity=known.get))
    asked = [Query("Who directed film 70?", "director"), Query("Who directed film 99?", "director")]
    assert scores(gate, *asked) == [False, True]


def test_without_popularity_and_without_a_source_the_question_is_named() -> None:
    gate = Popularity.fit(RECORDS, {}, Resources())
    with pytest.raises(UsageError, match=r"subject of 'Who\?' is unknown: .*source=file:") as caught:
        gate.scores([Query("Who?", "director")])
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="is unknown"):
        Popularity.fit([*RECORDS, record("Who?", None, True)], {}, Resources())
    with pytest.raises(UsageError, match="no record"):
        Popularity.fit([], {}, Resources())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_source_that_gives_no_popularity_is_refused(value: float) -> None:
    gate = Popularity.fit(RECORDS, {}, Resources(popularity=lambda _: value))
    with pytest.raises(UsageError, match=f"is {value}, expected a number of at least 0"):
        gate.scores([Query("Who?", "director")])


def test_a_file_is_a_source_found_by_its_name_and_read_however_the_question_is_written(
    tmp_path: Path,
) -> None:
    file = tmp_path / "views.jsonl"
    file.write_text(
        '{"question": "Who directed Film 70?", "popularity": 70}\n\n{"question": "b", "popularity": 0}\n'
    )
    source = popularity.find(f"file:{file}")
    assert (source(" who directed  film 70?"), source("b"), source("c")) == (70.0, 0.0, None)
    gate = Popularity.fit(RECORDS, {"source": f"file:{file}"}, Resources())
    assert scores(gate, Query("Who directed film 70?", "director")) == [False]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: expected an object"),
        ('{"popularity": 3}', "line 2: an object"),
        ('{"question": "a"}', "line 2: popularity is None"),
        ('{"question": "a", "popularity": -3}', "line 2: popularity is -3"),
        ('{"question": "a", "popularity": true}', "line 2: popularity is True"),
        ('{"question": "a", "popularity": NaN}', "line 2: popularity is nan"),
    ],
)
def test_a_bad_line_of_a_source_is_named(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "views.jsonl"
    file.write_text('{"question": "b", "popularity": 0}\n' + line)
    with pytest.raises(UsageError, match=said):
        popularity.find(f"file:{file}")


def test_a_source_that_is_unknown_or_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown popularity 'views': choose one of file"):
        popularity.find("views")
    with pytest.raises(UsageError, match="name the file"):
        popularity.find("file")
    with pytest.raises(UsageError, match="can't be read"):
        popularity.find(f"file:{tmp_path / 'none'}")


def test_a_saved_gate_decides_as_before_infinite_thresholds_included(tmp_path: Path) -> None:
    never = [record(f"Where is {n}?", n, True, "place") for n in (1, 2)]
    always = [record(f"Whose is {n}?", n, False, "owner") for n in (1e6, 2e300)]
    gate = Popularity.fit([*RECORDS, *never, *always], {}, Resources())
    save(gate, tmp_path / "gate", digest(RECORDS))
    again = load(tmp_path / "gate")
    asked = [
        *(Query("?", name, n) for name in ("director", "author", "place", "owner", "other") for n in (0, 700, 1e300)),
        Query("Who directed Emma?", None, 70),
    ]  # fmt: skip
    np.testing.assert_array_equal(again.scores(asked), gate.scores(asked))
    found = gate.scores(asked)
    assert np.isfinite(found).all()
    assert (found[6:9] > 0).all(), "never sought, however unpopular"
    assert (found[9:12] < 0).all(), "always sought, however popular"
    assert again.settings == gate.settings
    assert (tmp_path / "gate").stat().st_size < 20_000
