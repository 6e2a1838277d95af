"""Answers taken out of passages: nothing is said that does not stand there.

The reader's weights may change. What is tested here holds whatever they say, or of passages that leave no doubt.
"""

import json
import re
from collections.abc import Sequence

import pytest

from kcard.embedded.reader import READER_WEIGHTS, read
from kcard.llms.extraction.extract import MIN_PROBABILITY, Extract, examine, extract, extract_all

MODES = (
    "There are three modes:\n- quiet mode writes nothing\n- plain mode writes a line\n- loud mode writes all"
)
STEPS = "To send a parcel back:\n1. open the lid\n2. turn the key twice\n3. press the red button"
TOWER = "Halden & Co built the lighthouse of Port Callow in 1871."
MILL = "The mill of Upper Tarn stood empty for many years."


def extracted(question: str, passages: Sequence[str], headings: Sequence[str] = ()) -> Extract:
    """The answer, where there is one; `headings` are those of the passages."""
    if headings:
        [found] = extract_all([(question, passages)], [headings])
    else:
        found = extract(question, passages)
    assert found is not None
    return found


PRESS = (
    "Open the lid of the parcel press. Lay the parcel on the plate and turn the wheel until the plate is tight. "
    "Wait until the green lamp of the press is lit. Then turn the wheel back and take the parcel out of the press."
)
WHEELS = "To press a parcel:\n" + "\n".join(
    f"{n}. turn wheel {n} of the press until its lamp is lit" for n in range(1, 11)
)
HALL = "The hall of Brenn burnt down twice. It has a roof of slate, which keeps the rain out."
NIGHT = "You can open the depot of Tarn at night. Turn the big key twice and pull the lever of the door."
SUNDAY = "The depot of Tarn never opens on Sunday."
RACES = [
    f"{name} won the race of Tamsel in {year}."
    for name, year in (("Ann Lee", 2001), ("Bob Marsh", 2003), ("Cy Okafor", 2005))
]
SEATS = ["The 3rd seat of Ormond went to Ida Vale.", "The 4th seat of Ormond went to Tom Birk."]
TICKET = "open_gate returns a ticket, and stores the hour in the log."


@pytest.mark.parametrize(
    ("question", "passages", "text"),
    [
        ("What modes are there?", [MODES], MODES),
        ("List the modes.", [MODES], MODES),
        ("How do I send a parcel back?", [STEPS], STEPS),
        ("How do I press a parcel?", [WHEELS], WHEELS),
        ("How do I press with the parcel press?", [PRESS, "The parcel press stands in the cellar."], PRESS),
        ("How does the roof of slate keep the rain out?", [HALL], HALL),
        ("Can I open the depot of Tarn at night?", [NIGHT, MILL], f"Yes: {NIGHT}"),
        ("Does the depot of Tarn open on Sunday?", [SUNDAY, "The depot has a red door."], f"No: {SUNDAY}"),
        ("Who built the lighthouse of Port Callow?", [MILL, f"{MILL} {TOWER}"], "Halden & Co"),
        ("Who won the race of Tamsel in 2001?", RACES, "Ann Lee"),
        ("Who won the race of Tamsel in 2003?", RACES, "Bob Marsh"),
        ("Who won the race of Tamsel in 2005?", RACES, "Cy Okafor"),
        ("Who got the fourth seat of Ormond?", SEATS, "Tom Birk"),
        ("What does open_gate return?", [TICKET], "a ticket"),
    ],
)
def test_words_are_said_alone_and_lists_steps_and_sentences_that_belong_together_whole(
    question: str, passages: list[str], text: str
) -> None:
    found = extracted(question, passages)
    assert found.text == text
    assert found.quote in passages[found.passage]


def test_an_overlong_list_is_cut() -> None:
    passage = "The rooms are:\n" + "\n".join(f"- room {n} where letters of all kinds lie" for n in range(60))
    found = extracted("Which rooms are there?", [passage])
    assert 60 < len(found.text.split()) < 160
    assert found.text in passage


