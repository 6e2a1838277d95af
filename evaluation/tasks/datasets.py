"""Readers of data sets, in the layouts in which they are published, and of generic files of questions."""

import csv
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise, product
from pathlib import Path
from random import Random
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.tasks.base import (
    Columns,
    Item,
    PlacedItem,
    TaskData,
    collect_items,
    draw_shots,
    draw_shots_of_other_groups,
    from_rows,
    list_entries,
    parse_file,
    read_entries,
    required_text,
)
from kcard.gates.popularity import BUILT_IN, PopularityFile
from kcard.io import Row, reading
from kcard.types import derive_seed


@dataclass(frozen=True)
class DatasetTask:
    """The reader of a data set as a Task, for entry points of `kcard.tasks`."""

    read: Callable[[Path], TaskData]


def task_of_rows(
    name: str,
    metric: str,
    columns: Columns,
    prepare: Callable[[Row], Row | None] | None = None,
    finish: Callable[[TaskData], TaskData] = lambda data: data,
) -> DatasetTask:
    """Return a task whose file has an entry for each question; `prepare` changes an entry, or skips it by None."""
    return DatasetTask(lambda path: finish(from_rows(name, metric, path, columns, prepare)))


# Multi-hop questions, scored by F1; the group is the type of question, the passages are titled paragraphs.
#
# HotpotQA (Yang et al., 2018), on two paragraphs, with distractors: its own JSON ({_id, question, answer, type,
# context}) or {id, question, answers, paragraphs}. 2WikiMultihopQA (Ho et al., 2020), on two Wikipedia articles: in
# HotpotQA's layout. MuSiQue (Trivedi et al., 2022), of two to four hops: its own JSONL ({id, question, answer,
# answer_aliases, paragraphs}), without questions that are marked as unanswerable; the group is the id's "3hop1".

MULTIHOP_COLUMNS = Columns(id=("id", "_id"), group=("type",), passages=("texts",))


def read_multihop(name: str, path: Path) -> TaskData:
    def items() -> Iterator[PlacedItem]:
        for where, row in read_entries(path, name):
            if row.get("answerable") is not False:
                answers = row.get("answers") or [row.get("answer"), *(row.get("answer_aliases") or ())]
                full = {**row, "answers": answers, "texts": _paragraphs(row, where)}
                yield where, MULTIHOP_COLUMNS.item(full, where)

    return collect_items(name, "f1", path, items())


def _paragraphs(row: Row, where: str) -> list[str]:
    """Return the titled paragraphs of "paragraphs": [{title, text}] or of HotpotQA's "context": [[title, [sentences]]].

    The context may also be an object of two lists, "title" and "sentences".
    """
    paragraphs = []
    try:
        if "paragraphs" in row:
            for paragraph in row["paragraphs"]:
                text = paragraph.get("text") or paragraph["paragraph_text"]
                paragraphs.append(f"{paragraph['title']}\n{text}")
            return paragraphs
        context = row.get("context") or []
        if isinstance(context, dict):
            context = zip(context["title"], context["sentences"], strict=True)
        for title, sentences in context:
            text = " ".join(sentence.strip() for sentence in sentences)
            paragraphs.append(f"{title}\n{text}")
        return paragraphs
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(
            f'{where}: expected "paragraphs" of {{title, text}} or a "context" of [title, [sentences]] pairs'
        ) from error


def read_musique(path: Path) -> TaskData:
    data = read_multihop("musique", path)
    items = [replace(item, group=item.id.split("__")[0]) for item in data.items]
    return replace(data, items=tuple(items))


HOTPOTQA = DatasetTask(partial(read_multihop, "hotpotqa"))
TWO_WIKI = DatasetTask(partial(read_multihop, "2wiki"))
MUSIQUE = DatasetTask(read_musique)


# EntityQuestions (Sciavolino et al., 2021), Adaptive Retrieval's second data set: simple questions by relation.
#
# Its layout has a file for each relation of Wikidata, such as test/P17.test.json, with a list of {question, answers}.

ENTITYQUESTIONS_NAME = "entityquestions"
ENTITYQUESTIONS_SPLITS = ("test", "dev", ".")
ENTITYQUESTIONS_COLUMNS = Columns(group=("relation",))


