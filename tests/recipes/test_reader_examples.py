"""What the reader learns from: examples cut, mixed and found again, without any download."""

import gzip
import hashlib
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recipes.reader import claims, datasets, mixture, own, wikipedia
from recipes.reader.datasets import draw, questions
from recipes.reader.example import Reading, around, without
from recipes.reader.near import Near
from recipes.reader.own import WORD, Words, listed, read_questions

TEXT = (
    "The depot opens at noon. Ada Fischer keeps the keys of the depot. Letters lie in boxes of oak. "
    "Nobody sorts them on days of snow, and the lamps are lit at six in the evening."
)


def place(part: str) -> tuple[int, int]:
    return TEXT.index(part), TEXT.index(part) + len(part)


KEYS = Reading(
    "Who keeps the keys?",
    "Depot",
    TEXT,
    spans=(place("Ada Fischer"),),
    evidence=(place("Ada Fischer keeps the keys of the depot."),),
    group="depot",
    near=(("Mill", "Osric keeps the keys of the mill."),),
)


def words(part: str) -> Words:
    tokens = WORD.findall(part.lower())
    return Words(len(tokens), hashlib.sha256(" ".join(tokens).encode()).hexdigest()[:16])


@pytest.mark.parametrize(
    ("part", "text", "found"),
    [
        ("Ada Fischer keeps the keys", TEXT, "Ada Fischer keeps the keys"),
        ("boxes of oak. Nobody sorts", TEXT, "boxes of oak. Nobody sorts"),
        ("the depot opens", "(The) DEPOT --\nopens.", "The) DEPOT --\nopens"),
        ("the keys keeps", TEXT, None),
        ("evening and more", TEXT, None),
    ],
)
def test_words_are_found_again_by_their_hash(part: str, text: str, found: str | None) -> None:
    place = words(part).place(text)
    assert (place and text[slice(*place)]) == found


@pytest.mark.parametrize("place", ["manual", "title"])
def test_the_questions_about_manuals_and_paragraphs_are_whole(place: str) -> None:
    rows = read_questions() if place == "manual" else read_questions("paragraphs.jsonl")
    assert len(rows) > 100
    for row in rows:
        assert row[place].strip()
        assert row["question"].strip()
        if row["type"] != "unanswerable":
            count, digest = row["evidence"]
            assert count > 0
            assert int(digest, 16) >= 0
        if row["type"] == "yes/no" and place == "manual":
            assert row["answer"] in ("yes", "no")
    if place == "manual":
        assert {row["manual"] for row in rows} <= set(listed())
    # No manual is both held out and learned from.
    for parts in listed().values():
        assert len({part.held for part in parts}) == 1


def test_a_question_about_a_paragraph_is_read_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = words("Ada Fischer keeps the keys of the depot")
    row = {"title": "Depot", "type": "who", "question": "Whose are the keys?", "answer": "Ada Fischer"}
    rows = [
        row | {"evidence": [evidence.count, evidence.digest]},
        row | {"type": "unanswerable", "question": "Who painted the depot?", "answer": ""},
    ]
    monkeypatch.setattr(own, "read_questions", lambda _: rows)
    keys, painted = own.about_paragraphs([[("Mill", "Osric keeps the keys of the mill."), ("Depot", TEXT)]])
    assert keys.answers == ("Ada Fischer",)
    assert [keys.text[slice(*span)] for span in keys.evidence] == ["Ada Fischer keeps the keys of the depot."]
    assert keys.near == (("Mill", "Osric keeps the keys of the mill."),)
    assert not painted.answered


def test_a_text_is_cut_to_the_sentences_around_its_answer_or_to_those_without_it() -> None:
    short = around(KEYS, 8, itertools.cycle([True]))
    assert short.text == "Ada Fischer keeps the keys of the depot."
    assert short.answers == ("Ada Fischer",)
    assert short.evidence == ((0, len(short.text)),)
    before, after = (around(KEYS, 14, itertools.cycle([first])).text for first in (True, False))
    assert before.startswith("The depot opens at noon. Ada")
    assert after.endswith("Letters lie in boxes of oak.")
    rest = without(KEYS)
    assert rest is not None
    assert (rest.answered, rest.spans, rest.evidence) == (False, (), ())
    assert "keys" not in rest.text
    assert rest.text.startswith("The depot opens at noon.")


def test_the_likest_texts_that_do_not_answer_are_found() -> None:
    texts = [("Depot", TEXT), ("Mill", "Osric keeps the keys of the mill."), ("Sea", "Trout swim.")]
    nearest = Near(texts).of("Who keeps the keys?", 3, lambda text: text == TEXT)
    assert nearest == (texts[1],)
    assert Near(texts).of("Who keeps the keys?", 1, lambda _: False) in ((texts[0],), (texts[1],))


def written(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)


def test_a_claim_becomes_a_question_of_yes_or_no(tmp_path: Path) -> None:
    evidence = "The Tamsel Bridge was closed in 1904 -LRB- for good -RRB- ."
    rows = [
        {"claim": f"The Tamsel Bridge was {word} .", "evidence": evidence, "label": label}
        for word, label in (("closed", "SUPPORTS"), ("open", "REFUTES"), ("painted", "NOT ENOUGH INFO"))
    ]
    rows.append({"claim": "Tamsel.", "evidence": evidence, "label": "SUPPORTS"})
    written(tmp_path / "fact_check/train.jsonl.gz", rows)
    readings = {reading.question.lower(): reading for reading in claims.questions(tmp_path, 0)}
    assert {question: r.answered for question, r in readings.items()} == {
        "was the tamsel bridge closed?": True,
        "was the tamsel bridge open?": True,
        "was the tamsel bridge painted?": False,
    }
    closed = readings["was the tamsel bridge closed?"]
    assert closed.text == "The Tamsel Bridge was closed in 1904 (for good)."
    assert closed.evidence == ((0, len(closed.text)),)


