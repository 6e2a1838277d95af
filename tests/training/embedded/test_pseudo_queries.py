"""Pseudo-queries and held-out question forms: what each holds, and that they never meet."""

import re
from random import Random

import pytest

from kcard.embedded.question_forms import Form, fits, form_of
from kcard.evaluation.questions import make_questions
from kcard.text import words
from kcard.training.embedded.pseudo_queries import (
    FRAMES,
    OPENERS,
    PREFIXES,
    PseudoQueries,
    Rarity,
    english,
    entities,
    frame,
    held_out,
    wordings,
)
from kcard.types import Source

FACTS = [
    "Ada Fischer carried Ohio in the Senate election of 2022.",
    "Bo O'Neil carried Iowa in the Senate election of 2022.",
    "Cy van der Berg carried Utah in the Senate election of 2022.",
    "Di J. Marsh carried Maine in the Senate election of 2022.",
]
PLAIN = "the longest river of the continent flows into the inland sea"


def test_entities_are_names_and_numbers_without_a_leading_article() -> None:
    names = [FACTS[2][a:b] for a, b in entities(FACTS[2])]
    assert names == ["Cy van der Berg", "Utah", "Senate", "2022"]
    text = "The Rhine's source lies in Switzerland."
    assert [text[a:b] for a, b in entities(text)] == ["Rhine", "Switzerland"]
    assert entities(PLAIN) == []
    assert frame(FACTS[0]) == frame(FACTS[1]) == "_ carried _ in the _ election of _."
    assert frame(PLAIN) == PLAIN


def test_repetition_counts_the_passages_that_tell_the_same_fact() -> None:
    twice = [*FACTS, "In 2022, Ada Fischer was elected to the U.S. Senate from Ohio."]
    rarity = Rarity(twice)
    assert rarity.repetition(twice[0]) == 2
    assert rarity.repetition(twice[1]) == 1


def test_equal_random_states_give_equal_pseudo_queries_and_others_differ() -> None:
    ask = PseudoQueries(FACTS)
    assert [ask(FACTS[0], Random(5)) for _ in range(3)] == [ask(FACTS[0], Random(5))] * 3
    rng = Random(5)
    assert len({ask(FACTS[0], rng) for _ in range(50)}) > 40


def test_the_span_asked_about_is_left_out() -> None:
    ask, rng = PseudoQueries(FACTS), Random(0)
    queries = [ask(FACTS[0], rng, noised=False) for _ in range(400)]
    without = sum("Ada" not in query and "Fischer" not in query for query in queries)
    assert 0.2 < without / len(queries) < 0.8  # the rarest names are asked about most


def test_fillers_are_words_that_the_corpus_does_not_use() -> None:
    ask = PseudoQueries([*FACTS, "Another house stands in the general area."])
    assert not {"house", "general", "senate", "ohio"} & set(ask.fillers)
    assert {"winner", "country"} <= set(ask.fillers)
    assert len(ask.fillers) > 4000


def test_only_words_of_the_passage_and_of_the_lists_are_used() -> None:
    ask, rng = PseudoQueries(FACTS), Random(1)
    old = {word.lower().strip(".") for word in FACTS[1].split()} | set(ask.fillers)
    old |= {word.lower() for text in (*OPENERS, *PREFIXES) for word in re.findall(r"\w+", text)}
    for _ in range(500):
        for word in ask(FACTS[1], rng).lower().split():
            assert word.strip("?:.") in old


def test_passages_without_names_and_of_one_word_work() -> None:
    rng = Random(2)
    for text in (PLAIN, "Yes", "北京是首都"):
        assert all(isinstance(PseudoQueries([text])(text, rng), str) for _ in range(200))


def test_a_held_out_question_asks_for_a_span_that_it_does_not_tell() -> None:
    for fact in FACTS:
        texts = set()
        for seed in range(30):
            question = held_out(fact, seed)
            assert question == held_out(fact, seed)
            assert question is not None
            assert question.passage == fact
            assert question.answer in fact
            assert question.answer not in question.text
            texts.add(question.text)
        assert len(texts) > 5
    assert held_out(PLAIN, 0) is held_out("Ohio", 0) is None


def test_rarity_draws_the_rare_span_more_often() -> None:
    rarity = Rarity(FACTS)
    answers = [q.answer for seed in range(200) if (q := held_out(FACTS[0], seed, rarity))]
    assert answers.count("Ada Fischer") > 4 * max(1, answers.count("2022"))


def test_training_never_uses_a_held_out_form() -> None:
    """Every frame has words that no pseudo-query can hold, so no exam question was seen in training."""
    listed = set(english())
    for text in (*OPENERS, *PREFIXES):
        listed |= set(re.findall(r"\w+", text.lower()))
    for form in FRAMES:
        words = re.findall(r"[a-z]+", re.sub(r"\{\w+\}", " ", form).lower())
        assert len(set(words) - listed) >= 2, form


