"""How a question becomes a prompt: by a template, in the words of the corpus, or as a vector of words."""

from pathlib import Path

import numpy as np
import pytest

from kcard.cards.models.prompting import prompt_ids, template_prompts
from kcard.cards.models.question_words import MIN_PASSAGES, SIZE, Vocabulary, WordSketch
from kcard.errors import CardError
from kcard.manifest import Prompt
from tests.tiny_tokenizers import of_words

WORDS = ["<pad>", "<s>", "</s>", "<unk>", "where", "does", "the", "rhine", "end", "now"]
BOS, EOS = 1, 2


@pytest.mark.parametrize("frame", ["$A", "<s> $A", "<s> $A </s>", "$A </s>"])
def test_a_prompt_begins_with_bos_once_and_does_not_end_with_eos(frame: str) -> None:
    assert prompt_ids(of_words(WORDS, frame), "where does the rhine end") == [BOS, 4, 5, 6, 7, 8]


def test_a_tokenizer_without_bos_adds_none() -> None:
    assert prompt_ids(of_words(WORDS, "$A", bos=None), "the rhine") == [6, 7]


def test_a_bos_that_is_also_the_eos_is_kept_at_the_start() -> None:
    same = of_words(WORDS, "</s> $A", bos="</s>")
    assert prompt_ids(same, "the rhine") == [EOS, 6, 7]
    assert prompt_ids(same, "") == [EOS]


def test_the_question_stands_in_the_template() -> None:
    rows = template_prompts(
        of_words(WORDS, "<s> $A"), "where {question} now", ["the rhine", " end "], longest=20
    )
    assert rows.ids == ((BOS, 4, 6, 7, 9), (BOS, 4, 8, 9))


def test_of_a_long_question_the_first_words_are_left_out() -> None:
    (row,) = template_prompts(
        of_words(WORDS, "<s> $A"), "{question}", ["where does the rhine end now"], longest=4
    ).ids
    assert row == (BOS, 7, 8, 9)
    (row,) = template_prompts(
        of_words(WORDS, "$A", bos=None), "{question}", ["where does the rhine end now"], longest=4
    ).ids
    assert row == (6, 7, 8, 9)


def test_an_answer_becomes_a_document_with_its_question() -> None:
    answering = Prompt(template="Question: {question}\nAnswer: ")
    assert (
        answering.document(" Where does the Rhine end?\n", "In the sea.")
        == "Where does the Rhine end? In the sea."
    )
    assert answering.document("Where?", "") == ""


@pytest.mark.parametrize("template", ["{question}\n", "{question}", "<user>{question}<assistant>"])
def test_what_is_not_a_bare_answer_is_a_document_by_itself(template: str) -> None:
    assert Prompt(template=template).document("Where?", "It ends in the sea.") == "It ends in the sea."


TEXTS = [
    f"Voters of {state}'s {seat} district chose {name} for Congress in the 2022 elections."
    for state, seat, name in (
        ("Ohio", "2nd", "Brad Wenstrup"),
        ("Ohio", "3rd", "Joyce Beatty"),
        ("Texas", "5th", "Lance Gooden"),
        ("Georgia", "4th", "Hank Johnson"),
        ("South Dakota", "1st", "Dusty Johnson"),
    )
]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.of(TEXTS, {"who", "did", "what", "was", "is"})


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ("What districts was Ohio?", "What district was Ohio?"),
        ("Who won the elections in Ohio?", "Who the elections in Ohio?"),
        ("who chooses for Congress, voters?", "who chose for Congress, voters?"),
    ],
)
def test_unknown_words_become_near_ones_or_are_left_out(
    vocabulary: Vocabulary, asked: str, read: str
) -> None:
    assert vocabulary.reword(asked) == read


def test_ordinals_in_words_are_read_as_figures(vocabulary: Vocabulary) -> None:
    assert vocabulary.reword("Who is fifth in Texas?") == "Who is 5th in Texas?"


