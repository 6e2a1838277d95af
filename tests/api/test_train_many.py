"""Many corpora become many cards: what is finished is kept, and a corpus that fails costs only its own card."""

import json
from pathlib import Path

import pytest

import kcard
from kcard.api.corpus_list import CorpusEntry, read_corpora
from kcard.errors import UsageError
from kcard.manifest import MANIFEST, Manifest
from tests.command import Kcard


def corpus(folder: Path, subject: str, count: int = 12) -> Path:
    folder.mkdir(parents=True)
    lines = [f"The {subject} number {n} is called {subject.title()}{n}." for n in range(count)]
    (folder / "facts.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_a_folder_of_corpora_becomes_cards_of_which_one_fails_and_is_tried_again(
    kcard: Kcard, tmp_path: Path, home: Path
) -> None:
    corpora = tmp_path / "corpora"
    corpus(corpora / "moons", "moon")
    (corpora / "empty").mkdir()
    done = kcard("train-many", corpora, "--kind", "retrieval", "--json")
    assert done.code == 1
    empty, moons = map(json.loads, done.out.splitlines())
    assert (empty["card"], moons["card"], moons["recall"]) == ("empty", "moons", None)
    assert str(corpora / "empty") in empty["error"]
    assert "1 of 2 cards failed; try them again with --resume" in done.err
    manifest = home / "drafts" / "moons" / MANIFEST
    written = manifest.stat().st_mtime_ns
    assert "add --resume" in kcard("train-many", corpora, "--kind", "retrieval").error
    (corpora / "empty").rmdir()
    corpus(corpora / "empty", "river")
    again = kcard("train-many", corpora, "--kind", "retrieval", "--resume")
    assert again.code == 0, again.err
    assert Manifest.read(home / "drafts" / "empty").kind == "retrieval"
    assert manifest.stat().st_mtime_ns == written
    assert sorted(path.name for path in (home / "drafts").iterdir()) == ["empty", "moons"]


def test_settings_of_train_hold_but_for_those_of_one_card(kcard: Kcard, tmp_path: Path, home: Path) -> None:
    corpus(tmp_path / "corpora" / "moons", "moon")
    home.mkdir()
    settings = '[train]\nkind = "retrieval"\nname = "mine"\ndomain = "space"\n'
    (home / "config.toml").write_text(settings, encoding="utf-8")
    done = kcard("train-many", tmp_path / "corpora")
    assert done.code == 0, done.err
    made = Manifest.read(home / "drafts" / "moons")
    assert (made.name, made.kind, made.domain) == ("moons", "retrieval", "space")


def test_what_the_cards_do_not_have_in_common_is_refused(tmp_path: Path) -> None:
    corpus(tmp_path / "c" / "moons", "moon")
    with pytest.raises(UsageError, match=r"^name is not an option of many cards"):
        kcard.train_many(tmp_path / "c", name="moons")


def test_a_table_gives_names_and_metadata_and_its_paths_start_from_its_folder(tmp_path: Path) -> None:
    moons = corpus(tmp_path / "data" / "Big Moons", "moon")
    table = tmp_path / "data" / "corpora.csv"
    table.write_text(
        "corpus,name,description,domain\nBig Moons,,Moons and their planets,\nBig Moons,tides,,space\n"
    )
    assert read_corpora(table) == (
        CorpusEntry(moons, "big-moons", {"description": "Moons and their planets"}),
        CorpusEntry(moons, "tides", {"domain": "space"}),
    )
    lines = tmp_path / "data" / "corpora.jsonl"
    lines.write_text(json.dumps({"corpus": str(moons), "name": None, "language": "en"}), encoding="utf-8")
    assert read_corpora(lines) == (CorpusEntry(moons, "big-moons", {"language": "en"}),)


def test_hidden_folders_and_files_beside_the_corpora_are_left_out(tmp_path: Path) -> None:
    moons = corpus(tmp_path / "moons", "moon")
    corpus(tmp_path / ".git", "hook")
    (tmp_path / "README.md").write_text("About these corpora.", encoding="utf-8")
    assert read_corpora(tmp_path) == (CorpusEntry(moons, "moons"),)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("corpus,colour\nmoons,red\n", "line 2: unknown column 'colour': the columns are corpus, name"),
        ("name\nmoons\n", "line 2: the column 'corpus' must name a file or folder"),
        ("corpus\nmars\n", "line 2: the corpus .*mars does not exist"),
        ("corpus\nmoons\nmoons\n", "would both become the card 'moons': give them names in a table"),
        ("corpus\n", "holds no corpora"),
    ],
)
def test_a_table_that_is_wrong_is_refused_before_anything_is_trained(
    tmp_path: Path, text: str, wrong: str
) -> None:
    corpus(tmp_path / "moons", "moon")
    table = tmp_path / "corpora.csv"
    table.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=wrong):
        read_corpora(table)


@pytest.mark.parametrize("name", ["absent", "corpora.txt"])
def test_what_is_neither_a_folder_nor_a_table_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="expected a folder with a sub-folder for each corpus, or a table"):
        read_corpora(tmp_path / name)