def test_training_asks_no_question_of_any_exam() -> None:
    """Also where a pseudo-query takes the form of a natural question."""
    facts = zip(
        ("Ada Kole", "Bo Lind", "Cy Marsh", "Dee Nash"), ("Amra", "Brone", "Calto", "Dimna"), strict=True
    )
    texts = [f"{name} discovered {moon} in {1901 + 11 * n}." for n, (name, moon) in enumerate(facts)]
    sources = [Source(text) for text in texts]
    exams = {question.text for seed in range(20) for question in make_questions(sources, 100, seed)}
    questions = {" ".join(words(text)) for text in exams}
    assert len([text for text in exams if "____" not in text]) > 3
    ask, rng = PseudoQueries(texts), Random(0)
    trained = {" ".join(words(ask(text, rng, noised=n % 2 == 0))) for text in texts for n in range(500)}
    assert len(trained) > 1000
    assert not trained & questions


# Which statements of a corpus state the same fact.


def wordings_of(winner: str, town: str, seat: str) -> list[str]:
    return [
        f"{winner} won {town}'s {seat} ward in the 1994 council vote.",
        f"Voters of {town}'s {seat} ward chose {winner} for the City Council in 1994.",
        f"The {seat} ward of {town} went to {winner}.",
    ]


def test_statements_of_the_same_names_and_figures_are_wordings_of_one_fact() -> None:
    names = ("Ida Vale", "Tom Birk", "Ann Lee", "Cy Okafor", "Ida Vale")
    facts = [(name, town, f"{n}th") for town in ("Ormond", "Corby") for n, name in enumerate(names, 4)]
    texts = [text for fact in facts for text in wordings_of(*fact)]
    assert wordings(texts) == [[first, first + 1, first + 2] for first in range(0, 30, 3) for _ in range(3)]


def test_statements_that_say_more_stand_alone() -> None:
    texts = [
        "Ida Vale led Ormond.",
        "Ormond was led by Ida Vale.",
        "Ida Vale led Ormond and Corby.",
        "It rained.",
    ]
    assert wordings(texts) == [[0, 1], [0, 1], [2], [3]]


# Questions.


@pytest.mark.parametrize(
    ("question", "form"),
    [
        ("Who keeps the keys of the depot?", "who"),
        ("To whom is the parcel sent?", "who"),
        ("When was the depot opened?", "when"),
        ("In what year did the tower fall?", "when"),
        ("Since when does it exist?", "when"),
        ("Where is the cache?", "where"),
        ("Which directory holds the cache?", "where"),
        ("How many parcels are kept?", "how many"),
        ("What port does it use?", "how many"),
        ("How old is the tower?", "how many"),
        ("Why is the log empty?", "why"),
        ("What's the reason for the delay?", "why"),
        ("Is there a reason to wait?", "why"),
        ("How do I send a parcel back?", "how"),
        ("What can I do about it?", "how"),
        ("I don't know the night mode. Can you explain it?", "how"),
        ("Could you please help me to open the depot?", "how"),
        ("List the modes.", "list"),
        ("Which options are there?", "list"),
        ("What are the three modes?", "list"),
        ("Which storage classes does it have?", "list"),
        ("In which places does it look?", "list"),
        ("Which rules of conduct apply?", "list"),
        ("Which status does it have?", "what"),
        ("Which option makes it quiet?", "what"),
        ("What happens then?", "what"),
        ("Does it keep links?", "yes/no"),
        ("Isn't it slow?", "yes/no"),
        ("Can I open the depot?", "yes/no"),
        ("Could someone be locked in?", "yes/no"),
        ("What is a swap file?", "what"),
        ("Which parcel came first?", "what"),
        # What is said before a question is not part of it.
        ("Please tell me who keeps the keys", "who"),
        ("can you tell me how long a parcel is kept?", "how many"),
        ("Do you know why it fails?", "why"),
        ("Hello, is it free?", "yes/no"),
        ("Could you explain what a depot is?", "what"),
        ("How’s it done?", "how"),
        # It may stand after a condition.
        ("If the disk is full, does it stop?", "yes/no"),
        ("The server - where does it listen?", "where"),
        ("On the first start: who is asked?", "who"),
        ("the year when it began", "when"),
        # Without a question word it is a task.
        ("change the time zone", "how"),
        ("", "how"),
        ("?", "how"),
        ("开门", "how"),
    ],
)
def test_the_wording_tells_the_form(question: str, form: Form) -> None:
    assert form_of(question) == form
    assert form_of(question.upper()) == form


@pytest.mark.parametrize(
    ("form", "right", "wrong"),
    [
        ("who", "Ada Fischer", "1871"),
        ("who", "May Fischer", "in May 1871"),
        ("where", "/etc/depot", "3 June"),
        ("when", "1871", "Ada Fischer"),
        ("when", "after the first boot", "the depot"),
        ("when", "every week", "of the"),
        ("how many", "twelve", "blue"),
        ("how many", "about 3 a day", "parcels"),
        ("how many", "never", "Ada Fischer"),
    ],
)
def test_an_answer_must_be_of_the_kind_that_is_asked_for(form: Form, right: str, wrong: str) -> None:
    assert fits(form, right)
    assert not fits(form, wrong)


@pytest.mark.parametrize("form", ["what", "how", "why", "list", "yes/no"])
def test_where_the_form_does_not_tell_any_answer_fits(form: Form) -> None:
    assert fits(form, "1871")
    assert fits(form, "")