def read_entityquestions(path: Path) -> TaskData:
    """Read the file of a relation, or a folder's (test/), scored by substring as in Adaptive Retrieval.

    The demonstrations are drawn from the questions. A folder may hold the popularity of their subjects, which the data
    set lacks, as popularity.jsonl: lines of {question, popularity}.
    """
    files, popularity = [path], path / "popularity.jsonl"
    popularity_of = None
    if popularity.is_file():
        popularity_of = PopularityFile(str(popularity))
    if path.is_dir():
        files = []
        for split in ENTITYQUESTIONS_SPLITS:
            files = files or sorted((path / split).glob("P*.json*"))
    if not files:
        raise UsageError(
            f"{ENTITYQUESTIONS_NAME} {path}: expected files such as test/P17.test.json in the folder"
        )

    def items() -> Iterator[PlacedItem]:
        for file in files:
            relation = file.name.split(".")[0]
            for number, (where, row) in enumerate(read_entries(file, ENTITYQUESTIONS_NAME), start=1):
                placed = {"relation": relation, "id": f"{relation}-{number}", **row}
                placed["popularity"] = None
                if popularity_of is not None:
                    placed["popularity"] = popularity_of(str(row.get("question")))
                yield where, ENTITYQUESTIONS_COLUMNS.item(placed, where)

    data = collect_items(ENTITYQUESTIONS_NAME, "substring", path, items())
    return replace(data, shots=draw_shots(data.items))


ENTITYQUESTIONS = DatasetTask(read_entityquestions)


# PopQA (Mallen et al., 2023; Adaptive Retrieval): questions about subjects of known popularity, in 16 relations.
#
# Its table (popQA.tsv: question, possible_answers, prop, s_pop), or JSON of {input, output, s_pop}, where the
# question's template determines the relation. The group is the relation, the popularity the subject's monthly page
# views, the demonstrations are one question of each other relation.


def add_relation(row: Row) -> Row:
    """Add the relation of the longest template that matches the question; "" if none does."""
    question = row.get("input")
    if "prop" in row or not isinstance(question, str):
        return row
    longest = (0, "")
    for name, before, after in _templates():
        if question.startswith(before) and question.endswith(after):
            longest = max(longest, (len(before) + len(after), name))
    return {**row, "prop": longest[1]}


POPQA = task_of_rows(
    "popqa",
    "substring",
    Columns(("question", "input"), ("possible_answers", "output"), group=("prop",), popularity=("s_pop",)),
    add_relation,
    lambda data: replace(data, shots=draw_shots_of_other_groups(data.items)),
)


@cache
def _templates() -> list[tuple[str, str, str]]:
    """Return the relation of each template, and its text before and after the subject."""
    wordings: dict[str, str] = json.loads(BUILT_IN.read_text(encoding="utf-8"))
    return [(name, *wording.split("{}")) for name, wording in wordings.items()]  # type: ignore[misc]


# Natural Questions (Kwiatkowski et al., 2019): questions typed into a search engine.
#
# NQ-open (lines of {question, answer: [...]}), the same with the paragraph as "context", or the original's simplified
# form ({question_text, document_text, annotations}), without the questions that have no short answer.


def add_short_answers(row: Row) -> Row | None:
    """Add every annotator's short answers, which are spans of the document's tokens; skip a row without any."""
    if "annotations" not in row or not isinstance(row.get("document_text"), str):
        return row
    tokens = row["document_text"].split(" ")
    texts = []
    annotations = row["annotations"]
    if not isinstance(annotations, list):
        return None
    for annotation in annotations:
        if not isinstance(annotation, dict):
            continue
        for span in annotation.get("short_answers") or ():
            if not isinstance(span, dict):
                continue
            start, end = span.get("start_token"), span.get("end_token")
            if isinstance(start, int) and isinstance(end, int):
                texts.append(" ".join(tokens[start:end]))
    if not any(texts):
        return None
    return {**row, "short_answers": texts}


NQ = task_of_rows(
    "nq",
    "em",
    Columns(
        question=("question", "question_text"),
        answers=("answers", "answer", "short_answers"),
        id=("id", "example_id"),
        passages=("context",),
    ),
    add_short_answers,
)


# TriviaQA (Joshi et al., 2017): quiz questions, whose answers have many aliases.
#
# Its JSON (Data: [{Question, QuestionId, Answer: {Value, Aliases}}]), the Hub's form of it with lower-case keys, or
# {question, answers}.


