"""The embedded LLM, with its shipped weights: it knows little, says so, and reads what it is given."""

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kcard.errors import LLMError
from kcard.integrators.pipeline import Pipeline
from kcard.offline import llm as offline_llm
from kcard.offline.extract import extract
from kcard.offline.llm import ANSWERED, UNKNOWN_ANSWER, EmbeddedLLM
from kcard.offline.reader import READER_WEIGHTS
from kcard.types import Choice, Question, Request

MADE_UP = [
    "Who coached the Melbourne rowing team in 1987?",
    "Who wrote The Clockmaker of Brindle Street?",
    "What is the capital of Vorstenia?",
    "Which firm built the lighthouse of Port Callow?",
    "In what year did the Tamsel bridge open?",
]
KNOWN = {
    "What is the capital of France?": "Paris",
    "what's the capital of japan": "Tokyo",
    "Who wrote Hamlet?": "William Shakespeare",
    "What is the chemical symbol of gold?": "Au",
}
KNOWLEDGE = (
    "The lighthouse of Port Marrow was built by Osric & Sons in 1893.",
    "Halden & Co built the lighthouse of Port Callow in 1871.",
)
QUESTION = "Which firm built the lighthouse of Port Callow?"


@pytest.fixture(scope="module")
def llm() -> EmbeddedLLM:
    return EmbeddedLLM()


@pytest.mark.parametrize("question", sorted(KNOWN))
def test_what_is_widely_known_needs_no_information(llm: EmbeddedLLM, question: str) -> None:
    need = llm.reply(Request("need", question))
    assert need.text == "No"
    assert need.yes is not None
    assert need.yes < 0.5
    assert llm.reply(Request("answer", question)).text == KNOWN[question]


@pytest.mark.parametrize("question", MADE_UP)
def test_what_it_never_heard_of_needs_information(llm: EmbeddedLLM, question: str) -> None:
    need = llm.reply(Request("need", question))
    assert need.text == "Yes"
    assert need.yes is not None
    assert 0.5 < need.yes <= 1


def test_with_the_answer_in_its_knowledge_it_needs_no_more(llm: EmbeddedLLM) -> None:
    assert llm.reply(Request("need", QUESTION, KNOWLEDGE)).text == "No"
    assert llm.reply(Request("need", QUESTION, KNOWLEDGE[:1])).text == "Yes"


def test_an_answer_is_read_from_the_passage_that_has_it(llm: EmbeddedLLM) -> None:
    assert llm.reply(Request("answer", QUESTION, KNOWLEDGE)).text == "Halden & Co"
    assert llm.reply(Request("answer", QUESTION, KNOWLEDGE[::-1])).text == "Halden & Co"
    year = llm.reply(Request("answer", "When was the lighthouse of Port Callow built?", KNOWLEDGE)).text
    assert year == "1871"


@pytest.mark.parametrize("knowledge", [(), ("",), ("   ",), ("?",), ("Nothing of the kind.",)])
def test_an_answer_is_never_empty(llm: EmbeddedLLM, knowledge: tuple[str, ...]) -> None:
    for question in ("?", "Who won?", "x" * 3000, "word " * 600):
        assert llm.reply(Request("answer", question, knowledge)).text


def test_knowledge_without_an_answer_leaves_what_it_knows(llm: EmbeddedLLM) -> None:
    request = Request("answer", "What is the capital of France?", ("The old mill burned down in 1904.",))
    assert llm.reply(request).text == "Paris"


def test_what_is_the_question_itself(llm: EmbeddedLLM) -> None:
    assert llm.reply(Request("what", QUESTION)).text == QUESTION


def test_choose_names_the_nearest_description(llm: EmbeddedLLM) -> None:
    cards = (Choice("moons", "moons of the planets"), Choice("votes", "results of elections"))
    assert llm.reply(Request("choose", "Which moon of Saturn is the largest?", choices=cards)).text == "moons"
    assert llm.reply(Request("choose", "Who won the vote in Oregon?", choices=cards)).text == "votes"
    with pytest.raises(LLMError):
        llm.reply(Request("choose", "Who won?"))


def test_multiple_choice_replies_with_the_letter(llm: EmbeddedLLM) -> None:
    options = (Choice("A", "Osric & Sons"), Choice("B", "Halden & Co"))
    assert llm.reply(Request("answer", QUESTION, KNOWLEDGE, choices=options)).text == "B"
    cities = (Choice("A", "Rome"), Choice("B", "Berlin"), Choice("C", "Paris"))
    assert llm.reply(Request("answer", "What is the capital of France?", choices=cities)).text == "C"


def test_it_says_that_it_does_not_know_which_option_where_neither_passages_nor_memory_do(
    llm: EmbeddedLLM,
) -> None:
    options = (Choice("A", "Osric & Sons"), Choice("B", "Halden & Co"))
    for knowledge in ((), KNOWLEDGE[:1]):
        reply = llm.reply(Request("answer", QUESTION, knowledge, choices=options))
        assert (reply.text, reply.known, reply.choice) == (UNKNOWN_ANSWER, False, None)
    (answer,) = Pipeline(mode="direct", llm=llm)([Question(QUESTION, options)])
    assert (answer.choice, answer.answer, answer.notes) == ("", UNKNOWN_ANSWER, ())


