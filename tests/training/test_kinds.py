"""train makes cards with a model, with an index, or with both; and says what does not go together."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kcard.cards.passages import passages
from kcard.cards.pool import CardPool
from kcard.errors import CorpusError, UsageError
from kcard.events import Event
from kcard.training.corpus import read_corpus
from kcard.training.description import describe
from kcard.training.train import train
from kcard.types import Sampling
from tests.command import Kcard, kcard_process

FACTS = [
    "The Rhine rises in the Alps and ends in the North Sea.",
    "The Thames rises near Kemble in Gloucestershire.",
    "The Danube flows through Vienna, Bratislava and Budapest.",
    "The Seine flows through Paris.",
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "rivers.txt"
    path.write_text("\n".join(FACTS) + "\n", encoding="utf-8")
    return path


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "oracle"}, "kind 'oracle' is unknown: choose one of model, retrieval, both, graph, search"),
        ({"evidence": "none"}, "evidence 'none' is unknown: choose one of passages, hashes"),
        ({"kind": "retrieval", "evidence": "hashes"}, "kind retrieval returns that text"),
        ({"kind": "both", "evidence": "hashes", "base": "embedded"}, "kind both returns that text"),
        (
            {"kind": "retrieval", "base": "embedded"},
            "base 'embedded' is only for models, and kind retrieval has none",
        ),
        ({"kind": "retrieval", "epochs": 3}, "epochs 3 is only for models"),
        ({"kind": "retrieval", "rank": 3}, "rank 3 is only for models"),
        ({"kind": "retrieval", "resume": True}, "nothing to resume"),
    ],
)
def test_what_does_not_go_together_is_said_before_any_work(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        train(tmp_path / "not looked at", **arguments)


def test_a_corpus_without_a_word_makes_no_retrieval_card(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "odd.txt"
    path.write_text("?!\n...\n", encoding="utf-8")
    with pytest.raises(CorpusError):
        train(path, kind="retrieval", name="odd", description="odd")
    assert not [p for p in home.rglob("*") if p.is_file()]


@pytest.mark.slow
def test_the_command_line_makes_one_at_once_and_asks_it(corpus: Path) -> None:
    process = kcard_process("train", "--corpus", str(corpus), "--kind", "retrieval", "--json")
    assert process.returncode == 0, process.stderr
    assert set(json.loads(process.stdout)) == {"card", "folder"}
    assert kcard_process("publish", "rivers").returncode == 0
    reply = kcard_process("ask", "Which river flows through Vienna?", "--gate", "always", "--json")
    assert reply.returncode == 0, reply.stderr
    answer = json.loads(reply.stdout)
    (cited,) = answer["citations"]
    source = answer["passages"][cited["passage"]]["source"]
    assert (source["file"], source["line"], source["text"]) == ("rivers.txt", 3, FACTS[2])
    shown = kcard_process("ask", "Which river flows through Vienna?", "--gate", "always")
    assert " <- rivers (retrieval) <- rivers.txt:3" in shown.stdout


def test_a_wrong_combination_is_a_usage_error_of_the_command_line(kcard: Kcard, corpus: Path) -> None:
    failed = kcard("train", "--corpus", str(corpus), "--kind", "retrieval", "--evidence", "hashes")
    assert (failed.code, failed.out) == (2, "")
    assert failed.err.count("\n") == 1


# Descriptions.


MOONS = [
    "Miranda is a moon of Uranus and was quickly discovered by Gerard Kuiper.",
    "Titania and Oberon are moons of Uranus which Herschel discovered.",
    "The moons of Uranus travel around the planet.",
]


def described(folder: Path, language: str = "en", **files: str) -> str:
    """The description of a folder with these files: `a_md` is a.md."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return describe(read_corpus(folder).passages, folder, language)


RULES = "# Travel\n\nHotels cost at most 140 euros a night.\n"


def test_a_folder_is_described_by_the_titles_of_its_texts(tmp_path: Path) -> None:
    texts = {"a_md": f"{RULES} It is long.", "b_txt": "The shop opens at 9.\nThe shop closes at 6.\n"}
    assert described(tmp_path / "notes", **texts) == "Notes from the folder notes: Travel and b"
    more = {f"{name}_md": f"# The {name} hall\n\nIt is open.\n" for name in ("red", "blue", "green")}
    shown = described(tmp_path / "notes", **more)
    assert shown.startswith("Notes from the folder notes: Travel, ")
    assert shown.endswith(" and 2 more")


@pytest.mark.parametrize(
    ("readme", "description"),
    [
        (
            "# Rules\n\nThe rules of a small museum in Bremen. There are nine.",
            "The rules of a small museum in Bremen",
        ),
        ("# Rules\n\n- a list\n- and more of it", "Notes from the folder notes: Travel and Rules"),
        ("# Rules\n\nShort.", "Notes from the folder notes: Travel and Rules"),
    ],
)
def test_a_readme_says_in_its_first_sentence_what_the_folder_is(
    readme: str, description: str, tmp_path: Path
) -> None:
    assert described(tmp_path / "notes", README_md=readme, a_md=f"{RULES} It is long.") == description


def test_a_title_over_most_passages_and_its_headings_come_first(tmp_path: Path) -> None:
    text = "# Backup\n\n## Locks\n\nIt waits.\n\n## Snapshots\n\nThey are kept.\n\n## See also\n\nRestore.\n"
    assert described(tmp_path / "notes", a_md=text) == "Backup: Locks and Snapshots"


def test_a_file_without_headings_is_described_by_the_names_in_it(tmp_path: Path) -> None:
    file = tmp_path / "moons.txt"
    file.write_text("\n".join(MOONS), encoding="utf-8")
    description = describe(read_corpus(file).passages, file)
    assert description == "Notes from the file moons.txt: Uranus, Gerard Kuiper and Herschel"
    file.write_text("a b c\n1 2 3 days\n", encoding="utf-8")
    assert describe(read_corpus(file).passages, file) == "Notes from the file moons.txt"


@pytest.mark.parametrize(
    ("language", "description"),
    [
        ("de", "Notizen aus dem Ordner notes: Travel und b"),
        ("pt-BR", "Notas da pasta notes: Travel e b"),
        ("fi", "notes: Travel, b"),
    ],
)
def test_the_sentence_is_in_the_language_of_the_corpus(
    language: str, description: str, tmp_path: Path
) -> None:
    texts = {"a_md": f"{RULES} It is long.", "b_txt": "Die Donau.\nDie Elbe.\n"}
    assert described(tmp_path / "notes", language, **texts) == description


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
    proposal = describe(read_corpus(corpus).passages, corpus)
    assert proposed == [proposal, "moons of Uranus"]
    # Nobody is asked who says it, and where nobody can be asked, the sentence is told.
    assert train(corpus, kind="retrieval", description="all", confirm_description=pytest.fail)
    events: list[Event] = []
    train(corpus, kind="retrieval", on_event=events.append)
    assert f"description: {proposal} (--description replaces it)" in {event.message for event in events}