def add_aliases(row: Row) -> Row:
    answer = row.get("Answer", row.get("answer"))
    if not isinstance(answer, dict):
        return row
    parts: dict[str, Any] = {key.lower(): value for key, value in answer.items()}
    names = [parts.get("value")]
    for others in (parts.get("humananswers"), parts.get("aliases")):
        if isinstance(others, list):
            names += others
    return {**row, "answers": names}


TRIVIAQA = task_of_rows(
    "triviaqa", "em", Columns(("Question", "question"), id=("QuestionId", "question_id", "id")), add_aliases
)


# TruthfulQA (Lin et al., 2022), multiple choice with one true answer (MC1).
#
# Its mc_task.json ({question, mc1_targets: {option: 0 or 1}}), the Hub's form of it ({choices, labels}), the table
# TruthfulQA.csv (Question, Best Answer, Incorrect Answers separated by semicolons), or {question, choices, answer}. The
# authors' files list the true answer first; here the options are shuffled with a seed of their own texts.

TRUTHFULQA_NAME = "truthfulqa"


def shuffle_options(row: Row) -> Row:
    options = _truthfulqa_options(row)
    if not options:
        return row
    right = options[0]
    Random(derive_seed(0, TRUTHFULQA_NAME, *options)).shuffle(options)
    return {**row, "choices": options, "answer": right}


TRUTHFULQA = task_of_rows(
    TRUTHFULQA_NAME,
    "accuracy",
    Columns(("question", "Question"), group=("Category", "category")),
    shuffle_options,
)


def _truthfulqa_options(row: Row) -> list[Any]:
    """Return the options, the true one first; none if the row has a column of choices."""
    targets = row.get("mc1_targets")
    if isinstance(targets, dict):
        if isinstance(targets.get("choices"), list) and isinstance(targets.get("labels"), list):
            targets = dict(zip(map(str, targets["choices"]), targets["labels"], strict=False))
        return sorted(targets, key=lambda option: targets[option] != 1)
    best, wrong = row.get("Best Answer"), row.get("Incorrect Answers")
    if isinstance(best, str) and isinstance(wrong, str):
        texts = [text.strip() for text in (best, *wrong.split(";"))]
        return list(dict.fromkeys(filter(None, texts)))
    return []


# SQuAD (Rajpurkar et al., 2016 and 2018): questions about a paragraph, their passage, in the layout of 1.1 or 2.0.
#
# Questions marked is_impossible are skipped: their paragraph has no answer, but an LLM may know one. Lines of
# {title, context, questions: [{question, answer}]} are read too.


def skip_impossible(row: Row) -> Row | None:
    if row.get("is_impossible") is True:
        return None
    return row


SQUAD = task_of_rows(
    "squad",
    "f1",
    Columns(passages=("context",)),
    skip_impossible,
)


# MMLU (Hendrycks et al., 2021): exam questions in 57 subjects.
#
# Its layout is a folder with dev/, val/ and test/, each with a table for each subject (anatomy_test.csv: question, four
# options and the letter, without a header). The questions are those of test/, the demonstrations those of dev/. A file
# of {question, choices, answer}, as of MMLU-Redux (Gema et al., 2024), is read too, except questions whose error_type
# is not "ok".

MMLU_NAME = "mmlu"
METRIC = "accuracy"
MMLU_SPLITS = ("test", "val")
HEADER = ("question", "A", "B", "C", "D", "answer")
MMLU_COLUMNS = Columns(group=("subject", "category"))
DOMAINS = Path(__file__).with_name("mmlu_domains.toml")


def domain_of(subject: str) -> str:
    """Return the domain of a subject by MMLU's authors: STEM, humanities, social sciences or other; "" if unknown."""
    return _domains().get(subject, "")


@cache
def _domains() -> dict[str, str]:
    table: dict[str, str] = tomllib.loads(DOMAINS.read_text(encoding="utf-8"))
    domains: dict[str, str] = {}
    for domain, subjects in table.items():
        domains |= dict.fromkeys(subjects.split(), domain)
    return domains


def skip_mistakes(row: Row) -> Row | None:
    if row.get("error_type") in {None, "ok"}:
        return row
    return None