def test_articles_are_held_out_whole_and_answers_stand_where_they_are_said_to(tmp_path: Path) -> None:
    rows = []
    for number in range(8):
        context = f"Nobody lives there. Keeper {number} keeps the keys of depot {number}."
        question = {"question": "Who keeps the keys?", "answer": f"Keeper {number}"}
        rows.append({"title": f"Depot_{number}", "context": context, "questions": [question]})
    written(tmp_path / "reading/squad-dev.jsonl.gz", rows)
    train, held_out = wikipedia.squad(tmp_path)
    assert (len(train), len(held_out)) == (6, 2)
    assert not {r.group for r in train} & {r.group for r in held_out}
    for reading in [*train, *held_out]:
        (answer,) = reading.answers
        assert answer.startswith("Keeper ")
        (evidence,) = reading.evidence
        assert reading.text[slice(*evidence)].startswith(answer)


def test_an_epoch_repeats_by_its_seed_and_every_answer_is_in_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mixture, "INVENTED", 60)
    monkeypatch.setattr(mixture, "PROSE", 60)
    claim = Reading("Is it so?", "", "It is so.", True, (), ((0, 9),), "VitaminC")
    sets = [KEYS, replace(KEYS, answered=False, spans=(), evidence=(), near=())]
    epochs = [mixture.epoch([KEYS] * 100, sets, [KEYS], [claim], seed) for seed in (1, 1, 2)]
    assert epochs[0] == epochs[1] != epochs[2]
    right = [reading for reading in epochs[0] if reading.answered]
    assert 0.4 < len(right) / len(epochs[0]) < 0.9
    for reading in epochs[0]:
        assert all(0 <= a < b <= len(reading.text) for a, b in (*reading.spans, *reading.evidence))
        assert reading.answered or not reading.spans


def test_batches_hold_every_example_once_and_about_so_many_tokens() -> None:
    readings = [replace(KEYS, question=f"{number}?", text="word " * (number % 50)) for number in range(200)]
    batches = mixture.batches(readings, 500, seed=0)
    assert sorted(r.question for batch in batches for r in batch) == sorted(r.question for r in readings)
    for batch in batches:
        assert len(batch) * max(len(r.text) for r in batch) / 3.6 < 1000
    assert batches == mixture.batches(readings, 500, seed=0) != mixture.batches(readings, 500, seed=1)


# Sets of people's questions, read from files of one form.


LINES = "The depot opens at noon. Ada Fischer keeps the keys of the depot.\nLetters lie in boxes of oak."


def written_set(folder: Path, source: str, split: str, *rows: dict[str, Any]) -> None:
    common: dict[str, Any] = {"source": source, "title": "Depot", "context": LINES, "answers": []}
    common["answer_start"] = None
    written(folder / "questions" / f"{source}-{split}.jsonl.gz", [common | row for row in rows])


def span(answer: str, **more: Any) -> dict[str, Any]:
    question = {"question": f"Is it {answer}?", "type": "span"}
    return question | {"answers": [answer], "answer_start": [LINES.index(answer)]} | more


def test_words_that_answer_stand_in_their_sentence_and_yes_and_no_have_none(tmp_path: Path) -> None:
    plain = [{"question": "is it open", "type": kind} for kind in ("none", "yes", "no")]
    written_set(tmp_path, "qamr-wiki", "dev", span("Ada Fischer"), *plain)
    reading, *others = questions(tmp_path, "qamr-wiki", "dev")
    assert reading.answers == ("Ada Fischer",)
    (place,) = reading.evidence
    assert reading.text[slice(*place)] == "Ada Fischer keeps the keys of the depot."
    assert [(other.answered, other.spans, other.evidence) for other in others] == [
        (answered, (), ()) for answered in (False, True, True)
    ]


def test_a_free_answer_rests_on_its_evidence_or_on_the_sentence_that_holds_its_words(tmp_path: Path) -> None:
    free = {"question": "Where are letters?", "type": "free"}
    sentence = "Letters lie in boxes of oak."
    rows = [
        free | {"evidence": [sentence], "answers": ["in boxes"]},
        free | {"answers": ["the letters lie in oak boxes"]},
        free | {"answers": ["somewhere in the cellar"]},
    ]
    written_set(tmp_path, "clapnq", "dev", *rows)
    evident, aligned, vague = questions(tmp_path, "clapnq", "dev")
    for reading in (evident, aligned):
        assert not reading.spans
        assert [reading.text[slice(*place)] for place in reading.evidence] == [sentence]
    assert vague.answered
    assert not vague.evidence


def test_epochs_read_a_set_through_before_they_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "SHARES", {"qamr-wiki": 0.5})
    written_set(tmp_path, "qamr-wiki", "train", *(span(part) for part in ("noon", "keys", "boxes", "oak")))
    epochs = [draw(tmp_path, number, {"qamr-wiki": 0.5}) for number in range(3)]
    first, second, third = ({reading.question for reading in epoch} for epoch in epochs)
    assert (len(first), len(second)) == (2, 2)
    assert not first & second
    assert first == third
