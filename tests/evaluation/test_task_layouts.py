"""Each data set in the layouts that its authors, or those who hand it on, write."""

import json
from pathlib import Path
from typing import Any

import pytest

from kcard.errors import UsageError
from kcard.evaluation.tasks.base import Item, TaskData, read_task


def read(tmp_path: Path, name: str, data: Any, file: str = "data.json") -> TaskData:
    path = tmp_path / file
    lines = "".join(json.dumps(row) + "\n" for row in data) if path.suffix == ".jsonl" else json.dumps(data)
    path.write_text(data if path.suffix == ".csv" else lines)
    return read_task(name, path)


def chosen(item: Item) -> str:
    return next(choice.description for choice in item.choices if choice.name == item.answers[0])


def test_entityquestions_is_a_folder_of_relations(tmp_path: Path) -> None:
    for split in ("dev", "test"):
        (tmp_path / split).mkdir()
        for relation in ("P17", "P50"):
            rows = [{"question": f"{split} {relation}?", "answers": ["Norway"]}]
            (tmp_path / split / f"{relation}.{split}.json").write_text(json.dumps(rows))
    data = read_task("entityquestions", tmp_path)
    assert [(item.id, item.question, item.group) for item in data.items] == [
        ("P17-1", "test P17?", "P17"),
        ("P50-1", "test P50?", "P50"),
    ]
    assert len(read_task("entityquestions", tmp_path / "dev" / "P17.dev.json").items) == 1
    assert [shot.id for shot in data.demonstrations(data.items[0])] == ["P50-1"]
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match=r"expected files such as test/P17\.test\.json"):
        read_task("entityquestions", tmp_path / "none")


@pytest.mark.parametrize(
    "row",
    [
        {"mc1_targets": {"It melts.": 1, "It burns.": 0, "It sings.": 0}},
        {"mc1_targets": {"choices": ["It melts.", "It burns.", "It sings."], "labels": [1, 0, 0]}},
        {"choices": {"A": "It burns.", "B": "It melts.", "C": "It sings."}, "answer": "B"},
    ],
)
def test_truthfulqa_has_one_true_option(tmp_path: Path, row: dict[str, Any]) -> None:
    data = read(tmp_path, "truthfulqa", [{"question": "What does ice do?", **row}])
    (item,) = data.items
    assert (data.metric, chosen(item)) == ("accuracy", "It melts.")
    assert {choice.description for choice in item.choices} == {"It melts.", "It burns.", "It sings."}


def test_the_table_of_truthfulqa_has_categories(tmp_path: Path) -> None:
    table = "Type,Category,Question,Best Answer,Correct Answers,Incorrect Answers,Source\n" + "".join(
        f"x,Physics,What does ice do {n}?,It melts.,It melts.; Melt,It burns.; It sings.,web\n"
        for n in range(30)
    )
    items = read(tmp_path, "truthfulqa", table, "TruthfulQA.csv").items
    assert {(item.group, chosen(item), len(item.choices)) for item in items} == {("Physics", "It melts.", 3)}


def test_the_place_of_the_true_option_varies_but_not_from_run_to_run(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "mc1_targets": {f"yes {n}": 1, f"no {n}": 0}} for n in range(30)]
    first, second = (read(tmp_path, "truthfulqa", rows) for _ in range(2))
    assert {item.answers for item in first.items} == {("A",), ("B",)}
    assert first == second


def test_wikidyk_has_the_fact_as_passage(tmp_path: Path) -> None:
    rows = {
        "rows": [
            {"id": 4, "input": "Which isle?", "output": "Ree", "year": "2023", "fact": "that Ree is one?"}
        ]
    }
    (item,) = read(tmp_path, "wikidyk", rows).items
    assert item == Item("4", "Which isle?", ("Ree",), group="2023", passages=("that Ree is one?",))


def test_each_kind_of_question_of_wikidyk_is_an_item(tmp_path: Path) -> None:
    kinds = {kind: {"prompt": f"{kind}?", "answer": "Ree"} for kind in ("reliability", "paraphrase")}
    data = read(tmp_path, "wikidyk", [{"fact": "that Ree is one?", "year": "2023", "eval": kinds}])
    assert [(item.id, item.group, item.passages) for item in data.items] == [
        ("1-reliability", "reliability", ("that Ree is one?",)),
        ("1-paraphrase", "paraphrase", ("that Ree is one?",)),
    ]
    with pytest.raises(UsageError, match=r"entry 1, reliability: expected a \"input\" or a \"prompt\""):
        read(tmp_path, "wikidyk", [{"eval": {"reliability": 3}}])


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        ({"question": "who wrote emma", "answer": ["Jane Austen", "Austen"]}, ("Jane Austen", "Austen")),
        (
            {"question": "who wrote emma", "answers": ["Austen"], "context": "By Austen.", "title": "Emma"},
            ("Austen",),
        ),
        (
            {
                "question_text": "who wrote emma",
                "document_text": "Emma is by Jane Austen .",
                "example_id": 3,
                "annotations": [
                    {"short_answers": [{"start_token": 3, "end_token": 5}], "yes_no_answer": "NONE"},
                    {"short_answers": [], "yes_no_answer": "NONE"},
                ],
            },
            ("Jane Austen",),
        ),
    ],
)
def test_natural_questions_have_short_answers(
    tmp_path: Path, row: dict[str, Any], answers: tuple[str, ...]
) -> None:
    unanswered = {
        **row,
        "question_text": "none",
        "annotations": [{"short_answers": []}],
        "document_text": "x",
    }
    rows = [row, unanswered] if "annotations" in row else [row]
    (item,) = read(tmp_path, "nq", rows, "nq.jsonl").items
    assert (item.question, item.answers) == ("who wrote emma", answers)