def read_mmlu(path: Path) -> TaskData:
    """Read MMLU, scored by accuracy; the group of a question is its subject."""
    if not path.is_dir():
        return from_rows(MMLU_NAME, METRIC, path, MMLU_COLUMNS, skip_mistakes)
    splits = [split for split in MMLU_SPLITS if any((path / split).glob("*.csv"))]
    if not splits:
        raise UsageError(f"{MMLU_NAME} {path}: expected tables such as test/anatomy_test.csv in the folder")
    split = splits[0]
    shots: dict[str, tuple[Item, ...]] = {}
    for _, item in _mmlu_items(path / "dev", "dev"):
        shots[item.group] = (*shots.get(item.group, ()), item)
    return collect_items(MMLU_NAME, METRIC, path, _mmlu_items(path / split, split), shots)


def _mmlu_items(folder: Path, split: str) -> Iterator[PlacedItem]:
    for file in sorted(folder.glob("*.csv")):
        subject = file.stem.removesuffix(f"_{split}")
        with reading(file, MMLU_NAME), file.open(encoding="utf-8-sig", newline="") as stream:
            table = csv.reader(stream)
            try:
                for number, row in enumerate(table, start=1):
                    where = f"{MMLU_NAME} {file}, line {table.line_num}"
                    if len(row) != len(HEADER):
                        raise UsageError(
                            f"{where}: expected {len(HEADER)} columns ({', '.join(HEADER)}), found {len(row)}"
                        )
                    cells = dict(zip(HEADER, row, strict=True))
                    placed = {**cells, "subject": subject, "id": f"{subject}-{number}"}
                    yield where, MMLU_COLUMNS.item(placed, where)
            except csv.Error as error:
                raise UsageError(
                    f"{MMLU_NAME} {file}, line {table.line_num + 1}: not CSV: {error}"
                ) from error


# LUN (Rashkin et al., 2017) as in Knowledge Card: classify news articles.
#
# LUN2.json (true, false) and LUN4.json (satire, hoax, propaganda, trusted) of Knowledge Card's repository: the classes
# under "potential_labels", sixteen demonstrations under "demos", the articles under "testset".

LUN_NAME = "lun"
LUN_COLUMNS = Columns(question=("text",), answers=("label",))


def read_lun(path: Path) -> TaskData:
    """Read LUN, scored by balanced accuracy; the variant is the number of classes: lun-2, lun-4."""
    file = f"{LUN_NAME} {path}"
    data = parse_file(path, LUN_NAME)
    classes = None
    if isinstance(data, dict):
        classes = data.get("potential_labels")
    if not isinstance(classes, list) or not classes or not all(isinstance(name, str) for name in classes):
        raise UsageError(
            f'{file}: expected a list of one or more classes, each a text, under "potential_labels"'
        )
    items = _lun_items(data, file, "testset", classes)
    shots = [item for _, item in _lun_items(data, file, "demos", classes)]
    task = collect_items(LUN_NAME, "balanced-accuracy", path, items, {"": tuple(shots)})
    return replace(task, name=f"{LUN_NAME}-{len(classes)}")


def _lun_items(data: object, file: str, key: str, classes: list[str]) -> Iterator[PlacedItem]:
    instruction = f"Is the following news article {', '.join(classes[:-1])} or {classes[-1]}?"
    for where, row in list_entries(data, file, (key,)):
        item = LUN_COLUMNS.item({**row, "choices": classes}, where)
        yield where, replace(item, question=f"{instruction}\n{item.question}")


# MidtermQA (Knowledge Card, section 3): who won a race of the 2022 U.S. midterm elections.
#
# The three files of its repository, distinguished by their options: openbook, binary and fourchoice, each with five
# demonstrations under "demos". The options are in the second line of a question: "A. Neil Parrott B. David Trone".

MIDTERM_NAME = "midterm"
VARIANTS = {0: "openbook", 2: "binary", 4: "fourchoice"}
MIDTERM_COLUMNS = Columns()
INITIAL = re.compile(r"[A-Z]\.")


