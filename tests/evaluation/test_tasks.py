"""Tasks: data sets in their own layouts, and what is said of files that are not."""

import gzip
import json
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcard.errors import UsageError
from kcard.evaluation.tasks.base import Item, TaskData, read_task, recognise_task, task_names


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
        UsageError, match=r"entry 1: the answer 'gossip' is not one of the options A, B: give the letter"
    ):
        read_task("lun", written(tmp_path / "LUN2.json", rows))
    with pytest.raises(UsageError, match=r'a list of one or more classes.* under "potential_labels"'):
        read_task("lun", written(tmp_path / "LUN2.json", {**rows, "potential_labels": []}))


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

    table = tomllib.loads(DOMAINS.read_text(encoding="utf-8"))
    assert sum(len(subjects.split()) for subjects in table.values()) == 57
    assert [domain_of(subject) for subject in ("anatomy", "philosophy", "cooking")] == [
        "other",
        "humanities",
        "",
    ]


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


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": 1, "question": "a?", "answer": "b"}, {"id": 1, "question": "c?", "answer": "d"}],
         r"line 2: the id '1' is used at .*line 1 too: give every question its own id"),
        ([{"question": "a?", "choices": ["x", "y"], "answer": letter} for letter in "AB"],
         r"line 2: the question has the answer B, but A at .*line 1: keep one of them"),
        ([{"question": "a?", "choices": ["x", "y"], "answer": "E"}], r"the answer 'E' is not one of the options"),
        ([{"question": "a?", "choices": ["x", "y"], "answer": 2}], "line 1: the answer '2' is not one of the options"),
        ([{"question": "a?", "choices": ["x", " "], "answer": "A"}], "line 1: option 'B' is ''"),
        ([{"question": "a?", "choices": ["x"], "answer": "A"}], "line 1: there is only one option, 'A'"),
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
    with pytest.raises(UsageError, match=r"own\.jsonl\.gz is not a complete gzip file"):
        read_task("jsonl", path)
    path.write_bytes(b"plain")
    with pytest.raises(UsageError, match="is not a complete gzip file"):
        read_task("jsonl", path)


def test_every_task_says_of_an_empty_file_that_it_is_one(tmp_path: Path) -> None:
    path = written(tmp_path / "empty.json", {"testset": [], "demos": [], "potential_labels": ["x", "y"]})
    for name in task_names():
        with pytest.raises(UsageError, match="no question in it"):
            read_task(name, path)


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
    assert recognise_task(written(tmp_path / "data.json", data)) == task
    assert recognise_task(written(tmp_path / "data.json.gz", data)) == task
    assert recognise_task(tmp_path) == "jsonl"


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


# Each data set in the layouts that its authors, or those who hand it on, write.


def read(tmp_path: Path, name: str, data: Any, file: str = "data.json") -> TaskData:
    return read_task(name, written(tmp_path / file, data))


def chosen(item: Item) -> str:
    return next(choice.description for choice in item.choices if choice.name == item.answers[0])


def test_entityquestions_is_a_folder_of_relations(tmp_path: Path) -> None:
    for split in ("dev", "test"):
        (tmp_path / split).mkdir()
        for relation in ("P17", "P50"):
            rows = [{"question": f"{split} {relation}?", "answers": ["Norway"]}]
            (tmp_path / split / f"{relation}.{split}.json").write_text(json.dumps(rows))
    data = read_task("entityquestions", tmp_path)
    assert data.metric == "substring"
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
    (tmp_path / "TruthfulQA.csv").write_text(table)
    items = read_task("truthfulqa", tmp_path / "TruthfulQA.csv").items
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


# Whatever stands in a file, a task reads it or says what is wrong with it.

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


@settings(max_examples=40)
@given(data=FILES)
def test_whatever_the_json_it_is_a_task_or_a_usage_error(tmp_path: Path, data: object) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps(data))
    for name in task_names():
        with suppress(UsageError):
            items = read_task(name, path).items
            assert len({item.id for item in items}) == len(items) > 0
            assert all(item.question and item.answers and all(item.answers) for item in items)
            letters = [{choice.name for choice in item.choices} for item in items]
            assert all(not own or own >= {*item.answers} for item, own in zip(items, letters, strict=True))
    with suppress(UsageError):
        assert recognise_task(path) in task_names()
