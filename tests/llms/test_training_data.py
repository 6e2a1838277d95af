"""What the embedded reader and memory are trained on: right by construction, and free of what they are tried on."""

import random
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRIED_ON = re.compile(
    r"midterm|congress|senat|governor|gubernator|\bvote|\belect(ed|ion)|nobel|\bmoons? of\b", re.IGNORECASE
)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    return import_module


def test_the_reader_sees_no_relation_that_the_demonstration_asks_about() -> None:
    lines = (ROOT / "recipes/reader/frames.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) > 400
    assert [line for line in lines if TRIED_ON.search(line) and not line.startswith("#")] == []


def test_the_memory_learns_nothing_that_the_demonstration_asks_about() -> None:
    lines = (ROOT / "recipes/memory/facts.tsv").read_text(encoding="utf-8").splitlines()
    assert len(lines) > 1000
    assert [line for line in lines if TRIED_ON.search(line)] == []


def test_every_example_marks_its_answer_where_it_stands(recipe: Any) -> None:
    source = recipe("recipes.reader.synth").Synthesis(seed=5)
    examples = [source.example() for _ in range(500)]
    for example in examples:
        for number, start, end in example.spans:
            assert example.passages[number][start:end].lower() == example.answer.lower()
    unanswerable = sum(not example.spans for example in examples) / len(examples)
    assert 0.3 < unanswerable < 0.5
    assert all(example.passages for example in examples)


def test_examples_follow_from_the_seed(recipe: Any) -> None:
    synthesis = recipe("recipes.reader.synth").Synthesis
    one, two, other = synthesis(seed=3), synthesis(seed=3), synthesis(seed=4)
    first = [one.example() for _ in range(20)]
    assert first == [two.example() for _ in range(20)]
    assert first != [other.example() for _ in range(20)]


def test_no_unanswerable_question_is_a_fact_in_other_words(recipe: Any) -> None:
    questions = recipe("recipes.memory.questions")
    words = recipe("recipes.reader.words").Words(random.Random(0))
    facts = ["What is the capital of France?", "What is the capital of Peru?", "Who wrote Hamlet?"]
    source = questions.Unanswerable(facts, words)
    drawn = [source.draw() for _ in range(400)]
    capitals = [d for d in drawn if re.search(r"capital", d, re.IGNORECASE)]
    assert len(capitals) > 20
    assert not [d for d in capitals if re.search(r"\b(France|Peru)\b", d)]
    assert not [d for d in drawn if "Hamlet" in d and re.search("wrote|author|written", d)]


def test_held_out_wordings_are_none_of_the_trained_ones(recipe: Any) -> None:
    questions = recipe("recipes.memory.questions")
    facts = ["What is the capital of France?", "Who wrote Hamlet?", "In which country is Venice?"]
    for fact in facts:
        trained = {questions.reworded(fact, random.Random(seed)).lower() for seed in range(300)}
        assert len(trained) > 10
        assert questions.held_out(fact).lower() not in trained
