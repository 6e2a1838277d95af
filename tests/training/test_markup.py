"""Web pages and Markdown: headings, code, definitions and lists are kept, whatever the markup."""

from pathlib import Path

import pytest

from kcard.training.corpus import read_corpus
from tests.training.documents import blocks, kinds_and_texts, sections, written

PAGE = """<html><head><title>Site</title></head><body><h1>Depot</h1><h2>Use</h2><p>It sorts
letters.</p><pre><code>depot &lt;file&gt;
  --all</code></pre><dl><dt>sender</dt><dd>Who writes.</dd><dt>receiver</dt><dd>Who reads.</dd></dl>
<ol><li>open</li><li>close</li></ol><table><tr><th>name</th><th>size</th></tr><tr><td>A</td><td>12</td></tr></table>
</body></html>"""
MARKDOWN = """Depot
=====

## Use

It sorts
letters.

```sh
depot <file>
  --all
```

sender
: Who writes.

receiver
: Who reads.

1. open
2. close

| name | size |
|---|---|
| A | 12 |
"""
TEXT_OF_WEB = [
    "It sorts letters.",
    "depot <file>",
    "  --all",
    "sender: Who writes.",
    "receiver: Who reads.",
    "1. open",
    "2. close",
    "A; size: 12",
]


@pytest.mark.parametrize(
    ("name", "page"), [("depot.html", PAGE), ("depot.xhtml", PAGE), ("depot.md", MARKDOWN)]
)
def test_the_same_document_in_either_markup_is_the_same_passage(tmp_path: Path, name: str, page: str) -> None:
    [(section, text)] = sections(tmp_path, name, page)
    assert section == "Depot > Use"
    assert text.splitlines() == TEXT_OF_WEB


@pytest.mark.parametrize(
    ("name", "page", "read"),
    [
        ("title.html", "<head><title>The\n depot</title></head><p>It opens.</p>", "The depot | It opens."),
        (
            "prev.html",
            "<h1>Depot</h1><p>Open.</p><DIV CLASS='NAVFOOTER'><A HREF='a'>Prev</A></DIV>",
            "Depot | Open.",
        ),
        ("menu.html", "<nav><a href='/'>Home</a></nav><h1>Depot</h1><p>Open.</p>", "Depot | Open."),
        (
            "foot.html",
            "<h1>Depot</h1><p>Open.</p><script>var x</script><footer>Imprint</footer>",
            "Depot | Open.",
        ),
        ("terms.html", "<h1>Depot</h1><dl><dt>Default:</dt><dd>None.</dd></dl>", "Depot | Default: None."),
        (
            "options.html",
            "<h1>Depot</h1><dl><dt><code>-k</code></dt>\n<dt><a id='k'></a>--keep</dt><dd>Keep.</dd></dl>",
            "Depot | -k, --keep: Keep.",
        ),
        (
            "bold.html",
            "<h1>Limits</h1><p><b>In a bag:</b></p><p>At most nine.</p>",
            "Limits > In a bag | At most nine.",
        ),
        ("bold.md", "# Limits\n\n**In a bag:**\n\nAt most nine.\n", "Limits > In a bag | At most nine."),
        (
            "text.md",
            "# Limits\n\n**Never throw a bag.**\n\nIt bursts.\n",
            "Limits | Never throw a bag.\nIt bursts.",
        ),
    ],
)
def test_titles_terms_and_footers_are_told_from_text(tmp_path: Path, name: str, page: str, read: str) -> None:
    [(section, text)] = sections(tmp_path, name, page)
    assert f"{section} | {text}" == read


def test_links_within_a_text_are_no_menu(tmp_path: Path) -> None:
    links = "".join(f'<li><a href="{n}">Page {n}</a></li>' for n in "abcd")
    text = links.replace("</a>", "</a> tells how letters are sorted there.")
    page = f"<html><body><h1>Depot</h1><ul>{links}</ul><ul>{text}</ul></body></html>"
    corpus = read_corpus(written(tmp_path, "page.html", page))
    expected = [f"- Page {n} tells how letters are sorted there." for n in "abcd"]
    assert corpus.passages[0].text.splitlines() == expected
    assert corpus.dropped == {"words of menus and lists of links in web pages": 8}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Give <name> and <b>bold</b>.", [("text", "Give <name> and bold .")]),
        ("<!-- hidden -->\n\nShown.", [("text", "Shown.")]),
        ("<details>\nFolded.\n</details>", [("text", "Folded.")]),
        ("> Quoted\n> words.", [("text", "Quoted words.")]),
        ("- [x] done\n- [ ] open", [("item", "- [x] done"), ("item", "- [ ] open")]),
        ("3. three\n4. four", [("item", "3. three"), ("item", "4. four")]),
        ("    indented code\n      stays", [("code", "indented code\n  stays")]),
        ("---\ntitle: A page\n---\nText.", [("heading", "A page"), ("text", "Text.")]),
        ("![the plan](x.png) and [a link](y)", [("text", "the plan and a link")]),
        # A fence hides what looks like a heading.
        ("```\n# none\n\n## none either\n```", [("code", "# none\n\n## none either")]),
    ],
)
def test_markdown_is_read_as_it_is_meant(tmp_path: Path, text: str, expected: list[tuple[str, str]]) -> None:
    assert kinds_and_texts(blocks(tmp_path, "page.md", f"{text}\n")) == expected


