"""Tasks: data sets in their own layouts, and what is said of files that are not."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kcard.errors import UsageError
from kcard.evaluation.tasks.base import Item, read_task, recognised, task_names


def written(path: Path, data: Any) -> Path:
    """JSON, or one JSON object a line where the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in data) if ".jsonl" in path.name else json.dumps(data)
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


def options(item: Item) -> list[str]:
    return [choice.description for choice in item.choices]


def midterm(tmp_path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    demos = [{"question": rows[0]["question"].replace("1st", "9th"), "answer": rows[0]["answer"], "id": 99}]
    return written(tmp_path / "midterm.json", {"dataset": "MidtermQA", "demos": demos, "testset": rows})


def test_the_open_questions_of_midterm_come_with_demonstrations(tmp_path: Path) -> None:
    row: dict[str, Any] = {"question": "Who won the 1st district of Utopia?", "answer": "Ann Roe", "id": 5}
    data = read_task("midterm", midterm(tmp_path, [row]))
    assert (data.name, data.metric) == ("midterm-openbook", "em")
    assert data.items == (Item("5", row["question"], ("Ann Roe",)),)
    assert [shot.question for shot in data.demonstrations(data.items[0])] == [
        "Who won the 9th district of Utopia?"
    ]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("A. Ann Roe B. Bob Low", ["Ann Roe", "Bob Low"]),
        ("A. J. B. Poe B. Bob Low", ["J. B. Poe", "Bob Low"]),
        ("A. Ann B. Roe B. Bob Low", ["Ann B. Roe", "Bob Low"]),
        ("A. Ann Roe B. Bob B. Low", ["Ann Roe", "Bob B. Low"]),
        ("A. Mae A. Doe B. Bob C. Low", ["Mae A. Doe", "Bob C. Low"]),
        ("A. Ann Roe B. Bob Low C. C. D. Poe D. N/A", ["Ann Roe", "Bob Low", "C. D. Poe", "N/A"]),
    ],
)
def test_the_options_of_midterm_are_told_from_initials(tmp_path: Path, line: str, names: list[str]) -> None:
    row = {"question": f"Who won the 1st district?\n{line}", "answer": "B", "id": 5}
    data = read_task("midterm", midterm(tmp_path, [row]))
    assert data.name == {2: "midterm-binary", 4: "midterm-fourchoice"}[len(names)]
    assert data.metric == "accuracy"
    assert (data.items[0].question, options(data.items[0])) == ("Who won the 1st district?", names)
    assert data.items[0].answers == ("B",)


def test_an_option_that_stands_there_twice_is_right_under_both_letters(tmp_path: Path) -> None:
    row = {"question": "Who won?\nA. Ann Roe B. Bob Low C. Bob Low D. Cy Poe", "answer": "C", "id": 5}
    assert read_task("midterm", midterm(tmp_path, [row])).items[0].answers == ("C", "B")


def test_news_articles_are_asked_for_their_class(tmp_path: Path) -> None:
    row = {"id": 3, "text": "Cats vote.", "label": "hoax"}
    rows = {"potential_labels": ["satire", "hoax"], "demos": [{**row, "id": 4}], "testset": [row]}
    data = read_task("lun", written(tmp_path / "LUN2.json", rows))
    (item,) = data.items
    assert (data.name, data.metric, len(data.shots[""])) == ("lun-2", "balanced-accuracy", 1)
    assert item.question == "Is the following news article satire or hoax?\nCats vote."
    assert (options(item), item.answers, item.label) == (["satire", "hoax"], ("B",), "hoax")


def test_a_class_that_the_file_does_not_name_is_refused(tmp_path: Path) -> None:
    rows = {
        "potential_labels": ["satire", "hoax"],
        "testset": [{"id": 3, "text": "x", "label": "gossip"}],
        "demos": [],
    }
    with pytest.raises(
        UsageError, match=r"entry 1: the answer 'gossip' is none of the options A, B: give the letter"
    ):
        read_task("lun", written(tmp_path / "LUN2.json", rows))


