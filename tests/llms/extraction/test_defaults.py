"""Questions for a default value, answered with what a manual's entry states."""

import pytest

from kcard.llms.extraction.entries import default_of, find_default

SORTER = (
    "--port INTEGER: Port to listen on; 0: any free one. [default: 8000; 0<=x<=65535]\n"
    "--rate=N: Limit the speed to N letters per second (default 30 letters).\n"
    "--tray-depth CM: Depth of a tray. Defaults to 12.5 cm. Deeper trays are slow.\n"
    "-q, --quiet: Do not report letters.\n"
    "--check=CHECK: how addresses are checked: `none', `street' (default), or `house'"
)
HUB = "--port INTEGER: Port to listen on. [default: 8080]"
PASSAGES = [("Manual > depot sort: ", SORTER), ("Manual > depot hub: ", HUB)]


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("What is the default port of depot sort?", "8000"),
        ("What is the default port of depot hub?", "8080"),
        ("What is the default port?", None),
        ("What is the default value of --rate?", "30 letters"),
        ("What is the tray depth by default?", "12.5 cm"),
        ("What does --check check by default?", "street"),
        ("What is the default quiet?", None),
        ("What is the default colour of a tray?", None),
        ("Which port does depot sort use?", None),
    ],
)
def test_the_default_of_the_option_that_a_question_names_is_the_answer(
    question: str, value: str | None
) -> None:
    cell = find_default(question, "what", PASSAGES)
    assert (cell and cell.text) == value


def test_a_longer_name_is_less_sure_and_a_much_longer_one_no_answer() -> None:
    def probability(question: str) -> float:
        cell = find_default(question, "what", [("", "--tray-depth CM: Its depth. [default: 12]")])
        return cell.probability if cell else 0.0

    assert probability("What is the default tray depth?") > probability("What is the default depth?") > 0
    longer = [("", "--max-inner-tray-depth CM: Its depth. [default: 12]")]
    assert find_default("What is the default depth?", "what", longer) is None


@pytest.mark.parametrize(
    ("explanation", "value"),
    [
        ("Bind to this host. [default: 127.0.0.1]", "127.0.0.1"),
        ('server port (default: "5432")', '"5432"'),
        ("compression preset; default is 6; take memory into account", "6"),
        ("Used for rendezvous. Defaults to 29500.", "29500"),
        ('The default format is "full" [env: FORMAT=]', '"full" [env: FORMAT=]'),
        ("Defaults to $WORKERS if set, or 1. Not valid with --reload.", "$WORKERS if set, or 1"),
        ("By default this will not replace files.", ""),
        ("don't follow any links (this is the default)", ""),
        ("print names (the default)", ""),
    ],
)
def test_a_default_is_read_in_the_forms_of_manuals(explanation: str, value: str) -> None:
    assert default_of(explanation) == value
