"""What kind of answer a question asks for, by its wording, and which answers are of that kind."""

import pytest

from kcard.offline.questions import Form, fits, form_of


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
        ("What is a swap file?", "what"),
        ("Which parcel came first?", "what"),
    ],
)
def test_the_wording_tells_the_form(question: str, form: Form) -> None:
    assert form_of(question) == form
    assert form_of(question.upper()) == form


@pytest.mark.parametrize(
    ("question", "form"),
    [
        ("Please tell me who keeps the keys", "who"),
        ("can you tell me how long a parcel is kept?", "how many"),
        ("Do you know why it fails?", "why"),
        ("Hello, is it free?", "yes/no"),
        ("Could you explain what a depot is?", "what"),
        ("How’s it done?", "how"),
    ],
)
def test_what_is_said_before_a_question_is_not_part_of_it(question: str, form: Form) -> None:
    assert form_of(question) == form


@pytest.mark.parametrize(
    ("question", "form"),
    [
        ("If the disk is full, does it stop?", "yes/no"),
        ("The server - where does it listen?", "where"),
        ("On the first start: who is asked?", "who"),
        ("the year when it began", "when"),
    ],
)
def test_what_tells_the_form_may_stand_after_a_condition(question: str, form: Form) -> None:
    assert form_of(question) == form


@pytest.mark.parametrize("question", ["change the time zone", "", "?", "开门"])
def test_without_a_question_word_it_is_a_task(question: str) -> None:
    assert form_of(question) == "how"


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
