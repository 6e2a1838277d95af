"""train makes cards with a model, with an index, or with both; and says what does not go together."""

import time
from pathlib import Path

import pytest

from kcard.cards.passages import passages
from kcard.cards.pool import CardPool
from kcard.errors import CorpusError
from kcard.events import Event
from kcard.training.corpus import read_corpus
from kcard.training.description import describe
from kcard.training.train import train
from kcard.types import Sampling
from tests.training.documents import written

FACTS = [
    "The Rhine rises in the Alps and ends in the North Sea.",
    "The Thames rises near Kemble in Gloucestershire.",
    "The Danube flows through Vienna, Bratislava and Budapest.",
    "The Seine flows through Paris.",
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return written(tmp_path, "rivers.txt", "\n".join(FACTS) + "\n")


def test_a_retrieval_card_is_a_card_of_the_corpus_without_a_model(corpus: Path) -> None:
    started = time.process_time()
    card = train(corpus, kind="retrieval", description="rivers", licence="cc0-1.0")
    assert time.process_time() - started < 5
    manifest = card.manifest
    assert (manifest.kind, manifest.method, manifest.evidence) == ("retrieval", "", "passages")
    assert (manifest.training.objective, manifest.training.passages) == ("index", 4)
    assert manifest.training.corpus_licence == manifest.licence == "cc0-1.0"
    assert not [name for name in manifest.files if "safetensors" in name or name.endswith("config.json")]
    readme = (card.folder / "README.md").read_text(encoding="utf-8")
    assert "without a model" in readme
    assert "trained from scratch" not in readme
    (written,) = CardPool([card]).generate(["Where does the Thames rise?"], [["rivers"]], 1, Sampling())
    assert (written[0].text, written[0].source and written[0].source.line) == (FACTS[1], 2)


def test_equal_corpora_make_equal_retrieval_cards(corpus: Path, tmp_path: Path) -> None:
    cards = [
        train(corpus, kind="retrieval", name="rivers", description="d", output=tmp_path / out)
        for out in ("one", "two")
    ]
    assert cards[0].manifest == cards[1].manifest


def test_in_a_card_of_both_the_model_and_the_index_write_side_by_side(corpus: Path) -> None:
    card = train(corpus, kind="both", description="rivers", base="embedded", epochs=1)
    assert (card.manifest.kind, card.manifest.method) == ("both", "full")
    for sampling in (Sampling(temperature=0, tokens=8), Sampling(temperature=1, tokens=8)):
        (written,) = CardPool([card]).generate(["Where does the Rhine end?"], [["rivers"]], 2, sampling)
        assert [p.source is not None for p in written] == [False, False, True, True]
        assert written[2].text == FACTS[0]


def test_the_text_stays_at_home_where_only_hashes_shall_travel(corpus: Path) -> None:
    card = train(corpus, evidence="hashes", description="rivers", base="embedded", epochs=1)
    assert (card.manifest.kind, card.manifest.evidence) == ("model", "hashes")
    assert list(passages(card.folder)) == []
    assert "their hashes only" in (card.folder / "README.md").read_text(encoding="utf-8")
    assert FACTS[0] not in (card.folder / "passages.jsonl").read_text(encoding="utf-8")


def test_a_corpus_without_a_word_makes_no_retrieval_card(tmp_path: Path, home: Path) -> None:
    with pytest.raises(CorpusError):
        train(written(tmp_path, "odd.txt", "?!\n...\n"), kind="retrieval", name="odd", description="odd")
    assert not [p for p in home.rglob("*") if p.is_file()]


# Descriptions.


MOONS = [
    "Miranda is a moon of Uranus and was quickly discovered by Gerard Kuiper.",
    "Titania and Oberon are moons of Uranus which Herschel discovered.",
    "The moons of Uranus travel around the planet.",
]


def described(folder: Path, files: dict[str, str], language: str = "en") -> str:
    """The description of a folder with these files."""
    for name, text in files.items():
        written(folder, name, text)
    return describe(read_corpus(folder).passages, folder, language)


RULES = {"a.md": "# Travel\n\nHotels cost at most 140 euros a night.\n It is long."}
SHOP = RULES | {"b.txt": "The shop opens at 9.\nThe shop closes at 6.\n"}
HALLS = {f"{name}.md": f"# The {name} hall\n\nIt is open.\n" for name in ("red", "blue", "green")}
MUSEUM = {"README.md": "# Rules\n\nThe rules of a small museum in Bremen. There are nine."}
LIST = {"README.md": "# Rules\n\n- a list\n- and more of it"}
BACKUP = {
    "a.md": "# Backup\n\n## Locks\n\nIt waits.\n\n## Snapshots\n\nThey are kept.\n\n## See also\n\nRestore.\n"
}
RIVERS = RULES | {"b.txt": "Die Donau.\nDie Elbe.\n"}


@pytest.mark.parametrize(
    ("files", "language", "description"),
    [
        (SHOP, "en", "Notes from the folder notes: Travel and b"),
        # Of a README the first sentence is taken.
        (RULES | MUSEUM, "en", "The rules of a small museum in Bremen"),
        (RULES | LIST, "en", "Notes from the folder notes: Travel and Rules"),
        (RULES | {"README.md": "# Rules\n\nShort."}, "en", "Notes from the folder notes: Travel and Rules"),
        # A title over most passages comes first, and then its headings.
        (BACKUP, "en", "Backup: Locks and Snapshots"),
        (RIVERS, "de", "Notizen aus dem Ordner notes: Travel und b"),
        (RIVERS, "pt-BR", "Notas da pasta notes: Travel e b"),
        (RIVERS, "fi", "notes: Travel, b"),
    ],
)
def test_a_folder_is_described_by_what_its_files_say_of_themselves_in_their_language(
    files: dict[str, str], language: str, description: str, tmp_path: Path
) -> None:
    assert described(tmp_path / "notes", files, language) == description


def test_of_many_titles_the_first_are_told(tmp_path: Path) -> None:
    shown = described(tmp_path / "notes", SHOP | HALLS)
    assert shown.startswith("Notes from the folder notes: Travel, ")
    assert shown.endswith(" and 2 more")


def test_a_file_without_headings_is_described_by_the_names_in_it(tmp_path: Path) -> None:
    file = written(tmp_path, "moons.txt", "\n".join(MOONS))
    description = describe(read_corpus(file).passages, file)
    assert description == "Notes from the file moons.txt: Uranus, Gerard Kuiper and Herschel"
    written(tmp_path, "moons.txt", "a b c\n1 2 3 days\n")
    assert describe(read_corpus(file).passages, file) == "Notes from the file moons.txt"


def test_whoever_trains_may_choose_another_description(tmp_path: Path) -> None:
    corpus = written(tmp_path, "moons.txt", "\n".join(MOONS))
    proposed: list[str] = []

    def confirm(description: str) -> str:
        proposed.append(description)
        return "moons of Uranus"

    card = train(corpus, kind="retrieval", confirm_description=confirm)
    assert card.manifest.description == "moons of Uranus"
    # Of a card that is replaced, the description is proposed.
    train(corpus, kind="retrieval", confirm_description=confirm)
    proposal = describe(read_corpus(corpus).passages, corpus)
    assert proposed == [proposal, "moons of Uranus"]
    # Nobody is asked who says it, and where nobody can be asked, the sentence is told.
    assert train(corpus, kind="retrieval", description="all", confirm_description=pytest.fail)
    events: list[Event] = []
    train(corpus, kind="retrieval", on_event=events.append)
    assert f"description: {proposal} (--description replaces it)" in {event.message for event in events}
