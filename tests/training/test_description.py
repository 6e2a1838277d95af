"""What a card is said to know where nobody says it: a sentence made from the corpus' title, headings and terms."""

from pathlib import Path

import pytest

from kcard.events import Event
from kcard.training.output import describe
from kcard.training.train import train

MOONS = [
    "Miranda is a moon of Uranus and was quickly discovered by Gerard Kuiper.",
    "Titania and Oberon are moons of Uranus which Herschel discovered.",
    "The moons of Uranus travel around the planet.",
]


def test_statements_are_described_by_their_nouns_and_names() -> None:
    described = describe(MOONS)
    assert described.startswith("Texts about Uranus, Gerard Kuiper, moons, ")
    assert " and " in described
    assert "discovered" not in described.split()
    assert "quickly" not in described


def test_a_title_and_its_headings_come_first() -> None:
    sections = ["Backup > Locks", "Backup > Locks > Stale locks", "Backup > Snapshots", "Backup > See also"]
    texts = [
        "The repository waits for a lock.",
        "Remove stale locks of a repository.",
        "Repository snapshots.",
        "-",
    ]
    assert describe(texts, "en", sections) == "Backup: Locks and Snapshots; texts about repository and waits"


def test_headings_without_a_common_title_are_the_subjects() -> None:
    sections = ["1. RIVERS", "1. RIVERS", "2.1 Lakes > Depth", "2024", ""]
    texts = ["Water flows."] * 5
    assert describe(texts, "en", sections) == "Texts about Water flows: Rivers and Lakes"


@pytest.mark.parametrize(
    ("language", "described"),
    [
        ("de", "Texte über Donau, Mündung und Quelle"),
        ("pt-BR", "Textos sobre Donau, Mündung e Quelle"),
        ("fi", "Donau, Mündung, Quelle"),
    ],
)
def test_the_sentence_is_in_the_language_of_the_corpus(language: str, described: str) -> None:
    assert describe(["Donau (Quelle)", "Donau (Mündung)"], language) == described


def test_texts_without_a_telling_word_are_counted() -> None:
    assert describe(["a b c", "1 2 3"]) == "2 passages"


def test_whoever_trains_may_choose_another_description(tmp_path: Path) -> None:
    corpus = tmp_path / "moons.txt"
    corpus.write_text("\n".join(MOONS), encoding="utf-8")
    proposed: list[str] = []

    def confirm(description: str) -> str:
        proposed.append(description)
        return "moons of Uranus"

    card = train(corpus, kind="retrieval", confirm_description=confirm)
    assert card.manifest.description == "moons of Uranus"
    # Of a card that is replaced, the description is proposed.
    train(corpus, kind="retrieval", confirm_description=confirm)
    assert proposed == [describe(MOONS), "moons of Uranus"]
    # Nobody is asked who says it, and where nobody can be asked, the sentence is told.
    assert train(corpus, kind="retrieval", description="all", confirm_description=pytest.fail)
    events: list[Event] = []
    train(corpus, kind="retrieval", on_event=events.append)
    assert f"description: {describe(MOONS)} (--description replaces it)" in {
        event.message for event in events
    }
