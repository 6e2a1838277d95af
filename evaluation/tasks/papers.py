"""Data sets of Thrust (section 4.1) and SKR (appendix A) that no other paper uses, in their published layouts.

A row becomes a question in three ways: its classes are options that the data set defines, its options are listed, or
its answers are texts. HotpotQA, Natural Questions, TriviaQA and TruthfulQA, which others use too, are in datasets.py.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.tasks.base import Columns, PlacedItem, TaskData, collect_items, from_rows
from kcard.evaluation.tasks.datasets import DatasetTask, task_of_rows
from kcard.io import Row, opened, reading, suffix

# Classes that the data set defines, by the values that stand for them. A value that stands for none is not one of the
# options, which is an error of the row. The class is also the label, by which Thrust groups questions.

YES_NO = {"true": "Yes", "yes": "Yes", "1": "Yes", "false": "No", "no": "No", "0": "No"}
TRUE_FALSE = {"true": "True", "yes": "True", "1": "True", "false": "False", "no": "False", "0": "False"}
ENTAILED_LABEL = TRUE_FALSE | {"e": "True", "c": "False"}
RELATIONS = {"0": "entailment", "1": "neutral", "2": "contradiction"}
TOPICS = {"0": "World", "1": "Sports", "2": "Business", "3": "Sci/Tech"}


def class_columns(key: str = "id", passages: tuple[str, ...] = ("passages",)) -> Columns:
    """Return the columns of rows that `classify` returns."""
    return Columns(id=(key, "id"), passages=passages, label=("class",))


def classify(row: Row, question: str | None, classes: dict[str, str], value: Any) -> Row:
    """Return the row as a question with these classes as options; `value` stands for the right one, or is its name."""
    names = {name.casefold(): name for name in classes.values()}
    right = (classes | names).get(str(value).strip().casefold(), value)
    options = list(names.values())
    return {**row, "question": question, "choices": options, "answers": right, "class": right}


def _fill(template: str, *texts: Any) -> str | None:
    """Return the template with these texts in it; None if one of them is missing."""
    return template.format(*texts) if all(texts) else None


# BoolQ (Clark et al., 2019): lines of {question, passage, answer: true or false}.
BOOLQ = task_of_rows(
    "boolq",
    "accuracy",
    class_columns(passages=("passage", "context")),
    lambda row: classify(row, row.get("question"), YES_NO, row.get("answer")),
)

# StrategyQA (Geva et al., 2021): {qid, question, answer, facts}; the facts, which people wrote, are the passages.
STRATEGYQA = task_of_rows(
    "strategyqa",
    "accuracy",
    class_columns("qid", ("facts",)),
    lambda row: classify(row, row.get("question"), YES_NO, row.get("answer")),
)

# CREAK (Onoe et al., 2021): lines of {ex_id, sentence, label, explanation}; the explanation is the passage.
CREAK = task_of_rows(
    "creak",
    "accuracy",
    class_columns("ex_id", ("explanation",)),
    lambda row: classify(
        row, _fill("Is it true or false? {}", row.get("sentence")), TRUE_FALSE, row.get("label")
    ),
)


def prepare_tabularqa(row: Row) -> Row | None:
    """Skip statements that the table neither supports nor refutes (N), as SKR does."""
    value = row.get("answer", row.get("label"))
    if value == "N":
        return None
    statement = row.get("hypothesis") or row.get("statement") or row.get("question")
    return classify(row, _fill("{} True or False?", statement), ENTAILED_LABEL, value)


# TabularQA (InfoTabs, Gupta et al., 2020): {hypothesis, label E, C or N, table}, or {statement, answer, table}.
TABULARQA = task_of_rows(
    "tabularqa", "accuracy", class_columns("index", ("table", "passages")), prepare_tabularqa
)


def prepare_esnli(row: Row) -> Row | None:
    """Skip pairs without a label."""
    value = row.get("gold_label", row.get("label"))
    if str(value) in {"-", "-1"}:
        return None
    premise = row.get("Sentence1") or row.get("premise")
    hypothesis = row.get("Sentence2") or row.get("hypothesis")
    question = _fill("{}\nHow does this relate to it: {}", premise, hypothesis)
    return classify(row, question, RELATIONS, value)


# e-SNLI (Camburu et al., 2018): a table of Sentence1, Sentence2, gold_label and Explanation_1, or the Hugging Face
# Hub's {premise, hypothesis, label, explanation_1}; the explanation, which people wrote, is the passage.
ESNLI = task_of_rows(
    "esnli", "accuracy", class_columns("pairID", ("Explanation_1", "explanation_1")), prepare_esnli
)


def prepare_agnews(row: Row) -> Row:
    title = row.get("title") or row.get("text")
    return classify(row, _fill("What is this piece of news about? {}", title), TOPICS, row.get("label"))


def read_agnews(path: Path) -> TaskData:
    """Read AG News (Zhang et al., 2015): its table without a header (class from 1, title, description), or the Hugging
    Face Hub's {text, label}. As in Thrust, the title is the question and the description the passage."""
    columns = class_columns(passages=("description",))
    if suffix(path) != ".csv":
        return from_rows("agnews", "accuracy", path, columns, prepare_agnews)

    def items() -> Iterator[PlacedItem]:
        with reading(path, "agnews"), opened(path) as stream:
            lines = stream.read().decode("utf-8-sig").splitlines()
        for number, cells in enumerate(csv.reader(lines), start=1):
            where = f"agnews {path}, line {number}"
            if cells[:1] == ["Class Index"]:
                continue
            if len(cells) != 3 or not cells[0].strip().isdecimal():
                raise UsageError(f"{where}: expected a class from 1, a title and a description")
            row = {"label": int(cells[0]) - 1, "title": cells[1], "description": cells[2]}
            yield where, columns.item(prepare_agnews(row), where)

    return collect_items("agnews", "accuracy", path, items())


