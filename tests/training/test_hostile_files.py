"""Files that are made to harm their reader: they are skipped with a reason, or read in linear time."""

import io
import os
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.hostile_files import word

from kcard.errors import CorpusError
from kcard.training.corpus import read_corpus
from kcard.training.readers import files, manuals, process
from kcard.training.readers.files import Format
from tests.training.documents import written
from tests.training.packed_documents import odt, packed

LETTERS = "Letters are sorted by their sender.\n"
SECRET = "the secret of this machine"
rendered = pytest.mark.skipif(
    not any(map(shutil.which, manuals.RENDERERS)), reason="neither mandoc nor groff is installed"
)


def reasons(folder: Path) -> dict[str, str]:
    """Read a folder, in which one good file remains; return why the others were skipped."""
    written(folder, "good.txt", LETTERS)
    corpus = read_corpus(folder)
    assert [passage.text for passage in corpus.passages] == [LETTERS.strip()]
    return dict(corpus.skipped)


# Readers that do what a broken library may do, in the place of those of formats.

READERS = f"""
import os, signal, sys, time
from kcard.training.readers.files import Block

def hang(document):
    yield Block("text", "{LETTERS.strip()}", 1)
    time.sleep(1000)

def crash(document):
    os.kill(os.getpid(), signal.SIGSEGV)

def leave(document):
    sys.stderr.write("no way to go on\\n")
    sys.stderr.flush()
    os._exit(3)

def fill(document):
    bytearray(1 << 42)
    yield

def nest(document):
    return nest(document)

def fail(document):
    yield Block("text", "{LETTERS.strip()}", 1)
    raise ZeroDivisionError("of\\nseveral lines " + "x" * 10000)

def swell(document):
    while True:
        yield Block("text", "sealed " * 10000, 1)

def chatter(document):
    print("printed by a library", flush=True)
    os.write(1, b"and by another")
    yield Block("text", "A format of a library that prints.", 1)
"""
FAULTS = {
    "hang": r"takes more than 1 s to read: split it or leave it out",
    "crash": r"ends its reader \(SIGSEGV\): it is damaged, or takes more than \d+ MB of memory",
    "leave": r"ends its reader \(no way to go on\)",
    "fill": r"takes more than \d+ MB of memory: split it or leave it out",
    "nest": r"can't be read: its elements are nested too deeply",
    "fail": r"can't be read \(ZeroDivisionError: of several lines x{1,200}\): is it damaged\?",
    "swell": r"unpacks to more than 1 MB of text: split it or leave it out",
}


