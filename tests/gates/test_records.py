"""Records: read from anyone's JSONL, with errors that name line and field."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcard.errors import UsageError
from kcard.gates.records import Query, Record, digest, read_records, write_records

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
SHARES = st.floats(0, 1)


@st.composite
def any_record(draw: st.DrawFn) -> Record:
    return Record(
        draw(TEXTS.filter(str.strip)),
        draw(SHARES),
        draw(SHARES),
        tuple(draw(st.lists(TEXTS, max_size=2))),
        draw(st.none() | TEXTS.filter(bool)),
        draw(st.none() | TEXTS),
        draw(st.none() | st.floats(0, 1e9)),
        draw(st.just("") | TEXTS),
        draw(st.just("") | TEXTS),
        draw(st.just("") | TEXTS),
        draw(st.none() | st.floats(-1e9, 0)),
        draw(st.dictionaries(TEXTS, SHARES, max_size=2)),
    )


@settings(max_examples=30)
@given(records=st.lists(any_record(), min_size=1, max_size=5))
def test_what_is_written_is_read_back(
    records: list[Record], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("records") / "r.jsonl"
    write_records(path, records)
    assert read_records(path) == tuple(records)


def written(path: Path, *lines: str) -> Path:
    path = path / "r.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_three_fields_are_enough_and_fields_of_others_are_passed_over(tmp_path: Path) -> None:
    line = (
        '{"question": "Who wrote Emma?", "correct_without": 0, "correct_with": true, "model": {"name": "x"}}'
    )
    (record,) = read_records(written(tmp_path, "", line, " "))
    assert record == Record("Who wrote Emma?", 0.0, 1.0)
    assert record.query == Query("Who wrote Emma?", None, None)


def test_a_record_seeks_where_cards_helped_and_is_wrong_both_ways_where_nothing_did() -> None:
    outcomes = [(0, 1), (1, 0), (1, 1), (0, 0), (0.2, 0.4), (0.4, 0.4)]
    records = [Record("q", float(without), float(with_)) for without, with_ in outcomes]
    assert [record.seeks for record in records] == [True, False, False, False, True, False]
    assert [record.knows for record in records] == [False, True, True, True, False, True]
    assert [record.wrong_both_ways for record in records] == [False, False, False, True, False, False]


GOOD = {"question": "q", "correct_without": 0, "correct_with": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"correct_without": 0, "correct_with": 1}, "'question' is missing"),
        ({"question": "q", "correct_with": 1}, "'correct_without' is missing"),
        ({"question": "q", "correct_without": 1}, "'correct_with' is missing"),
        (GOOD | {"question": " "}, "question is empty"),
        (GOOD | {"correct_with": "yes"}, 'correct_with must be a number, not "yes"'),
        (GOOD | {"correct_with": 1.5}, "correct_with is 1.5, expected a number from 0 to 1"),
        (GOOD | {"correct_without": float("nan")}, "correct_without is nan, expected a number from 0 to 1"),
        (GOOD | {"correct_without": 10**400}, "correct_without is 1000"),
        (GOOD | {"answers": "Austen"}, 'answers must be a list, not "Austen"'),
        (GOOD | {"relation": 1.5}, "relation must be a text, not 1.5"),
        (GOOD | {"popularity": -1}, "popularity is -1.0, expected a number of at least 0, or null"),
        (
            GOOD | {"draft_log_probability": 0.5},
            "draft_log_probability is 0.5, expected a number of at most 0",
        ),
        (GOOD | {"popularity": "high"}, 'popularity must be a number, not "high"'),
        (GOOD | {"scores": [1]}, "scores must be an object, not a list"),
        (GOOD | {"scores": {"f1": None}}, "f1 must be a number, not null"),
        ([1], "expected an object, found list"),
    ],
)
def test_a_bad_record_is_refused_by_line_and_field(line: object, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(GOOD), "", json.dumps(line))
    with pytest.raises(UsageError, match=rf"^records .*r.jsonl, line 3: {message}[^\n]*$"):
        read_records(path)


def test_files_that_hold_no_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it contains no records: collect records with kcard gate collect"):
        read_records(written(tmp_path, "", " "))
    with pytest.raises(UsageError, match="line 2: not JSON"):
        read_records(written(tmp_path, json.dumps(GOOD), "{"))
    with pytest.raises(UsageError, match="can't be read: No such file"):
        read_records(tmp_path / "none.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "\xe9"}')
    with pytest.raises(UsageError, match="not UTF-8"):
        read_records(tmp_path / "latin.jsonl")


def test_the_digest_is_of_the_records_not_of_their_writing(tmp_path: Path) -> None:
    spaced = written(tmp_path, json.dumps(GOOD | {"relation": None, "other": 1}, indent=None) + "  ")
    assert digest(read_records(spaced)) == digest([Record("q", 0.0, 1.0)])
    assert digest([Record("q", 0.0, 1.0)]) != digest([Record("q", 0.0, 0.0)])
    assert digest([Record("a", 0, 1), Record("b", 0, 1)]) != digest([Record("b", 0, 1), Record("a", 0, 1)])
