"""The words of a question as a vector: like words, like vectors; unknown words count for nothing."""

from pathlib import Path

import numpy as np
import pytest

from kcard.cards.models.prompting import SIZE, WordSketch
from kcard.errors import CardError

TEXTS = [
    "The Rhine rises in the Alps and ends in the North Sea.",
    "The Danube rises in the Black Forest and flows to the Black Sea.",
    "The Seine flows through Paris to the Channel.",
]
SKETCH = WordSketch.of_corpus(TEXTS)


def likeness(one: str, two: str) -> float:
    first, second = SKETCH([one, two])
    return float(first @ second)


def tfidf(one: str, two: str) -> float:
    def vector(text: str) -> dict[str, float]:
        found = {
            stem: SKETCH.idf[stem] for stem in SKETCH.idf if SKETCH.number[stem] in SKETCH.numbers_of(text)
        }
        norm = sum(idf**2 for idf in found.values()) ** 0.5
        return {stem: idf / norm for stem, idf in found.items()}

    first, second = vector(one), vector(two)
    return sum(weight * second.get(stem, 0) for stem, weight in first.items())


def test_products_of_sketches_are_near_those_of_tfidf_vectors() -> None:
    for question in ("Where does the Danube rise?", "Which river flows through Paris?", "black sea"):
        for text in TEXTS:
            assert likeness(question, text) == pytest.approx(tfidf(question, text), abs=0.15)


def test_rare_words_weigh_more_and_forms_of_a_word_are_one() -> None:
    assert SKETCH.idf["danub"] > SKETCH.idf["rise"] > SKETCH.idf["the"]
    assert likeness("rises flows", "rising flow") == pytest.approx(likeness("rise flow", "rise flow"))


def test_words_that_the_corpus_lacks_count_for_nothing() -> None:
    assert np.array_equal(SKETCH(["the mighty Danube, please"]), SKETCH(["Danube the"]))
    assert np.array_equal(SKETCH(["Zanzibar?", ""]), np.zeros((2, SIZE), np.float32))


def test_a_sketch_does_not_depend_on_its_neighbours() -> None:
    assert np.array_equal(SKETCH(TEXTS)[1], SKETCH(TEXTS[1:2])[0])


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    SKETCH.write(tmp_path)
    assert np.array_equal(WordSketch.read(tmp_path)(TEXTS), SKETCH(TEXTS))


@pytest.mark.parametrize("content", [None, "{", "{}", '{"idf": ["rhine"]}', '{"idf": {"rhine": "much"}}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "words.json").write_text(content)
    with pytest.raises(CardError, match=r"words\.json must hold the idf"):
        WordSketch.read(tmp_path)
