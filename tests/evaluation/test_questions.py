"""Exam files as people write them, and what is said of those that can't be read."""

import hashlib
import json
import re
from pathlib import Path
from random import Random

import pytest

from kcard.errors import UsageError
from kcard.evaluation.metrics import substring
from kcard.evaluation.natural_questions import (
    SYNONYMS,
    Clause,
    CorpusQuestion,
    draw_question,
    natural_questions,
    parse_clause,
    reword,
)
from kcard.evaluation.questions import ExamQuestion, make_questions, read_questions
from kcard.types import Source

RHINE = ExamQuestion("Which sea does the Rhine reach?", ("North Sea",))
TRITON = ExamQuestion("Who discovered Triton?", ("William Lassell", "Lassell"))
ROWS = [
    {"question": RHINE.text, "answer": "North Sea"},
    {"question": TRITON.text, "answers": ["William Lassell", "Lassell"]},
]
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Rivers",
            "paragraphs": [
                {"context": "…", "qas": [{"question": RHINE.text, "answers": [{"text": "North Sea"}]}]}
            ],
        },
        {
            "paragraphs": [
                {
                    "context": "…",
                    "qas": [
                        {
                            "question": TRITON.text,
                            "answers": [{"text": "William Lassell"}, {"text": "Lassell"}],
                        }
                    ],
                }
            ]
        },
    ],
}
CSV = (
    'question,answers,note\n"Which sea does the Rhine reach?",North Sea,a river\n'
    '"Who discovered Triton?","[""William Lassell"", ""Lassell""]",\n'
)


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("exam.jsonl", "\n".join(json.dumps(row) for row in ROWS) + "\n\n"),
        ("exam.ndjson", "\ufeff" + "\n".join(json.dumps(row) for row in ROWS)),
        ("exam.json", json.dumps(ROWS, indent=2)),
        ("exam.json", json.dumps({"name": "mine", "questions": ROWS})),
        ("exam.json", json.dumps(SQUAD)),
        ("exam.csv", CSV),
        ("exam.CSV", CSV.replace("\n", "\r\n")),
    ],
)
def test_questions_are_read_in_every_layout(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path, name, text)
    questions = read_questions(path)
    assert questions.questions == (RHINE, TRITON)
    assert (questions.name, questions.sha256) == (name, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.mark.parametrize(
    ("answers", "accepted"),
    [
        ({"answer": 1846}, ("1846",)),
        ({"answer": " Titan ", "id": 3}, ("Titan",)),
        ({"answers": ["Titan", "", None, "Titan"]}, ("Titan",)),
        ({"answers": {"text": ["Titan", "Saturn VI"], "answer_start": [0, 5]}}, ("Titan", "Saturn VI")),
        ({"answer": '["Titan", "Saturn VI"]'}, ("Titan", "Saturn VI")),
        ({"answer": "[sic] Titan"}, ("[sic] Titan",)),
    ],
)
def test_answers_may_be_written_in_many_ways(
    tmp_path: Path, answers: dict[str, object], accepted: tuple[str, ...]
) -> None:
    path = written(tmp_path, "exam.jsonl", json.dumps({"question": "Which?", **answers}))
    assert read_questions(path).questions == (ExamQuestion("Which?", accepted),)


def test_a_question_that_stands_there_twice_is_asked_once_and_both_answers_count(tmp_path: Path) -> None:
    rows = [{"question": "A moon of Mars?", "answer": moon} for moon in ("Phobos", "Deimos")]
    path = written(tmp_path, "exam.jsonl", "\n".join(map(json.dumps, rows)))
    assert read_questions(path).questions == (ExamQuestion("A moon of Mars?", ("Phobos", "Deimos")),)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("exam.jsonl", '{"question": "a", "answer": "b"}\n{"question": \n', r"exam\.jsonl, line 2: not JSON"),
        ("exam.jsonl", '\n{"question": "a?"}', 'line 2: expected .* there is no answer to "a\\?"'),
        ("exam.jsonl", '{"question": "a?", "answer": true}', "line 1: .* no answer"),
        (
            "exam.jsonl",
            '{"query": "a?", "answer": "b"}',
            'line 1: expected a "question" with a text',
        ),
        ("exam.jsonl", '["a", "b"]', "line 1: expected an object, found list"),
        ("exam.jsonl", "\n\n", r"exam\.jsonl: no question in it"),
        ("exam.json", '[\n{"question": "a",}\n]', "line 2: not JSON"),
        ("exam.json", '{"items": []}', 'expected a list of questions, alone or under one of "data"'),
        (
            "exam.json",
            '{"data": [{"paragraphs": [{"text": "x"}]}]}',
            'entry 1: expected "qas" to be a list of objects',
        ),
        ("exam.json", '[{"question": "a", "answer": "b"}, 3]', "entry 2: expected an object, found int"),
        ("exam.json", "[" * 100_000, "unreadable JSON"),
        ("exam.csv", "q,a\nx,y\n", "line 2: expected"),
        ("exam.csv", 'question,answer\nx,y\n"x"z,y\n', "line 3: not CSV"),
        ("exam.csv", "question,answer\nx,y\nz,\n", 'line 3: .*no answer to "z"'),
        ("exam.txt", "Who?", "unknown kind of file; give .jsonl, .json, .csv or .tsv"),
    ],
)
def test_a_file_that_can_not_be_read_is_one_line_that_says_where(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_questions(written(tmp_path, name, text))
    assert "\n" not in str(caught.value)


def test_what_is_no_text_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "exam.jsonl").write_bytes(b'{"question": "a", "answer": "b"}\n\xff\xfe\n')
    with pytest.raises(UsageError, match=r"exam\.jsonl, line 2: not UTF-8"):
        read_questions(tmp_path / "exam.jsonl")
    with pytest.raises(UsageError, match=r"none\.csv can't be read: No such file"):
        read_questions(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="can't be read: Is a directory"):
        read_questions(tmp_path)


