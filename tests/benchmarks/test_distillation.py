"""The invented worlds on which prompt distillation is measured."""

import json
from pathlib import Path

from benchmarks.distillation import invented
from benchmarks.distillation_worlds import RELATIONS, WORDINGS, world
from benchmarks.recall import holds

from kcard.training.corpus import read_corpus
from kcard.training.distillation.questions import passage_questions
from kcard.training.study.item import read_study


def test_a_world_is_the_same_for_its_seed_and_another_for_another() -> None:
    assert world(1, 20) == world(1, 20)
    facts = [{(f.relation, f.subject, f.answer) for f in world(seed, 20)} for seed in (1, 2)]
    assert len(facts[0] & facts[1]) < len(facts[0]) / 4


def test_every_relation_has_as_many_wordings_and_none_of_them_twice() -> None:
    for statements, questions in RELATIONS.values():
        assert len(questions) == len(set(questions)) == WORDINGS
        assert all("{s}" in text and "{o}" in text for text in statements)
        assert all("{s}" in text and "{o}" not in text for text in questions)


def test_the_questions_asked_are_studied_in_other_wordings_only(tmp_path: Path) -> None:
    material = invented(tmp_path, 0, 10)
    items = read_study(material.study).items
    studied = {item.text for item in items}
    asked = [found for found, _ in material.asked]
    assert not studied & {found.text for found in asked}
    assert {found.answers[0] for found in asked} == {item.answer for item in items}
    assert all(holds(passage, found) for found, passage in material.asked)
    questions = passage_questions(items, read_corpus(material.corpus).passages)
    assert len(questions) == len(items) == (WORDINGS - 1) * len(asked)


def test_the_study_material_answers_from_the_worlds_facts(tmp_path: Path) -> None:
    invented(tmp_path, 0, 5)
    lines = (tmp_path / "study.jsonl").read_text(encoding="utf-8").splitlines()
    facts = {fact.question(n): fact.answer for fact in world("new 0", 5) for n in range(WORDINGS - 1)}
    assert {row["text"]: row["answer"] for row in map(json.loads, lines)} == facts