def test_a_number_that_no_passage_has_makes_the_answer_less_likely() -> None:
    there = extracted("Who built the lighthouse of Port Callow in 1871?", [TOWER])
    elsewhere = extracted("Who built the lighthouse of Port Callow in 1932?", [TOWER])
    assert elsewhere.probability < there.probability


def test_an_answer_is_of_the_kind_that_is_asked_for() -> None:
    passage = "In 1871, in May, Halden & Co built it."
    who, when = (extracted(question, [passage]) for question in ("Who built it?", "When was it built?"))
    assert who.text == "Halden & Co"
    assert "1871" in when.text


def test_a_passage_without_such_an_answer_is_held_to_answer_less() -> None:
    (reading,) = read("Who built it?", ["1871."])
    found = examine("Who built it?", ["1871."])
    assert found is not None
    assert found[1]["relevance"] < reading.relevance


@pytest.mark.parametrize(
    "question",
    [
        "Who?",
        "How is it done?",
        "Why is it empty?",
        "Is it so?",
        "Which parts are there?",
        "How many?",
        "Tarn",
        "",
    ],
)
@pytest.mark.parametrize("passages", [[MODES, TOWER], ["", MILL], ["?!", "  "], ["Ünïcödé 北京。 🙂"]])
def test_what_is_said_stands_in_the_passage(question: str, passages: list[str]) -> None:
    found = extracted(question, passages)
    assert 0 <= found.probability <= 1
    there = [" ".join(passage.split()) for passage in passages]
    assert " ".join(found.quote.split()) in there[found.passage]
    for part in re.split("\n| … ", found.text.removeprefix("Yes: ").removeprefix("No: ")):
        assert any(part in passage for passage in there)


def test_passages_that_give_the_same_words_make_them_surer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcard.llms.extraction.extract.MIN_CERTAINTY", 0.9999)
    question, other = (
        "What firm built the lighthouse of Port Callow?",
        "Halden & Co built the lighthouse long ago.",
    )
    one, both = extracted(question, [TOWER]), extracted(question, [TOWER, other])
    assert (one.words, both.words) == (False, True)
    assert both.text == "Halden & Co"


def test_a_name_a_place_a_time_or_a_number_is_named_however_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcard.llms.extraction.extract.MIN_CERTAINTY", 1.1)
    for question, named in (
        ("Who built the lighthouse of Port Callow?", "Halden & Co"),
        ("When was the lighthouse of Port Callow built?", "1871"),
    ):
        found = extracted(question, [f"{MILL} {TOWER}"])
        assert (found.text, found.words, found.quote) == (named, True, TOWER)
    what = extracted("What does the lamp of the lighthouse burn?", [TOWER])
    assert not what.words


def test_where_no_words_are_sure_sentences_of_several_passages_are_quoted() -> None:
    passages = [
        "The ferry to Skarn leaves from the north quay.",
        "Tickets for the ferry to Skarn are sold on board.",
        "In winter the ferry to Skarn stays in port when the wind is strong.",
        "Bees make honey.",
    ]
    found = extracted("How does the ferry to Skarn work?", passages)
    assert found.passage < 3
    assert 2 <= len(found.text.split("\n")) <= 3
    assert found.text.startswith(found.quote)
    assert "Bees" not in found.text


@pytest.mark.parametrize("passages", [[], [""], ["  ", "\n"]])
def test_without_text_nothing_is_said(passages: list[str]) -> None:
    assert extract("Who built it?", passages) is None


def test_the_order_of_the_passages_plays_no_part() -> None:
    question, passages = "Who built the lighthouse of Port Callow?", [MILL, TOWER, MODES]
    one, other = extracted(question, passages), extracted(question, passages[::-1])
    assert (one.text, one.passage) == (other.text, 2 - other.passage)
    assert one.probability == pytest.approx(other.probability, abs=1e-3)


def test_the_shipped_calibration_weighs_features_that_are_computed() -> None:
    found = examine("Who built it?", [TOWER])
    assert found is not None
    weights = json.loads((READER_WEIGHTS / "calibration.json").read_text(encoding="utf-8"))
    assert {"bias", "relevance"} <= set(weights) <= set(found[1])