# Questions made of plain sentences: clauses, what is asked of them, and how it is reworded.

MUSEUM = "Ada Fischer founded the Brindle Museum in 1871."
BRIDGE = "The Tamsel Bridge was closed because the river had risen above its piers."
CRANES = "The parcel depot of Tamsel has three cranes for heavy goods."
TOWER = "The tower of Marrow was opened in Oldenmark in 1904."
UNDO = "To undo a commit of yesterday, run revert with the number of the commit."
SENTENCES = [MUSEUM, BRIDGE, CRANES, TOWER, UNDO]


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        (MUSEUM, Clause("Ada Fischer", "founded", "found", "the Brindle Museum in 1871")),
        (TOWER, Clause("The tower of Marrow", "was", None, "opened in Oldenmark in 1904")),
        (
            "In 1993, the council moved the library to Marrow.",
            Clause("the council", "moved", "move", "the library to Marrow", "In 1993"),
        ),
    ],
)
def test_a_plain_sentence_is_taken_apart(sentence: str, parts: Clause) -> None:
    assert parse_clause(sentence) == parts


@pytest.mark.parametrize(
    "sentence",
    [
        "It was founded in 1993.",
        "If the lid is open the machine stops at once.",
        "Running the tool deletes the cache of the server.",
        "The man who opened the depot was a baker.",
        "These rooms are kept for letters.",
        "Was the depot opened by a baker?",
        "The cat sat.",
        "",
    ],
)
def test_what_can_not_be_told_apart_for_sure_is_passed_over(sentence: str) -> None:
    assert parse_clause(sentence) is None


def questions_by_form(sentence: str) -> dict[str, CorpusQuestion]:
    return {question.form: question for question in natural_questions(sentence, Random(0))}


@pytest.mark.parametrize(
    ("sentence", "form", "answer", "begins"),
    [
        (MUSEUM, "who", "Ada Fischer", "Who "),
        (MUSEUM, "when", "1871", "When did Ada Fischer "),
        (CRANES, "how many", "three", "How many cranes has the parcel depot of Tamsel"),
        (TOWER, "where", "Oldenmark", "Where was the tower of Marrow "),
        (BRIDGE, "why", "the river had risen above its piers", "Why was the Tamsel Bridge closed"),
        (UNDO, "how", "run revert with the number of the commit", "How can I undo a commit"),
    ],
)
def test_each_form_asks_for_a_part_of_the_sentence(
    sentence: str, form: str, answer: str, begins: str
) -> None:
    question = questions_by_form(sentence)[form]
    assert question.answer == answer
    assert question.text.startswith(begins)
    assert question.text.endswith("?")


