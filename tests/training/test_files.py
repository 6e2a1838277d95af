"""Compressed files, and that no file of a folder goes missing without a word."""

import bz2
import gzip
from pathlib import Path

import pytest

from kcard.errors import CorpusError
from kcard.training.corpus import read_corpus
from kcard.training.readers import files
from kcard.training.readers.files import FORMATS, format_of
from tests.training.documents import written

TEXTS = {
    "depot.txt": "Ada keeps the keys.\n",
    "depot.md": "# Depot\n\nAda keeps the *keys*.\n",
    "depot.html": "<html><body><h1>Depot</h1><p>Ada keeps the keys.</p></body></html>",
    "depot.jsonl": '{"text": "Ada keeps the keys."}\n',
    "depot.csv": "id,text\n1,Ada keeps the keys.\n",
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_compressed_file_is_read_as_the_plain_one(tmp_path: Path, name: str) -> None:
    plain = read_corpus(written(tmp_path, name, TEXTS[name])).passages
    packed = read_corpus(written(tmp_path, f"{name}.gz", gzip.compress(TEXTS[name].encode()))).passages
    assert [(p.section, p.text, p.line) for p in packed] == [(p.section, p.text, p.line) for p in plain]
    assert (packed[0].text, packed[0].file) == ("Ada keeps the keys.", f"{name}.gz")


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
    ("name", "like", "like_if_named"),
    [
        ("MANUAL.TXT", ".txt", ".txt"),
        ("index.html.en", ".html", ".html"),
        ("index.html.pt-BR.gz", ".html", ".html"),
        ("manual.info-12.gz", ".info", ".info"),
        ("README", ".txt", ".txt"),
        ("lots.ndjson", ".jsonl", ".jsonl"),
        ("NEWS.Debian.gz", ".txt", ".txt"),
        ("depot.8", ".8", ".8"),
        # A file without a suffix is plain text where the user names it.
        ("GPL-3", None, ".txt"),
        ("LICENSE", None, ".txt"),
        ("changelog.Debian.gz", None, ".txt"),
        ("noext", None, ".txt"),
        ("depot.9", None, None),
        ("photo.png", None, None),
        ("archive.zip", None, None),
        ("README.png", None, None),
        (".hidden", None, None),
        (".gz", None, None),
    ],
)
def test_the_name_tells_the_format(name: str, like: str | None, like_if_named: str | None) -> None:
    for is_named, suffix in ((False, like), (True, like_if_named)):
        expected = None if suffix is None else FORMATS[suffix]
        assert format_of(Path(name), named=is_named) == expected


def test_what_is_skipped_in_a_folder_is_read_where_it_is_named_but_for_a_binary(tmp_path: Path) -> None:
    for name in ("LICENSE", "changelog.md"):
        path = written(tmp_path, name, "You may copy this depot.\n")
        assert [passage.text for passage in read_corpus(path).passages] == ["You may copy this depot."]
    with pytest.raises(CorpusError, match="program"):
        read_corpus(written(tmp_path, "program", b"\x7fELF\0\xff"))


def test_every_file_of_a_folder_is_read_or_named(tmp_path: Path) -> None:
    names = {"a.txt", "b.bin", "d.md", "e.txt.gz", "copyright", "changelog.Debian.gz", "noext", "NEWS"}
    for name in names:
        written(tmp_path, name, f"A fact of {name}.\n")
    written(tmp_path, "c.txt.bz2", bz2.compress(b"A fact.\n"))
    corpus = read_corpus(tmp_path)
    read, skipped = {p.file for p in corpus.passages}, dict(corpus.skipped)
    assert read == {"a.txt", "d.md", "NEWS"}
    assert read | set(skipped) == names | {"c.txt.bz2"}
    assert skipped["copyright"] == "a licence; name it to read it"
    assert skipped["changelog.Debian.gz"] == "a change log; name it to read it"
    assert skipped["e.txt.gz"].startswith("can't be decompressed")
    assert skipped["b.bin"].startswith("not one of .txt")
