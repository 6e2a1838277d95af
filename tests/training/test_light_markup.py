"""What is read of LaTeX, AsciiDoc and Org, and of e-mails, e-books and notebooks."""

import json
from pathlib import Path

import pytest

from kcard.training.corpus import read_corpus
from tests.training.documents import blocks, sections, written
from tests.training.packed_documents import epub


def read(folder: Path, name: str, text: str) -> list[str]:
    return [block.text for block in blocks(folder, name, text)]


LATEX = r"""\documentclass{book}
\newcommand{\firm}{Harrow \& Sons}
\title{Pumps}
\author{Z. Ha\v{s}ek \and B. M\"oller}
\begin{document}
\maketitle
\chapter{Use of \texttt{x\_y}}\label{use}
The firm \firm{} sells 5\,\% more; see \href{http://x.example}{its page} and $a_1 \le b$. % cheap
% The old firm sold none.
It opens at \textbf{6~bar} \cite{lind} \sout{weekly} monthly.
\begin{itemize}
  \item Open the lid,
        then wait.
  \item[Pump] is \emph{red}
\end{itemize}
\begin{lstlisting}
int main() { return 0; } % kept
\end{lstlisting}
\iffalse
secret
\fi
\begin{tabularx}{\textwidth}{|l|X|r|}
\hline
Part & Supplier & Price \\
\hline
Nozzle & \multirow{2}{*}{Kessel} & 84 \\
Lid & & 12 \\
\hline
\end{tabularx}
\end{document}
"""


def test_latex_is_read_as_its_text_with_the_lines_of_the_file(tmp_path: Path) -> None:
    parsed = blocks(tmp_path, "pumps.tex", LATEX)
    assert [(block.line, block.kind, block.text) for block in parsed] == [
        (1, "heading", "Pumps"),
        (1, "text", "Author: Z. Hašek, B. Möller"),
        (7, "heading", "Use of x_y"),
        (8, "text", r"The firm Harrow & Sons sells 5 % more; see its page and a_1 \le b."),
        (10, "text", "It opens at 6 bar monthly."),
        (12, "item", "- Open the lid, then wait."),
        (14, "item", "- Pump: is red"),
        (17, "code", "int main() { return 0; } % kept"),
        (26, "item", "Nozzle; Supplier: Kessel; Price: 84"),
        (27, "item", "Lid; Supplier: Kessel; Price: 12"),
    ]


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"\'Etienne, na\"{\i}ve, \O re, \c{c}a, Ha\v{s}ek", "Étienne, naïve, Øre, ça, Hašek"),
        ("She said ``go''---then 3--4", "She said “go”—then 3–4"),
        (r"Open\footnote{Or shut.} it", "Open (Or shut.) it"),
        (r"\textcolor{red}{Red} and \SI{6}{bar}", "Red and 6bar"),
        (r"\verb|a_b| is \# 1", "a_b is # 1"),
        (r"It is *not* _so_ # 2", "It is *not* _so_ # 2"),
    ],
)
def test_commands_of_latex_are_read_as_their_words(tmp_path: Path, latex: str, text: str) -> None:
    assert read(tmp_path, "a.tex", f"{latex}\n") == [text]


ASCIIDOC = """= Depot Guide
Ann Lind <ann@depot.example>
v1.2, 2024-03-09
:firm: Harrow Corp
:description: Rules

// The tents were sold.
NOTE: The firm {firm} opens at *nine*, 2 * 3 * 4.

.Prices
|===
|Part |Supplier |Price

|Nozzle
.2+|Kessel
|84 €

|Lid
a|* 12 €
2+|Sum |96 €
|===

[source,ruby]
----
puts "x" # y
----

////
hidden block
////

* one
** two
* [x] done

Key:: in the box, see link:box.html[here]
Lamp::
  on the [.line-through]#lake# shelf

== More
include::other.adoc[]
See <<key,the key>>.
"""


def test_asciidoc_is_read_as_its_text_with_the_lines_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "depot.adoc", ASCIIDOC)
    assert [(p.section, p.line) for p in read_corpus(path).passages] == [
        ("Depot Guide", 1),
        ("Depot Guide > More", 42),
    ]
    assert read_corpus(path).passages[0].text.splitlines() == [
        "Author: Ann Lind",
        "Date: 2024-03-09",
        "Version: 1.2",
        "Description: Rules",
        "NOTE: The firm Harrow Corp opens at nine, 2 * 3 * 4.",
        "Prices",
        "Nozzle; Supplier: Kessel; Price: 84 €",
        "Lid; Supplier: Kessel; Price: 12 €",
        "Sum; Supplier: Sum; Price: 96 €",
        'puts "x" # y',
        "- one",
        "- two",
        "- [x] done",
        "Key: in the box, see here",
        "Lamp: on the shelf",
    ]
    assert read_corpus(path).left_out == {"included files": 1, "struck-through words": 1}