def test_another_ordinal_in_words_is_no_surer_than_one_in_figures() -> None:
    in_words, in_figures = (
        extracted(f"Who got the {n} seat of Ormond?", SEATS[1:]) for n in ("fifth", "5th")
    )
    assert in_words.probability == in_figures.probability < MIN_PROBABILITY


def headed(question: str, heading: str, text: str) -> str:
    found = extracted(question, [f"{heading}: {text}"], [heading])
    assert heading not in found.quote
    return found.text


@pytest.mark.parametrize("heading", ["2 Invoking > 2.5 How? > '-c'", "Manual. How does it open", "Depot"])
def test_a_heading_is_read_but_not_quoted(heading: str) -> None:
    text = "To open the depot of Tarn you turn the big key twice."
    assert headed("How do you open the depot of Tarn?", heading, text) == text


@pytest.mark.parametrize("mark", ["- ", "23. ", "2) ", "(4) "])
def test_a_lone_item_of_a_list_comes_without_its_mark(mark: str) -> None:
    assert headed("How is a parcel found?", "Parcels", f"{mark}Retrieve it only") == "Retrieve it only"


def test_a_name_that_is_hardly_sure_gives_way_to_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcard.llms.extraction.extract.MIN_CERTAINTY", 1.1)
    monkeypatch.setattr("kcard.llms.extraction.extract.MIN_CERTAINTY_OF_NAMES", 1.1)
    found = extracted("Who built the lighthouse of Port Callow?", [MILL, TOWER])
    assert (found.quote, found.passage, found.words) == (TOWER, 1, False)
    assert found.text.startswith(TOWER)


def test_of_like_passages_the_one_under_the_questions_heading_answers() -> None:
    headings = ["Press > Cleaning the plate", "Press > Changing the lamp", "Press > Delivery"]
    texts = [f"{heading}: Open the service door, then follow the drawing there." for heading in headings]
    for order in ([0, 1, 2], [2, 1, 0]):
        passages, over = [texts[at] for at in order], [headings[at] for at in order]
        found = extracted("How do I change the lamp?", passages, over)
        assert found is not None
        assert order[found.passage] == 1


def test_an_answer_that_leads_the_others_is_surer_than_one_of_two_alike() -> None:
    question, rival = (
        "Who built the lighthouse of Port Callow?",
        "Ann Lee built the lighthouse of Port Callow in 1902.",
    )
    ahead, beside = (extracted(question, [TOWER, other]) for other in (MILL, rival))
    assert ahead.probability > beside.probability


def test_quotations_are_withheld_less_often_than_names() -> None:
    how, who = (extracted(question, [TOWER]) for question in ("How was it built?", "Who built it?"))
    assert how.threshold < who.threshold
    assert how.is_sure == (how.probability >= how.threshold)


def test_sentences_elsewhere_that_end_in_a_colon_bring_what_they_lead_to() -> None:
    passages = [
        "The ferry to Skarn leaves from the north quay.",
        "To pay for the ferry to Skarn, type:\npay --ferry",
    ]
    found = extracted("How does the ferry to Skarn work?", passages)
    assert "type:\npay --ferry" in found.text


def test_an_answer_is_no_less_sure_where_its_heading_is_known_and_not_quoted() -> None:
    question, heading = "How do you open the depot of Tarn?", "Opening the depot"
    passages = [f"{heading}: You turn the big key twice."]
    known, unknown = extracted(question, passages, [heading]), extracted(question, passages)
    assert known.text != unknown.text
    assert unknown.probability <= known.probability < unknown.probability + 0.15


# Yes or no.


def test_a_sentence_that_begins_with_no_gets_no_second_one() -> None:
    heading, text = "Can the depot of Tarn be opened at night?", "No, it can't be opened."
    assert headed("Can the depot of Tarn be opened at night?", heading, text) == text


def test_a_verdict_has_no_marks_of_bold_text_and_no_box_of_a_task() -> None:
    assert headed(
        "Is the depot closed on Sunday?", "Tarn", "The depot is **not** closed on Sunday."
    ).startswith("No: The depot is not closed")
    assert headed("Has the depot been painted?", "Tarn", "- [ ] Paint the depot") == "No: Paint the depot"


# Steps, labels, and the verb that is asked for.