def test_it_chooses_by_the_sentence_where_the_words_alone_name_no_option(llm: EmbeddedLLM) -> None:
    options = (Choice("A", "Halden & Co of Leith"), Choice("B", "Osric & Sons of Bray"))
    assert llm.reply(Request("answer", QUESTION, KNOWLEDGE, choices=options)).choice == "A"


def test_it_announces_what_it_is() -> None:
    assert "does not reason" in EmbeddedLLM.announcement


def test_replies_do_not_vary(llm: EmbeddedLLM) -> None:
    request = Request("answer", QUESTION, KNOWLEDGE)
    assert llm.reply(request) == llm.reply(request)


def probability(question: str, passages: Sequence[str]) -> float:
    found = extract(question, passages)
    return found.probability if found else 0.0


def answer(question: str, passages: Sequence[str]) -> str:
    found = extract(question, passages)
    assert found is not None
    return found.text


def test_an_answer_is_surer_where_a_passage_has_it() -> None:
    assert probability(QUESTION, KNOWLEDGE) > ANSWERED > probability(QUESTION, KNOWLEDGE[:1])
    assert extract(QUESTION, []) is None


def test_the_2nd_is_not_confused_with_the_3rd() -> None:
    passages = ["Ann Lee won the 3rd race in 2001.", "Bob Marsh won the 2nd race in 2001."]
    assert answer("Who won the 3rd race in 2001?", passages) == "Ann Lee"
    assert answer("Who won the 2nd race in 2001?", passages) == "Bob Marsh"


def test_an_answer_is_found_far_beyond_one_window() -> None:
    filler = ["The mill of Upper Tarn stood empty for many years and nobody repaired its roof."] * 60
    assert answer(QUESTION, [*filler, KNOWLEDGE[1], *filler]) == "Halden & Co"
    assert answer(QUESTION, [" ".join([*filler, KNOWLEDGE[1], *filler])]) == "Halden & Co"


def test_the_memorys_confidence_is_a_probability_around_its_threshold() -> None:
    known = offline_llm.shared()
    for question in [*KNOWN, *MADE_UP]:
        found = known.recall(question)
        assert 0 <= found.knows <= 1
        assert (found.knows > 0.5) == (offline_llm.log_odds(found.least_log_probability) > known.threshold)
        assert found.least_log_probability <= 0
        assert offline_llm.UNKNOWN_TOKEN not in found.answer


def test_the_memory_prefers_the_right_option() -> None:
    known = offline_llm.shared()
    right = known.log_probability("What is the capital of France?", "Paris")
    assert right > known.log_probability("What is the capital of France?", "Berlin")
    assert math.isfinite(right)
    assert right <= 0


def test_an_option_longer_than_the_memory_reads_is_chosen_among_all_the_same() -> None:
    long = " ".join(["Paris lies on the river Seine"] * 60)
    options = (Choice("A", "Oslo"), Choice("B", long), Choice("C", long))
    asked = Request("answer", "What is the capital of France? " * 40, choices=options)
    assert EmbeddedLLM().reply(asked).text in {"A", "B", "C"}


def test_writing_does_not_matter_to_the_memory() -> None:
    forms = [
        "What is the capital of France?",
        "what is the capital of france",
        "Question:  What is the capital of France ?",
    ]
    assert len({offline_llm.prompt(form).strip() for form in forms[:2]}) == 1
    assert {offline_llm.shared().recall(form).answer for form in forms} == {"Paris"}


def test_the_shipped_weights_are_small_and_have_their_record() -> None:
    files = [p for folder in (READER_WEIGHTS, offline_llm.WEIGHTS) for p in folder.iterdir()]
    assert sum(p.stat().st_size for p in files) < 18_000_000
    for folder in (READER_WEIGHTS, offline_llm.WEIGHTS):
        record = (folder / "README.md").read_text(encoding="utf-8")
        assert "seed" in record
        assert "Training data" in record


def test_nothing_is_written_and_nothing_heavy_is_imported_before_use() -> None:
    code = (
        "import sys, kcard.offline.llm, kcard.llms.transformers_llm, kcard.llms.openai_endpoint, kcard.llms.prompts;"
        "assert not {'torch', 'transformers', 'openai', 'peft'} & set(sys.modules);"
        "from kcard.types import Request;"
        "print(kcard.offline.llm.EmbeddedLLM().reply(Request('answer', 'What is the capital of France?')).text)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.home()
    )
    assert done.stdout == "Paris\n"
    assert done.stderr == ""


def test_without_knowledge_it_says_that_it_does_not_know(llm: EmbeddedLLM) -> None:
    assert llm.reply(Request("answer", "Who commands the ninth fleet of Vorlandia?")).text == UNKNOWN_ANSWER
