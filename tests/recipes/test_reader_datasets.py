"""Sets of people's questions, read from files of one form."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from recipes.reader import datasets
from recipes.reader.datasets import draw, held_out, questions

TEXT = "The depot opens at noon. Ada Fischer keeps the keys of the depot.\nLetters lie in boxes of oak."


def written(folder: Path, source: str, split: str, *rows: dict[str, Any]) -> None:
    path = folder / "questions" / f"{source}-{split}.jsonl.gz"
    path.parent.mkdir(exist_ok=True)
    common: dict[str, Any] = {
        "source": source,
        "title": "Depot",
        "context": TEXT,
        "answers": [],
        "answer_start": None,
    }
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(common | row) + "\n" for row in rows)


def span(answer: str, **more: Any) -> dict[str, Any]:
    question = {"question": f"Is it {answer}?", "type": "span"}
    return question | {"answers": [answer], "answer_start": [TEXT.index(answer)]} | more


def test_words_that_answer_stand_in_their_sentence(tmp_path: Path) -> None:
    written(tmp_path, "qamr-wiki", "dev", span("Ada Fischer"))
    [reading] = questions(tmp_path, "qamr-wiki", "dev")
    assert reading.answers == ("Ada Fischer",)
    assert [reading.text[slice(*place)] for place in reading.evidence] == [
        "Ada Fischer keeps the keys of the depot."
    ]


def test_a_title_is_a_heading_where_it_names_what_the_text_is_about(tmp_path: Path) -> None:
    for source, section in (("nq-gold", "Depot"), ("fairytaleqa", "")):
        written(tmp_path, source, "dev", span("noon"))
        assert [reading.section for reading in questions(tmp_path, source, "dev")] == [section]


def test_a_free_answer_rests_on_its_evidence_or_on_the_sentence_that_holds_its_words(tmp_path: Path) -> None:
    free = {"question": "Where are letters?", "type": "free"}
    sentence = "Letters lie in boxes of oak."
    rows = [
        free | {"evidence": [sentence], "answers": ["in boxes"]},
        free | {"answers": ["the letters lie in oak boxes"]},
        free | {"answers": ["somewhere in the cellar"]},
    ]
    written(tmp_path, "clapnq", "dev", *rows)
    evident, aligned, vague = questions(tmp_path, "clapnq", "dev")
    for reading in (evident, aligned):
        assert not reading.spans
        assert [reading.text[slice(*place)] for place in reading.evidence] == [sentence]
    assert vague.answered
    assert not vague.evidence


@pytest.mark.parametrize(("kind", "answered"), [("none", False), ("yes", True), ("no", True)])
def test_what_is_answered_by_yes_or_no_or_not_at_all_has_no_words(
    tmp_path: Path, kind: str, answered: bool
) -> None:
    written(tmp_path, "boolq", "dev", {"question": "is it open", "type": kind})
    [reading] = questions(tmp_path, "boolq", "dev")
    assert (reading.answered, reading.spans, reading.evidence) == (answered, (), ())


def test_epochs_read_a_set_through_before_they_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "SHARES", {"qamr-wiki": 0.5})
    written(tmp_path, "qamr-wiki", "train", *(span(part) for part in ("noon", "keys", "boxes", "oak")))
    epochs = [draw(tmp_path, number, {"qamr-wiki": 0.5}) for number in range(3)]
    first, second, third = ({reading.question for reading in epoch} for epoch in epochs)
    assert (len(first), len(second)) == (2, 2)
    assert not first & second
    assert first == third


def test_wrong_texts_are_measured_with_the_set_whose_questions_they_are_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "SHARES", {"boolq": 1.0, "mismatch-none": 1.0, "qamr-wiki": 1.0})
    none = {"question": "Who paints?", "type": "none"}
    written(tmp_path, "boolq", "dev", {"question": "is it open", "type": "yes"})
    written(tmp_path, "qamr-wiki", "dev", span("noon"))
    written(tmp_path, "mismatch-none", "dev", none | {"from": "qamr-wiki"}, none | {"from": "elsewhere"})
    counts = {source: len(readings) for source, readings in held_out(tmp_path).items()}
    assert counts == {"boolq": 1, "qamr-wiki": 2, "mismatch-none": 1, "all sets": 4}