ALARM = ("Alarm", "When the bell rings:\n1. Leave the hall by the east door.\n2. Count the guests.")
LOST_KEYS = ("Lost keys", "1. Write the number of the room down.\n2. Ask the porter for a spare.")
PAY = ("Pay", "A night at the bell pays 30 coins.")


@pytest.mark.parametrize(
    ("question", "steps"),
    [
        ("What are the steps when I hear the bell?", ""),
        ("What are the steps when the bell rings?", ALARM[1]),
        ("What is the procedure for lost keys?", LOST_KEYS[1]),
        ("What are the steps to bake bread?", ""),
    ],
)
def test_numbered_items_that_have_the_words_of_a_question_for_steps_answer_it(
    question: str, steps: str
) -> None:
    passages = [ALARM, LOST_KEYS, PAY]
    texts = [f"{heading}: {text}" for heading, text in passages]
    found = extracted(question, texts, [heading for heading, _ in passages])
    assert found.is_sure == bool(steps)
    if steps:
        assert found.text == steps


GROUPS = (
    "adm: Group adm is for watching. Members of this group can read the logs.\n"
    "wheel: Members of this group may run any command with wheel. This needs no password.\n"
    "tape -- Members of this group may use the tape drive.\n"
    "guest: Members of this group may not print."
)


@pytest.mark.parametrize(
    ("question", "label"),
    [
        ("Which group may use wheel?", "wheel"),
        ("Which group can read the logs?", "adm"),
        ("What group may use the tape drive?", "tape"),
        ("Which group may not print?", "guest"),
        ("Which group may print?", ""),
        ("Which group may paint the door?", ""),
    ],
)
def test_the_label_of_the_line_that_says_so_answers(question: str, label: str) -> None:
    found = extracted(question, [GROUPS])
    if label:
        assert found.text == label
        assert found.quote.startswith(label)
    else:
        assert found.text not in ("adm", "wheel", "tape", "guest")


def test_a_label_does_not_answer_what_something_is() -> None:
    found = extracted(
        "What is the default depth?", ["--depth=N: Go N deep. This is five by default: the default depth."]
    )
    assert found.text != "--depth=N"


def test_the_label_may_be_the_heading() -> None:
    question, heading = "Which group may use the drive?", "Groups > tape"
    passage = f"{heading}: Members of this group may use the drive."
    found = extracted(question, [passage], [heading])
    assert (found.text, found.quote) == ("tape", "Members of this group may use the drive.")


def test_what_another_verb_says_does_not_answer() -> None:
    found = extracted(
        "What does open_stream return?",
        [
            "open_stream makes a stream. The argument handle receives the number of the device. It gives back the "
            "address of the buffer."
        ],
    )
    assert not found.words
    assert "gives back the address of the buffer" in found.text


GATE = (
    "def open_gate(name, delay=5):\n    gate = gates[name]\n    gate.lift(delay)\n    return gate.state\n"
    "The gate is lifted after a delay of five seconds. If the gate is locked, open_gate raises GateLocked."
)


def test_a_question_for_a_reason_is_answered_with_prose_where_code_stands_beside_it() -> None:
    found = extracted("Why would open_gate raise GateLocked?", [GATE])
    assert "gate.lift" not in found.text
    assert "If the gate is locked" in found.text


def test_a_question_for_code_is_answered_with_code() -> None:
    lamp = "from lamp import Lamp\nlamp = Lamp(watts=12)\nlamp.on(timeout=30)\nA lamp that is on stays lit."
    found = extracted("How do I switch on a lamp?", [lamp])
    assert "lamp.on(timeout=30)" in found.text


def test_the_answer_of_a_faq_is_given_rather_than_its_question() -> None:
    passage = (
        "Q: Can the lid be replaced?\nA: No. Order a new jar.\n\nQ: Can a torn sail be mended (e.g. after a storm)?\n"
        "A: It may be possible if the cloth is not older than ten years, which few sails are."
    )
    lid = extracted("Can the lid be replaced?", [passage])
    assert lid.text.startswith("No.")
    sail = extracted("Can a torn sail be mended?", [passage])
    assert "older than ten years" in sail.text
