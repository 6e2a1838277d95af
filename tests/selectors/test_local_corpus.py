"""A local corpus as evidence: indexed once, followed from then on, and whole after whatever happens to it."""

import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kcard.errors import CorpusError, UsageError
from kcard.selectors import local_corpus
from kcard.selectors.evidence import names, open_evidence
from kcard.selectors.local_corpus import MAX_PASSAGE_CHARACTERS, LocalCorpus, parts
from kcard.training.corpus import CorpusFiles, open_corpus
from tests.disks import file_size_limit
from tests.effects import watch

CITIES = {"a.txt": "Oslo is in Norway.\nLima is in Peru.\n", "b.txt": "Bern is in Switzerland.\n"}
CLAIMS = ("Oslo is in Norway", "the capital is in Peru", "Bern", "Quito", "is in")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "cities"
    folder.mkdir()
    for name, text in CITIES.items():
        aged(folder / name, text)
    return folder


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read from now on."""
    found: list[str] = []
    real = CorpusFiles.read

    def noted(self: CorpusFiles, file: Path, name: str) -> object:
        found.append(name)
        return real(self, file, name)

    monkeypatch.setattr(CorpusFiles, "read", noted)
    return found


def aged(path: Path, text: str, hours: float = 1) -> None:
    """Write a file as if some time ago: a stamp of this moment is not trusted."""
    path.write_text(text, encoding="utf-8")
    then = time.time_ns() - int(hours * 3600e9)
    os.utime(path, ns=(then, then))


def index_of(home: Path) -> Path:
    (folder,) = (home / "evidence").iterdir()
    return folder


def found(evidence: LocalCorpus) -> list[list[object]]:
    return [[(s.text, s.file, s.line, s.score) for s in evidence.find(claim, 3)] for claim in CLAIMS]


def anew(corpus: Path, folder: Path) -> LocalCorpus:
    return LocalCorpus.open(CorpusFiles(corpus), folder, corpus.name)


def test_the_best_text_comes_first_with_its_file_and_line(corpus: Path) -> None:
    evidence = open_evidence(str(corpus))
    best, *_ = evidence.find("Where is Lima?", 3)
    assert (best.text, best.file, best.line) == ("Lima is in Peru.", "a.txt", 2)
    assert best.score > 0
    assert evidence.name == "cities"
    assert evidence.find("Zanzibar", 3) == evidence.find("?!", 3) == []


def test_an_unchanged_corpus_is_read_once(corpus: Path, read: list[str]) -> None:
    first, again = open_corpus(str(corpus)), open_corpus(str(corpus))
    assert read == ["a.txt", "b.txt"]
    assert (first.digest, found(first)) == (again.digest, found(again))


@pytest.mark.parametrize("same_size", [False, True])
def test_of_a_changed_corpus_only_what_changed_is_read_and_the_index_is_as_built_anew(
    corpus: Path, read: list[str], home: Path, tmp_path: Path, same_size: bool
) -> None:
    before = open_corpus(str(corpus)).digest
    read.clear()
    aged(corpus / "b.txt", "Rome is in Switzerland.\n" if not same_size else "Lyon is in Switzerland.\n")
    aged(corpus / "c.txt", "Quito is in Ecuador.\n")
    updated = open_corpus(str(corpus))
    assert read == ["b.txt", "c.txt"]
    assert updated.digest != before
    other = anew(corpus, tmp_path / "other")
    assert found(updated) == found(other)
    for path in sorted((tmp_path / "other").glob("index-*/*")):
        assert path.read_bytes() == (index_of(home) / path.parent.name / path.name).read_bytes()


def test_a_removed_file_is_gone_and_nothing_is_read_for_it(corpus: Path, read: list[str]) -> None:
    open_corpus(str(corpus))
    read.clear()
    (corpus / "a.txt").unlink()
    evidence = open_corpus(str(corpus))
    assert read == []
    assert len(evidence) == 1
    assert evidence.find("Oslo Norway Peru", 3) == []


def test_a_touched_or_renamed_file_is_not_read_again(corpus: Path, read: list[str]) -> None:
    open_corpus(str(corpus))
    read.clear()
    aged(corpus / "a.txt", CITIES["a.txt"], hours=0.5)
    (corpus / "b.txt").rename(corpus / "z.txt")
    evidence = open_corpus(str(corpus))
    assert read == []
    assert evidence.find("Bern", 1)[0].file == "z.txt"


def test_a_change_of_equal_size_within_the_same_tick_is_noticed(corpus: Path) -> None:
    now = time.time_ns()
    (corpus / "b.txt").write_text("Bern is in Switzerland.\n", encoding="utf-8")
    os.utime(corpus / "b.txt", ns=(now, now))
    open_corpus(str(corpus))
    (corpus / "b.txt").write_text("Rome is in Switzerland.\n", encoding="utf-8")
    os.utime(corpus / "b.txt", ns=(now, now))
    assert open_corpus(str(corpus)).find("Rome", 1)[0].text == "Rome is in Switzerland."


def test_templates_beside_triples_are_part_of_them(corpus: Path, read: list[str]) -> None:
    aged(corpus / "t.tsv", "Peru\tcapital\tLima\n")
    assert open_corpus(str(corpus)).find("capital", 1)[0].text == "The capital of Peru is Lima."
    read.clear()
    aged(corpus / "templates.tsv", "capital\t{subject} is ruled from {object}.\n")
    assert open_corpus(str(corpus)).find("ruled", 1)[0].text == "Peru is ruled from Lima."
    assert read == ["t.tsv"]


def test_a_corpus_that_changes_under_an_open_index_is_answered_from_as_it_was_and_that_is_said(
    corpus: Path,
) -> None:
    evidence = open_corpus(str(corpus))
    digest, before = evidence.digest, found(evidence)
    assert list(evidence.notes) == []
    aged(corpus / "a.txt", "Oslo is in Sweden.\n", hours=0.2)
    (corpus / "b.txt").unlink()
    assert (evidence.digest, found(evidence)) == (digest, before)
    assert [note.split(": ")[1] for note in evidence.notes] == [
        "a.txt changed; its earlier version was used",
        "b.txt changed; its earlier version was used",
    ]


def test_every_format_of_a_card_s_corpus_is_evidence(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "prose.md").write_text("# Title\n\nA paragraph that\ngoes on here.\n", encoding="utf-8")
    (folder / "page.html").write_text(
        "<html><body><article><h1>Rivers</h1><p>The Rhine rises in the Alps and flows to the North Sea, past "
        "Basel and Cologne, for more than a thousand kilometres.</p></article></body></html>",
        encoding="utf-8",
    )
    (folder / "facts.jsonl").write_text(
        json.dumps({"text": "Quito is in Ecuador.", "file": "x.txt", "line": 7}), "utf-8"
    )
    with (folder / "table.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([["id", "text"], [1, "Helium is a noble gas."]])
    (folder / "graph.tsv").write_text("Peru\tcapital\tLima\n", encoding="utf-8")
    pq.write_table(pa.table({"text": ["Mimas circles Saturn."]}), folder / "moons.parquet")
    evidence = open_corpus(str(folder))
    places = {
        claim: [(s.file, s.line) for s in evidence.find(claim, 1)]
        for claim in ("paragraph", "Rhine", "Quito", "helium", "Lima", "Mimas")
    }
    assert places == {
        "paragraph": [("prose.md", 3)],
        "Rhine": [("page.html", 1)],
        "Quito": [("x.txt", 7)],
        "helium": [("table.csv", 1)],
        "Lima": [("graph.tsv", 1)],
        "Mimas": [("moons.parquet", 1)],
    }


def test_a_long_document_is_found_in_parts_and_no_word_of_it_is_lost(tmp_path: Path) -> None:
    long = " ".join(f"Sentence {n} tells of thing{n}." for n in range(2000))
    (tmp_path / "long.txt").write_text(long, encoding="utf-8")
    evidence = open_corpus(str(tmp_path / "long.txt"))
    (best,) = evidence.find("thing1234", 1)
    assert len(best.text) <= MAX_PASSAGE_CHARACTERS
    assert "Sentence 1234 tells of thing1234." in best.text
    assert " ".join(source.text for source in evidence) == long
    assert len(long) > 50_000


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("今天天气很好。我们去公园。" * 900, "公园"),
        ("स्विट्ज़रलैंड की राजधानी बर्न है। " * 900, "बर्न"),
        ("عاصمة سويسرا هي برن. " * 900, "برن"),
        ("นครหลวงของประเทศสวิตเซอร์แลนด์คือเบิร์น" * 900, "เบิร์น"),
    ],
)
def test_other_scripts_are_found_also_without_blanks(tmp_path: Path, text: str, claim: str) -> None:
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    best = open_corpus(str(tmp_path / "text.txt")).find(claim, 1)[0]
    assert claim in best.text
    assert len(best.text) <= MAX_PASSAGE_CHARACTERS


def test_parts_end_after_sentences_else_after_words_else_anywhere() -> None:
    assert {p[-1] for p in parts("One short sentence. " * 300)} == {"."}
    assert {p[-4:] for p in parts("word " * 900)} == {"word"}
    assert [len(p) for p in parts("x" * 3200)] == [MAX_PASSAGE_CHARACTERS, MAX_PASSAGE_CHARACTERS, 200]
    assert list(parts("  a  b ")) == ["a b"]
    assert list(parts(" \n ")) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.txt", None, "does not exist"),
        ("empty.txt", b" \n\n", "no text"),
        ("signs.txt", b"?! ...\n", "no word"),
        ("latin.txt", b"caf\xe9", "UTF-8"),
        ("bad.jsonl", b'{"text": "a"}\n[1\n', "JSON"),
        ("table.xlsx", b"PK", "is not a workbook"),
        ("drawing.dwg", b"AC1032", "kcard reads"),
    ],
)
def test_a_corpus_that_cannot_be_read_is_one_line_that_names_it(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message) as caught:
        open_evidence(str(tmp_path / name))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_folder_and_an_empty_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no text"):
        open_evidence(str(tmp_path))
    with pytest.raises(UsageError, match="evidence is empty"):
        open_evidence(" ")
    with pytest.raises(CorpusError, match=f"wikipeda does not exist: .*{', '.join(names())}"):
        open_evidence("wikipeda")


def test_of_a_folder_what_cannot_be_read_is_left_out_and_said(corpus: Path) -> None:
    (corpus / "latin.txt").write_bytes(b"caf\xe9")
    evidence = open_corpus(str(corpus))
    assert len(evidence) == 3
    (note,) = evidence.notes
    assert "latin.txt is left out" in note


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_process_that_is_killed_at_any_point_leaves_an_index_that_works(
    corpus: Path, home: Path, tmp_path: Path
) -> None:
    open_corpus(str(corpus))
    aged(corpus / "b.txt", "Rome is in Italy.\n", hours=0.5)
    expected = found(anew(corpus, tmp_path / "other"))
    shutil.copytree(index_of(home), tmp_path / "before")
    passed: list[str] = []
    for point in range(100):
        shutil.rmtree(index_of(home))
        shutil.copytree(tmp_path / "before", home / "evidence" / index_name(corpus))
        if killed(lambda: open_corpus(str(corpus)), point) == 0:
            break
        passed.append(str(point))
        assert found(open_corpus(str(corpus))) == expected
        assert not list(index_of(home).rglob("*.json.partial"))
    assert len(passed) >= 6


def index_name(corpus: Path) -> str:
    return corpus.name + "-" + hashlib.sha256(str(corpus.resolve()).encode()).hexdigest()[:16]


def killed(work: Callable[[], object], point: int) -> int:
    """Run `work` in a child that is gone before its effect of that number; 0 where it has fewer."""
    child = os.fork()
    if not child:
        left = [point]

        def reached(_: str) -> None:
            if not left[0]:
                os._exit(9)
            left[0] -= 1

        watch(reached)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_two_processes_at_once_index_it_well(corpus: Path, home: Path) -> None:
    for n in range(60):
        aged(corpus / f"more{n}.txt", f"City {n} is in country {n}.\n")
    code = (
        f"import sys; from kcard.training.corpus import open_corpus; e = open_corpus({str(corpus)!r}); "
        "print(e.digest, e.find('City 33 country', 1)[0].file)"
    )
    environment = {**os.environ, "KCARD_HOME": str(home)}
    running = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[0].split() for process in running]
    assert said[0] == said[1] == [open_corpus(str(corpus)).digest, "more33.txt"]


@pytest.mark.parametrize("pattern", ["corpus.json", "index-*/indptr*", "index-*/vocab*", "segments/*.npz"])
@pytest.mark.parametrize("harm", ["cut", "gone", "junk"])
def test_a_damaged_index_is_made_again(corpus: Path, home: Path, pattern: str, harm: str) -> None:
    before = found(open_corpus(str(corpus)))
    for path in list(index_of(home).glob(pattern)):
        if harm == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:7] if harm == "cut" else b"junk")
    assert found(open_corpus(str(corpus))) == before


def test_an_index_that_is_taken_away_while_open_is_an_error_and_the_next_one_is_made_anew(
    corpus: Path, home: Path
) -> None:
    evidence = open_corpus(str(corpus))
    shutil.rmtree(index_of(home) / "segments")
    with pytest.raises(CorpusError, match="try again to rebuild it"):
        evidence.find("Oslo", 1)
    assert open_corpus(str(corpus)).find("Oslo", 1)[0].file == "a.txt"


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on file sizes stands for a full disk")
@pytest.mark.parametrize("room", [100, 700, 2000])
def test_a_full_disk_is_one_line_and_the_index_of_before_is_kept(corpus: Path, home: Path, room: int) -> None:
    before = found(open_corpus(str(corpus)))
    aged(corpus / "c.txt", "".join(f"Town{n} is in land{n}.\n" for n in range(200)))
    with file_size_limit(room), pytest.raises(CorpusError, match="free some space") as caught:
        open_corpus(str(corpus))
    assert "\n" not in str(caught.value)
    assert not list(index_of(home).rglob("*.partial"))
    (corpus / "c.txt").unlink()
    assert found(open_corpus(str(corpus))) == before


def test_what_went_out_of_use_stays_a_day_for_those_who_have_it_open_and_then_goes(
    corpus: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_corpus(str(corpus))
    before = found(old)
    aged(corpus / "a.txt", "Oslo is in Scandinavia.\n", hours=0.5)
    open_corpus(str(corpus))
    assert found(old) == before
    assert len(list(index_of(home).glob("index-*"))) == 2
    monkeypatch.setattr(local_corpus, "RETENTION_SECONDS", -60)
    aged(corpus / "a.txt", "Oslo is in the north.\n", hours=0.4)
    open_corpus(str(corpus))
    aged(corpus / "a.txt", "Oslo is far in the north.\n", hours=0.3)
    open_corpus(str(corpus))
    assert len(list(index_of(home).glob("index-*"))) == 2  # the one in use, and the one just left
    assert len(list((index_of(home) / "segments").glob("*.npz"))) == 3
