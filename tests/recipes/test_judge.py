"""What the judge between a card's model and its index learns from."""

import gzip
import json
from pathlib import Path
from random import Random

from recipes.judge.corpora import CLAUSES, CorpusQuestion, popqa, squad, worn
from recipes.judge.fit import Case, fitted, report


def test_popqa_becomes_statements_in_other_words(tmp_path: Path) -> None:
    path = tmp_path / "popqa.json"
    rows = [
        {"input": "What is Ida Vale's occupation?", "output": '["miller", "mill owner"]'},
        {"input": "What colour is the mill?", "output": '["red"]'},
    ]
    path.write_text(json.dumps({"rows": rows}), encoding="utf-8")
    texts, questions = popqa(path)
    assert texts == ["Ida Vale earns a living as miller.", "For a living, Ida Vale works as miller."]
    assert questions == [CorpusQuestion("What is Ida Vale's occupation?", ("miller", "mill owner"))]


def test_of_squad_the_paragraphs_with_implications_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "squad.jsonl.gz"
    questions = [{"question": "Who built it?", "answer": "Ida Vale"}]
    rows = [
        {"context": "Ida Vale\nbuilt it.", "questions": questions, "gpt41": ["It has a builder."]},
        {"context": "It is red.", "questions": questions, "gpt41": None},
    ]
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
    assert squad(path) == (["Ida Vale built it."], [CorpusQuestion("Who built it?", ("Ida Vale",))])


def test_a_worn_question_keeps_its_names_and_figures() -> None:
    worn_down = worn("Who was the keeper of Upper Tarn in 1871?", Random(0))
    assert {"Who", "Upper", "Tarn", "1871"} <= set(worn_down.rstrip("?").split())
    assert worn_down.rstrip("?").endswith(CLAUSES)


def test_the_weights_take_the_model_where_it_leads() -> None:
    cases = [
        Case("a", {"bias": 1.0, "relevance": lead}, lead > 0, lead < 0) for lead in (-3, -2, -1, 1, 2, 3)
    ]
    weights = fitted(cases)
    assert weights["relevance"] > 0
    table = report(cases, weights)
    assert "| a | 6 | 0.5 | 0.5 | 1.000 (0.50)" in table
