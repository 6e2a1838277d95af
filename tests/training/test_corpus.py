"""Reading corpora: what becomes a passage, where it is said to come from, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kcard.errors import CorpusError
from kcard.text import certain, is_one
from kcard.training import corpus as module
from kcard.training.corpus import Corpus, read_corpus
from kcard.training.epochs import parallel_map
from tests.disks import process_with_file_size_limit
from tests.training.documents import written


def test_a_definition_is_no_duplicate_of_one_that_differs_in_case(tmp_path: Path) -> None:
    corpus = read_corpus(written(tmp_path, "a.txt", "\\b matches at a border.\n\\B matches at a border.\n"))
    assert len(corpus.passages) == 2


def test_jsonl_takes_any_of_the_known_keys(tmp_path: Path) -> None:
    rows = [{"text": "One."}, {"passage": "Two."}, {"content": "Three."}, {"fact": "Four."}]
    path = written(tmp_path, "c.jsonl", "\n".join(json.dumps(row) for row in rows))
    assert [*read_corpus(path).texts] == ["One.", "Two.", "Three.", "Four."]


def test_a_folder_is_read_in_name_order_and_lists_what_it_skipped(tmp_path: Path) -> None:
    read = {
        "README.md": "About these files.",
        "a/x.md": "First.",
        "b.txt": "Second.",
        "contributing.html": "How to help.",
    }
    skipped = {"empty.txt": "\n", "LICENSE": "All rights.", "CHANGELOG.md": "More rights.", "photo.png": "x"}
    for name, text in (read | skipped | {".hidden.txt": "Not read."}).items():
        written(tmp_path, name, text)
    corpus = read_corpus(tmp_path)
    assert [(p.file, p.text) for p in corpus.passages] == [*read.items()]
    assert {file for file, _ in corpus.skipped} == set(skipped)


def test_duplicates_count_once_and_the_digest_is_of_the_texts_alone(tmp_path: Path) -> None:
    one = read_corpus(written(tmp_path, "one.txt", "A fact.\nA  fact.\nB fact.\n"))
    two = read_corpus(written(tmp_path, "two.txt", "A fact.\n\nB fact.\n"))
    other = read_corpus(written(tmp_path, "three.txt", "A fact.\nC fact.\n"))
    assert one.duplicates == 1
    assert one.sha256 == two.sha256 != other.sha256


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("none.txt", None, "does not exist"),
        ("empty.txt", b"  \n", "holds no text"),
        ("table.xls", b"a,b\n", "is a .xls file"),
        ("bytes.txt", b"fine\nnot \xff\xfe\n", "bytes.txt:2 is not UTF-8"),
        ("binary.txt", b"a\0b", "binary.txt:1 is not UTF-8"),
        ("image.txt", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image.txt:1 is not UTF-8 text"),
        ("latin.txt", b"one\r\ntwo\r\ncaf\xe9\r\n", "latin.txt:3 is not UTF-8 text .byte 0xe9.*iconv"),
        (
            "greek.txt",
            "Το μουσείο ανοίγει στις εννέα.".encode("cp1253"),
            "greek.txt:1 .* iconv -f CP1253 -t UTF-8",
        ),
        (
            "chinese.txt",
            "本馆每周二至周日开放。".encode("gb18030"),
            "chinese.txt:1 .* iconv -f GB18030 -t UTF-8",
        ),
        ("polish.txt", "Muzeum jest zamknięte w środę.".encode("cp1250"), "polish.txt:1 .* iconv -f CP1250"),
        ("curly.txt", "It’s open – 5 °C.".encode("cp1252"), "curly.txt:1 .* iconv -f CP1252"),
        ("wide.txt", "A fact of 1990.".encode("utf-16-le"), "wide.txt:1 .* iconv -f UTF-16-LE"),
        ("odd.txt", b"\xff\xfeA", "odd.txt begins as UTF-16 text, but is none"),
        ("deep.jsonl", b"[" * 100_000, "deep.jsonl:1 is not JSON"),
        ("rules.txt", b"***\n---\n===\n", "holds no text .left out: 1 rule"),
        ("bad.jsonl", b'{"text": "ok"}\n{"text": \n', "bad.jsonl:2 is not JSON"),
        ("key.jsonl", b'{"title": "x"}\n', "key.jsonl:1 has no string under text"),
        ("list.jsonl", b"[1]\n", "list.jsonl:1 has no string under text"),
    ],
)
def test_an_unreadable_corpus_is_one_clear_line(
    tmp_path: Path, name: str, data: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(CorpusError, match=message) as error:
        read_corpus(path)
    assert "\n" not in str(error.value)


def test_in_a_folder_an_unreadable_file_is_skipped_whole_and_named(tmp_path: Path) -> None:
    written(tmp_path, "half.txt", b"A fact before the damage.\n" * 3 + b"caf\xe9\n")
    written(tmp_path, "rows.jsonl", '{"text": "Fine."}\n{"text": \n')
    with pytest.raises(CorpusError, match=r"half\.txt: line 4 is not UTF-8 text"):
        read_corpus(tmp_path)
    written(tmp_path, "good.txt", "A fact that stays.")
    corpus = read_corpus(tmp_path)
    assert [*corpus.texts] == ["A fact that stays."]
    reasons = dict(corpus.skipped)
    assert reasons["half.txt"].startswith("line 4 is not UTF-8 text")
    assert reasons["rows.jsonl"].startswith("line 2 is not JSON")
    assert not any(str(tmp_path) in reason for reason in reasons.values())


def test_links_pipes_and_devices_in_a_folder_are_named_and_end_nothing(tmp_path: Path) -> None:
    written(tmp_path, "facts/good.txt", "A fact.")
    (tmp_path / "facts" / "again").symlink_to(tmp_path / "facts")
    (tmp_path / "facts" / "self.txt").symlink_to(tmp_path / "facts" / "self.txt")
    os.mkfifo(tmp_path / "facts" / "pipe.txt")
    (tmp_path / "facts" / "null.txt").symlink_to("/dev/null")
    corpus = read_corpus(tmp_path / "facts")
    assert [*corpus.texts] == ["A fact."]
    assert dict(corpus.skipped) == {
        "again": "a link to a folder, not followed",
        "null.txt": "not a regular file",
        "pipe.txt": "not a regular file",
        "self.txt": "a broken link",
    }
    with pytest.raises(CorpusError, match="neither a file nor a folder"):
        read_corpus(tmp_path / "facts" / "pipe.txt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_permissions_forbid_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "closed.txt", "A fact.")
    written(tmp_path, "open.txt", "Another fact.")
    path.chmod(0)
    assert dict(read_corpus(tmp_path).skipped)["closed.txt"].startswith("can't be read (Permission denied)")
    with pytest.raises(CorpusError, match="Permission denied"):
        read_corpus(path)


@pytest.mark.parametrize(
    ("count", "names"), [(9, "9 files, such as photo0.png"), (2, "photo0.png, photo1.png")]
)
def test_files_skipped_for_one_reason_are_one_sentence(tmp_path: Path, count: int, names: str) -> None:
    written(tmp_path, "good.txt", "A fact.")
    for number in range(count):
        written(tmp_path, f"photo{number}.png", "x")
    remarks = read_corpus(tmp_path).remarks()
    assert remarks[0].startswith(f"skipped {names}: not one of")
    assert remarks[1:] == [f"left out: {count} .png", f"1 passage in {tmp_path}"]


def test_a_cards_own_passages_keep_where_they_came_from(tmp_path: Path) -> None:
    path = written(tmp_path, "passages.jsonl", '{"text": "A fact.", "file": "notes.md", "line": 12}\n')
    assert [(p.file, p.line) for p in read_corpus(path).passages] == [("notes.md", 12)]


def test_texts_and_passages_are_sequences_read_from_disk(tmp_path: Path) -> None:
    facts = [f"Fact {i} is so." for i in range(50)]
    corpus = read_corpus(written(tmp_path, "facts.txt", "\n".join(facts)))
    assert len(corpus.texts) == len(corpus.passages) == 50
    assert corpus.texts[-1] == facts[-1]
    assert [*corpus.texts[10:40:10]] == facts[10:40:10]
    assert Random(0).sample(corpus.texts, 3) == Random(0).sample(facts, 3)
    with pytest.raises(IndexError):
        corpus.texts[50]


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    path = written(tmp_path, "facts.txt", "".join(f"Fact number {i} is so.\n" for i in range(20_000)))
    code = f"from kcard.training.corpus import read_corpus\nread_corpus({str(path)!r})"
    limit = process_with_file_size_limit(100_000)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **limit)
    assert done.returncode == 1
    assert "CorpusError: not enough space for the corpus in" in done.stderr.strip().splitlines()[-1]


ANY = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=2000)


@settings(max_examples=25)
@example(text="\x1b0\rA")  # a control character is no indentation
@example(text="0\n 0")  # an indented line is a statement without its indentation
@given(text=ANY)
def test_passages_hold_the_words_of_any_text(tmp_path: Path, text: str) -> None:
    """What is left out is left out for a reason that is counted."""
    path = written(tmp_path, "any.txt", text)
    try:
        corpus = read_corpus(path)
    except CorpusError as error:
        if "holds no text" in str(error):
            return
        raise
    plain = "".join(" " if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in text.removeprefix("\ufeff"))
    plain = plain.replace("\u00ad", "")
    # A colon stands between a term and its meaning.
    read = "".join(corpus.texts).replace(" ", "").replace(":", "")
    if not corpus.duplicates and not corpus.dropped:
        assert read == "".join(plain.split()).replace(":", "")
    else:
        assert set(read) <= set(plain)
    assert all(text == " ".join(text.split()) and len(text) <= 480 for text in corpus.texts)


def test_what_is_left_out_is_counted_by_kind_in_one_line(tmp_path: Path) -> None:
    written(tmp_path, "facts.txt", "A fact.\n- 1 -\nA fact.\n* * *\n")
    for name in ("a.png", "b.png", "Makefile", "LICENSE", "damaged.pdf"):
        written(tmp_path, name, "x")
    for name in ("empty.txt", "blank.md"):
        written(tmp_path, name, "\n")
    [line] = [remark for remark in read_corpus(tmp_path).remarks() if remark.startswith("left out: ")]
    assert line == (
        "left out: 1 licence, 1 other file, 2 .png, 2 empty files, 1 unreadable file, 1 duplicate, "
        "1 page number, 1 rule"
    )


# Several readers give the same corpus as one, in the same order.

PROSE = (
    "The harbour of Vell lies below the old lighthouse. Dr. Amund Rask, its keeper, counted 14.5 miles of nets. "
    "Did anybody help him? The fishers (there were nine.) never did. In the U.S. Senate nobody knew his name."
)


def contents(corpus: Corpus) -> tuple[object, ...]:
    documents = None if corpus.documents is None else [*corpus.documents]
    return [*corpus.passages], [*corpus.statements], corpus.sha256, corpus.remarks(), documents


def folder(path: Path) -> Path:
    """Prose under headings, a table of facts, a footer that all repeat, duplicates, and a file that is not UTF-8."""
    for number in range(30):
        text = f"# Log {number}\n\n"
        for part in range(4):
            text += f"## Part {part}\n\n{PROSE.replace('Vell', f'V{number}-{part}')}\n\n"
        written(path, f"{number:02}.md", f"{text}Imprint and contact\n")
    rows = [{"text": f"Boat {row % 200} carried {row % 150} barrels of salt. {PROSE}"} for row in range(400)]
    written(path, "boats.jsonl", "\n".join(map(json.dumps, rows)))
    written(path, "broken.txt", b"Fine.\n\xff\xfe broken")
    return path


def test_a_small_corpus_starts_no_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblib.Parallel", None)
    assert len(read_corpus(folder(tmp_path / "logs"), readers=2).statements) > 400


@pytest.mark.parametrize("whole", [True, False])
def test_two_readers_read_what_one_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(module, "PIECE_BLOCKS", 20)
    monkeypatch.setattr(module, "MIN_PIECES_A_READER", 1)
    monkeypatch.setattr(module, "FILES_AT_ONCE_BYTES", 3000)
    path = folder(tmp_path / "logs")
    alone, divided_up = (read_corpus(path, whole=whole, readers=readers) for readers in (1, 2))
    assert contents(alone) == contents(divided_up)
    assert any("not UTF-8" in remark for remark in alone.remarks())
    assert any("most files repeat" in remark for remark in alone.remarks())


def test_the_work_of_several_readers_comes_in_order_and_is_done_elsewhere() -> None:
    worked = [*parallel_map(number_and_process, range(40), 2)]
    assert [number for number, _ in worked] == [*range(40)]
    assert os.getpid() not in {process for _, process in worked}


def number_and_process(number: int) -> tuple[int, int]:
    return number, os.getpid()


def kill(_: int) -> None:
    os._exit(9)


def test_a_reader_that_is_killed_is_an_error_with_a_remedy() -> None:
    with pytest.raises(CorpusError, match="--readers 1"):
        [*parallel_map(kill, range(4), 2)]


def test_a_large_corpus_is_described_by_a_sample_without_cutting_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SAMPLE_PASSAGES", 10)
    facts = [f"Fact {number} is told here." for number in range(100)]
    corpus = read_corpus(written(tmp_path, "facts.txt", "\n".join(facts)))
    assert [*corpus.sample] == facts[::10]
    assert "statements" not in vars(corpus)


def test_borders_are_certain_only_where_no_abbreviation_quotation_or_list_casts_doubt() -> None:
    text = "The nets were mended quickly. Nobody came. He met Prof. Lind there."
    assert certain(text) == ["The nets were mended quickly.", "Nobody came.", "He met Prof. Lind there."]
    assert [is_one(part) for part in certain(text)] == [True, True, False]
    for doubtful in (
        'She said "it rained there. Then it stopped."',
        "1. Mend the nets there. 2. Count them.",
        "It rained there... Then it stopped.",
        "He was from Penna. Nobody knew.",
        "(It rained there. Then it stopped.)",
    ):
        assert certain(doubtful) == [doubtful]
