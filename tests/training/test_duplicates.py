"""What of a corpus is dropped, and what must stay: a statement that goes is worse than a footer that stays."""

from pathlib import Path

import pytest

from kcard.training import duplicates
from kcard.training.corpus import read_corpus
from kcard.training.duplicates import Fingerprints, fingerprint, normal, why_boilerplate
from tests.training.documents import written

DEMO = Path(__file__).parents[2] / "demo" / "corpora"


@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        ("Titan is large.", "Titan is large", True),
        ("The “Rhine” is long.", 'The "Rhine" is long!', True),
        ("It's (very) hot", "It’s very hot.", True),
        ("Caf\u00e9 Noir", "Cafe\u0301 Noir", True),
        ("北京是首都。", "北京是首都", True),
        ("दिल्ली राजधानी है।", "दिल्ली राजधानी है", True),
        ("C is a language.", "C++ is a language.", False),
        ("It is 5 degrees.", "It is -5 degrees.", False),
        ("It costs 1.5 euros.", "It costs 15 euros.", False),
        ("x < y", "x > y", False),
        ("We're late", "Were late", False),
        ("7th district", "8th district", False),
        ("résumé", "resume", False),
        ("が", "か", False),
        ("...", "!!!", False),
        ("😀 so", "😢 so", False),
    ],
)
def test_quotes_and_stops_make_no_difference_and_what_means_something_else_does(
    one: str, two: str, is_same: bool
) -> None:
    assert (normal(one) == normal(two)) == is_same


def test_the_first_of_equal_passages_stays_across_files(tmp_path: Path) -> None:
    written(tmp_path, "a.txt", "Titan is large.\nIo is hot.\n")
    written(tmp_path, "b.txt", "Titan is large!\nTriton is cold.\nIo is  hot!\n")
    corpus = read_corpus(tmp_path)
    assert [*corpus.texts] == ["Titan is large.", "Io is hot.", "Triton is cold."]
    assert [p.file for p in corpus.passages] == ["a.txt", "a.txt", "b.txt"]
    assert corpus.duplicates == 2
    assert corpus.remarks()[0] == "left out: 2 duplicates"


def test_duplicates_are_found_across_the_parts_that_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "ROWS_AT_ONCE", 64)
    prints = Fingerprints()
    for number in [*range(500), *range(0, 500, 7), *range(0, 500, 7)]:
        prints.append(fingerprint(f"Fact {number}."), 0, line=True)
    marks = prints.marks(1)
    assert not marks[:500].any()
    assert (marks[500:] == 1).all()
    prints.truncate(500)
    assert len(prints) == len(prints.marks(1)) == 500
    assert not prints.marks(1).any()


@pytest.mark.parametrize(("files", "dropped"), [(6, {"lines that most files repeat": 6}), (4, {})])
def test_a_line_without_a_sentence_that_most_files_repeat_is_dropped_and_a_statement_stays(
    tmp_path: Path, files: int, dropped: dict[str, int]
) -> None:
    for number in range(files):
        written(tmp_path, f"f{number}.txt", f"Fact number {number} is so.\nEvery file tells this.\nImprint\n")
    corpus = read_corpus(tmp_path)
    assert ("Imprint" in [*corpus.texts]) == (not dropped)
    assert "Every file tells this." in [*corpus.texts]
    assert corpus.dropped == dropped


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("* * *", "rules"),
        ("──────", "rules"),
        ("— 12 / 34 —", "page numbers"),
        ("Page 3 of 12", "page numbers"),
        ("- Seite 7 -", "page numbers"),
        ("第 12 页", "page numbers"),
        ("p. xiv", "page numbers"),
        ("1.2 Moons of Saturn ........ 17", "lines of tables of contents"),
        ("Preface . . . . . . . . ix", "lines of tables of contents"),
        ("© 2021 Example Press, all rights reserved.", "copyright lines"),
        ("Copyright (c) 2019 by the authors", "copyright lines"),
        ("All rights reserved.", "copyright lines"),
        ("Skip to main content", "buttons of web pages"),
        ("Cookie settings", "buttons of web pages"),
    ],
)
def test_boilerplate_has_a_reason(text: str, reason: str) -> None:
    assert why_boilerplate(text) == reason


@pytest.mark.parametrize(
    "text",
    [
        "Page 3 was torn out.",
        "Jimmy Page played in 1968",
        "Copyright law protects authors for 70 years.",
        "In 1976 the United States renewed its Copyright Act.",
        "(c) 1990 was a good year for wine.",
        "The owner kept all rights reserved for kings.",
        "We use cookies to thank children.",
        "The privacy policy of Rome was strict.",
        "He waited.... 1999 came.",
        "Sign in sheet",
        "H2O",
        "π ≈ 3.14159",
        "😀 means joy",
        "Io",
        "+47 555 0100",
        "544.38 €",
        "09:00 - 17:00",
        "12",
        "-5",
        "★★★",
    ],
)
def test_what_says_something_is_no_boilerplate(text: str) -> None:
    assert why_boilerplate(text) is None


@pytest.mark.parametrize("name", ["midterms-2022", "moons", "nobel-prizes"])
def test_nothing_of_the_demos_corpora_is_dropped(name: str) -> None:
    lines: list[str] = []
    for file in sorted((DEMO / name).glob("*.txt")):
        lines += file.read_text("utf-8").splitlines()
    corpus = read_corpus(DEMO / name)
    assert [*corpus.texts] == lines
    assert (corpus.duplicates, dict(corpus.dropped)) == (0, {})
