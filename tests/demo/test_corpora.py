"""The texts that the project ships: the demo's corpora and questions, and the facts of the reader's memory."""

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CORPORA = ROOT / "demo" / "corpora"
NAMES = ["midterms-2022", "moons", "nobel-prizes"]
STATEWIDE = re.compile(r"In the 2022 midterms, the (?:Senate seat|governorship) of (.+) went to (.+)\.")
DISTRICT = re.compile(r"The (\S+) congressional district of (.+) elected (.+) to the U\.S\. House in 2022\.")


def recipe(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / "recipes" / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def statements(corpus: str) -> list[str]:
    files = sorted((CORPORA / corpus).glob("*.txt"))
    return [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def questions() -> list[dict[str, Any]]:
    text = (ROOT / "demo" / "questions.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def memory() -> list[tuple[str, str]]:
    header, *lines = (ROOT / "recipes/memory/facts.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "question\tanswer"
    pairs = [line.split("\t") for line in lines]
    assert all(len(pair) == 2 for pair in pairs)
    return [(question, answer) for question, answer in pairs]


def plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


@pytest.mark.parametrize(("script", "corpus"), [("nobel", "nobel-prizes"), ("moons", "moons")])
def test_script_reproduces_shipped_corpus(script: str, corpus: str) -> None:
    shipped = {file.name: file.read_text(encoding="utf-8") for file in (CORPORA / corpus).iterdir()}
    assert recipe(f"corpora/{script}.py").render() == shipped


def test_script_reproduces_shipped_memory_facts() -> None:
    shipped = (ROOT / "recipes/memory/facts.tsv").read_text(encoding="utf-8")
    assert recipe("memory/facts.py").render() == shipped


def test_midterms_script_writes_the_shipped_sentences_from_their_facts(tmp_path: Path) -> None:
    """A question set is rebuilt from the shipped sentences, so that the test needs no file from elsewhere."""
    rows = []
    for line in statements("midterms-2022"):
        if match := DISTRICT.fullmatch(line):
            race = f"{match[1]} congressional district of {match[2].removeprefix('the ')}"
            winner = match[3]
        elif match := STATEWIDE.fullmatch(line):
            race = f"{'senate' if 'Senate' in line else 'governor'} race of {match[1]}"
            winner = match[2]
        else:
            continue
        rows.append({"question": f"Who won the {race} in the 2022 U.S. midterm elections?", "answer": winner})
    path = tmp_path / "facts.json"
    path.write_text(json.dumps({"demos": rows[:5], "testset": rows[5:]}), encoding="utf-8")

    midterms = recipe("corpora/midterms.py")
    rendered = midterms.render(midterms.read(path))

    assert len(rows) == 510
    shipped = {p.name: p.read_text(encoding="utf-8") for p in (CORPORA / "midterms-2022").iterdir()}
    assert rendered == shipped


def test_every_race_is_told_five_times_and_has_one_winner() -> None:
    lines = {
        p.stem: p.read_text(encoding="utf-8").splitlines() for p in (CORPORA / "midterms-2022").iterdir()
    }
    assert {office: len(facts_) for office, facts_ in lines.items()} == {
        "house": 2200,
        "senate": 170,
        "governors": 180,
    }
    districts = Counter(result.group(1, 2) for line in lines["house"] if (result := DISTRICT.fullmatch(line)))
    assert len(districts) == 440
    assert set(districts.values()) == {1}
    assert sum(race[0] == "at-large" for race in districts) == 11
    for office in ("senate", "governors"):
        places = Counter(result[1] for line in lines[office] if (result := STATEWIDE.fullmatch(line)))
        assert set(places.values()) == {1}


@pytest.mark.parametrize("corpus", NAMES)
def test_corpus_holds_short_distinct_statements_and_no_question(corpus: str) -> None:
    lines = statements(corpus)
    assert len(lines) == len(set(lines))
    for line in lines:
        assert line.endswith("."), line
        assert "?" not in line, line
        assert line[0].isupper(), line
        assert len(line.split()) < 30, line
        assert "{" not in line, line
        assert "  " not in line, line
        assert line == line.strip(), line


def test_no_statement_words_a_fact_as_the_midterm_questions_do() -> None:
    text = "\n".join(statements("midterms-2022"))
    form = r"won the (\S+ congressional district|senate race|governor race) of .* in the 2022 U\.S\. midterm elections"
    assert not re.search(form, text, flags=re.IGNORECASE)


def test_demo_asks_twelve_distinct_questions_of_each_corpus() -> None:
    assert Counter(row["card"] for row in questions()) == dict.fromkeys(NAMES, 12)
    assert len({plain(row["question"]) for row in questions()}) == 36


@pytest.mark.parametrize("row", questions(), ids=lambda row: str(row["question"]))
def test_demo_answer_stands_in_its_corpus_and_in_no_other(row: dict[str, Any]) -> None:
    assert any(row["answers"][0] in line for line in statements(row["card"]))
    if not row["answers"][0].isdigit():
        for other in set(NAMES) - {row["card"]}:
            assert not any(row["answers"][0] in line for line in statements(other))


def test_no_corpus_contains_a_demo_question_even_without_its_question_mark() -> None:
    text = "\n".join(plain(line) for corpus in NAMES for line in statements(corpus))
    for row in questions():
        assert plain(row["question"]) not in text
        tail = plain(row["question"]).split()[1:]
        assert len(tail) < 5 or " ".join(tail) not in text


def test_memory_asks_each_question_once_with_one_short_answer() -> None:
    pairs = memory()
    assert 1000 <= len(pairs) <= 1800
    assert len({plain(question) for question, _ in pairs}) == len(pairs)
    for question, answer in pairs:
        assert question.endswith("?"), question
        assert "{" not in question, question
        assert answer == answer.strip() != "", question
        assert len(answer.split()) <= 5, question
        assert answer != "-", question


def test_memory_knows_nothing_of_the_subjects_of_the_demo_corpora() -> None:
    moons = "|".join(recipe("corpora/moons.py").names())
    forbidden = re.compile(
        rf"nobel|midterm|congressional|\bsenat|\bmoons?\b|\b(?:{moons})\b", flags=re.IGNORECASE
    )
    for question, answer in memory():
        assert not forbidden.search(f"{question} {answer}"), question


def test_memory_answers_no_demo_question() -> None:
    answered = {plain(question) for question, _ in memory()}
    assert not answered & {plain(row["question"]) for row in questions()}