ORG = """#+TITLE: Depot
#+AUTHOR: Ann Lind
* Plans
** DONE Order the nozzle [#A]                               :pumps:
   :PROPERTIES:
   :ID: 77
   :END:
CLOSED: [2024-01-02 Tue]
- Pump :: the red one, see [[http://x.example][its page]]
- [ ] clean /all/ +some+ of =x_y=
#+begin_src sh
# kept
ls *
#+end_src
| Part | Price |
|------+-------|
| Lid  | 12    |
** Secret :noexport:
Hidden words.
** Open
# a comment
Visible 5 * 3 * 2.
"""


def test_org_is_read_as_its_text_without_what_is_not_exported(tmp_path: Path) -> None:
    assert sections(tmp_path, "depot.org", ORG) == [
        ("Depot", "Author: Ann Lind"),
        (
            "Depot > Plans > DONE Order the nozzle",
            "CLOSED: [2024-01-02 Tue]\n- Pump: the red one, see its page\n- [ ] clean all of x_y\n# kept\nls *\n"
            "Lid; Price: 12",
        ),
        ("Depot > Plans > Open", "Visible 5 * 3 * 2."),
    ]


# E-mails, e-books and notebooks.


def test_an_email_is_its_text_with_its_attachments_counted_and_forwarded_ones_below(tmp_path: Path) -> None:
    inner = "Subject: Ducks\nFrom: Bo\n\nDucks swim.\n> Do they?\n-- \nBo's office\n"
    mail = (
        "Subject: Birds\nFrom: Ann\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nSee below.\n--b\n"
        f"Content-Type: message/rfc822\n\n{inner}\n--b\nContent-Type: image/png\n\nx\n--b--\n"
    )
    corpus = read_corpus(written(tmp_path, "a.eml", mail))
    assert [(p.section, p.text) for p in corpus.passages] == [
        ("Birds", "From: Ann\nSee below."),
        ("Birds > Ducks", "From: Bo\nDucks swim.\nDo they?"),
    ]
    assert corpus.left_out == {"attachments": 1}


@pytest.mark.parametrize(
    "header", ["Subject: =?x-unknown?Q?caf=E9?=", "Subject: =?utf-8?B?////?=", "Date: never", "To: <<>>,,"]
)
def test_an_email_with_odd_headers_is_read(tmp_path: Path, header: str) -> None:
    assert "Ducks swim." in read(tmp_path, "a.eml", f"From: Ann\n{header}\n\nDucks swim.\n")


def test_chapters_that_are_missing_are_counted(tmp_path: Path) -> None:
    page = "<html><body><p>Ducks swim.</p></body></html>"
    book = epub(
        {"one.xhtml": page, "two.xhtml": page}, "<dc:title>Birds</dc:title><dc:creator>Ann</dc:creator>"
    )
    corpus = read_corpus(written(tmp_path, "birds.epub", book.replace(b"OEBPS/two", b"OEBPS/six")))
    assert [(p.section, p.text) for p in corpus.passages] == [("Birds", "Author: Ann\nDucks swim.")]
    assert corpus.left_out == {"missing chapters": 1}


TABLE = "<table><tr><th></th><th>tons</th></tr><tr><th>Field Ten</th><td>47</td></tr></table>"


def test_a_notebook_is_its_cells_and_what_they_printed(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Birds\n", "Ducks swim."]},
        {"cell_type": "code", "source": "print(4)", "outputs": [{"output_type": "stream", "text": ["4\n"]}]},
        {
            "cell_type": "code",
            "source": "x",
            "metadata": {"tags": ["hide-input"]},
            "outputs": [{"data": 3}, 7],
        },
        {"cell_type": "code", "source": "secret", "metadata": {"tags": ["remove-cell"]}},
        {
            "cell_type": "code",
            "source": "table",
            "outputs": [{"data": {"text/html": [TABLE], "text/plain": "x"}}],
        },
        {"cell_type": "raw", "source": "raw"},
        "no cell",
    ]
    parsed = blocks(tmp_path, "a.ipynb", json.dumps({"cells": cells}))
    assert [(block.line, block.kind, block.text) for block in parsed] == [
        (1, "heading", "Birds"),
        (1, "text", "Ducks swim."),
        (2, "code", "print(4)"),
        (2, "code", "4"),
        (5, "code", "table"),
        (5, "item", "Field Ten; tons: 47"),
    ]
