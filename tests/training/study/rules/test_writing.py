"""Study material by rules: what is written about a corpus, and what is never in it."""

from random import Random

import pytest

from kcard.answer import Source
from kcard.errors import UsageError
from kcard.evaluation.natural_questions import natural_questions
from kcard.llms.reader import SpanReader
from kcard.protocols import Checker
from kcard.selectors.registry import Loading, checker
from kcard.sentences import split
from kcard.training.question_forms import held_out
from kcard.training.study.item import QUESTIONS
from kcard.training.study.rules.writing import BY, written
from kcard.training.study.tasks import KINDS, assignments
from kcard.training.study.writing import Material
from kcard.words import passage_digest

TITAN = (
    "Christiaan Huygens was a Dutch astronomer who built telescopes. He discovered Titan, the largest moon of Saturn, "
    "in 1655. In 1659, Christiaan Huygens described the rings of Saturn in a book. Huygens died in The Hague."
)
RINGS = (
    "The rings of Saturn were found in 1610 by Galileo Galilei, who took them for moons. Christiaan Huygens explained "
    "their shape in a letter to the king. The largest gap is called the Cassini Division."
)
CORPUS = [Source(TITAN), Source(RINGS, section="Saturn > Rings")]


@pytest.fixture(scope="module")
def minilm() -> Checker:
    return checker("minilm", Loading())


@pytest.fixture(scope="module")
def material(minilm: Checker) -> Material:
    return about(CORPUS, minilm)


def about(corpus: list[Source], minilm: Checker) -> Material:
    wanted = [*assignments(corpus, [*KINDS])]
    return written(corpus, wanted, minilm, SpanReader(quotes=True), "en")


def test_the_rules_write_questions_and_statements_of_several_kinds(material: Material) -> None:
    assert {"direct", "reverse", "rewrite"} <= {item.kind for item in material.items}
    asked = {item.text: item.answer for item in material.items}
    assert asked["Christiaan Huygens discovered Titan, the largest moon of Saturn, in 1655."] == ""
    assert asked["In which year did Christiaan Huygens describe the rings of Saturn in a book?"] == "1659"


def test_items_say_what_they_are_about_and_who_wrote_them(material: Material) -> None:
    digests = {passage_digest(source.text) for source in CORPUS}
    assert all(item.by == BY and item.passages and set(item.passages) <= digests for item in material.items)
    assert all(item.support is None or item.support >= 0.5 for item in material.items)


def test_answers_stand_in_the_passage_and_not_in_the_question(material: Material) -> None:
    text = f"{TITAN} {RINGS}"
    for item in material.items:
        assert item.answer in text
        assert not item.answer or item.answer not in item.text


def test_no_question_has_a_form_of_the_exam(material: Material) -> None:
    sentences = [sentence for source in CORPUS for sentence in split(source.text)]
    exam = {
        question.text
        for s in sentences
        for seed in range(50)
        for question in natural_questions(s, Random(seed))
    }
    first = {question.split()[0].lower() for question in exam}
    exam |= {found.text for s in sentences for seed in range(50) if (found := held_out(s, seed))}
    assert exam
    asked = [item.text for item in material.items if item.kind in QUESTIONS]
    assert not exam & set(asked)
    assert "when" in first
    assert not [text for text in asked if text.split()[0].lower() in first - {"by"}]
    assert not [text for text in asked if text.lower().startswith(("by whom", "by what"))]


def test_the_same_corpus_gives_the_same_material(material: Material, minilm: Checker) -> None:
    assert about(CORPUS, minilm) == material


def test_what_the_reader_does_not_find_is_left_out_and_counted(minilm: Checker) -> None:
    class Blind:
        def extract(self, *_: str) -> None:
            return None

    corpus = [Source(TITAN.replace("1655", "1656"))]
    found = written(corpus, [*assignments(corpus, ["questions", "statements"])], minilm, Blind(), "en")
    assert not {"direct", "reverse", "far"} & {item.kind for item in found.items}
    assert found.left_out["the reader finds another answer or none"] > 2


def test_another_language_and_a_corpus_without_sentences_are_errors(minilm: Checker) -> None:
    wanted = [*assignments(CORPUS, [*KINDS])]
    with pytest.raises(UsageError, match="corpus is in nl: name an LLM"):
        written(CORPUS, wanted, minilm, SpanReader(), "nl")
    with pytest.raises(UsageError, match="make nothing"):
        written(
            [Source("a b " * 20)], [*assignments([Source("a b " * 20)], [*KINDS])], minilm, SpanReader(), None
        )
