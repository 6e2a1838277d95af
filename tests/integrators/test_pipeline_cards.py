"""Cards of a pipeline by their names, as one text or a list."""

from pathlib import Path

import pytest

import kcard
from kcard.integrators.options import AskOptions
from kcard.integrators.pipeline import Pipeline

QUESTION = "Who discovered the moon Tethys?"


@pytest.fixture
def cards(tmp_path: Path) -> None:
    for name, text in (
        ("moons", "Cassini discovered the moon Tethys."),
        ("mills", "Osric built the mill of Tarn."),
    ):
        corpus = tmp_path / f"{name}.txt"
        corpus.write_text(text, encoding="utf-8")
        kcard.publish(kcard.train(corpus, kind="retrieval", description=name).folder)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("moons", ["moons"]),
        (" moons , mills,", ["moons", "mills"]),
        (["moons", "mills"], ["moons", "mills"]),
        (None, None),
    ],
)
def test_a_text_names_one_card_or_several(given: str | list[str] | None, names: list[str] | None) -> None:
    assert AskOptions(cards=given).card_names == names


@pytest.mark.parametrize("given", ["none", Path("notes")])
def test_a_single_evidence_is_a_list_of_one(given: str | Path) -> None:
    assert AskOptions(evidence=given).evidence == (given,)  # type: ignore[arg-type]


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize("given", ["moons", ["moons"], "mills,moons"])
def test_named_cards_are_always_asked(given: str | list[str]) -> None:
    (answer,) = Pipeline(cards=given, llm=lambda _: "No")([QUESTION])
    assert answer.gate.name == "always"
    assert "moons" in answer.cards


@pytest.mark.usefixtures("cards")
def test_without_names_the_llm_is_asked_whether_it_needs_any() -> None:
    (answer,) = Pipeline(llm=lambda _: "No")([QUESTION])
    assert (answer.gate.name, answer.gate.fired, answer.cards) == ("self-ask", False, ())


@pytest.mark.usefixtures("cards")
def test_a_gate_that_is_given_is_used_with_named_cards_too() -> None:
    (answer,) = Pipeline(cards="moons", gate="self-ask", llm=lambda _: "No")([QUESTION])
    assert (answer.gate.name, answer.cards) == ("self-ask", ())


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize(
    ("question", "said"),
    [
        (
            "Wer hat den Mond Tethys entdeckt und wie hat er das gemacht?",
            "in German, the card moons is in English",
        ),
        ("¿Quién fue el que descubrió la luna Tethys?", "in Spanish, the card moons is in English"),
        (QUESTION, ""),
    ],
)
def test_a_question_in_another_language_than_the_cards_says_so(question: str, said: str) -> None:
    (answer,) = Pipeline(cards="moons")([question])
    assert said in "".join(answer.notes)
    assert bool(answer.notes) == bool(said)


def test_a_streamed_answer_has_no_heading_either(tmp_path: Path) -> None:
    manual = tmp_path / "manual.md"
    manual.write_text(
        "# Manual\n\n## 2.5 Depot > How?\n\nTo open the depot of Tarn you turn the big key twice.\n", "utf-8"
    )
    kcard.publish(kcard.train(manual, kind="retrieval", name="manual", description="depots").folder)
    *pieces, answer = Pipeline(cards="manual").stream("How do you open the depot of Tarn?")
    assert pieces == ["To open the depot of Tarn you turn the big key twice."]
    assert not isinstance(answer, str)
    assert answer.answer == pieces[0]
