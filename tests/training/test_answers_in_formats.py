# ruff: noqa: E501 - documents as their programs write them
"""Questions to documents of every format: what must stand in the passages that are kept, and what must not be read.

All documents are one corpus, so that each question also has to find its document.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks.hostile_files import word

import kcard
from tests.training.documents import pdf, written
from tests.training.packed_documents import (
    core,
    epub,
    odf,
    odt,
    xlsx,
)


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
        "minutes.odt",
        odt(
            "<text:h text:outline-level='1'>Minutes of the bell ringers</text:h><text:p>All came.</text:p>"
            "<text:list><text:list-item><text:p>Ropes are renewed</text:p><text:list><text:list-item>"
            "<text:p>The tenor rope is renewed by Ilse Marn</text:p></text:list-item></text:list></text:list-item></text:list>",
            meta="<dc:creator>Gregor Aspen</dc:creator><dc:date>2023-02-11T10:00:00</dc:date>",
        ),
        "Who wrote the minutes of the bell ringers?",
        "Author: Gregor Aspen",
    ),
    case(
        "phones.rtf",
        rb"{\rtf1\ansi\ansicpg1250{\fonttbl{\f0 Arial;}}{\info{\author Lida}}\pard Phone list of the Zlatna forge\par\par "
        rb"Bellows room:\par 311 90 22\par\par Tool shop:\par 311 90 25 (\'8aimon)\par{\v Safe code:\par 4417\par}}",
        "What is the phone number of the tool shop of the forge?",
        "311 90 25 (Šimon)",
        "4417",
    ),
    case(
        "fees.rtf",
        rb"{\rtf1\ansi{\stylesheet{\s1\outlinelevel0 heading 1;}}{\pard\s1 Fees of the glass museum\par}"
        rb"\pard A guided tour costs {\strike 7}{\deleted 8} 9 ducats.\par"
        rb"\trowd\cellx1000\cellx2000 Group\cell Fee\cell\row\trowd\cellx1000\cellx2000 Pensioners\cell 4 ducats\cell\row\pard\par}",
        "How much does a guided tour of the glass museum cost?",
        "costs 9 ducats",
        "7|8",
    ),
    case(
        "tide.epub",
        epub(
            {
                "one.xhtml": "<html><body><h1>The Pilot</h1><p>The pilot of Morrow Sound is Edda Crane.</p></body></html>",
                "two.xhtml": "<html><body><h1>The Light</h1><p>Its light is seen for 19 leagues.</p></body></html>",
            },
            "<dc:title>Tides of Morrow Sound</dc:title><dc:creator>Halvard Finch</dc:creator>",
        ),
        "Who is the author of Tides of Morrow Sound?",
        "Author: Halvard Finch",
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
    case(
        "yield.ipynb",
        json.dumps({"nbformat": 4, "metadata": {}, "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# Hop yields\n", "\n", "Field Nine was sown by Radka Holm.\n"]},
            {"cell_type": "code", "metadata": {"tags": ["remove-cell"]}, "source": "password = 'elder'", "outputs": []},
            {"cell_type": "code", "metadata": {}, "source": "table", "outputs": [{"output_type": "execute_result", "data": {
                "text/html": ["<table><thead><tr><th></th><th>tons</th></tr></thead>", "<tbody><tr><th>Field Nine</th><td>52</td></tr>"
                              "<tr><th>Field Ten</th><td>47</td></tr></tbody></table>"],
                "text/plain": "as text"}}]},
        ]}),
        "How many tons has Field Ten of the hop yields?",
        "Field Ten; tons: 47",
        "elder",
    ),
    case(
        "boiler.tex",
        r"""\documentclass{article}
\title{Boiler of the Lind baths}
\author{Z. Ha\v{s}ek \and B. M\"oller}
\begin{document}
\maketitle
\section{Valves}
% The old valve opens at 4 bar.
The relief valve opens at \textbf{6~bar} \cite{lind} and is
tested \sout{weekly} monthly.\footnote{By the stoker.}
\begin{tabular}{l|r}
Valve & Size \\ \hline
Inlet & 40 mm \\
\multirow{2}{*}{Drain} & 25 mm \\
\end{tabular}
\end{document}
""",
        "At what pressure does the relief valve of the boiler open?",
        "opens at 6 bar and is tested monthly",
        "4 bar|weekly",
    ),
    case(
        "camp.adoc",
        """= Scout camp of Elm Hollow
Nadia Verne <nadia@camp.example>
v1.2, 2024-03-09
:description: Rules

== Tents

// The tents were sold.
[cols="1,2,1",options="header"]
|===
|Tent |Leader |Beds

|Badger
|Otis Grey
|6

|Heron
a|* Faye Lowe
|8
|===

Fires:: Only by the [.line-through]#lake# creek.
""",
        "Who is the leader of the tent Heron?",
        "Heron; Leader: Faye Lowe; Beds: 8",
        "sold|lake",
    ),
    case(
        "garden.org",
        """#+TITLE: Garden of the Weir Street school
#+AUTHOR: Petrus Alm
* Beds
** TODO Water the beds                                      :garden:
   :PROPERTIES:
   :ID: 77
   :END:
| Bed   | Crop   | Sown     |
|-------+--------+----------|
| North | Beets  | 12 April |
| South | Fennel | 3 May    |
# Nobody waters the beds.
- [X] Order the +red+ green hose
""",
        "When was the fennel sown in the school garden?",
        "South; Crop: Fennel; Sown: 3 May",
        "Nobody|red",
    ),
    case(
        "lots.ndjson",
        '{"title": "Lot 12", "text": "The oak chest of lot 12 was bought by Ms Ravn."}\n'
        '{"title": "Lot 13", "text": "The brass lamp of lot 13 was not sold."}\n',
        "Who bought the oak chest?",
        "bought by Ms Ravn",
    ),
    case(
        "column.pdf",
        b"pdf",
        "Who restores the organ of Saint Odo?",
        "is restored by the re-use workshop of Alban Thorne",
    ),
    case(
        "ferry.html",
        '<html><head><title>Ferry of Aske</title><meta name="author" content="Dorte Lykke"><meta name="date" content="2022-08-30">'
        '</head><body><h1>Ferry of Aske</h1><p>A crossing takes <span aria-hidden="true">twenty</span>'
        '<span class="sr-only">25</span> minutes.</p><p aria-hidden="true">The last ferry of Aske leaves at ten.</p></body></html>',
        "When does the last ferry of Aske leave?",
        "leaves at ten",
        "twenty",
    ),
    case(
        "drill.docx",
        b"docx",
        "Who wrote the fire drill of the Tannery?",
        "Author: Signe Holt",
    ),
]  # fmt: skip

COLUMN = [
    ["The organ of Saint Odo, which was built in", "two years, fell silent in the flood, and is re-", "stored by the re-"],
    ["use workshop of Alban Thorne, who was asked", "to bring back its voice before the next win-", "ter comes to the valley."],
]  # fmt: skip


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, str]]]:
    """For each document, by its name: the answer with the passages that were kept, and all of its passages."""
    folder = tmp_path_factory.mktemp("formats")
    for row in CASES:
        written(folder / "corpus", row.name, row.content)
    pdf(folder / "corpus" / "column.pdf", COLUMN)
    drill = word("<w:p><w:r><w:t>Everybody leaves by the east stairs.</w:t></w:r></w:p>", {
        "docProps/core.xml": core(title="Fire drill of the Tannery", creator="Signe Holt", modified="2024-01-15T08:00:00Z").encode()
    })  # fmt: skip
    written(folder / "corpus", "drill.docx", drill)
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