@pytest.mark.parametrize("sentence", SENTENCES)
def test_an_answer_stands_in_the_sentence_and_not_in_its_question(sentence: str) -> None:
    questions = natural_questions(sentence, Random(1))
    assert questions
    for question in questions:
        assert sentence.count(question.answer) == 1
        assert not substring(question.text, [question.answer])
        before, after = question.around
        assert " ".join([before, question.answer, after]).split() == sentence.rstrip(".").split()


def test_brackets_and_too_little_to_go_by_make_no_question() -> None:
    assert natural_questions("A registry is a list of (named) packages kept by a server.", Random(0)) == []
    assert natural_questions("Bo was there in 1871.", Random(0)) == []


def test_a_question_is_drawn_of_the_first_sentence_that_gives_any() -> None:
    for seed in range(10):
        question = draw_question(["No verb here.", MUSEUM, CRANES], Random(seed))
        assert question is not None
        assert question.answer in MUSEUM
    assert draw_question(["No verb here.", ""], Random(0)) is None


def test_words_are_replaced_by_synonyms_and_names_stay() -> None:
    wordings = {reword("Who founded the large city of Founded?", Random(seed)) for seed in range(40)}
    assert len(wordings) > 3
    for text in wordings:
        words = text.removesuffix(" of Founded?")
        assert words != text
        assert any(f"Who {verb} " in words for verb in ("founded", *SYNONYMS["founded"]))


@pytest.mark.parametrize(
    ("sentence", "questions"),
    [
        ("Calibration is recommended every 12 months and costs 480 euros.", {"what": "recommended every 12"}),
        ("The spacecraft JUICE was launched in 2023 and shall enter an orbit.", {"when": "JUICE launched?"}),
        ("Robert Edwards was honoured with the Nobel Prize in Physiology or Medicine for 2010.", {}),
        ("Descriptions have at most 2,000 characters in a list.", {}),
        ("The answers of the model fill at least 20 tokens of the window.", {}),
        ("Share of documents that start inside a sentence of the corpus.", {}),
    ],
)
def test_questions_that_no_person_would_ask_are_not_made(sentence: str, questions: dict[str, str]) -> None:
    drawn = {each.form: each.text for each in natural_questions(sentence, Random(0))}
    assert "how many" not in drawn
    assert not any(re.search(r"\b(?:and|or|every)\b(?! \d)", text) for text in drawn.values()), drawn
    for form, words in questions.items():
        assert words in drawn[form]


@pytest.mark.parametrize("question", ["How large is it?", "What is a file-system?", "Who is Ada Large?"])
def test_what_has_no_synonym_in_its_place_stays(question: str) -> None:
    assert {reword(question, Random(seed)) for seed in range(20)} == {question}


def test_an_adverb_may_be_left_out() -> None:
    wordings = {reword("Who usually keeps watch?", Random(seed)) for seed in range(30)}
    assert any("usually" not in text and "normally" not in text for text in wordings)
    assert any("usually" in text or "normally" in text or "generally" in text for text in wordings)


def test_whatever_answers_a_question_as_it_is_asked_is_accepted() -> None:
    corpus = [
        Source("Mark Showalter discovered Pan, a moon of Saturn."),
        Source("Mark Showalter discovered Hippocamp, a moon of Neptune."),
        Source("Mark Showalter discovered Pandora, a moon of Saturn."),
        Source("The probe landed on Titan on January 14, 2005."),
    ]
    accepted = {}
    for seed in range(20):
        for question in make_questions(corpus, 10, seed):
            accepted[question.text] = set(question.answers)
    of_showalter = [answers for text, answers in accepted.items() if "did Mark Showalter" in text]
    of_titan = [answers for text, answers in accepted.items() if text.endswith("Titan?") and "When" in text]
    assert of_showalter
    assert all(answers == {"Pan", "Hippocamp", "Pandora"} for answers in of_showalter)
    assert of_titan
    assert all(answers == {"January 14, 2005"} for answers in of_titan)
