"""Whatever stands in a file, a task reads it or says what is wrong with it."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcard.errors import UsageError
from kcard.evaluation.tasks.base import read_task, recognised, task_names

KEYS = (
    "data Data rows testset demos dataset potential_labels question Question input text id answer answers output label "
    "choices mc1_targets labels Answer Value Aliases paragraphs qas context questions title sentences document_text "
    "annotations short_answers start_token end_token eval prompt fact year s_pop prop A B answerable"
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["A", "x y", "[1", '["x"]', "Who?"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=6)
    ),
    max_leaves=14,
)
CHANGES = st.dictionaries(st.sampled_from(KEYS.split()), VALUES, max_size=2)
# Entries that tasks can read, of which some keys are then overwritten.
READABLE = (
    {"question": "Who?", "answer": "B", "choices": ["x", "y"], "id": 1},
    {"question": "Who?\nA. Ann Roe B. Bob Low", "answer": "A"},
    {"text": "Cats vote.", "label": "A"},
    {"input": "Which isle?", "output": '["Ree"]', "s_pop": 3, "fact": "that Ree is one?"},
    {"eval": {"paraphrase": {"prompt": "Which?", "answer": "Ree"}}},
    {"question": "What?", "mc1_targets": {"x": 1, "y": 0}},
    {"Question": "Who?", "Answer": {"Value": "Ann", "Aliases": ["A"]}},
    {"question": "Which?", "answer": "Ree", "context": [["Isles", ["Ree."]]]},
    {
        "question_text": "who",
        "document_text": "Ann .",
        "annotations": [{"short_answers": [{"start_token": 0}]}],
    },
    {"paragraphs": [{"context": "x", "qas": [{"question": "Which?", "answers": [{"text": "Ree"}]}]}]},
)
ENTRIES = st.builds(lambda entry, given: {**entry, **given}, st.sampled_from(READABLE), CHANGES)
LISTS = st.sampled_from(["rows", "testset", "data"])
FILES = (
    st.lists(ENTRIES, max_size=3) | st.dictionaries(LISTS, st.lists(ENTRIES, max_size=3), max_size=2) | VALUES
)


@pytest.mark.parametrize("name", task_names())
@settings(max_examples=20)
@given(data=FILES)
def test_whatever_the_json_it_is_a_task_or_a_usage_error(tmp_path: Path, name: str, data: object) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps(data))
    with suppress(UsageError):
        task_data = read_task(name, path)
        assert len({item.id for item in task_data.items}) == len(task_data.items) > 0
        assert all(item.question and item.answers and all(item.answers) for item in task_data.items)
        letters = [{choice.name for choice in item.choices} for item in task_data.items]
        assert all(
            not letter or letter >= {*item.answers}
            for item, letter in zip(task_data.items, letters, strict=True)
        )
    with suppress(UsageError):
        assert recognised(path) in task_names()


@settings(max_examples=60)
@given(
    data=st.binary(max_size=120), kind=st.sampled_from(["json", "jsonl", "csv", "tsv", "jsonl.gz", "csv.gz"])
)
def test_whatever_the_bytes_it_is_a_task_or_a_usage_error(tmp_path: Path, data: bytes, kind: str) -> None:
    path = tmp_path / f"data.{kind}"
    path.write_bytes(data)
    with suppress(UsageError):
        assert read_task("jsonl", path).items
