"""Clauses, names and questions by rules."""

import pytest

from kcard.training.study.rules.answers import Names
from kcard.training.study.rules.antecedents import standing_alone
from kcard.training.study.rules.clauses import clauses
from kcard.training.study.rules.neighbours import reworded
from kcard.training.study.rules.questions import about_both, drafts

NAMES = Names(frozenset({"Christiaan Huygens", "Giovanni Cassini"}), frozenset({"Paris Observatory"}))


def asked(sentence: str) -> list[tuple[str, str, str]]:
    return [(d.kind, d.text, d.answer) for clause in clauses(sentence) for d in drafts(clause, NAMES)]


@pytest.mark.parametrize(
    ("sentence", "question", "answer"),
    [
        (
            "Christiaan Huygens discovered the moon Titan in 1655.",
            "Which person discovered the moon Titan in 1655?",
            "Christiaan Huygens",
        ),
        (
            "Christiaan Huygens discovered the moon Titan in 1655.",
            "In which year did Christiaan Huygens discover the moon Titan?",
            "1655",
        ),
        (
            "In 1672, Giovanni Cassini found the moon Rhea near Paris.",
            "In which year did Giovanni Cassini find the moon Rhea near Paris?",
            "1672",
        ),
        (
            "The large moon was found by the astronomer Christiaan Huygens.",
            "By which astronomer was the large moon found?",
            "Christiaan Huygens",
        ),
        (
            "Titan was found from a house in The Hague, which is small.",
            "In which place was Titan found from a house?",
            "The Hague",
        ),
        (
            "The Balch tract had 267 homes in Fresno.",
            "The Balch tract had how many homes in Fresno?",
            "267",
        ),
        (
            "The mission was launched on October 15, 1997 by three agencies.",
            "On which date was the mission launched by three agencies?",
            "October 15, 1997",
        ),
    ],
)
def test_questions_ask_for_the_subject_and_for_names_dates_and_numbers(
    sentence: str, question: str, answer: str
) -> None:
    assert (question, answer) in [(text, found) for _, text, found in asked(sentence)]


@pytest.mark.parametrize(
    "sentence",
    [
        "It was discovered in 1655 by Christiaan Huygens.",
        "Although Titan is large, it was discovered in 1655.",
        "“Titan is a moon”, he said in 1655.",
        "Discovered in 1655 by Huygens.",
        "See also:",
        "1655",
        "",
    ],
)
def test_a_sentence_whose_subject_is_not_sure_gives_none(sentence: str) -> None:
    assert asked(sentence) == []


def test_a_second_verb_and_a_relative_clause_have_their_own_questions() -> None:
    found = {
        clause.sentence
        for clause in clauses(
            "The probe orbited the Earth in 1997 and reached Saturn in 2004 with Titan, which has a thick atmosphere."
        )
    }
    assert found == {
        "The probe orbited the Earth in 1997.",
        "The probe reached Saturn in 2004 with Titan.",
        "Titan has a thick atmosphere.",
    }


def test_a_link_asks_for_the_subject_of_two_passages() -> None:
    first, second = (
        clauses(text)
        for text in (
            "Christiaan Huygens discovered Titan in 1655.",
            "Christiaan Huygens described the rings of Saturn.",
        )
    )
    (draft,) = about_both(first, second, NAMES)
    assert draft.text == "Which person discovered Titan in 1655 and described the rings of Saturn?"
    assert draft.answer == "Christiaan Huygens"


def test_a_name_takes_the_place_of_a_pronoun() -> None:
    said = ["Christiaan Huygens was an astronomer.", "He discovered Titan.", "His house stood in The Hague."]
    assert standing_alone(said, "", NAMES)[1:] == [
        "Christiaan Huygens discovered Titan.",
        "Christiaan Huygens’ house stood in The Hague.",
    ]


def test_the_heading_stands_for_a_pronoun_that_begins_a_passage() -> None:
    assert standing_alone(["It has many moons."], "Saturn", NAMES) == ["Saturn has many moons."]


@pytest.mark.parametrize(
    "said",
    [
        ["Some people disagree.", "He discovered Titan."],
        ["The Paris Observatory is old.", "She worked there."],
        ["Christiaan Huygens was Dutch.", "They found Titan."],
        ["It rained."],
    ],
)
def test_a_pronoun_stays_where_no_name_fits(said: list[str]) -> None:
    assert standing_alone(said, "", NAMES) == said


def test_names_are_persons_where_the_text_says_so() -> None:
    names = Names.of(
        [
            "Jan Smit was born in Leiden. The Black Gate was built by the architect Piet Visser.",
            "Anna Bakker made maps. She sold them in Den Haag.",
        ]
    )
    assert {"Jan Smit", "Piet Visser", "Anna Bakker"} <= names.persons
    assert names.noun("Black Gate") == "thing"
    assert names.noun("Leiden University") == "university"
    assert names.noun("Red Kettle") == ""


def test_words_give_way_to_their_neighbours_in_the_same_inflection() -> None:
    (clause,) = clauses("The observer constructed the largest tower near Paris.")
    found = reworded(clause, 0.5)
    assert found is not None
    assert found.sentence == "The observer built the biggest tower near Paris."
    assert found.lemma == "build"


def test_a_clause_without_neighbours_is_not_reworded() -> None:
    (clause,) = clauses("Titan has seas in 1655.")
    assert reworded(clause, 0.9) is None
