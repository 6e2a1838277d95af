# ruff: noqa: E501 - documents as their programs write them
"""Questions to documents of office programs and to mails: what must stand in the passages that are kept, and what must not be read.

All documents are one corpus, so that each question also has to find its document.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kcard
from tests.training.documents import written
from tests.training.packed_documents import odf, odt, xlsx


@dataclass(frozen=True)
class Case:
    """A document, a question about it, the `answer` that a kept passage must hold, and what no passage of the document
    may: text that is deleted or hidden, or a value under the wrong heading."""

    name: str
    content: bytes
    question: str
    answer: str
    absent: str = ""


def case(name: str, content: bytes | str, question: str, answer: str, absent: str = "") -> Case:
    return Case(name, content.encode() if isinstance(content, str) else content, question, answer, absent)


TABLE = "<table:table table:name='T'>{}</table:table>"


def odt_row(*cells: str) -> str:
    texts = [
        c if c.startswith("<") else f"<table:table-cell><text:p>{c}</text:p></table:table-cell>"
        for c in cells
    ]
    return f"<table:table-row>{''.join(texts)}</table:table-row>"


CASES = [
    case(
        "berths.xlsx",
        xlsx(
            {"Berths": '<sheetData><row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="C1" t="s"><v>2</v></c></row>'
             '<row r="2"><c r="A2" t="s"><v>3</v></c><c r="B2" s="1"><v>45413</v></c><c r="C2" t="s"><v>4</v></c></row>'
             '<row r="3"><c r="A3" t="s"><v>5</v></c><c r="B3" s="1"><v>45429</v></c></row>'
             '<row r="4" hidden="1"><c r="A4" t="s"><v>6</v></c><c r="B4" s="1"><v>45430</v></c></row></sheetData>'
             '<mergeCells count="1"><mergeCell ref="C2:C3"/></mergeCells>'},
            strings=["Boat", "Launch", "Pier", "Kestrel", "North pier", "Wagtail", "Scrapped boat"],
            styles='<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>',
        ),
        "When is the launch of the boat Wagtail?",
        "Wagtail; Launch: 2024-05-17; Pier: North pier",
        "Scrapped",
    ),
    case(
        "rota.ods",
        odf("<office:spreadsheet>" + TABLE.format(
            odt_row("Week", "Cook", "Washer") + odt_row("Week 31", "Mirela", "Anton")
            + "<table:table-row><table:table-cell office:value-type='string'><text:p>Week 32</text:p></table:table-cell>"
            "<table:table-cell table:number-columns-repeated='2'><text:p>Sorin</text:p></table:table-cell></table:table-row>"
            "<table:table-row table:visibility='collapse'><table:table-cell><text:p>Week 33</text:p></table:table-cell>"
            "<table:table-cell><text:p>Vacant</text:p></table:table-cell></table:table-row>"
        ) + "</office:spreadsheet>"),
        "Who is the washer in week 32?",
        "Week 32; Cook: Sorin; Washer: Sorin",
        "Vacant",
    ),
    case(
        "orchard.odt",
        odt(
            "<text:h text:outline-level='1'>Orchard of Saint Veda</text:h>"
            + TABLE.format(
                "<table:table-header-rows>" + odt_row("Tree", "Grafter", "Row") + "</table:table-header-rows>"
                + odt_row("Plum", "<table:table-cell table:number-rows-spanned='2'><text:p>Tilda Ros</text:p></table:table-cell>", "3")
                + odt_row("Quince", "<table:covered-table-cell/>", "7")
            )
        ),
        "Who is the grafter of the quince?",
        "Quince; Grafter: Tilda Ros; Row: 7",
    ),
    case(
        "lease.odt",
        odt(
            "<text:tracked-changes><text:changed-region text:id='c1'><text:deletion><text:p>640 crowns</text:p>"
            "</text:deletion></text:changed-region></text:tracked-changes>"
            "<text:h text:outline-level='1'>Lease of the mill house</text:h>"
            "<text:p>The rent of the mill house is <text:span text:style-name='S'>655</text:span> 710 crowns"
            "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>Due on the third.</text:p>"
            "</text:note-body></text:note>.<draw:frame><draw:image xlink:href='Pictures/gone.png'/></draw:frame></text:p>"
            "<text:p text:style-name='H'>The rent was never paid.</text:p>",
            styles="<style:style style:name='S'><style:text-properties style:text-line-through-style='solid'/></style:style>"
            "<style:style style:name='H'><style:text-properties text:display='none'/></style:style>",
        ),
        "How high is the rent of the mill house?",
        "710 crowns",
        "640|655|never paid",
    ),
    case(
        "booking.eml",
        "From: Desk <desk@inn.example>\r\nTo: guest@post.example\r\nSubject: Your stay at the Copper Inn\r\n"
        "Date: Mon, 6 May 2024 10:00:00 +0000\r\nMIME-Version: 1.0\r\n"
        'Content-Type: multipart/alternative; boundary="b"\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nSee the HTML part.\r\n'
        "--b\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<html><body><table><tr><td><table><tr><td><h1>Copper Inn</h1>"
        "</td></tr><tr><td><table><tr><td>Check-in</td><td>14 June</td></tr><tr><td>Room</td><td>Larch</td></tr></table>"
        '</td></tr></table></td></tr></table><div style="display:none">Room: Birch</div></body></html>\r\n--b--\r\n',
        "When is the check-in at the Copper Inn?",
        "Check-in: 14 June",
        "Birch",
    ),
    case(
        "recall.eml",
        b"From: =?iso-8859-1?Q?J=F6rn_K=E5re?= <jk@works.example>\nSubject: Recall of the winch W4\n"
        b"Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n\n"
        b"The winch W4 is recalled by M=E5rten =D8st, since its pawl =\nbreaks at 300 kg.\n",
        "Who recalls the winch W4?",
        "Mårten Øst, since its pawl breaks",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, str]]]:
    """For each document, by its name: the answer with the passages that were kept, and all of its passages."""
    folder = tmp_path_factory.mktemp("formats")
    for row in CASES:
        written(folder / "corpus", row.name, row.content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KCARD_HOME", str(folder / "home"))
        yield answers(folder)


def answers(folder: Path) -> dict[str, tuple[str, str]]:
    from kcard.training.corpus import read_corpus

    whole: dict[str, str] = {}
    for passage in read_corpus(folder / "corpus").passages:
        whole[passage.file] = f"{whole.get(passage.file, '')}\n{passage.section}: {passage.text}"
    card: Any = kcard.train(folder / "corpus", kind="retrieval", name="formats")
    kcard.publish(card)
    pipeline = kcard.Pipeline(cards="formats", llm="embedded")
    results = {}
    for row, answer in zip(CASES, pipeline([row.question for row in CASES]), strict=True):
        texts = [answer.answer, *(passage.text for passage in answer.passages if passage.kept)]
        results[row.name] = ("\n".join(texts), whole.get(row.name, ""))
    return results


@pytest.mark.parametrize("row", CASES, ids=lambda row: row.name)
def test_the_passages_that_are_kept_hold_the_answer(kept: dict[str, tuple[str, str]], row: Case) -> None:
    shown, whole = kept[row.name]
    assert row.answer in shown
    assert not (row.absent and re.search(row.absent, whole))