@pytest.mark.parametrize(
    "question",
    [
        "(2) Why don't the letters of the same sender that were posted on one day lie in one drawer of the depot?",
        "(3) The depot keeps all letters!",
        "Who keeps the keys?",
    ],
)
def test_a_question_in_bold_is_the_title_of_its_answer(tmp_path: Path, question: str) -> None:
    page = f"<h1>Depot</h1><p>At noon.</p><p><b>{question}</b></p><p>Ada does.</p>"
    assert sections(tmp_path, "faq.html", page)[1] == (f"Depot > {question}", "Ada does.")


# Tables: each row says everything by itself, and what only arranges text is read as text.


@pytest.mark.parametrize(
    ("table", "lines"),
    [
        (  # a table in a table, as in mails
            "<tr><td><table><tr><td><h2>Trip</h2><p>Dear Bo, your seat is 12.</p></td></tr><tr><td><table><tr>"
            "<td>Leaves</td><td>9 May</td></tr></table></td></tr><tr><td><ul><li>No bikes</li></ul></td></tr></table>"
            "</td></tr>",
            ["Trip", "Dear Bo, your seat is 12.", "Leaves: 9 May", "- No bikes"],
        ),
        (
            "<tr><th>Part</th><th>Maker</th><th>Cost</th></tr><tr><td>Mast</td><td rowspan=2>Ardo</td><td>30</td></tr>"
            "<tr><td>Boom</td><td>20</td></tr><tr><td>Sail</td><td colspan=2>unknown</td></tr>",
            [
                "Mast; Maker: Ardo; Cost: 30",
                "Boom; Maker: Ardo; Cost: 20",
                "Sail; Maker: unknown; Cost: unknown",
            ],
        ),
        (
            "<thead><tr><th rowspan=2>Boat</th><th colspan=2>Price</th></tr><tr><th>May</th><th>July</th></tr></thead>"
            "<tbody><tr><td colspan=3>Small ones</td></tr><tr><td>Skiff</td><td>5</td><td>8</td></tr></tbody>",
            ["Small ones", "Skiff; Price May: 5; Price July: 8"],
        ),
        (
            "<tr><th>Room</th><th>Has</th></tr><tr><td>7</td><td><ul><li>a bed</li><li>a desk</li></ul></td></tr><tr>"
            "<td>8</td><td><table><tr><td>Beds</td><td>2</td></tr><tr><td>Desks</td><td>0</td></tr></table></td></tr>",
            ["7; Has: a bed; a desk", "8; Has: Beds 2; Desks 0"],
        ),
        (
            "<tr><td>Part</td><td>Maker</td><td>Cost</td></tr><tr><td>Mast</td><td>Ardo</td><td>30</td></tr>"
            "<tr><td>Boom</td><td>Ilse</td><td>20</td></tr>",
            ["Mast; Maker: Ardo; Cost: 30", "Boom; Maker: Ilse; Cost: 20"],
        ),
        ("<tr><td rowspan=0>Mast</td><td>30</td></tr><tr><td>20</td></tr>", ["Mast: 30", "Mast: 20"]),
        ("<tr><td rowspan=99999999>x</td><td colspan=99999999>y</td></tr>", ["x" + "; y" * 50]),
        ("<tr><td><p>Keep</p><pre>a\n b</pre></td><td>x</td></tr>", ["Keep", "a\n b", "x"]),
        ("<tr><td><pre>-q</pre></td><td>Write nothing.</td></tr>", ["-q: Write nothing."]),
    ],
)
def test_tables_of_web_pages_keep_every_cell_under_its_name(
    tmp_path: Path, table: str, lines: list[str]
) -> None:
    parsed = blocks(tmp_path, "t.html", f"<html><body><table>{table}</table></body></html>")
    assert [text for _, text in kinds_and_texts(parsed)] == lines


