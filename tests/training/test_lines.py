"""Of every word of a passage the line of the file is known that it stands on, in every format that has lines."""

from pathlib import Path

import pytest

from kcard.training.corpus import read_corpus

MARKDOWN = """# Backup

The first run is slow and copies
every file. Later runs are
quick.

- `--full` copies all,
  again. It is slow.

<p>Old copies are
deleted. Never by hand.</p>

```
backup --full
backup --list
```
"""
TEXT = """BACKUP

The first run is slow and copies
every file. Later runs are
quick.

  --full    copies all, again. It
            is slow.
  --list    shows what there is.

Old copies are
deleted. Never by hand.
"""
RST = """Backup
======

.. note:: The first run is slow and
   copies every file. Later runs are
   quick, see `the long
   page <http://a.example/>`_. Never by hand.

.. deprecated:: 6.2
   It is slow. Old copies stay.
"""
HTML = """<html><head><title>Backup</title><script>
var a = "Later runs";
</script></head><body><nav>
<a href="a">Later runs</a></nav>
<h1>Backup</h1>
<p>The first run is <b>slow</b> and
copies every file. Later
runs are quick.</p><!-- Never
by hand -->
<table><tr><th>Option</th><th>Meaning</th></tr>
<tr><td>--full</td>
<td>copies all. It is slow.</td></tr></table>
<p>Old copies &amp; others stay. Never by hand.</p>
</body></html>
"""


@pytest.mark.parametrize(
    ("name", "content"), [("a.md", MARKDOWN), ("a.txt", TEXT), ("a.rst", RST), ("a.html", HTML)]
)
def test_the_line_of_a_sentence_is_the_one_that_it_begins_on(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    passages = read_corpus(tmp_path).passages
    lines = content.split("\n")
    for sentence in (
        "The first run",
        "Later",
        "It is slow" if name != "a.txt" else "It",
        "Old copies",
        "Never by",
    ):
        [passage] = [passage for passage in passages if sentence in passage.text]
        place = passage.line_at(passage.text.index(sentence))
        assert sentence in lines[place - 1], (sentence, passage)


def test_the_lines_of_a_passage_travel_with_its_card(tmp_path: Path) -> None:
    from kcard.cards.passages import Indexing, passages, write

    (tmp_path / "a.md").write_text(MARKDOWN)
    [passage, *_] = corpus = read_corpus(tmp_path / "a.md").passages
    assert passage.lines
    write(tmp_path, corpus, "passages", {}, Indexing())
    assert passages(tmp_path)[0] == passage
    [again, *_] = read_corpus(tmp_path / "passages.jsonl").passages
    assert again.lines == passage.lines


@pytest.mark.parametrize("lines", ['[[1, "2"]]', "[[1]]", "4", '"ab"'])
def test_lines_that_are_no_numbers_are_refused(tmp_path: Path, lines: str) -> None:
    from kcard.cards.passages import passages
    from kcard.errors import CardError

    row = f'{{"text": "It is slow.", "file": "a.md", "line": 1, "lines": {lines}}}\n'
    (tmp_path / "passages.jsonl").write_text(row)
    with pytest.raises(CardError, match="lines must be pairs"):
        passages(tmp_path)[0]
