"""Each sentence of an answer, as a claim of question and answer, is supported, contradicted or not in the cards."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import kcard
from kcard.hub.registry import Hub
from kcard.integrators.claims import claim_of, clauses, holds, specifics, without_marks
from kcard.integrators.replies import check_reply
from kcard.integrators.verification import Verification, calibration, confidence_of, verify
from kcard.interfaces import Pair, Verdict
from kcard.llms.embedded_llm import EmbeddedLLM
from kcard.selectors.minilm_checker import MiniLMChecker
from kcard.types import Answer, Passage, Quote, Reply, Request, Source
from tests.integrators.conftest import HubOf

CHECKER = MiniLMChecker()
TOOL = (
    "Tarnwell is a planning tool for small workshops. It was started by Ida Vale in 2009, and Tom Birk joined her in "
    "2012."
)
LEAVE = "Fathers take 14 weeks of paternity leave, of which 2 weeks follow the birth. Mothers take 20 weeks."
PARTNERS = "The firm is led by two partners, Ida Vale and Tom Birk, who share all decisions."
EXPENSES = (
    "Receipts are sent to the office by the fifth of each month. Travel by train is paid in second class."
)
LAMP = "The lamp Alba has a battery of 5000 mAh. It charges in three hours."
RADIO = "The radio Brisa has a battery of 2200 mAh. It must not be opened while it charges."
HUT = "The garden hut sleeps 4 guests in summer and 2 guests in winter."
CASE = "The battery pack is covered for two years on the cells and five years on the case."
RELEASES = "Release 3.4.0 came in May 2019. Release 3.4.1 came in July 2019 and repaired the login."
HEATER = "The heater Orla 20 costs 180 euros and has a display."
DRIVER = "The driver was written in 1998. It reads files in UTF-16 and tables of ISO 4180."
WEEK = "The week on call pays 300 euros."


def passages(*texts: str) -> list[Passage]:
    return [
        Passage("firm", text, kept=True, source=Source(text, f"{number}.md", 3))
        for number, text in enumerate(texts, start=1)
    ]


def check(question: str, answer: str, *texts: str) -> Verification:
    return verify(question, Reply(answer), passages(*texts), CHECKER)


def verdicts(verification: Verification) -> list[str]:
    return [citation.verdict for citation in verification.citations]


@pytest.mark.parametrize("answer", ["Tarnwell", "Tarnwell [1].", "Tarnwell was started by Tarnwell."])
def test_words_of_the_question_do_not_answer_it_though_the_passage_has_them(answer: str) -> None:
    assert verdicts(check("Who started Tarnwell?", answer, TOOL)) != ["supported"]
    assert verdicts(check("Who started Tarnwell?", answer, EXPENSES)) == ["not in the cards"]


@pytest.mark.parametrize("answer", ["Ida Vale", "Ida Vale started Tarnwell in 2009. [1]"])
def test_a_right_answer_is_supported_by_the_sentence_that_says_it(answer: str) -> None:
    verification = check("Who started Tarnwell?", answer, EXPENSES, TOOL)
    assert verdicts(verification) == ["supported"]
    [citation] = verification.citations
    assert citation.passage == 1
    assert "started by Ida Vale" in citation.quote
    assert citation.line == 3
    wrong = check("Who started Tarnwell?", "Tom Birk", TOOL)
    assert (verification.confidence or 0) > (wrong.confidence or 0)


def test_invented_steps_are_not_in_the_cards_whatever_marks_they_bear() -> None:
    steps = "To be on call:\n1. Open the pager page. [1]\n2. Choose your team's rota. [1]\n3. Press Accept shift. [1]"
    verification = check("How do I go on call?", steps, EXPENSES)
    assert verdicts(verification) == ["not in the cards"] * 3
    assert verification.is_withheld(strict=False)
    assert "[1]" not in verification.text


def test_sentences_are_checked_clause_by_clause() -> None:
    question = "Who started Tarnwell, and when?"
    both = "Ida Vale started Tarnwell in 2009, and Tom Birk joined her in 2012."
    half = "Ida Vale started Tarnwell in 2009, and Rosa Lind painted the office in 2015."
    assert verdicts(check(question, both, TOOL)) == ["supported"]
    assert verdicts(check(question, half, TOOL)) == ["not in the cards"]
    assert clauses(half) == ["Ida Vale started Tarnwell in 2009", "Rosa Lind painted the office in 2015."]
    assert clauses("It is red and blue.") == ["It is red and blue."]


STEPS = """On call:
1. Acknowledge the page within 15 minutes.
2. Open an incident channel.
3. Name an incident commander."""


def test_steps_that_the_passage_has_are_supported_also_in_one_sentence() -> None:
    question = "What do I do when I am on call?"
    listed = check(question, STEPS.partition("\n")[2], STEPS, LAMP)
    assert verdicts(listed) == ["supported"] * 3
    told = "You acknowledge the page within 15 minutes, open an incident channel, and call your own manager."
    assert verdicts(check(question, told, STEPS, LAMP)) != ["supported"]


def test_marks_are_removed_and_belong_to_their_sentences() -> None:
    texts = ["Use argv[1] for the name.", "Two."]
    plain, sentences = without_marks(
        "Take argv[1] first [1]. Then go on.[2] See (3) and [7].\n[2] Done.", texts
    )
    assert plain == "Take argv[1] first. Then go on. See (3) and [7].\nDone."
    assert [set(s.marks) for s in sentences] == [{0}, {1}, set(), {1}]
    assert without_marks("Both [1, 2].", texts)[1][0].marks == {0, 1}
    assert without_marks("[1]. [2].", texts)[0].strip(" .") == ""
    assert without_marks("[1]. Leave", texts)[0] == "Leave"


@pytest.mark.parametrize(
    "answer",
    [
        "It is open [0].",
        "It is open [3].",
        "It is open [1, 3].",
        "Read `sys.argv [1]` first.",
        "```\nprint(rows[1])\nprint( [2] )\n```",
        "```\nnever closed [1]",
        "It says “The lock [1] opens” there.",
        'It says "The lock [1] opens" there.',
        "See [1](https://example.org).",
    ],
)
def test_what_names_no_passage_or_stands_in_code_or_a_quotation_is_text_and_no_mark(answer: str) -> None:
    plain, sentences = without_marks(answer, ["The lock [1] opens at noon.", "The gate closes."])
    assert plain == answer
    assert not any(sentence.marks for sentence in sentences)


def test_lines_keep_their_indentation_where_marks_are_removed() -> None:
    answer = "Run it [1]:\n```\nif late:\n    wait()\n```\n- first\n  - [1] second\n[2] Then leave."
    plain, _ = without_marks(answer, ["The lock opens.", "The gate closes."])
    assert plain == "Run it:\n```\nif late:\n    wait()\n```\n- first\n  - second\nThen leave."


def test_the_claim_is_made_of_question_and_answer() -> None:
    assert claim_of("Who started Tarnwell?", "Ida Vale") == "Ida Vale started Tarnwell."
    assert claim_of("When was Tarnwell started?", "2009.") == "Tarnwell started: 2009."
    long = "Tarnwell was started by Ida Vale in the year 2009."
    assert claim_of("Who started Tarnwell?", long) == long


def test_an_enumeration_is_checked_item_by_item() -> None:
    items = ["Acknowledge the page quickly", "open an incident channel", "name a good commander."]
    assert clauses(", ".join(items[:2]) + f", and {items[2]}") == items
    assert clauses("In 2009, Ida Vale started it in Tarn.") == ["In 2009, Ida Vale started it in Tarn."]


def test_an_llms_own_mark_within_quotation_marks_is_one() -> None:
    plain, (sentence,) = without_marks(
        'It says "The gate closes [2]."', ["The lock opens.", "The gate closes."]
    )
    assert plain == 'It says "The gate closes."'
    assert sentence.marks == {1}


def test_numbers_names_and_options_are_compared_in_any_spelling() -> None:
    assert specifics("Since 2015-08-03 Ida Vale uses --dry-run in /etc/tarn.conf.") == {
        "2015", "8", "3", "ida", "vale", "--dry-run", "/etc/tarn.conf",
    }  # fmt: skip
    assert specifics("Press the key.") == set()
    assert specifics("Hipp") == {"hipp"}
    for text, specific in (("On August 3, 2015", "8"), ("1,200 people", "1200"), ("three keys", "3")):
        assert holds(text, specific)
    assert not holds("On August 3, 2015", "9")


def test_an_answer_without_marks_or_words_is_no_answer() -> None:
    assert check("Who started Tarnwell?", "[1]. [1].", TOOL).is_withheld(strict=False)
    assert check("Who started Tarnwell?", "Ida Vale").citations == ()


def test_the_llms_own_probabilities_count_for_a_family_that_was_fitted() -> None:
    fitted = replace(
        calibration(),
        families={
            "pooled": {"bias": 0.0},
            "qwen2.5-0.5b": {"bias": 0.0, "pooled": 1.0, "mean log-probability": 2.0},
        },
        typical={"mean log-probability": -0.5},
    )
    family = fitted.family_of("LLM: Qwen2.5-Coder-0.5B-Instruct at http://x")
    assert family == "qwen2.5-0.5b"
    assert fitted.family_of("qwen2.5:32b") == "pooled"
    told = [{"mean log-probability": -3.0}, {}, {"mean log-probability": -0.01}]
    confidences = [confidence_of(values, family, fitted) for values in told]
    assert confidences == sorted(confidences)
    assert [confidence_of(values, "pooled", fitted) for values in told] == [0.5] * 3


def test_only_what_the_llm_read_counts() -> None:
    [kept] = passages(EXPENSES)
    unread = replace(kept, text=TOOL, kept=False)
    verification = verify("Who started Tarnwell?", Reply("Ida Vale"), [unread, kept], CHECKER)
    assert verdicts(verification) == ["not in the cards"]


@pytest.mark.parametrize(
    ("question", "right", "wrong", "text"),
    [
        (
            "Wie lange dauert die Probezeit im Betrieb?",
            "Die Probezeit dauert sechs Monate.",
            "Die Probezeit dauert zwölf Wochen.",
            "Jeder neue Vertrag beginnt mit einer Probezeit. Die Probezeit im Betrieb dauert sechs Monate und endet "
            "ohne weitere Nachricht.",
        ),
        (
            "Qui a fondé l'atelier de Valmont ?",
            "L'atelier a été fondé par Rose Perrin.",
            "L'atelier a été fondé par Jean Moreau.",
            "L'atelier de Valmont est une petite entreprise de menuiserie. Il a été fondé par Rose Perrin après la "
            "guerre.",
        ),
    ],
)
def test_in_other_languages_shared_words_decide_and_a_note_says_so(
    question: str, right: str, wrong: str, text: str
) -> None:
    supported, other = check(question, right, text), check(question, wrong, text)
    assert verdicts(supported) == ["supported"]
    assert verdicts(other) == ["not in the cards"]
    assert supported.confidence is None
    assert "shared words" in supported.note
    checked = check_reply(Request("answer", question, (text,)), Reply(right), passages(text), CHECKER, "")
    assert checked.notes == (supported.note,)


class Supportive(MiniLMChecker):
    """A checker that supports every claim."""

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        return [replace(verdict, score=1.0, refutation=0.0) for verdict in super().judge(pairs)]


def test_no_checker_can_make_up_for_a_number_that_is_not_there() -> None:
    reply = Reply("Fathers take 27 days of paternity leave.")
    verification = verify("How long is paternity leave?", reply, passages(LEAVE), Supportive())
    assert verdicts(verification) != ["supported"]


# From the question to what is shown.

SUPPORTED = "Fathers take 14 weeks of paternity leave [1]."
EXTRA = "Their salary is raised by 8 percent [1]."
INVENTED = "Open the pager page and choose the rota of team Osprey [1]."


@pytest.fixture
def hub(hub_of: HubOf) -> Hub:
    return hub_of({"firm": LEAVE})


def ask(hub: Hub, reply: str, **options: Any) -> Answer:
    question = "How long is paternity leave?"
    return kcard.ask(question, hub=hub, llm=lambda _: reply, **{"cards": "firm"} | options)


def test_an_llms_mark_on_a_sentence_that_no_passage_supports_is_no_citation(hub: Hub) -> None:
    answer = ask(hub, f"{SUPPORTED} Their salary is raised by 8 percent [1]. See also [2].")
    supported, invented = answer.citations[:2]
    assert (supported.verdict, supported.passage) == ("supported", 0)
    assert supported.quote.startswith("Fathers take 14 weeks")
    assert answer.confidence is not None
    assert not answer.is_calibrated
    assert (invented.verdict, invented.passage) == ("not in the cards", None)
    assert "[1]" not in answer.answer
    assert answer.answer.endswith("See also [2].")  # names no passage: text


def test_what_the_cards_do_not_say_is_shown_as_such_or_withheld(hub: Hub) -> None:
    shown = ask(hub, f"{SUPPORTED} {EXTRA}")
    assert "not in the cards: Their salary is raised by 8 percent." in str(shown)
    assert [c["verdict"] for c in shown.to_json()["citations"]] == ["supported", "not in the cards"]
    strict = ask(hub, f"{SUPPORTED} {EXTRA}", strict=True)
    assert (strict.answer, strict.known, strict.citations) == ("I don't know.", False, ())
    assert strict.nearest is not None
    assert "14 weeks" in strict.nearest.text
    assert ask(hub, SUPPORTED, strict=True).known


def test_the_cards_own_words_take_the_place_of_an_answer_for_which_nothing_speaks(hub: Hub) -> None:
    answer = ask(hub, INVENTED)
    assert answer.known
    assert answer.answer.startswith("14 weeks")
    assert {c.verdict for c in answer.citations} == {"supported"}
    assert any("withheld" in note and "Osprey" in note for note in answer.notes)
    assert any("embedded reader" in note for note in answer.notes)
    paper = ask(hub, INVENTED, prompts="paper")
    assert paper.known
    assert [c.verdict for c in paper.citations] == ["not in the cards"]


def test_the_cards_own_words_answer_what_the_llm_does_not_know(hub: Hub) -> None:
    answer = ask(hub, "I don't know.")
    assert (answer.known, "14 weeks" in answer.answer) == (True, True)
    assert not any("withheld" in note for note in answer.notes)
    assert not ask(hub, "I don't know.", prompts="paper").known
    assert not ask(hub, "I don't know.", strict=True).known


@pytest.mark.parametrize(
    ("said", "confidence", "shown"),
    [
        ("Bert Osprey and Tom Birk started it in 1790.", 0.6, "I don't know."),
        ("Bert Osprey and Tom Birk started it in 1790.", 0.8, "Tom Birk"),
        ("Bert Osprey started Tarnwell.", 0.6, "Tom Birk"),
    ],
)
def test_what_is_withheld_is_not_said_again_by_a_reader_that_is_hardly_sure(
    monkeypatch: pytest.MonkeyPatch, said: str, confidence: float, shown: str
) -> None:
    own = Reply("Tom Birk", confidence=confidence, quote=Quote("Tom Birk joined her in 2012.", 0))
    monkeypatch.setattr(EmbeddedLLM, "reply", lambda *_: own)
    question = "Who started Tarnwell?"
    checked = check_reply(Request("answer", question, (TOOL,)), Reply(said), passages(TOOL), CHECKER, "any")
    assert checked.text == shown
    assert any("withheld" in note for note in checked.notes)


def test_an_answer_is_withheld_where_the_cards_have_none_either(hub: Hub) -> None:
    answer = kcard.ask("How do I go on call?", hub=hub, llm=lambda _: INVENTED, cards="firm")
    assert not answer.known
    assert answer.nearest is not None
    assert any("Osprey" in note for note in answer.notes)


def test_not_knowing_behind_a_mark_is_not_knowing(hub: Hub) -> None:
    answer = ask(hub, "[1]. I don't know.", strict=True)
    assert (answer.answer, answer.known, answer.citations) == ("I don't know.", False, ())
    assert not any("withheld" in note for note in answer.notes)


def test_without_cards_nothing_is_checked(hub: Hub) -> None:
    answer = ask(hub, "Ida [1].", mode="direct", cards=None)
    assert (answer.answer, answer.citations, answer.confidence) == ("Ida [1].", (), None)


def test_strict_answers_nothing_where_no_card_fits(hub: Hub) -> None:
    question, reply = "Which planet has the most moons?", "Saturn has the most moons."
    assert kcard.ask(question, hub=hub, llm=lambda _: reply, min_relevance=0.9).known
    strict = kcard.ask(question, hub=hub, llm=lambda _: reply, min_relevance=0.9, strict=True)
    assert (strict.answer, strict.known) == ("I don't know.", False)


def test_a_streamed_answer_is_checked_first(hub: Hub) -> None:
    pipeline = kcard.Pipeline(hub=hub, llm=lambda _: INVENTED, cards="firm")
    *pieces, answer = pipeline.stream("How do I go on call?")
    assert pieces == ["I don't know."]
    assert isinstance(answer, Answer)


# Of whom, of what time and under which label a passage says the words of a claim.

LED = "The mill was built by Ole Brand in 1902; since 1950 it is run by Ines Holm."
MOVED = "The office was in Lund until 2012; since then it is in Malmo."
PORT = "The service used port 8080 until version 3; since version 4 it uses port 9000."
AUDIO = "audio: This group can be used locally to give a set of users access to an audio device."
DRIVE = "tape: Members of this group can use the tape drive of the machine."
TABLE = "adm: Group adm is used for watching. Members of this group can read many log files.\n" + DRIVE


@pytest.mark.parametrize(
    ("question", "claim", "passage", "is_supported"),
    [
        ("Who runs the mill now?", "The mill is run by Ole Brand.", LED, False),
        ("Who runs the mill now?", "The mill is run by Ines Holm.", LED, True),
        ("Who built the mill?", "The mill was built by Ole Brand.", LED, True),
        ("Where is the office now?", "The office is now in Lund.", MOVED, False),
        ("Where was the office before 2012?", "The office was in Lund.", MOVED, True),
        ("Which port does the service use?", "The service uses port 8080.", PORT, False),
        ("What does the group adm do?", "The group adm lets users read log files.", TABLE, True),
        ("What does the group tape allow?", "The group tape lets its members use tape drives.", DRIVE, True),
        ("What does the group audio do?", "Users in audio can access sound devices.", AUDIO, True),
        ("What does the group tape do?", "The group tape lets users read log files.", TABLE, False),
        ("What does the group adm do?", "The group adm lets users use the tape drive.", TABLE, False),
        ("Who started Tarnwell?", "Tom Birk", TOOL, False),
        ("Who leads the firm?", "Only Rosa Lind leads the firm.", PARTNERS, False),
        ("How long is paternity leave?", "27 days", LEAVE, False),
        ("How long is paternity leave?", "Fathers take 27 days of paternity leave [1].", LEAVE, False),
        ("Which battery has the radio Brisa?", "The radio Brisa has a battery of 5000 mAh.", RADIO, False),
        ("Which battery has the radio Brisa?", "The radio Brisa has a battery of 2200 mAh.", RADIO, True),
        (
            "May the radio be opened while it charges?",
            "The radio Brisa can be opened while it charges.",
            RADIO,
            False,
        ),
        ("How many files does the driver read?", "It reads 16 files.", DRIVER, False),
        ("How many files does the driver read?", "16", DRIVER, False),
        ("What did release 3.4.1 repair?", "It repaired the login.", RELEASES, True),
        ("How much does the Orla 20 cost?", "The Orla 20 costs 180 euros.", HEATER, True),
    ],
)
def test_the_words_of_a_claim_count_where_the_passage_speaks_of_what_is_asked(
    question: str, claim: str, passage: str, is_supported: bool
) -> None:
    assert check(question, claim, passage).is_supported == is_supported


@pytest.mark.parametrize(
    ("question", "answer", "is_withheld"),
    [
        ("Is lunch free?", "Yes, lunch is free.", True),
        ("Is travel by train paid?", "Yes, travel by train is paid in second class.", False),
        ("Is luxury travel by train paid?", "Yes, travel by train is paid in second class.", True),
        ("Who started Tarnwell?", WEEK, True),
        ("Who started Tarnwell?", "Ida Vale started it.", False),
        ("When did release 3.6.0 come?", "Release 3.6.0 came in July 2019.", True),
        ("What did release 3.5.2 repair?", "It repaired the login.", True),
        ("How much does the Orla 30 cost?", "The Orla 30 costs 180 euros.", True),
        ("Does the Orla 30 have a display?", "Yes, the Orla 30 has a display.", True),
    ],
)
def test_an_answer_to_another_question_or_about_what_no_passage_names_is_withheld(
    question: str, answer: str, is_withheld: bool
) -> None:
    verification = check(question, answer, EXPENSES, LEAVE, TOOL, WEEK, RELEASES, HEATER)
    assert verification.is_withheld(strict=False) == is_withheld
    assert ((verification.confidence or 0) <= 0.25) == is_withheld


def test_a_reply_ends_where_the_llm_goes_on_with_the_prompt_and_a_long_one_is_shortened_in_the_note() -> None:
    request = Request("answer", "How long is paternity leave?", (LEAVE,))
    checked = check_reply(
        request, Reply("14 weeks [1].\n\nQuestion: And travel?"), passages(LEAVE), CHECKER, ""
    )
    assert checked.text == "14 weeks."
    checked = check_reply(request, Reply("It is the year 2023, " * 50), passages(LEAVE), CHECKER, "")
    assert [note for note in checked.notes if len(note) < 300 and note.endswith("…")]


@pytest.mark.parametrize(
    ("question", "right", "wrong", "text"),
    [
        ("How long is the case covered?", "It is covered for five years.", "It is covered for two years.", CASE),
        ("How long is the case covered?", "Five years", "Two years", CASE),
        ("How many guests does the hut sleep in winter?", "The hut sleeps 2 guests in winter.",
         "The hut sleeps 4 guests in winter.", HUT),
        ("Who is the treasurer?", "Per Dahl", "Nora Lind", "Nora Lind was treasurer until 2017 and Per Dahl since."),
    ],
)  # fmt: skip
def test_what_a_passage_says_of_another_part_supports_nothing(
    question: str, right: str, wrong: str, text: str
) -> None:
    assert verdicts(check(question, right, text)) == ["supported"]
    assert verdicts(check(question, wrong, text)) != ["supported"]
    assert check(question, wrong, text).is_withheld(strict=False)


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("The option that limits the speed is `--rate`.", "supported"),
        ("You can use the command-line option `--rate` to limit the speed.", "not in the cards"),
        ("To limit the speed, use the `--rate` option.", "supported"),
        ("The option that limits the speed is `--slow`.", "contradicted"),
        ("The option that limits the speed and empties the trays is `--rate`.", "not in the cards"),
    ],
)
def test_an_option_is_supported_by_the_entry_that_explains_it(said: str, verdict: str) -> None:
    text = "Limit the speed to N letters per second. The van is never late."
    source = Source(text, "sorter.md", 1, section="Sorter > -r N, --rate=N")
    kept = [Passage("sorter", text, kept=True, source=source)]
    [citation] = verify("Which option limits the speed?", Reply(said), kept, CHECKER).citations
    assert citation.verdict == verdict