# Marks within a line go and its words stay; what is struck through or hidden is no text of the document, formulas are.

IN_MARKDOWN = [
    ("Tap![](x.png)to open.", "Tap to open."),
    ("Tap![](x.png)![](y.png)to open.", "Tap to open."),
    ("Tap![Menu](x.png)to open, **or close**![](y.png)it.", "Tap Menu to open, or close it."),
    ("Tap <img src='x.png'>, then ![Menu](x.png).", "Tap , then Menu."),
    ("The boat costs ~~30~~ 45 euros.", "The boat costs 45 euros."),
    ("The boat costs <del>30</del> 45 euros.", "The boat costs 45 euros."),
    ("The boat costs <S>30 <b>or</b> 40</S> 45 euros.", "The boat costs 45 euros."),
    ("Use <s> for the sender.", "Use for the sender."),
    ("It is ~5 metres from ~10.", "It is ~5 metres from ~10."),
    ("The pond is deep. %% ask Ann first %%", "The pond is deep."),
    ("Write 5 %% or %%i here.", "Write 5 %% or %%i here."),
    ("<p>The boat costs <del>30</del> 45 euros.</p>", "The boat costs 45 euros."),
    ("<div hidden>No.</div>\nThe boat is green.", "The boat is green."),
    ("| price |\n|---|\n| ~~30~~ 45 |", "45"),
]
IN_WEB_PAGES = [
    ("Set <code>&lt;key&gt;</code> to <b>2</b>.", "Set <key> to 2."),
    ("It is <a href='x'>linked</a>, H<sub>2</sub>O.", "It is linked, H2O."),
    ("5 &lt; 6 &amp; a*b*c", "5 < 6 & a*b*c"),
    ("See <img src='x' alt='the plan'> here.", "See the plan here."),
    ("Tap<img src='x'>to open.", "Tap to open."),
    ("Tap<img src='x'><img src='y'>to open.", "Tap to open."),
    ("Tap<img src='x' alt='Menu'>to open.", "Tap Menu to open."),
    ("Tap <b>Add<i class='icon' aria-hidden='true'></i></b>to open.", "Tap Add to open."),
    ("Tap<svg><title>Menu</title></svg>to open.", "Tap to open."),
    ("Tap (<img src='x'>), then close<img src='y'>.", "Tap (), then close."),
    ("It is a con<a id='x'></a>cept.", "It is a concept."),
    ("Add <code>-v</code><a href='#x' class='copiable-anchor'> &para;</a>", "Add -v"),
    ("The boat costs <strike>30</strike> 45 euros.", "The boat costs 45 euros."),
    ("The boat costs <span style='text-decoration: line-through'>30</span> 45.", "The boat costs 45."),
    ("The boat is <span style='color:red;display:none'>not</span> green.", "The boat is green."),
    ("The boat is <span style='visibility : hidden'>not</span> green.", "The boat is green."),
    ("The boat is <b hidden>not</b> green.", "The boat is green."),
    ("The boat is <b hidden='until-found'>not</b> green.", "The boat is not green."),
    ("If <math alttext='a=b'><mi>a</mi></math>, stop.", "If a=b, stop."),
    ("It is <math><mfrac><mi>a</mi><msup><mi>b</mi><mn>2</mn></msup></mfrac></math>.", "It is a/b^2."),
    ("It is <script type='math/tex'>x+1</script>.", "It is x+1."),
    ("It is <math></math> here.", "It is [formula] here."),
    # What screen readers pass over is left out if they read another text for it.
    ("The boat is <i aria-hidden=true>not</i> green.", "The boat is not green."),
    ("<b><i aria-hidden=true>9</i> <i class=sr-only>Nine</i></b> boats.", "Nine boats."),
    ("Nine<i aria-hidden=true> ▲</i> boats.", "Nine boats."),
    ("Nine <i class=icon aria-hidden=true>expand</i> boats.", "Nine boats."),
    ("<span aria-hidden=true>Nine</span> boats.", "Nine boats."),
]


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        *(("pond.md", text, shown) for text, shown in IN_MARKDOWN),
        *(("pond.html", f"<html><body><p>{text}</p></body></html>", shown) for text, shown in IN_WEB_PAGES),
    ],
)
def test_a_line_is_read_without_its_markup_and_what_is_struck_through_or_hidden(
    tmp_path: Path, name: str, text: str, shown: str
) -> None:
    parsed = blocks(tmp_path, name, text + "\n")
    assert [part.replace("  ", " ") for _, part in kinds_and_texts(parsed)] == [shown]


