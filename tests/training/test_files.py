"""Compressed files, and that no file of a folder goes missing without a word."""

import bz2
import gzip
from pathlib import Path

import pytest

from kcard.errors import CorpusError
from kcard.training.corpus import read_corpus
from kcard.training.readers import files
from kcard.training.readers.files import FORMATS, format_of
from tests.training.documents import sections, written

TEXTS = {
    "depot.txt": "Ada keeps the keys.\n",
    "depot.md": "# Depot\n\nAda keeps the *keys*.\n",
    "depot.html": "<html><body><h1>Depot</h1><p>Ada keeps the keys.</p></body></html>",
    "depot.jsonl": '{"text": "Ada keeps the keys."}\n',
    "depot.csv": "id,text\n1,Ada keeps the keys.\n",
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_compressed_file_is_read_as_the_plain_one(tmp_path: Path, name: str) -> None:
    plain = sections(tmp_path, name, TEXTS[name])
    packed = sections(tmp_path, f"{name}.gz", gzip.compress(TEXTS[name].encode()))
    assert packed == plain
    assert packed[0][1] == "Ada keeps the keys."


def test_passages_name_the_file_as_it_lies_there(tmp_path: Path) -> None:
    path = written(tmp_path, "depot.txt.gz", gzip.compress(b"Ada keeps the keys.\n"))
    assert [(p.file, p.line) for p in read_corpus(path).passages] == [("depot.txt.gz", 1)]


@pytest.mark.parametrize(
    "data", [b"no gzip at all", gzip.compress(b"Ada. " * 999)[:30], b""], ids=["none", "cut", "empty"]
)
def test_a_damaged_file_is_one_line(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CorpusError) as error:
        read_corpus(written(tmp_path, "depot.txt.gz", data))
    assert "depot.txt.gz" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_grows_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(CorpusError, match=r"depot\.txt\.gz holds more than .* decompress and split it"):
        read_corpus(written(tmp_path, "depot.txt.gz", gzip.compress(b"0" * 5000)))


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("MANUAL.TXT", ".txt"),
        ("index.html.en", ".html"),
        ("index.html.pt-BR.gz", ".html"),
        ("manual.info-12.gz", ".info"),
        ("README", ".txt"),
        ("NEWS.Debian.gz", ".txt"),
        ("depot.8", ".8"),
    ],
)
def test_the_name_tells_the_format(name: str, like: str) -> None:
    assert format_of(Path(name)) == FORMATS[like]


@pytest.mark.parametrize("name", ["photo.png", "archive.zip", "noext", "depot.9", "README.png", ".gz"])
def test_other_names_tell_none(name: str) -> None:
    assert format_of(Path(name)) is None


@pytest.mark.parametrize("name", ["GPL-3", "LICENSE", "changelog.Debian.gz", "noext"])
def test_a_file_without_a_suffix_is_plain_text_where_the_user_names_it(name: str) -> None:
    assert format_of(Path(name), named=True) == FORMATS[".txt"]


@pytest.mark.parametrize("name", ["photo.png", "archive.zip", ".hidden"])
def test_a_named_file_with_another_suffix_has_no_format(name: str) -> None:
    assert format_of(Path(name), named=True) is None


def test_a_named_licence_is_read_and_a_binary_is_refused(tmp_path: Path) -> None:
    licence, binary = tmp_path / "LICENSE", tmp_path / "program"
    licence.write_text("You may copy this depot.\n", encoding="utf-8")
    binary.write_bytes(b"\x7fELF\0\xff")
    assert [passage.text for passage in read_corpus(licence).passages] == ["You may copy this depot."]
    with pytest.raises(CorpusError, match="program"):
        read_corpus(binary)


def test_every_file_of_a_folder_is_read_or_named(tmp_path: Path) -> None:
    names = [
        "a.txt",
        "b.bin",
        "c.txt.bz2",
        "d.md",
        "e.txt.gz",
        "copyright",
        "changelog.Debian.gz",
        "noext",
        "NEWS",
    ]
    for number, name in enumerate(names):
        text = f"A fact with the number {number} of {name}.\n".encode()
        written(tmp_path, name, bz2.compress(text) if name.endswith("bz2") else text)
    corpus = read_corpus(tmp_path)
    read, skipped = {p.file for p in corpus.passages}, dict(corpus.skipped)
    assert read == {"a.txt", "d.md", "NEWS"}
    assert read | set(skipped) == set(names)
    assert skipped["copyright"] == "a licence; name it to read it"
    assert skipped["changelog.Debian.gz"] == "a change log; name it to read it"
    assert skipped["e.txt.gz"].startswith("can't be decompressed")
    assert skipped["b.bin"].startswith("not one of .txt")


def test_what_is_skipped_in_a_folder_is_read_where_it_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "changelog.md", "# 2.0\n\nLetters may be sorted by weight.\n")
    assert [p.text for p in read_corpus(path).passages] == ["Letters may be sorted by weight."]