@pytest.fixture
def faulty(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the readers above for files whose names end in theirs."""
    modules = tmp_path_factory.mktemp("modules")
    (modules / "faulty_readers.py").write_text(READERS)
    monkeypatch.syspath_prepend(modules)
    for name in (*FAULTS, "chatter"):
        monkeypatch.setitem(files.FORMATS, f".{name}", Format(f"faulty_readers:{name}"))
    yield
    process.end_idle_processes()


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_breaks_its_reader_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault in ("crash", "leave") and sys.platform == "win32":
        pytest.skip("no such signals")
    monkeypatch.setattr(process, "SECONDS", 1.0)
    monkeypatch.setattr(process, "CHARACTERS", 1_000_000)
    written(tmp_path, f"bad.{fault}", "x")
    written(tmp_path, "after.txt", "The office opens at nine.\n")
    corpus = read_corpus(tmp_path)
    assert [passage.text for passage in corpus.passages] == ["The office opens at nine."]
    [(name, reason)] = corpus.skipped
    assert name == f"bad.{fault}"
    assert pytest.approx(0, abs=400) == len(reason)
    with pytest.raises(CorpusError, match=f"bad.{fault} {FAULTS[fault]}"):
        read_corpus(tmp_path / f"bad.{fault}")


@pytest.mark.usefixtures("faulty")
def test_what_a_library_prints_is_no_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    corpus = read_corpus(written(tmp_path, "loud.chatter", "x"))
    assert [passage.text for passage in corpus.passages] == ["A format of a library that prints."]
    assert capfd.readouterr() == ("", "")


def test_one_process_reads_many_files_and_knows_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    read_corpus(written(tmp_path, "one.txt", LETTERS))
    [first] = process._idle
    assert SECRET not in first.environment.values()
    read_corpus(written(tmp_path, "two.txt", LETTERS))
    assert process._idle == [first]


@pytest.mark.usefixtures("faulty")
def test_a_process_with_limits_of_its_own_starts_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_is_child", True)
    monkeypatch.setattr(process, "ReadingProcess", None)
    written(tmp_path, "bad.fail", "x")
    assert "ZeroDivisionError" in reasons(tmp_path)["bad.fail"]


def test_a_read_that_is_given_up_ends_its_process(tmp_path: Path) -> None:
    path = written(
        tmp_path, "many.txt", "".join(f"Letter {n} is sorted by its sender.\n" for n in range(5000))
    )
    process.end_idle_processes()
    blocks = process.read_blocks(files.Document(path, path.name), files.FORMATS[".txt"])
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    assert process._idle == []
    assert len(read_corpus(path).passages) == 5000


# Requests of a man page for other files.

REQUESTS = {
    "so": ".so {file}",
    "so of another name": ".als fetch so\n.fetch {file}",
    "so by do": ".if n .do so {file}",
    "so in a macro": ".de fetch\n.so \\\\$1\n..\n.fetch {file}",
    "mso": ".mso {file}",
    "mso of another name": ".als fetch mso\n.fetch {file}",
    "cf": ".if n .cf {file}",
    "trf": ".if n .trf {file}",
    "nx": ".if n .nx {file}",
    "psbb": ".psbb {file}\n\\n[llx]",
    "pso": ".pso cat {file}",
    "environment": "\\V[KCARD_SECRET]",
    "another control character": ".cc !\n!so {file}\n!cc .",
    "display of a file": ".Bd -literal -file {file}\n.Ed",
}


@rendered
@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("macros", ["man", "mdoc"])
def test_a_man_page_reads_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_name: str, macros: str
) -> None:
    monkeypatch.setenv("KCARD_SECRET", SECRET)
    secret = written(tmp_path / "elsewhere", "secret", f"{SECRET}\n")
    start = {
        "man": '.TH DEPOT 1 "" ""\n.SH NAME\ndepot \\- sorts letters\n.SH USE\n',
        "mdoc": ".Dd January 1, 2020\n.Dt DEPOT 1\n.Os\n.Sh NAME\n.Nm depot\n.Nd sorts letters\n.Sh USE\n",
    }[macros]
    request = REQUESTS[request_name].format(file=secret)
    written(tmp_path / "corpus", "depot.1", f"{start}{request}\nLetters are sorted.\n")
    written(tmp_path / "corpus", "other.txt", LETTERS)
    corpus = read_corpus(tmp_path / "corpus")
    texts = " ".join(f"{passage.section} {passage.text}" for passage in corpus.passages)
    assert "secret" not in texts
    # The page is refused where it says so plainly, else it is read without the request.
    assert "sorts letters" in texts or "reads another file" in dict(corpus.skipped)["depot.1"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_man_page_without_end_leaves_no_program_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = tmp_path / "number"
    program = written(tmp_path / "bin", "groff", f"#!/bin/sh\nsleep 100 &\necho $! > {number}\nwait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.defpath}")
    monkeypatch.setattr(manuals, "RENDERERS", {"groff": []})
    monkeypatch.setattr(manuals, "RENDER_SECONDS", 1.0)
    page = written(tmp_path, "loop.1", ".TH LOOP 1\n.SH NAME\n.while 1 .tm again\n")
    with pytest.raises(CorpusError, match=r"loop\.1 can't be rendered by groff: it takes more than 1 s"):
        list(manuals.read_man(files.Document(page, "loop.1")))
    state = Path(f"/proc/{number.read_text().strip()}/stat")
    deadline = time.monotonic() + 10  # the signal has been sent; the system delivers it soon
    while state.exists() and state.read_text().split()[2] not in "ZX":
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Links.


def test_links_that_lead_out_of_the_corpus_are_not_followed(tmp_path: Path) -> None:
    secret = written(tmp_path / "elsewhere", "secret.txt", f"{SECRET}\n")
    folder = tmp_path / "corpus"
    written(folder / "inner", "letters.txt", LETTERS)
    written(folder, "facts.tsv", "Rhine\tflows through\tBasel\n")
    (folder / "notes.txt").symlink_to(secret)
    (folder / "more.md").symlink_to("../elsewhere/secret.txt")
    (folder / "again.txt").symlink_to("inner/letters.txt")
    (folder / "templates.tsv").symlink_to(secret)
    corpus = read_corpus(folder)
    assert {passage.file for passage in corpus.passages} == {"again.txt"}
    out = "a link that leads out of the corpus, not followed; copy the file to read it"
    assert {name for name, reason in corpus.skipped if reason == out} == {
        "notes.txt", "more.md", "templates.tsv"
    }  # fmt: skip
    assert f"skipped more.md, notes.txt, templates.tsv: {out}" in corpus.remarks()
    assert "templates.tsv is a link that leads out" in dict(corpus.skipped)["facts.tsv"]


def test_a_link_that_the_user_names_is_followed(tmp_path: Path) -> None:
    written(tmp_path / "elsewhere", "letters.txt", LETTERS)
    (tmp_path / "named.txt").symlink_to(tmp_path / "elsewhere" / "letters.txt")
    (tmp_path / "folder").symlink_to(tmp_path / "elsewhere")
    for path in ("named.txt", "folder"):
        assert [passage.text for passage in read_corpus(tmp_path / path).passages] == [LETTERS.strip()]


# Patterns that made regular expressions and loops take quadratic time.
# Each took many seconds at these sizes, most took minutes.

REPEATED = {
    "comments.html": "<p>Letters are sorted.</p>" + "<!-- " * 50_000,
    "comments.md": "<div>\nLetters are sorted.\n" + "<!-- " * 50_000,
    "scripts.html": "<p>Letters are sorted.</p>" + "<script " * 50_000,
    "images.html": "<p>Letters are sorted.</p>" + "<img>" * 20_000,
    "icons.html": "<p>Letters are sorted." + '<i class="icon"></i>' * 10_000,
    "bold.html": "<p>Letters are sorted. " + "<b>x</b> " * 10_000,
    "nested.html": "<p>Letters</p>"
    + "<div>" * 200
    + "<a href=x>x</a> are sorted<p>" * 2_000
    + "</div>" * 200,
    "blanks.txt": "Letters are sorted\nby sender.\n\n" + (" " * 200_000 + "x\n") * 2,
    "blanks.rst": "Letters are sorted.\n\n" + ("a" + " " * 200_000 + "b\n") * 2,
    "references.info": "\x1f\nFile: a,  Node: b,\n\nLetters are sorted.\n\n" + "*note a " * 30_000 + "\n",
    "roles.rst": "Letters are sorted.\n\n" + ":a" * 100_000 + "\n",
    "role.rst": "Letters are sorted.\n\n:a:`x" + " " * 200_000 + "\n",
    "title.md": "---\ntitle: a" + " " * 100_000 + "b\n---\n\nLetters are sorted.\n",
    "types.tsv": 'Letters\tare\tsorted\nLetters\tare\t"' + '"^^' * 100_000 + " x\n",
    "indented.md": "Letters are sorted.\n\n```\n" + "".join(" " * n + "x\n" for n in range(1_200)) + "```\n",
    "code.md": "Letters are sorted.\n\n```\n" + "x = 1\n" * 100_000 + "```\n",
    "heading.md": f"# {'x' * 200_000}\n\nLetters are sorted.\n\n" + "Sealed and sent.\n\n" * 5_000,
    "dots.md": "Letters are sorted.\n\n" + ". " * 100_000 + "\n",
    "struck.md": "Letters are sorted.\n\n" + "x <del> " * 25_000 + "\n",
    "aliases.md": "---\nauthor: &a ["
    + "x, " * 2_000
    + "]\ntags: ["
    + "*a, " * 2_000
    + "]\n---\n\nLetters are sorted.\n",
    "spans.html": "<p>Letters</p><table><tr>"
    + "<td rowspan=1000 colspan=50>x</td>" * 500
    + "</tr>"
    + "<tr><td>y</td></tr>" * 500
    + "</table>",
    "grids.rst": "Letters are sorted.\n\n" + "+--+--+\n" * 50_000,
    "rules.rst": "Letters are sorted.\n\n"
    + "".join(f"{'=' * (2 + n % 50)} {'=' * 99}\n" for n in range(5_000)),
    "word.txt": "Letters are sorted.\n" + "x" * 5_000_000 + "\n",
    "groups.rtf": "{\\rtf1 Letters are sorted.\\par " + "{\\b x" * 50_000,
    "cells.rtf": "{\\rtf1 Letters are sorted.\\par\\trowd " + "\\intbl x\\cell " * 5_000 + "\\row}",
    "tables.tex": "Letters are sorted.\n\n" + "\\begin{tabular}" * 20_000,
    "formulas.tex": "Letters are sorted.\n\n" + "\\(x" * 20_000,
    "titles.tex": "Letters are sorted.\n\n" + "\\section{x" * 10_000,
    "macros.tex": "\\newcommand\\x{y" * 10_000 + "\\begin{document}Letters are sorted.",
    "macro.tex": "\\newcommand\\x{\\x\\x}\\begin{document}Letters are sorted.\\x",
    "links.adoc": "Letters are sorted.\n\n" + "image:" * 30_000 + "\n",
    "cells.adoc": "Letters are sorted.\n\n|===\n" + "|x " * 30_000 + "\n|===\n",
    "spans.adoc": "Letters are sorted.\n\n|===\n" + "99.99+|x\n" * 500 + "|===\n",
    "marks.adoc": "Letters are sorted.\n\n" + "**x _y `z " * 20_000 + "\n",
    "blanks.org": "Letters are sorted.\n* a" + " " * 200_000 + "b\n",
    "links.org": "Letters are sorted.\n" + "[[x][" * 40_000 + "\n",
    "marks.org": "Letters are sorted.\n" + "*x /y =z +q " * 20_000 + "\n",
    "parts.eml": "Subject: Letters\nContent-Type: multipart/mixed; boundary=b\n\n" + "--b\n\nx\n" * 20_000,
    "cells.ipynb": '{"cells": ['
    + '{"cell_type": "markdown", "source": "Letters are sorted."},' * 3_000
    + '{"cell_type": "raw"}]}',
}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_patterns_take_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(process, "SECONDS", 10.0)
    monkeypatch.setattr(process, "SECONDS_PER_MB", 0.0)
    corpus = read_corpus(written(tmp_path, name, REPEATED[name]))
    assert any("Letters" in f"{passage.section} {passage.text}" for passage in corpus.passages)
    assert sum(len(passage.section) for passage in corpus.passages) < 10_000_000


# Bombs and lies.


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("bomb.docx", "word/styles.xml"),
        ("bomb.pptx", "ppt/presentation.xml"),
        ("bomb.xlsx", "xl/workbook.xml"),
        ("bomb.odt", "content.xml"),
        ("bomb.epub", "a.xhtml"),
    ],
)
def test_a_packed_document_that_declares_gigabytes_is_not_unpacked(
    tmp_path: Path, name: str, part: str
) -> None:
    (tmp_path / name).write_bytes(word("", {part: b" " * 101_000_000}))
    assert "unpacks to 101 MB of text and styles" in reasons(tmp_path)[name]


@pytest.mark.parametrize(
    "suffix", ["docx", "pptx", "xlsx", "odt", "ods", "odp", "epub", "rtf", "eml", "ipynb"]
)
def test_a_file_that_is_not_what_its_name_says_is_one_line(tmp_path: Path, suffix: str) -> None:
    zipped = packed({"letters.txt": "Letters"})
    for name, content in {"text": b"Letters", "zip": zipped, "cut": zipped[:-40], "none": b""}.items():
        (tmp_path / f"{name}.{suffix}").write_bytes(content)
    skipped = reasons(tmp_path)
    assert len(skipped) == 4
    for name, reason in skipped.items():
        assert re.fullmatch(r"is not an? [^\n]+, or a damaged one", reason), name


def test_entities_of_packed_documents_are_not_expanded(tmp_path: Path) -> None:
    secret = written(tmp_path / "elsewhere", "secret", SECRET)
    entities = f'<!DOCTYPE x [<!ENTITY file SYSTEM "{secret}"><!ENTITY y "{"y" * 1000}">'
    entities += "".join(f'<!ENTITY y{n} "{"&y;" * 100}">' for n in range(9)) + "]>"
    text = odt("<text:p>Letters are sorted.&file;&y8;</text:p>")
    with zipfile.ZipFile(io.BytesIO(text)) as archive:
        content = archive.read("content.xml").decode()
    (tmp_path / "letters.odt").write_bytes(packed({"content.xml": entities + content}))
    [passage] = read_corpus(tmp_path / "letters.odt").passages
    assert passage.text == "Letters are sorted."


def test_the_images_of_a_word_document_are_not_fetched(tmp_path: Path) -> None:
    drawing = "http://schemas.openxmlformats.org/drawingml/2006"
    image = (
        f'<w:p xmlns:a="{drawing}/main" xmlns:wp="{drawing}/wordprocessingDrawing" xmlns:pic="{drawing}/picture" '
        'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><w:r><w:t>Letters are sorted.'
        '</w:t></w:r><w:r><w:drawing><wp:inline><wp:docPr descr="A stamp."/><a:graphic><a:graphicData><pic:pic>'
        '<pic:blipFill><a:blip r:link="r9"/></pic:blipFill></pic:pic></a:graphicData></a:graphic></wp:inline>'
        "</w:drawing></w:r></w:p>"
    )
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r9" '
        'Type="image" TargetMode="External" Target="file:///nowhere/secret"/></Relationships>'
    )
    parts = {"word/_rels/document.xml.rels": relations.encode()}
    (tmp_path / "image.docx").write_bytes(word(image, parts))
    corpus = read_corpus(tmp_path / "image.docx")
    assert [passage.text for passage in corpus.passages] == ["Letters are sorted.A stamp."]


@pytest.mark.parametrize(
    ("text", "rows", "reason"),
    [
        ("x", 1_500_000, "holds 1,500,000 rows in"),
        ("sealed " * 1000, 300, "unpacks to more than 1 MB of text"),
    ],
)
def test_a_table_that_stores_a_text_once_and_repeats_it_without_measure_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, rows: int, reason: str
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(process, "CHARACTERS", 1_000_000)
    repeated = pyarrow.array([text]).dictionary_encode().take(pyarrow.array([0] * rows))
    parquet.write_table(pyarrow.table({"text": repeated}), tmp_path / "bomb.parquet", compression="zstd")
    assert reason in reasons(tmp_path)["bomb.parquet"]


def test_entities_and_nested_tables_are_reasons_to_skip(tmp_path: Path) -> None:
    entities = b'<!DOCTYPE a [<!ENTITY x "' + b"y" * 1000 + b'">'
    entities += (
        b"".join(b'<!ENTITY x%d "%s">' % (n, b"&x;" * 100) for n in range(5)) + b"]><a>&x4;&nothing;</a>"
    )
    (tmp_path / "entities.docx").write_bytes(word("", {"word/document.xml": entities}))
    table = "<w:tbl><w:tr><w:tc>" * 2000 + "<w:p/>" + "</w:tc></w:tr></w:tbl>" * 2000
    (tmp_path / "tables.docx").write_bytes(word(table))
    written(tmp_path, "tables.html", "<table><tr><td>" * 2000 + "x")
    written(tmp_path, "deep.jsonl", '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    skipped = reasons(tmp_path)
    assert "is not a Word document (.docx), or a damaged one" in skipped["entities.docx"]
    assert "nested too deeply" in skipped["tables.docx"]
    assert "nested too deeply" in skipped["tables.html"]
    assert "line 1 is not JSON" in skipped["deep.jsonl"]


def test_a_header_without_end_is_a_reason_in_one_short_line(tmp_path: Path) -> None:
    written(tmp_path, "wide.csv", ",".join(f"c{n}" for n in range(200_000)) + "\n")
    written(tmp_path, "long.csv", "x" * 1_000_000 + ",b\n1,2\n")
    written(tmp_path, "keys.jsonl", '{"' + "x" * 1_000_000 + '": 1}\n')
    for name, reason in reasons(tmp_path).items():
        assert len(reason) < 700, name
        assert "\n" not in reason
