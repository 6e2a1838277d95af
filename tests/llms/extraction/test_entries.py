"""Questions for an option, a command or a setting, answered with the term of a manual's entry."""

import time

import pytest

from kcard.llms.extraction.entries import entries_of, find_entry, term_of
from kcard.llms.extraction.extract import extract_all

SORTER = (
    "The sorter takes these options:\n"
    "-k, --keep: Keep the unsorted letters in the tray.\n"
    "-q, --quiet: Do not report the letters that were sorted.\n"
    "--rate=N: Limit the speed to N letters per second.\n"
    "-v, --view: Do not move any letter: show only where it would go."
)
COMMANDS = "open-tray: Open the tray of the given street.\nlist-trays: List the trays of all streets."
HEADINGS = ["Sorter > Options", "Sorter > Commands", "Options > --drain"]
TEXTS = [SORTER, COMMANDS, "Empty all trays at night. The letters go to the depot."]


def asked(question: str) -> tuple[str, float] | None:
    headings = [f"{heading}: " for heading in HEADINGS]
    cell = find_entry(question, "what", list(zip(headings, TEXTS, strict=True)))
    if cell is None:
        return None
    return cell.text, cell.probability


@pytest.mark.parametrize(
    ("question", "term"),
    [
        ("Which option keeps unsorted letters in the tray?", "-k, --keep"),
        ("What flag limits the speed?", "--rate=N"),
        ("Which option turns off the report of sorted letters?", "-q, --quiet"),
        ("Which option empties all trays at night?", "--drain"),
        ("Which command lists the trays of the streets?", "list-trays"),
        ("What is the command that opens a tray?", "open-tray"),
    ],
)
def test_the_entry_that_a_question_describes_is_the_answer(question: str, term: str) -> None:
    found = asked(question)
    assert found is not None
    assert found[0] == term
    assert 0.5 < found[1] < 1


@pytest.mark.parametrize(
    "question",
    [
        "Which option prints stamps?",
        "Which command paints the depot?",
        "Which variable limits the speed?",
        "Which street has a tray?",
    ],
)
def test_what_no_entry_says_is_not_answered_with_one(question: str) -> None:
    assert asked(question) is None


def test_of_entries_that_fit_the_name_that_says_no_more_than_the_question_is_the_answer() -> None:
    text = (
        "--also-keep TRAY: Keep the letters of this tray, too.\n--keep TRAY: The tray with letters that stay."
    )
    cell = find_entry("Which option keeps letters?", "what", [("Sorter: ", text)])
    assert cell is not None
    assert cell.text == "--keep TRAY"


def test_a_task_is_answered_with_the_explanation_too() -> None:
    headings = [f"{heading}: " for heading in HEADINGS]
    passages = list(zip(headings, TEXTS, strict=True))
    cell = find_entry("How do I keep unsorted letters in the tray?", "how", passages)
    assert cell is not None
    assert (cell.text, cell.term) == ("-k, --keep: Keep the unsorted letters in the tray.", "-k, --keep")
    assert find_entry("How do I print stamps?", "how", passages) is None
    assert find_entry("How are letters sorted?", "how", passages) is None


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What does -k do?", "-k, --keep: Keep the unsorted letters in the tray."),
        ("What is the option --rate for?", "--rate=N: Limit the speed to N letters per second."),
        ("What does --rate N do?", "--rate=N: Limit the speed to N letters per second."),
        ("What does --rate fast do?", None),
        ("What does Sorter --rate do?", "--rate=N: Limit the speed to N letters per second."),
        ("What does the option -k of the Sorter do?", "-k, --keep: Keep the unsorted letters in the tray."),
        ("What does the Depot -k do?", None),
        ("What does `open-tray` mean?", "open-tray: Open the tray of the given street."),
        ("What is --drain?", "--drain: Empty all trays at night. The letters go to the depot."),
        ("What does -K do?", None),
        ("What does --frob do?", None),
        ("What does -k do with wet letters?", None),
    ],
)
def test_a_term_is_explained_by_its_entry(question: str, answer: str | None) -> None:
    headings = [f"{heading}: " for heading in HEADINGS]
    cell = find_entry(question, "what", list(zip(headings, TEXTS, strict=True)))
    assert (None if cell is None else cell.text) == answer


@pytest.mark.parametrize(
    ("line", "term", "explanation"),
    [
        ("-k, --keep: Keep them.", "-k, --keep", "Keep them."),
        ("- set keep: Keep them.", "set keep", "Keep them."),
        ("--keep    Keep them", "--keep", "Keep them"),
        ("  --keep <n>      Keep\n                  n letters.", "--keep <n>", "Keep n letters."),
        ("--keep; default: no: Keep them", "--keep", "default: no: Keep them"),
        ("-f file Read the streets.", "-f file", "Read the streets."),
        ("split-tray [-h] [-s size]:\nDivide a tray.", "split-tray [-h] [-s size]", "Divide a tray."),
    ],
)
def test_terms_stand_before_their_explanations(line: str, term: str, explanation: str) -> None:
    [entry] = entries_of("Sorter: ", line, 0)
    assert (entry.term, entry.explanation) == (term, explanation)


def test_remarks_code_and_long_openings_are_no_terms() -> None:
    text = "Note: It is loud.\nIf a letter has no street at all, do this: Keep it."
    code = ">>> class Tray(Box):\n...     full: bool"
    assert entries_of("Sorter: ", f"{text}\n{code}", 0) == []


def test_lines_of_many_values_take_no_time() -> None:
    started = time.process_time()
    entries_of("Sorter: ", "--x" + "=a b" * 5000 + "\n" + "-a " * 5000, 0)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("heading", "term"),
    [
        ("Sorter > Options > -v, --view: ", "-v, --view"),
        ("Sorter > open-tray [-q]: ", "open-tray [-q]"),
        ("Sorter > $TRAYS: ", "$TRAYS"),
        ("Sorter > 8.3 Trays: ", ""),
        ("Sorter > Wi-Fi and trays: ", ""),
        ("", ""),
    ],
)
def test_a_heading_is_a_term_or_a_title(heading: str, term: str) -> None:
    assert term_of(heading) == term


def test_a_quotation_names_the_option_that_its_heading_is() -> None:
    heading = "Sorter > -d, --drain"
    text = "Empty all trays at night. The letters go to the depot by van."
    [answer] = extract_all([("How do I empty all trays at night?", [f"{heading}: {text}"])], [[heading]])
    assert answer is not None
    assert answer.text.startswith("-d, --drain: Empty all trays at night.")


def test_one_option_is_quoted_without_those_beside_it() -> None:
    [answer] = extract_all([("How do I limit the speed?", [f"Options: {SORTER}"])], [["Options"]])
    assert answer is not None
    assert "--rate=N: Limit the speed" in answer.text
    assert "--view" not in answer.text