def read_midterm(path: Path) -> TaskData:
    """Read MidtermQA, scored by exact match for the open-book questions, by accuracy for the others."""
    file = f"{MIDTERM_NAME} {path}"
    data = parse_file(path, MIDTERM_NAME)
    items = list(_midterm_items(data, file, "testset"))
    shots = [item for _, item in _midterm_items(data, file, "demos")]
    counts = sorted({len(item.choices) for _, item in items})
    if len(counts) > 1:
        raise UsageError(
            f"{file}: has questions with {' and '.join(map(str, counts))} options, expected one number: give one of "
            "the data set's files"
        )
    metric = "accuracy"
    if counts == [0]:
        metric = "em"
    task = collect_items(MIDTERM_NAME, metric, path, items, {"": tuple(shots)})
    return replace(task, name=f"{MIDTERM_NAME}-{VARIANTS[counts[0]]}")


def _midterm_items(data: object, file: str, key: str) -> Iterator[PlacedItem]:
    for where, row in list_entries(data, file, (key,)):
        question, _, line = required_text(row, MIDTERM_COLUMNS.question, where).partition("\n")
        options = _split_options(line)
        if line and not options:
            raise UsageError(
                f'{where}: expected options such as "A. Joe Wilson B. Judd Larkins", found {line[:60]!r}'
            )
        yield where, MIDTERM_COLUMNS.item({**row, "question": question, "choices": options or None}, where)


def _split_options(line: str) -> list[str]:
    """Split a line into its four or two options; none if it has neither.

    A letter may also be an initial ("A. J. B. Pritzker B. Darren Bailey"), so of all ways to split the line, the one is
    chosen whose shortest name has the most whole words.
    """
    for letters in ("ABCD", "AB"):
        places = []
        for letter in letters:
            marks = re.finditer(rf"(?<!\S){letter}\.\s", line)
            places.append([mark.start() for mark in marks])
        best: tuple[int, list[str]] | None = None
        for cut in product(*places):
            if cut[0] != 0 or list(cut) != sorted(set(cut)):
                continue
            names = [line[start + 2 : end].strip() for start, end in pairwise((*cut, len(line)))]
            shortest = min(map(_count_whole_words, names))
            if best is None or shortest > best[0]:
                best = shortest, names
        if best is not None:
            return best[1]
    return []


def _count_whole_words(name: str) -> int:
    return sum(not INITIAL.fullmatch(word) for word in name.split())


# WikiDYK (Zhang et al., 2025): facts from Wikipedia's "Did you know", and questions about them.
#
# JSON of {input, output, fact, year}, or its own layout, {fact, year, eval: {reliability: {prompt, answer}, ...}},
# whose kinds of questions are the groups.

WIKIDYK_NAME = "wikidyk"
WIKIDYK_COLUMNS = Columns(
    question=("input", "prompt"), answers=("output", "answer"), group=("year", "kind"), passages=("fact",)
)


def read_wikidyk(path: Path) -> TaskData:
    """Read WikiDYK, scored by substring ("match" in the paper); the group is the year, or the kind of question.

    The passage of a question is its fact.
    """

    def items() -> Iterator[PlacedItem]:
        for number, (where, row) in enumerate(read_entries(path, WIKIDYK_NAME), start=1):
            evaluation = row.get("eval")
            if not isinstance(evaluation, dict):
                yield where, WIKIDYK_COLUMNS.item(row, where)
                continue
            for kind, one in evaluation.items():
                placed = f"{where}, {kind}"
                row_of_kind = {"kind": kind, "fact": row.get("fact"), "id": f"{number}-{kind}"}
                if isinstance(one, dict):
                    row_of_kind = one | row_of_kind
                yield placed, WIKIDYK_COLUMNS.item(row_of_kind, placed)

    return collect_items(WIKIDYK_NAME, "substring", path, items())


# Any file of {question, answers} or {question, choices, answer}: JSON lines, JSON, CSV or TSV, also compressed.
# Scored by accuracy if all questions are multiple choice, else by exact match.


def score_choices_by_accuracy(data: TaskData) -> TaskData:
    if all(item.choices for item in data.items):
        return replace(data, metric="accuracy")
    return data


JSONL = task_of_rows(
    "jsonl",
    "em",
    Columns(
        group=("group", "relation", "prop", "subject", "category"),
        popularity=("popularity", "s_pop"),
        passages=("passages", "context"),
    ),
    finish=score_choices_by_accuracy,
)
LUN = DatasetTask(read_lun)
MIDTERM = DatasetTask(read_midterm)
MMLU = DatasetTask(read_mmlu)
WIKIDYK = DatasetTask(read_wikidyk)