def test_the_author_the_date_and_the_description_of_a_web_page_are_lines_under_its_title(
    tmp_path: Path,
) -> None:
    head = (
        "<title>Pond rules</title><meta name=author content='Ann Lind'><meta name=description content='Of ducks.'>"
        "<meta property='article:published_time' content='2024-05-01'><meta name=generator content=Pen>"
    )
    page = f"<html><head>{head}</head><body><h1>Rules</h1><p>Ducks may swim.</p></body></html>"
    assert sections(tmp_path, "pond.html", page) == [
        ("Pond rules", "Author: Ann Lind\nDate: 2024-05-01\nDescription: Of ducks."),
        ("Rules", "Ducks may swim."),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pond.md", "The boat is ~~green and~~ blue. <del>Sold.</del>\n\n<p hidden>An old note.</p>\n"),
        (
            "pond.html",
            "<p>The boat is <s>green and sold</s> blue.</p><p style='display:none'>An old note.</p>",
        ),
    ],
)
def test_hidden_and_struck_through_words_are_counted(tmp_path: Path, name: str, text: str) -> None:
    corpus = read_corpus(written(tmp_path, name, text))
    assert corpus.left_out == {"struck-through words": 3, "hidden words": 3}


@pytest.mark.parametrize(
    ("front", "read"),
    [
        (
            "title: 'Boat house'\nauthor: Ann Lind\ndate: 2019-05-06\ntags: [boats, wood]\nlayout: page",
            [
                ("heading", "Boat house"),
                ("text", "Author: Ann Lind"),
                ("text", "Date: 2019-05-06"),
                ("text", "Tags: boats, wood"),
            ],
        ),
        (
            "authors:\n  - name: Ann Lind\n  - Bo Falk\nDescription: >\n  How it\n  was built.",
            [("text", "Authors: Ann Lind, Bo Falk"), ("text", "Description: How it was built.")],
        ),
        (
            "author: &a [x, x]\ntags: [*a, *a, y]\n# no: comment",
            [("text", "Author: x, x"), ("text", "Tags: y")],
        ),
        ("author: [unclosed", []),
        ("just words", []),
    ],
)
def test_the_fields_of_front_matter_are_read(tmp_path: Path, front: str, read: list[tuple[str, str]]) -> None:
    parsed = blocks(tmp_path, "boat.md", f"---\n{front}\n---\n\nIt floats.\n")
    assert kinds_and_texts(parsed) == [*read, ("text", "It floats.")]


def test_a_web_page_keeps_the_state_of_its_tasks(tmp_path: Path) -> None:
    box = "<li><input type=checkbox"
    page = f"<ul>{box} checked> Paint the boat</li>{box} disabled>Buy oars</li><li>More<input type=checkbox></li></ul>"
    parsed = blocks(tmp_path, "tasks.html", f"<html><body>{page}</body></html>")
    assert [text for _, text in kinds_and_texts(parsed)] == [
        "- [x] Paint the boat",
        "- [ ] Buy oars",
        "- More",
    ]


CAFE = "The café “Zoé” – it’s open."


@pytest.mark.parametrize(
    ("label", "encoding", "words"),
    [
        ("iso-8859-1", "cp1252", CAFE),
        ("latin1", "cp1252", CAFE),
        ("us-ascii", "cp1252", CAFE),
        ("utf-8", "cp1252", CAFE),  # declared in vain
        ("iso-8859-9", "cp1254", "Çay evi saat dokuzda açılır – ışık."),
        ("shift_jis", "cp932", "①番の門は九時に開きます。"),
        ("gb2312", "gb18030", "朱镕基的馆。"),
        ("nonsense", "utf-8", CAFE),
        ("utf-16", "utf-8", CAFE),
        ("iso-8859-1", "utf-8-sig", CAFE),
        ("iso-8859-1", "utf-16", CAFE),
        ("utf-8", "utf-32", CAFE),
    ],
)
def test_the_encoding_of_a_web_page_is_what_browsers_take_it_for(
    tmp_path: Path, label: str, encoding: str, words: str
) -> None:
    page = f"<html><head><meta charset='{label}'></head><body><p>{words}</p></body></html>"
    parsed = blocks(tmp_path, "cafe.html", page.encode(encoding))
    assert [text for _, text in kinds_and_texts(parsed)] == [words]