def test_mmlu_is_a_folder_of_tables_with_shots_by_subject(tmp_path: Path) -> None:
    for split, subjects in (
        ("dev", ("anatomy", "virology")),
        ("test", ("anatomy", "virology")),
        ("val", ("anatomy",)),
    ):
        (tmp_path / split).mkdir()
        for subject in subjects:
            lines = [f'"{split} {subject}, {n}?",w,x,"y, z",w,C' for n in (1, 2)]
            (tmp_path / split / f"{subject}_{split}.csv").write_text("\n".join(lines) + "\n")
    data = read_task("mmlu", tmp_path)
    assert [item.id for item in data.items] == ["anatomy-1", "anatomy-2", "virology-1", "virology-2"]
    third = data.items[2]
    assert (third.question, options(third), third.group) == (
        "test virology, 1?",
        ["w", "x", "y, z", "w"],
        "virology",
    )
    assert third.answers == ("C",)
    assert [shot.question for shot in data.demonstrations(third)] == ["dev virology, 1?", "dev virology, 2?"]


def test_a_line_of_mmlu_with_too_few_columns_is_named(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "anatomy_test.csv").write_text("q,a,b,c,d,A\nq,a,b,c,D\n")
    with pytest.raises(UsageError, match=r"anatomy_test\.csv, line 2: expected 6 columns .* found 5"):
        read_task("mmlu", tmp_path)
    with pytest.raises(UsageError, match=r"expected tables such as test/anatomy_test\.csv"):
        read_task("mmlu", tmp_path / "test")


def test_the_subjects_of_mmlu_have_four_domains() -> None:
    from kcard.evaluation.tasks.datasets import DOMAINS, domain_of

    assert sum(len(subjects.split()) for subjects in DOMAINS.values()) == 57
    assert domain_of("anatomy") == "other"
    assert domain_of("philosophy") == "humanities"
    assert domain_of("cooking") == ""


def test_mmlu_redux_counts_only_questions_without_a_known_error(tmp_path: Path) -> None:
    rows = [
        {"question": f"{n}?", "choices": ["w", "x", "y", "z"], "answer": 2, "error_type": kind}
        for n, kind in enumerate(["ok", "bad_question_clarity", "ok"])
    ]
    data = read_task("mmlu", written(tmp_path / "redux.jsonl", rows))
    assert [(item.question, item.answers) for item in data.items] == [("0?", ("C",)), ("2?", ("C",))]


def test_popqa_is_read_from_its_own_table(tmp_path: Path) -> None:
    table = tmp_path / "popQA.tsv"
    table.write_text(
        "id\tsubj\tprop\ts_pop\to_pop\tquestion\tpossible_answers\n"
        '7\tEmma\tauthor\t4100\t9\tWho is the author of Emma?\t"[""Jane Austen"", ""Austen""]"\n'
    )
    data = read_task("popqa", table)
    assert data.metric == "substring"
    assert data.items == (
        Item("7", "Who is the author of Emma?", ("Jane Austen", "Austen"), group="author", popularity=4100.0),
    )


def test_a_question_of_popqa_without_a_relation_takes_that_of_its_template(tmp_path: Path) -> None:
    questions = {
        "What is the capital of Utah?": "capital",
        "What is Oslo the capital of?": "capital of",
        "Why?": "",
    }
    rows = [{"input": text, "output": '["x"]', "s_pop": 4, "id": n} for n, text in enumerate(questions)]
    data = read_task("popqa", written(tmp_path / "popqa.json", {"name": "popqa", "rows": rows}))
    assert [item.group for item in data.items] == list(questions.values())


@pytest.mark.parametrize("name", ["own.jsonl", "own.jsonl.gz", "own.json", "own.json.gz"])
def test_any_file_of_questions_is_a_task(tmp_path: Path, name: str) -> None:
    rows = [
        {"question": "Who wrote Emma?", "answers": ["Jane Austen", "Austen"], "subject": "novels"},
        {
            "question": "Which sea?",
            "choices": {"A": "North Sea", "B": "Baltic"},
            "answer": "Baltic",
            "popularity": 3,
        },
    ]
    data = read_task("jsonl", written(tmp_path / name, rows))
    assert data.metric == "em"
    assert data.items[0] == Item("1", "Who wrote Emma?", ("Jane Austen", "Austen"), group="novels")
    assert (data.items[1].answers, data.items[1].popularity) == (("B",), 3.0)


