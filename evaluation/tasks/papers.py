"""Readers of the data sets of Thrust (section 4.1) and SKR (appendix A), in the layouts in which they are published.

Those that other papers use, too, are in datasets.py: HotpotQA, Natural Questions, TriviaQA and TruthfulQA.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.tasks.base import (
    Columns,
    Item,
    PlacedItem,
    TaskData,
    collect_items,
    from_rows,
    read_entries,
    required_text,
)
from kcard.evaluation.tasks.datasets import DatasetTask
from kcard.io import Row, opened, reading, suffix

YES_NO = {"A": "Yes", "B": "No"}
TRUE_FALSE = {"A": "True", "B": "False"}


def truth(value: Any, where: str) -> bool:
    """Return a truth value that a data set writes as true, "True", "yes", 1 ... Raises UsageError for anything else."""
    text = str(value).strip().casefold()
    if text not in {"true", "yes", "1", "false", "no", "0"}:
        raise UsageError(f"{where}: the answer is {text[:40]!r}, expected true or false")
    return text in {"true", "yes", "1"}


# Questions with the answer yes or no: BoolQ and StrategyQA; statements that are true or false: CREAK and TabularQA.


def read_boolq(path: Path) -> TaskData:
    """Read BoolQ (Clark et al., 2019): lines of {question, passage, answer: true or false}, scored by accuracy."""
    return _read_truths("boolq", path, YES_NO, Columns(passages=("passage", "context")))


def read_strategyqa(path: Path) -> TaskData:
    """Read StrategyQA (Geva et al., 2021): {qid, question, answer, facts}, scored by accuracy; the facts that people
    wrote are the passages."""
    return _read_truths("strategyqa", path, YES_NO, Columns(id=("qid", "id"), passages=("facts",)))


def read_creak(path: Path) -> TaskData:
    """Read CREAK (Onoe et al., 2021): lines of {ex_id, sentence, label, explanation}, scored by accuracy.

    The explanation is the passage.
    """
    columns = Columns(
        question=("sentence",), answers=("label",), id=("ex_id", "id"), passages=("explanation",)
    )
    return _read_truths("creak", path, TRUE_FALSE, columns, "Is it true or false? {}")


def _read_truths(
    name: str, path: Path, options: dict[str, str], columns: Columns, question: str = "{}"
) -> TaskData:
    def items() -> Iterator[PlacedItem]:
        for where, row in read_entries(path, name):
            answer = next((row[key] for key in columns.answers if key in row), None)
            right = options["A" if truth(answer, where) else "B"]
            text = question.format(required_text(row, columns.question, where))
            yield where, _with_options(row, columns, where, text, options, right)

    return collect_items(name, "accuracy", path, items())


def _with_options(
    row: Row, columns: Columns, where: str, question: str, options: dict[str, str], right: str
) -> Item:
    """Return the entry as a question of these options, of which `right` is the text of the right one."""
    own = Columns(id=columns.id, passages=columns.passages, label=("class",))
    values = {key: value for key, value in row.items() if key != "answers"}
    shaped = {"question": question, "choices": options, "answer": right, "class": right}
    return own.item({**values, **shaped}, where)


# Options that the data set gives: CommonsenseQA, ARC, OpenBookQA.

OPTION_COLUMNS = Columns(id=("id",), answers=("answerKey", "answer"), passages=("fact1",))


def read_commonsenseqa(path: Path) -> TaskData:
    """Read CommonsenseQA (Talmor et al., 2019), scored by accuracy. See `read_options`."""
    return read_options("commonsenseqa", path)


def read_arc(path: Path) -> TaskData:
    """Read ARC (Clark et al., 2018), Easy or Challenge by the file, scored by accuracy. See `read_options`."""
    return read_options("arc", path)


def read_openbookqa(path: Path) -> TaskData:
    """Read OpenBookQA (Mihaylov et al., 2018), scored by accuracy; its core fact is the passage. See `read_options`."""
    return read_options("openbookqa", path)


def read_options(name: str, path: Path) -> TaskData:
    """Read lines of {id, question: {stem, choices: [{label, text}]}, answerKey}, or the Hub's form of it, {id, question
    or question_stem, choices: {label: [...], text: [...]}, answerKey}. Questions without an answer key are skipped, as
    in the test set of CommonsenseQA."""

    def shape(row: Row) -> Row | None:
        if row.get("answerKey") == "":
            return None
        question = row.get("question", row.get("question_stem"))
        if not isinstance(question, dict):
            return {**row, "question": question}
        options = question.get("choices")
        listed = options if isinstance(options, list) and all(isinstance(o, dict) for o in options) else []
        return {
            **row,
            "question": question.get("stem"),
            "choices": {str(option.get("label")): option.get("text") for option in listed},
        }

    return from_rows(name, "accuracy", path, OPTION_COLUMNS, shape)


# Classes that the data set defines: e-SNLI, AG News.

RELATIONS = {"A": "entailment", "B": "neutral", "C": "contradiction"}
TOPICS = {"A": "World", "B": "Sports", "C": "Business", "D": "Sci/Tech"}


def read_esnli(path: Path) -> TaskData:
    """Read e-SNLI (Camburu et al., 2018): a table of Sentence1, Sentence2, gold_label and Explanation_1, or the Hub's
    {premise, hypothesis, label, explanation_1}; scored by accuracy. People's explanation is the passage; pairs without
    a label are skipped."""
    columns = Columns(id=("pairID", "id"), passages=("Explanation_1", "explanation_1"))

    def items() -> Iterator[PlacedItem]:
        for where, row in read_entries(path, "esnli"):
            label = str(row.get("gold_label", row.get("label")))
            if label in {"-", "-1", "None"}:
                continue
            premise = required_text(row, ("Sentence1", "premise"), where)
            hypothesis = required_text(row, ("Sentence2", "hypothesis"), where)
            question = f"{premise}\nHow does this relate to it: {hypothesis}"
            right = _class_of(label, RELATIONS, where)
            yield where, _with_options(row, columns, where, question, RELATIONS, right)

    return collect_items("esnli", "accuracy", path, items())


def read_agnews(path: Path) -> TaskData:
    """Read AG News (Zhang et al., 2015): its table without a header (class from 1, title, description), or the Hub's
    {text, label}; scored by accuracy. As in Thrust, the title is the question and the description the passage."""

    def items() -> Iterator[PlacedItem]:
        for where, row in _agnews_rows(path):
            title = required_text(row, ("title", "text"), where)
            question = f"What is this piece of news about? {title}"
            right = _class_of(str(row.get("label")), TOPICS, where)
            columns = Columns(passages=("description",))
            yield where, _with_options(row, columns, where, question, TOPICS, right)

    return collect_items("agnews", "accuracy", path, items())


def _agnews_rows(path: Path) -> Iterator[tuple[str, Row]]:
    if suffix(path) != ".csv":
        yield from read_entries(path, "agnews")
        return
    with reading(path, "agnews"), opened(path) as stream:
        lines = stream.read().decode("utf-8-sig").splitlines()
    for number, cells in enumerate(csv.reader(lines), start=1):
        where = f"agnews {path}, line {number}"
        if cells[:1] in (["Class Index"], ["label"]):
            continue
        if len(cells) != 3 or not cells[0].strip().isdecimal():
            raise UsageError(f"{where}: expected a class from 1, a title and a description")
        yield where, {"label": str(int(cells[0]) - 1), "title": cells[1], "description": cells[2]}


def _class_of(label: str, classes: dict[str, str], where: str) -> str:
    """Return the class that a name, or a number from 0, stands for. Raises UsageError for anything else."""
    names = list(classes.values())
    if label.isdecimal() and int(label) < len(names):
        return names[int(label)]
    if label.casefold() in (name.casefold() for name in names):
        return next(name for name in names if name.casefold() == label.casefold())
    raise UsageError(f"{where}: the label is {label[:40]!r}, expected one of {', '.join(names)}")


# Open questions: Web Questions, Curated TREC, TemporalQA.

DESCRIPTIONS = re.compile(r'\(description (?:"((?:[^"\\]|\\.)*)"|([^()]*))\)')
PATTERN = re.compile(r"[\\\[\](){}*+?|^$]")


def read_webquestions(path: Path) -> TaskData:
    """Read Web Questions (Berant et al., 2013): {utterance, targetValue: (list (description ...))}, or {question,
    answers}; scored by F1, as in Thrust."""

    def shape(row: Row) -> Row:
        if not isinstance(row.get("targetValue"), str):
            return row
        answers = [quoted or plain for quoted, plain in DESCRIPTIONS.findall(row["targetValue"])]
        return {**row, "question": row.get("utterance"), "answers": answers}

    return from_rows("webquestions", "f1", path, Columns(), shape)


def read_curated_trec(path: Path) -> TaskData:
    """Read Curated TREC (Baudis and Sedivy, 2015): lines of {question, answer: [patterns]}, scored by F1, as in Thrust.

    Its answers are regular expressions: alternatives and blanks are resolved, other patterns left out, and questions
    whose answers are all such patterns skipped.
    """

    def shape(row: Row) -> Row | None:
        patterns = row.get("answers", row.get("answer"))
        listed = patterns if isinstance(patterns, list) else [patterns]
        answers = [text for pattern in listed for text in plain_alternatives(str(pattern))]
        return {**row, "answers": answers} if answers else None

    return from_rows("curatedtrec", "f1", path, Columns(), shape)


def plain_alternatives(pattern: str) -> list[str]:
    """Return the alternatives of a regular expression that are plain texts once blanks and escapes are resolved."""
    texts = []
    for alternative in pattern.split("|"):
        text = re.sub(r"\\s[*+?]?|\\b", " ", alternative)
        text = re.sub(r"\\([^\w\s])", r"\1", text.strip("^$ "))
        if text.strip() and not PATTERN.search(text):
            texts.append(" ".join(text.split()))
    return texts


def read_temporalqa(path: Path) -> TaskData:
    """Read TemporalQA (TempQuestions, Jia et al., 2018): {Id, Question, Gold answer, Type, passages}, scored by exact
    match; the group is the type of its temporal expression."""
    columns = Columns(question=("Question", "question"), answers=("Gold answer", "answers"), id=("Id", "id"))

    def shape(row: Row) -> Row:
        kinds = row.get("Type")
        texts = [
            part
            for passage in row.get("passages") or ()
            for part in ([passage] if isinstance(passage, str) else passage)
        ]
        return {
            **row,
            "group": ", ".join(map(str, kinds)) if isinstance(kinds, list) else kinds,
            "passages": [_first_text(text) for text in texts],
        }

    return from_rows("temporalqa", "em", path, columns, shape)


def _first_text(part: Any) -> str:
    while isinstance(part, list) and part:
        part = part[0]
    return part if isinstance(part, str) else ""


# A table as text, and a statement on it (InfoTabs, Gupta et al., 2020), of which SKR keeps what is true or false.

LABELS = {"E": True, "C": False}


def read_tabularqa(path: Path) -> TaskData:
    """Read TabularQA (InfoTabs): a table of {hypothesis, label E, C or N, table_id}, or {statement, answer}; scored by
    accuracy. Statements that the table neither supports nor refutes (N) are skipped."""
    columns = Columns(
        question=("hypothesis", "statement", "question"), id=("index", "id"), passages=("table", "passages")
    )

    def items() -> Iterator[PlacedItem]:
        for where, row in read_entries(path, "tabularqa"):
            label = str(row.get("label", "")).strip()
            if label == "N":
                continue
            is_true = LABELS[label] if label in LABELS else truth(row.get("answer", label), where)
            question = f"{required_text(row, columns.question, where)} True or False?"
            right = TRUE_FALSE["A" if is_true else "B"]
            yield where, _with_options(row, columns, where, question, TRUE_FALSE, right)

    return collect_items("tabularqa", "accuracy", path, items())


AGNEWS = DatasetTask(read_agnews)
ARC = DatasetTask(read_arc)
BOOLQ = DatasetTask(read_boolq)
COMMONSENSEQA = DatasetTask(read_commonsenseqa)
CREAK = DatasetTask(read_creak)
CURATED_TREC = DatasetTask(read_curated_trec)
ESNLI = DatasetTask(read_esnli)
OPENBOOKQA = DatasetTask(read_openbookqa)
STRATEGYQA = DatasetTask(read_strategyqa)
TABULARQA = DatasetTask(read_tabularqa)
TEMPORALQA = DatasetTask(read_temporalqa)
WEBQUESTIONS = DatasetTask(read_webquestions)