def test_figures_are_read_as_words_where_the_corpus_has_those() -> None:
    worded = Vocabulary.of(["The fifth moon is Io."] * MIN_PASSAGES, {"which", "is"})
    assert worded.reword("Which is the 5th moon?") == "Which is the fifth moon?"


@pytest.mark.parametrize("figure", ["1999", "9th", "ninth", "2,018"])
def test_other_figures_stay_because_they_ask_for_something_else(vocabulary: Vocabulary, figure: str) -> None:
    assert figure in vocabulary.reword(f"Who was chosen in {figure} in Ohio?")


def test_of_a_name_that_is_not_known_as_a_whole_nothing_is_read(vocabulary: Vocabulary) -> None:
    assert vocabulary.reword("What was Hank Aaron in Ohio?") == "What was in Ohio?"
    assert vocabulary.reword("What was South Dakota?") == "What was South Dakota?"


def test_names_and_figures_replace_nothing(vocabulary: Vocabulary) -> None:
    assert not {"ohio", "brad", "2022", "5th"} & set(vocabulary.common)
    assert {"chose", "district"} <= set(vocabulary.common)
    assert vocabulary.reword("Who was in Michigan?") == "Who was in"


@pytest.mark.parametrize("question", ["Kalmar Nyckel?", "", "谁赢了?"])
def test_a_question_of_unknown_words_alone_stays_as_it_is(vocabulary: Vocabulary, question: str) -> None:
    assert vocabulary.reword(question) == question


def test_it_is_the_same_when_read_again(vocabulary: Vocabulary, tmp_path: Path) -> None:
    vocabulary.write(tmp_path)
    assert Vocabulary.read(tmp_path) == vocabulary


@pytest.mark.parametrize("texts", [[], ["Io."]])
def test_a_vocabulary_without_common_words_leaves_words_out(texts: list[str], tmp_path: Path) -> None:
    few = Vocabulary.of(texts, {"who"})
    few.write(tmp_path)
    assert Vocabulary.read(tmp_path) == few
    assert few.reword("who picked the moon?") == "who"


def test_cards_of_earlier_versions_have_none(tmp_path: Path) -> None:
    assert Vocabulary.read(tmp_path) is None


# The words of a question as a vector: like words, like vectors; unknown words count for nothing.

RIVERS = [
    "The Rhine rises in the Alps and ends in the North Sea.",
    "The Danube rises in the Black Forest and flows to the Black Sea.",
    "The Seine flows through Paris to the Channel.",
]
SKETCH = WordSketch.of_corpus(RIVERS)


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
        for text in RIVERS:
            assert likeness(question, text) == pytest.approx(tfidf(question, text), abs=0.15)


def test_rare_words_weigh_more_and_forms_of_a_word_are_one() -> None:
    assert SKETCH.idf["danub"] > SKETCH.idf["rise"] > SKETCH.idf["the"]
    assert likeness("rises flows", "rising flow") == pytest.approx(likeness("rise flow", "rise flow"))


def test_words_that_the_corpus_lacks_count_for_nothing() -> None:
    assert np.array_equal(SKETCH(["the mighty Danube, please"]), SKETCH(["Danube the"]))
    assert np.array_equal(SKETCH(["Zanzibar?", ""]), np.zeros((2, SIZE), np.float32))


def test_a_sketch_does_not_depend_on_its_neighbours() -> None:
    assert np.array_equal(SKETCH(RIVERS)[1], SKETCH(RIVERS[1:2])[0])


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    SKETCH.write(tmp_path)
    assert np.array_equal(WordSketch.read(tmp_path)(RIVERS), SKETCH(RIVERS))


@pytest.mark.parametrize("content", [None, "{", "{}", '{"idf": ["rhine"]}', '{"idf": {"rhine": "much"}}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "words.json").write_text(content)
    with pytest.raises(CardError, match=r"words\.json must hold the idf"):
        WordSketch.read(tmp_path)