AGNEWS = DatasetTask(read_agnews)


# Options that are listed, in two layouts: {id, question: {stem, choices: [{label, text}]}, answerKey}, or the Hugging
# Face Hub's {id, question or question_stem, choices: {label: [...], text: [...]}, answerKey}.

OPTION_COLUMNS = Columns(
    question=("question", "question_stem"), answers=("answerKey", "answer"), passages=("fact1",)
)


def prepare_options(row: Row) -> Row | None:
    """Skip questions without a key, as those in the test set of CommonsenseQA."""
    if row.get("answerKey") == "":
        return None
    question = row.get("question")
    if not isinstance(question, dict):
        return row
    choices = {}
    for option in question.get("choices") or ():
        if isinstance(option, dict):
            choices[str(option.get("label"))] = option.get("text")
    return {**row, "question": question.get("stem"), "choices": choices}


# ARC (Clark et al., 2018; Easy or Challenge by the file), CommonsenseQA (Talmor et al., 2019), and OpenBookQA (Mihaylov
# et al., 2018), whose core fact is the passage.
ARC = task_of_rows("arc", "accuracy", OPTION_COLUMNS, prepare_options)
COMMONSENSEQA = task_of_rows("commonsenseqa", "accuracy", OPTION_COLUMNS, prepare_options)
OPENBOOKQA = task_of_rows("openbookqa", "accuracy", OPTION_COLUMNS, prepare_options)


# Answers that are texts.

DESCRIPTION = re.compile(r'\(description (?:"((?:[^"\\]|\\.)*)"|([^()]*))\)')
SPECIAL_CHARACTERS = re.compile(r"[\\\[\](){}*+?|^$]")


def prepare_webquestions(row: Row) -> Row:
    value = row.get("targetValue")
    if not isinstance(value, str):
        return row
    answers = [quoted or plain for quoted, plain in DESCRIPTION.findall(value)]
    return {**row, "question": row.get("utterance"), "answers": answers}


# Web Questions (Berant et al., 2013): {utterance, targetValue: (list (description ...))}, or {question, answers}.
WEBQUESTIONS = task_of_rows("webquestions", "f1", Columns(), prepare_webquestions)


def plain_alternatives(pattern: str) -> list[str]:
    """Return the alternatives of a regular expression that are plain texts once blanks and escapes are resolved."""
    texts = []
    for alternative in pattern.split("|"):
        text = re.sub(r"\\s[*+?]?|\\b", " ", alternative)
        text = re.sub(r"\\([^\w\s])", r"\1", text.strip("^$ "))
        if text.strip() and not SPECIAL_CHARACTERS.search(text):
            texts.append(" ".join(text.split()))
    return texts


def prepare_curated_trec(row: Row) -> Row | None:
    """Skip questions none of whose patterns is a text."""
    patterns = row.get("answers", row.get("answer"))
    answers = []
    for pattern in patterns if isinstance(patterns, list) else [patterns]:
        answers += plain_alternatives(str(pattern))
    return {**row, "answers": answers} if answers else None


# Curated TREC (Baudis and Sedivy, 2015): lines of {question, answer: [regular expressions]}.
CURATED_TREC = task_of_rows("curatedtrec", "f1", Columns(), prepare_curated_trec)


def prepare_temporalqa(row: Row) -> Row:
    """Join the types, and take the first text of each nested list of passages."""
    kinds = row.get("Type")
    if isinstance(kinds, list):
        kinds = ", ".join(map(str, kinds))
    texts = []
    for passage in row.get("passages") or ():
        for part in passage if isinstance(passage, list) else [passage]:
            while isinstance(part, list) and part:
                part = part[0]
            texts.append(part)
    return {**row, "group": kinds, "passages": texts}


# TemporalQA (TempQuestions, Jia et al., 2018): {Id, Question, Gold answer, Type, passages}; the group is the type of
# its temporal expression.
TEMPORALQA = task_of_rows(
    "temporalqa",
    "em",
    Columns(question=("Question", "question"), answers=("Gold answer", "answers"), id=("Id", "id")),
    prepare_temporalqa,
)
