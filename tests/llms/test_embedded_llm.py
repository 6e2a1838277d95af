"""The embedded LLM, with its shipped weights: it knows little, says so, and reads what it is given."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kcard.embedded.reader import READER_WEIGHTS, count_tokens
from kcard.errors import LLMError
from kcard.integrators.pipeline import Pipeline
from kcard.llms import embedded_llm as offline_llm
from kcard.llms.embedded_llm import UNKNOWN_ANSWER, EmbeddedLLM, language_of, quote
from kcard.llms.extraction.extract import MIN_PROBABILITY, Extract, extract
from kcard.types import Choice, Question, Reply, Request

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
    assert probability(QUESTION, KNOWLEDGE) > MIN_PROBABILITY > probability(QUESTION, KNOWLEDGE[:1])
    assert extract(QUESTION, []) is None


def test_an_answer_is_found_far_beyond_one_window() -> None:
    filler = ["The mill of Upper Tarn stood empty for many years and nobody repaired its roof."] * 60
    assert answer(QUESTION, [*filler, KNOWLEDGE[1], *filler]) == "Halden & Co"
    assert answer(QUESTION, [" ".join([*filler, KNOWLEDGE[1], *filler])]) == "Halden & Co"


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
        "import sys, kcard.llms.embedded_llm, kcard.llms.transformers_llm;"
        "import kcard.llms.openai_endpoint, kcard.llms.prompts;"
        "assert not {'torch', 'transformers', 'openai', 'peft'} & set(sys.modules);"
        "from kcard.types import Request;"
        "print(kcard.llms.embedded_llm.EmbeddedLLM().reply(Request('answer', 'What is the capital of France?')).text)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.home()
    )
    assert done.stdout == "Paris\n"
    assert done.stderr == ""


def test_without_knowledge_it_says_that_it_does_not_know(llm: EmbeddedLLM) -> None:
    assert llm.reply(Request("answer", "Who commands the ninth fleet of Vorlandia?")).text == UNKNOWN_ANSWER


# Languages that the embedded reader does not know: passages are quoted, and the reply says so.

TOWER = (
    "Der Leuchtturm von Altmoor wurde im Jahr 1871 gebaut. Seine Lampe brennt mit Petroleum und leuchtet weit "
    "über das Meer."
)
MILL = "Die Mühle am Bach steht seit vielen Jahren leer. Niemand hat ihre Dächer repariert."
ASKED = "Wann wurde der Leuchtturm von Altmoor gebaut?"


def quoted(question: str, passages: Sequence[str]) -> Extract:
    found = quote(question, passages, "de")
    assert found is not None
    return found


def test_the_language_is_that_of_the_passages() -> None:
    assert language_of(ASKED, [TOWER, MILL]) == "de"
    english = "The lighthouse of Altmoor was built in 1871 and its lamp burns oil every night of the year."
    assert language_of("When was it built?", [english]) == "en"


def test_passages_that_are_too_short_to_tell_count_as_english() -> None:
    assert language_of("Wo?", ["Am Bach."]) == "en"
    assert language_of("", []) == "en"


def test_the_passage_that_shares_the_questions_words_is_quoted() -> None:
    found = quoted(ASKED, [MILL, TOWER])
    assert found.passage == 1
    assert found.text == found.quote == TOWER
    assert 0.5 <= found.probability <= 1


def test_the_quotation_begins_with_the_sentence_that_shares_most_words_in_any_form() -> None:
    found = quoted("Wer repariert das Dach?", [TOWER, MILL])
    assert found.text == "Niemand hat ihre Dächer repariert."


def test_a_passage_that_shares_few_words_is_held_to_be_no_answer() -> None:
    found = quoted("Welcher König von Spanien regierte länger als alle anderen?", [TOWER])
    assert found.probability < 0.5


def test_of_a_long_passage_a_part_is_quoted() -> None:
    long = " ".join([TOWER] + [f"Zimmer {number} ist leer und kalt." for number in range(90)])
    found = quoted(ASKED, [long])
    assert found.text.startswith("Der Leuchtturm")
    assert 120 < len(found.text.split()) < 200


def test_another_passage_that_shares_nearly_as_much_is_quoted_too() -> None:
    door = "Im Leuchtturm von Altmoor gibt es eine Tür."
    found = quoted(ASKED, [MILL, door, TOWER])
    assert found.text.split("\n") == [TOWER, door]
    assert (found.quote, found.passage) == (TOWER, 2)


@pytest.mark.parametrize(("question", "passages"), [(ASKED, []), ("?", [TOWER]), ("der die das", [TOWER])])
def test_nothing_is_quoted_without_a_passage_or_a_telling_word(question: str, passages: list[str]) -> None:
    assert quote(question, passages, "de") is None


def test_the_embedded_llm_quotes_and_says_why() -> None:
    reply = EmbeddedLLM().reply(Request("answer", ASKED, (MILL, TOWER)))
    assert reply.text == TOWER
    assert "supports English only" in reply.remark
    assert reply.quote is not None
    assert reply.quote.passage == 1
    assert reply.confidence is None


def test_the_embedded_llm_does_not_quote_what_has_nothing_to_do_with_the_question() -> None:
    reply = EmbeddedLLM().reply(Request("answer", "Wann starb der König von Spanien im Exil?", (MILL,)))
    assert (reply.text, reply.known) == (UNKNOWN_ANSWER, False)


def test_tokens_are_those_of_question_passages_and_reply(llm: EmbeddedLLM) -> None:
    alone = llm.reply(Request("answer", QUESTION))
    read = llm.reply(Request("answer", QUESTION, KNOWLEDGE))
    assert alone.tokens_in == count_tokens(QUESTION)
    assert read.tokens_in == count_tokens(QUESTION) + sum(map(count_tokens, KNOWLEDGE))
    assert read.tokens_out == count_tokens(read.text) == 4
    # What is not read costs nothing, and options are read.
    assert llm.reply(Request("what", QUESTION, KNOWLEDGE)).tokens_in == alone.tokens_in
    options = (Choice("A", "Halden & Co"), Choice("B", "Osric & Sons"))
    chosen = llm.reply(Request("answer", QUESTION, KNOWLEDGE, choices=options))
    assert chosen.tokens_in == read.tokens_in + sum(count_tokens(option.description) for option in options)
    assert chosen.tokens_out == 1
    (again,) = llm.reply_all([Request("answer", QUESTION)])
    assert isinstance(again, Reply)
    assert again.tokens_in == alone.tokens_in