@pytest.mark.parametrize(("name", "separator"), [("own.csv", ","), ("own.tsv", "\t"), ("own.tsv.gz", "\t")])
def test_a_table_may_have_a_column_an_option(tmp_path: Path, name: str, separator: str) -> None:
    lines = [separator.join(row) for row in (("question", "A", "B", "answer"), ("Which?", "x", "y", "b"))]
    text = ("\n".join(lines) + "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    data = read_task("jsonl", tmp_path / name)
    assert (data.metric, options(data.items[0]), data.items[0].answers) == ("accuracy", ["x", "y"], ("B",))


def test_equal_files_have_equal_digests_and_ids(tmp_path: Path) -> None:
    first, second = (written(tmp_path / f"{n}.jsonl", [{"question": "a?", "answer": "b"}]) for n in "ab")
    assert read_task("jsonl", first) == read_task("jsonl", second)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": 1, "question": "a?", "answer": "b"}, {"id": 1, "question": "c?", "answer": "d"}],
         r"line 2: the id '1' is taken by .*line 1: give every question an id of its own"),
        ([{"question": "a?", "choices": ["x", "y"], "answer": letter} for letter in "AB"],
         r"line 2: the question stands at .*line 1 with the answer A, here with B: keep one of them"),
        ([{"question": "a?", "choices": ["x", "y"], "answer": "E"}], r"line 1: the answer 'E' is none of the options"),
        ([{"question": "a?", "choices": ["x", "y"], "answer": 2}], "line 1: the answer '2' is none of the options"),
        ([{"question": "a?", "choices": ["x", " "], "answer": "A"}], "line 1: option 'B' is ''"),
        ([{"question": "a?", "choices": ["x"], "answer": "A"}], "line 1: there is one option, 'A'"),
        ([{"question": "a?", "choices": 3, "answer": "A"}], "line 1: choices are 3: write"),
        ([{"question": "a?", "answer": "b", "popularity": -1}], "line 1: popularity is -1, expected a number"),
        ([], "no question in it"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_named_with_its_place(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_task("jsonl", written(tmp_path / "own.jsonl", rows))
    assert "own.jsonl" in str(caught.value)


def test_a_file_cut_off_in_compression_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "own.jsonl.gz", [{"question": f"{n}?", "answer": "b"} for n in range(50)])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageError, match=r"own\.jsonl\.gz is no whole gzip file"):
        read_task("jsonl", path)
    path.write_bytes(b"plain")
    with pytest.raises(UsageError, match="is no whole gzip file"):
        read_task("jsonl", path)


def test_every_task_says_of_an_empty_file_that_it_is_one(tmp_path: Path) -> None:
    path = written(tmp_path / "empty.json", {"testset": [], "demos": [], "potential_labels": ["x", "y"]})
    for name in task_names():
        with pytest.raises(UsageError, match="no question in it"):
            read_task(name, path)


def test_lun_without_a_class_is_refused(tmp_path: Path) -> None:
    row = {"text": "Rain fell.", "label": "A"}
    path = written(tmp_path / "lun.json", {"testset": [row], "demos": [], "potential_labels": []})
    with pytest.raises(UsageError, match=r'expected the classes .* under "potential_labels"'):
        read_task("lun", path)


@pytest.mark.parametrize(
    ("data", "task"),
    [
        ({"dataset": "MidtermQA-binary", "testset": []}, "midterm"),
        ({"dataset": "LUN4", "testset": []}, "lun"),
        ({"name": "mmlu_redux", "split": "dev", "rows": []}, "mmlu"),
        ({"name": "popqa", "split": "dev", "rows": []}, "popqa"),
        ({"name": "midterm exam", "questions": []}, "jsonl"),
        ([{"question": "a?", "answer": "b"}], "jsonl"),
    ],
)
def test_a_file_may_say_which_task_it_holds(tmp_path: Path, data: Any, task: str) -> None:
    assert recognised(written(tmp_path / "data.json", data)) == task
    assert recognised(written(tmp_path / "data.json.gz", data)) == task
    assert recognised(tmp_path) == "jsonl"


def test_an_unknown_task_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown task 'nope': choose one of .*jsonl, lun, .*midterm"):
        read_task("nope", tmp_path)


def test_a_question_of_popqa_is_shown_one_of_each_other_relation(tmp_path: Path) -> None:
    rows = [
        {"question": f"{relation} {n}?", "possible_answers": ["x"], "prop": relation, "s_pop": 1}
        for relation in ("author", "capital", "sport")
        for n in range(4)
    ]
    path = written(tmp_path / "popqa.json", rows)
    data = read_task("popqa", path)
    for item in data.items:
        others = sorted(shot.group for shot in data.demonstrations(item))
        assert others == sorted({"author", "capital", "sport"} - {item.group})
    assert read_task("popqa", path) == data