@pytest.mark.parametrize(
    "data",
    [
        {
            "Data": [
                {
                    "Question": "Who?",
                    "QuestionId": "tc_3",
                    "Answer": {"Value": "Ann", "Aliases": ["Ann", "A. R."]},
                }
            ]
        },
        [
            {
                "question": "Who?",
                "question_id": "tc_3",
                "answer": {"value": "Ann", "aliases": ["Ann", "A. R."]},
            }
        ],
        [{"question": "Who?", "id": "tc_3", "answers": ["Ann", "A. R."]}],
    ],
)
def test_triviaqa_accepts_every_alias(tmp_path: Path, data: Any) -> None:
    assert read(tmp_path, "triviaqa", data).items == (Item("tc_3", "Who?", ("Ann", "A. R.")),)


def test_squad_leaves_out_what_its_paragraph_does_not_answer(tmp_path: Path) -> None:
    qas = [
        {"id": "q1", "question": "Which sea?", "answers": [{"text": "North Sea", "answer_start": 3}] * 3},
        {"id": "q2", "question": "Which star?", "answers": [], "is_impossible": True},
    ]
    data = read(
        tmp_path, "squad", {"version": "v2.0", "data": [{"paragraphs": [{"context": "…", "qas": qas}]}]}
    )
    assert data.items == (Item("q1", "Which sea?", ("North Sea",), passages=("…",)),)


def test_answers_to_a_question_that_stands_twice_in_a_paragraph_are_joined(tmp_path: Path) -> None:
    questions = [{"question": "Which sea?", "answer": answer} for answer in ("North Sea", "the North Sea")]
    rows = [{"title": "Rhine", "context": text, "questions": questions} for text in ("One.", "Two.")]
    items = read(tmp_path, "squad", rows, "squad.jsonl").items
    assert [(item.id, item.passages) for item in items] == [("1", ("One.",)), ("3", ("Two.",))]
    assert {item.answers for item in items} == {("North Sea", "the North Sea")}


@pytest.mark.parametrize("name", ["hotpotqa", "2wiki"])
@pytest.mark.parametrize(
    "row",
    [
        {"_id": "h1", "answer": "Ree", "context": [["Isles", ["Ree is one.", " It is small."]], ["Seas", ["None."]]]},
        {"_id": "h1", "answer": "Ree",
         "context": {"title": ["Isles", "Seas"], "sentences": [["Ree is one.", " It is small."], ["None."]]}},
        {"id": "h1", "answers": ["Ree"],
         "paragraphs": [{"title": "Isles", "text": "Ree is one. It is small."}, {"title": "Seas", "text": "None."}]},
    ],
)  # fmt: skip
def test_multi_hop_questions_come_with_their_paragraphs(
    tmp_path: Path, name: str, row: dict[str, Any]
) -> None:
    data = read(tmp_path, name, [{"question": "Which isle?", "type": "bridge", **row}])
    passages = ("Isles\nRee is one. It is small.", "Seas\nNone.")
    assert data.items == (Item("h1", "Which isle?", ("Ree",), group="bridge", passages=passages),)
    assert (data.name, data.metric) == (name, "f1")


def test_musique_is_grouped_by_hops_without_what_can_not_be_answered(tmp_path: Path) -> None:
    row = {
        "id": "3hop1__9_8_7",
        "question": "Which isle?",
        "answer": "Ree",
        "answer_aliases": ["Rhee"],
        "answerable": True,
        "paragraphs": [{"idx": 0, "title": "Isles", "paragraph_text": "Ree is one.", "is_supporting": True}],
    }
    data = read(tmp_path, "musique", [row, {**row, "id": "2hop__1", "answerable": False}], "musique.jsonl")
    passages = ("Isles\nRee is one.",)
    assert data.items == (
        Item("3hop1__9_8_7", "Which isle?", ("Ree", "Rhee"), group="3hop1", passages=passages),
    )


def test_paragraphs_in_another_layout_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'entry 1: expected "paragraphs" of \{title, text\} or a "context"'):
        read(tmp_path, "hotpotqa", [{"question": "Which?", "answer": "Ree", "context": ["Isles"]}])
