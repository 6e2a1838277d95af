"""Of values that a sentence gives for several things, the one for what the question names."""

import pytest

from kcard.embedded.question_forms import form_of
from kcard.llms.extraction.coordination import asked_part, claims_part
from kcard.llms.extraction.extract import extract

HUT = "The garden hut sleeps 4 guests in summer and 2 guests in winter."
ROOM = "The reading room is open 8 to 6 on weekdays and 11 to 3 on Saturdays."
OWNERS = "Nora Lind was treasurer until 2017 and Per Dahl since."
LICENCE = "The licence costs 90 euros for schools and 240 euros for companies."
DEPOSIT = "The deposit is 50 euros for members, 80 euros for guests and 120 euros for companies."
CABLES = "The red cable carries 24 volts, while the blue cable carries 5 volts."
POOL = "The pool is 25 metres long and 12 metres wide."
FARES = "Adults pay 12 coins and children 7 coins."
MILL = "Until 2012 the mill was owned by the Sorrel family, and since then by the town."
CHOIR = "Ines Roth is the chair, Paul Vey the treasurer and Mia Korn the secretary of the choir."


def answer(question: str, text: str) -> str:
    found = extract(question, [text])
    assert found is not None
    assert found.is_sure
    return found.text


@pytest.mark.parametrize(
    ("question", "text", "right"),
    [
        ("How many guests does the garden hut sleep in winter?", HUT, "2 guests"),
        ("How many guests does the garden hut sleep in summer?", HUT, "4 guests"),
        ("When is the reading room open on Saturdays?", ROOM, "11 to 3"),
        ("When is the reading room open on Mondays?", ROOM, "8 to 6"),
        ("What does the licence cost for a company?", LICENCE, "240 euros"),
        ("How much does a school pay for the licence?", LICENCE, "90 euros"),
        ("How much is the deposit for guests?", DEPOSIT, "80 euros"),
        ("How many volts does the blue cable carry?", CABLES, "5 volts"),
        ("How wide is the pool?", POOL, "12 metres"),
        ("How long is the pool?", POOL, "25 metres"),
        ("How much do children pay?", FARES, "7 coins"),
        ("How much do adults pay?", FARES, "12 coins"),
        ("Who owns the mill?", MILL, "town"),
        ("How much is the fee for guests?", "The fee is 5 coins a day, and 9 coins for guests.", "9 coins"),
        ("How much is the fee?", "The fee is 5 coins, and 9 coins for guests.", "5 coins"),
    ],
)
def test_the_clause_that_speaks_of_what_is_asked_gives_the_value(
    question: str, text: str, right: str
) -> None:
    assert answer(question, text) == right


@pytest.mark.parametrize(
    ("question", "right"),
    [
        ("Who is the treasurer?", "Per Dahl"),
        ("Who is treasurer now?", "Per Dahl"),
        ("Who was treasurer in 2015?", "Nora Lind"),
        ("Who was treasurer before Per Dahl?", "Nora Lind"),
    ],
)
def test_of_holders_one_after_the_other_the_time_decides(question: str, right: str) -> None:
    assert answer(question, OWNERS) == right


@pytest.mark.parametrize(
    "text",
    [
        CHOIR,
        "The choir is run by its chair, Ines Roth, its treasurer, Paul Vey, and its secretary, Mia Korn.",
        "Board: Ines Roth (chair), Paul Vey (treasurer), Mia Korn (secretary), Ole Brandt (caretaker).",
        "Chair: Ines Roth. Treasurer: Paul Vey. Secretary: Mia Korn. Caretaker: Ole Brandt.",
        "The chair is Ines Roth, the treasurer is Paul Vey, and Mia Korn keeps the minutes as secretary.",
        "In March the members elected Ines Roth as chair, Paul Vey as treasurer and Mia Korn as secretary.",
        "The board meets in the mill. Ines Roth is the chair and leads the meetings. Paul Vey is the treasurer and "
        "keeps the books. Mia Korn is the secretary. The caretaker is Ole Brandt.",
    ],
)
def test_an_office_is_answered_with_its_holder_alone(text: str) -> None:
    assert answer("Who is the treasurer?", text) == "Paul Vey"


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (
            "How tall is the tower built by Halden?",
            "The tower was built by Halden in 1871 and is 40 metres tall.",
        ),
        ("How much do pensioners pay?", FARES),
        ("How many guests does the garden hut sleep?", HUT),
        ("When is the reading room open?", ROOM),
        ("Who sings in the choir?", CHOIR),
    ],
)
def test_a_question_that_names_none_or_several_of_the_parts_chooses_none(question: str, text: str) -> None:
    form = form_of(question)
    assert asked_part(question, form, text, by_number=form != "who") is None


def test_an_office_of_another_year_has_no_holder() -> None:
    assert asked_part("Who was the treasurer in 2015?", "who", CHOIR, by_number=False) is None


@pytest.mark.parametrize(
    ("statement", "text", "holds"),
    [
        ("Companies pay 90 euros for the licence.", LICENCE, False),
        ("Companies pay 240 euros for the licence.", LICENCE, True),
        ("Companies pay 70 euros for the licence.", LICENCE, None),
        ("The licence costs 90 euros for schools and 240 euros for companies.", LICENCE, None),
        ("The treasurer is Ines Roth.", CHOIR, False),
        ("The treasurer is Paul Vey.", CHOIR, True),
        ("On Saturdays it is open 8 to 6.", ROOM, False),
    ],
)
def test_a_statement_gives_the_value_of_its_part_or_of_another(
    statement: str, text: str, holds: bool | None
) -> None:
    assert claims_part("What should I know?", "what", statement, text) is holds
