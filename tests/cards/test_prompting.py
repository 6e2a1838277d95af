"""How a question becomes a prompt: by a template, in the words of the corpus, or as a vector of words."""

import math
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


def test_a_tokenizer_without_bos_adds_none_and_one_whose_bos_is_its_eos_keeps_it_at_the_start() -> None:
    assert prompt_ids(of_words(WORDS, "$A", bos=None), "the rhine") == [6, 7]
    same = of_words(WORDS, "</s> $A", bos="</s>")
    assert prompt_ids(same, "the rhine") == [EOS, 6, 7]
    assert prompt_ids(same, "") == [EOS]


def test_the_question_stands_in_the_template_without_its_first_words_where_it_is_long() -> None:
    words = of_words(WORDS, "<s> $A")
    rows = template_prompts(words, "where {question} now", ["the rhine", " end "], longest=20)
    assert rows.ids == ((BOS, 4, 6, 7, 9), (BOS, 4, 8, 9))
    long = ["where does the rhine end now"]
    assert template_prompts(words, "{question}", long, longest=4).ids == ((BOS, 7, 8, 9),)
    without_bos = of_words(WORDS, "$A", bos=None)
    assert template_prompts(without_bos, "{question}", long, longest=4).ids == ((6, 7, 8, 9),)


ANSWERING = "Question: {question}\nAnswer: "


@pytest.mark.parametrize(
    ("template", "question", "answer", "document"),
    [
        (ANSWERING, " Where does it end?\n", "In the sea.", "Where does it end? In the sea."),
        (ANSWERING, "Where?", "", ""),
        # What is not a bare answer is a document by itself.
        ("{question}\n", "Where?", "It ends in the sea.", "It ends in the sea."),
        ("{question}", "Where?", "It ends in the sea.", "It ends in the sea."),
        ("<user>{question}<assistant>", "Where?", "It ends in the sea.", "It ends in the sea."),
    ],
)
def test_an_answer_becomes_a_document_with_its_question(
    template: str, question: str, answer: str, document: str
) -> None:
    assert Prompt(template=template).document(question, answer) == document


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
        ("Who is fifth in Texas?", "Who is 5th in Texas?"),
        # Of a name that is not known as a whole nothing is read, and no name replaces another.
        ("What was Hank Aaron in Ohio?", "What was in Ohio?"),
        ("What was South Dakota?", "What was South Dakota?"),
        ("Who was in Michigan?", "Who was in"),
        # A question of unknown words alone stays as it is.
        ("Kalmar Nyckel?", "Kalmar Nyckel?"),
        ("", ""),
        ("谁赢了?", "谁赢了?"),
    ],
)
def test_unknown_words_become_near_ones_or_are_left_out(
    vocabulary: Vocabulary, asked: str, read: str
) -> None:
    assert vocabulary.reword(asked) == read
    assert not {"ohio", "brad", "2022", "5th"} & set(vocabulary.common)


def test_figures_are_read_as_words_where_the_corpus_has_those() -> None:
    worded = Vocabulary.of(["The fifth moon is Io."] * MIN_PASSAGES, {"which", "is"})
    assert worded.reword("Which is the 5th moon?") == "Which is the fifth moon?"


@pytest.mark.parametrize("figure", ["1999", "9th", "ninth", "2,018"])
def test_other_figures_stay_because_they_ask_for_something_else(vocabulary: Vocabulary, figure: str) -> None:
    assert figure in vocabulary.reword(f"Who was chosen in {figure} in Ohio?")


@pytest.mark.parametrize("texts", [[], ["Io."], TEXTS])
def test_a_vocabulary_is_the_same_when_read_again(texts: list[str], tmp_path: Path) -> None:
    assert Vocabulary.read(tmp_path) is None  # as in cards of earlier versions
    made = Vocabulary.of(texts, {"who"})
    made.write(tmp_path)
    assert Vocabulary.read(tmp_path) == made
    if texts is not TEXTS:
        assert made.reword("who picked the moon?") == "who"


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
    vectors: list[dict[str, float]] = []
    for text in (one, two):
        numbers = SKETCH.numbers_of(text)
        vectors.append({stem: idf for stem, idf in SKETCH.idf.items() if SKETCH.number[stem] in numbers})
    first, second = (sum(idf**2 for idf in vector.values()) for vector in vectors)
    product = sum(idf**2 for stem, idf in vectors[0].items() if stem in vectors[1])
    return float(product / math.sqrt(first * second))


def test_products_of_sketches_are_near_those_of_tfidf_vectors() -> None:
    for question in ("Where does the Danube rise?", "Which river flows through Paris?", "black sea"):
        for text in RIVERS:
            assert likeness(question, text) == pytest.approx(tfidf(question, text), abs=0.15)


def test_rare_words_weigh_more_and_forms_of_a_word_are_one() -> None:
    assert SKETCH.idf["danub"] > SKETCH.idf["rise"] > SKETCH.idf["the"]
    assert likeness("rises flows", "rising flow") == pytest.approx(likeness("rise flow", "rise flow"))


def test_words_that_the_corpus_lacks_count_for_nothing_nor_do_neighbours(tmp_path: Path) -> None:
    assert np.array_equal(SKETCH(["the mighty Danube, please"]), SKETCH(["Danube the"]))
    assert np.array_equal(SKETCH(["Zanzibar?", ""]), np.zeros((2, SIZE), np.float32))
    assert np.array_equal(SKETCH(RIVERS)[1], SKETCH(RIVERS[1:2])[0])
    SKETCH.write(tmp_path)
    assert np.array_equal(WordSketch.read(tmp_path)(RIVERS), SKETCH(RIVERS))


@pytest.mark.parametrize("content", [None, "{", "{}", '{"idf": ["rhine"]}', '{"idf": {"rhine": "much"}}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "words.json").write_text(content)
    with pytest.raises(CardError, match=r"words\.json must hold the idf"):
        WordSketch.read(tmp_path)
