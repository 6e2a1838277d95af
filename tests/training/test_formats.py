"""Corpora in tables: .csv, .tsv, .parquet, data sets of Hugging Face, and triples told as sentences."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from kcard.errors import CorpusError
from kcard.training.corpus import read_corpus
from kcard.training.readers.data_sets import repository
from kcard.training.readers.triples import ALIASES, PROPERTIES, TEMPLATES, label_of, to_sentence
from tests.training.documents import BODY, Line, pdf

MOONS = ["Titan circles Saturn.", "Io circles Jupiter.", "Triton circles Neptune."]


def write(folder: Path, name: str, text: str, encoding: str = "utf-8") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding=encoding)
    return path


def rows(path: Path, field: str | None = None) -> list[tuple[str, int]]:
    return [(p.text, p.line) for p in read_corpus(path, field).passages]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_a_table_is_read_whatever_divides_its_columns(tmp_path: Path, mark: str) -> None:
    lines = [["id", "text"], ["7", "Titan, a moon; the largest."], ["8", '"Io" is | hot\tand dry.']]
    quoted = [mark.join('"' + cell.replace('"', '""') + '"' for cell in line) for line in lines]
    path = write(tmp_path, "moons.csv", "\r\n".join(quoted), encoding="utf-8-sig")
    assert rows(path) == [("Titan, a moon; the largest.", 1), ('"Io" is | hot and dry.', 2)]


def test_quoted_cells_may_hold_lines_and_rows_still_count(tmp_path: Path) -> None:
    path = write(tmp_path, "moons.csv", 'text,n\n"Titan is large.\nIo is hot.",1\n\nTriton is cold.,2\n')
    assert rows(path) == [("Titan is large.\nIo is hot.", 1), ("Triton is cold.", 2)]


def test_a_table_without_header_of_one_column_loses_no_row(tmp_path: Path) -> None:
    path = write(tmp_path, "moons.csv", "\n".join(MOONS))
    assert [text for text, _ in rows(path)] == MOONS


@pytest.mark.parametrize(
    ("header", "cells", "chosen"),
    [
        ("id,Text", "1,Titan is large.", "Titan is large."),
        ("title,body", "A title of more words than it needs,Short body.", "Short body."),
        (
            "year,what happened",
            "1655,Huygens discovered Titan near Saturn that spring.",
            "Huygens discovered Titan",
        ),
        ("year,event", "1655,Discovery", "Discovery"),
    ],
)
def test_the_column_of_text_is_found_by_its_name_or_its_sentences(
    tmp_path: Path, header: str, cells: str, chosen: str
) -> None:
    [(text, _)] = rows(write(tmp_path, "table.csv", f"{header}\n{cells}\n"))
    assert text.startswith(chosen)


def test_a_column_that_was_guessed_is_said(tmp_path: Path) -> None:
    path = write(
        tmp_path, "t.csv", "year,what happened\n1655,Huygens discovered Titan near Saturn that spring.\n"
    )
    assert "t.csv: the text is taken from its column 'what happened'" in read_corpus(path).remarks()


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("Question,Answer\nWho found Titan?,Huygens", "Who found Titan? Huygens"),
        ("id,q,a\n1,Titan,A moon of Saturn.", "Titan: A moon of Saturn."),
        (
            "moon,finder,notes\nTitan,C. Huygens,It has lakes of methane near the pole",
            "It has lakes of methane near the pole. moon: Titan. finder: C. Huygens",
        ),
        ("text,text,n\nTitan is large.,Io is hot.,1", "Titan is large. Io is hot."),
        ('n,text\n1,"Titan was\nfound early.\nIo is hot."', "Titan was found early.\nIo is hot."),
    ],
)
def test_a_row_is_read_with_all_of_its_texts(tmp_path: Path, table: str, text: str) -> None:
    assert rows(write(tmp_path, "moons.csv", table)) == [(text, 1)]


FACTS = "city,country,people\nParis,France,2\nOslo,Norway,\n"


def test_a_table_of_facts_is_not_guessed_at(tmp_path: Path) -> None:
    with pytest.raises(
        CorpusError, match="has no text column; it has city, country, people: name one with --field"
    ):
        read_corpus(write(tmp_path, "cities.csv", FACTS))


def test_a_sentence_of_columns_tells_a_table_of_facts(tmp_path: Path) -> None:
    path = write(tmp_path, "cities.csv", FACTS)
    assert rows(path, "{city} is in {country}.") == [("Paris is in France.", 1), ("Oslo is in Norway.", 2)]
    assert rows(path, "country") == [("France", 1), ("Norway", 2)]
    corpus = read_corpus(path, "{city} has {people} million people.")
    assert [*corpus.texts] == ["Paris has 2 million people."]
    assert corpus.dropped == {"rows without text": 1}
    for field in ("town", "{city} and {town}"):
        with pytest.raises(CorpusError, match="no column 'town': it has city, country, people"):
            read_corpus(path, field)
    with pytest.raises(CorpusError, match=r"field 'city' names a column, but .*facts\.txt has none"):
        read_corpus(write(tmp_path, "facts.txt", "A fact."), "city")


def test_broken_rows_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    text = 'id,text\n1,Titan is large.\n2,one,too many\n3\n4,"stray" quote\n5,Io is hot.\n'
    corpus = read_corpus(write(tmp_path, "t.csv", text))
    assert [*corpus.texts] == ["Titan is large.", "Io is hot."]
    assert corpus.dropped == {"broken rows": 3}
    assert corpus.notes == ("t.csv: row 2 has 3 columns instead of 2; such rows are skipped",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('id,text\n1,Fine.\n2,"open\n3,swallowed\n', r"t\.csv:3 opens a quote that is never closed"),
        ("\n", r"t\.csv has no header: its first row must name the columns"),
        ("id,text\n", r"t\.csv holds no text: add at least one passage"),
    ],
)
def test_a_table_that_can_not_be_read_is_refused_with_its_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        read_corpus(write(tmp_path, "t.csv", text))


def test_json_lines_take_a_field_too(tmp_path: Path) -> None:
    path = write(tmp_path, "r.jsonl", '{"q": "Who?", "a": "Huygens"}\n{"q": "When?", "a": 1655}\n')
    assert rows(path, "{q} {a}.") == [("Who? Huygens.", 1), ("When? 1655.", 2)]
    with pytest.raises(CorpusError, match=r"r\.jsonl:1 has no 'b': its keys are q, a"):
        read_corpus(path, "b")


def parquet(path: Path, columns: dict[str, list[Any]]) -> Path:
    import pyarrow
    from pyarrow.parquet import write_table

    write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


def test_parquet_is_read_by_rows_and_vectors_and_bytes_are_passed_over(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "id": [1, 2, 3],
        "vector": [[0.5]] * 3,
        "raw": [b"\xff"] * 3,
        "text": [*MOONS[:2], None],
    }
    corpus = read_corpus(parquet(tmp_path / "m.parquet", columns))
    assert [(p.text, p.line) for p in corpus.passages] == [(MOONS[0], 1), (MOONS[1], 2)]
    assert corpus.dropped == {"rows without text": 1}


@pytest.mark.parametrize("cut", [0, 4, 60, -8])
def test_damaged_parquet_is_one_line(tmp_path: Path, cut: int) -> None:
    path = parquet(tmp_path / "m.parquet", {"text": MOONS})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorpusError, match=r"m\.parquet can't be read as Parquet") as error:
        read_corpus(path)
    assert "\n" not in str(error.value)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Folders as datasets writes them."""
    import datasets

    datasets.disable_progress_bars()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = datasets.Dataset.from_dict({"text": [*MOONS, MOONS[0]]})
        one.save_to_disk(tmp_path / "one")
        datasets.DatasetDict({"test": one.select([0]), "train": one}).save_to_disk(tmp_path / "splits")
        datasets.DatasetDict({"a": one, "b": one.select([1])}).save_to_disk(tmp_path / "odd")
    return tmp_path


def test_what_datasets_saved_is_read_from_its_train_split(saved: Path) -> None:
    for name in ("one", "splits"):
        corpus = read_corpus(saved / name)
        assert [(p.text, p.file, p.line) for p in corpus.passages] == [
            (text, name, number) for number, text in enumerate(MOONS, 1)
        ]
        assert corpus.duplicates == 1
    assert [*read_corpus(f"hf:{saved / 'one'}").texts] == MOONS
    assert [*read_corpus(saved / "odd" / "b").texts] == [MOONS[1]]
    with pytest.raises(CorpusError, match=r"several splits and no train; it has a, b: name one of .*odd/a"):
        read_corpus(saved / "odd")
    (saved / "one" / "data-00000-of-00001.arrow").write_bytes(b"junk")
    with pytest.raises(CorpusError, match="can't be loaded as a saved data set"):
        read_corpus(saved / "one")


@pytest.mark.parametrize("name", ["hf:nobody/nothing", "hf:nobody/nothing/part:test"])
def test_a_data_set_that_is_not_at_hand_offline_is_one_line(name: str) -> None:
    with pytest.raises(
        CorpusError, match="hf:nobody/nothing is not on this machine and HF_HUB_OFFLINE is set"
    ) as error:
        read_corpus(name)
    assert "\n" not in str(error.value)


def test_a_data_set_by_name_is_read_row_by_row(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    """The hub is out of reach of tests: what datasets would load by that name is put in its place."""
    import datasets

    requests: list[tuple[Any, ...]] = []

    def load_dataset(*arguments: Any, **options: Any) -> Any:
        requests.append((*arguments, options))
        if arguments[0] == "owner/code":
            raise RuntimeError("Dataset scripts are no longer supported, but found code.py")
        return datasets.load_from_disk(str(saved / "splits"))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    corpus = read_corpus("hf:owner/moons")
    assert next((p.text, p.file, p.line) for p in corpus.passages) == (MOONS[0], "hf:owner/moons", 1)
    assert corpus.path.name == "moons"
    assert [*read_corpus("hf:owner/moons/large:test").texts] == [MOONS[0]]
    assert [(name, config) for name, config, _ in requests] == [
        ("owner/moons", None),
        ("owner/moons", "large"),
    ]
    with pytest.raises(CorpusError, match="no split 'dev'; it has test, train"):
        read_corpus("hf:owner/moons:dev")
    with pytest.raises(CorpusError, match="hf:owner/code needs its own code, which kcard does not run"):
        read_corpus("hf:owner/code")


def test_a_data_set_lends_its_name_to_the_card() -> None:
    assert repository("hf:owner/moons.v2/config:train") == "moons.v2"
    assert repository("hf:squad") == "squad"


def test_triples_are_told_as_sentences(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "graph.tsv",
        "subject\tpredicate\tobject\nFrance\tcapital\tParis\nAda Lovelace\tdateOfBirth\t1815-12-10\n"
        "http://dbpedia.org/resource/Bram_Stoker\thttp://dbpedia.org/ontology/birthPlace\tDublin\n"
        'Dracula\twdt:P50\t"Bram Stoker"@en\nno triple here\nRhine\tflowsThrough\tBasel\nMars\tmoon_count\t2\n',
    )
    corpus = read_corpus(path)
    assert [(p.text, p.line) for p in corpus.passages] == [
        ("The capital of France is Paris.", 2),
        ("Ada Lovelace was born on 1815-12-10.", 3),
        ("Bram Stoker was born in Dublin.", 4),
        ("The author of Dracula is Bram Stoker.", 5),
        ("Rhine flows through Basel.", 7),
        ("The moon count of Mars is 2.", 8),
    ]
    assert corpus.dropped == {"broken rows": 1}


@pytest.mark.parametrize(
    ("triple", "sentence"),
    [
        (("Io", "discovered in", "1610"), "Io was discovered in 1610."),
        (("Io", "is smaller than", "Ganymede"), "Io is smaller than Ganymede."),
        (("Acme", "inception", "1999"), "Acme was founded in 1999."),
        (("Acme", "P571", "1999-03-01"), "Acme was founded on 1999-03-01."),
        (("Acme", "founders", "J. Doe Jr."), "Acme was founded by J. Doe Jr."),
        (("dog", "IsA", "animal"), "dog is an animal."),
        (("{object}", "capital", "{subject}"), "The capital of {object} is {subject}."),
    ],
)
def test_a_relation_is_told_by_its_template_or_by_the_form_of_its_name(
    triple: tuple[str, str, str], sentence: str
) -> None:
    assert to_sentence(*triple) == sentence


@pytest.mark.parametrize(
    "name", ["placeOfBirth", "place_of_birth", "P19", "wdt:P19", "/people/person/birth_place"]
)
def test_one_relation_has_many_names(name: str) -> None:
    assert label_of(name) == "place of birth"


def test_every_alias_and_number_leads_to_a_template_with_both_places() -> None:
    assert {*ALIASES.values(), *PROPERTIES.values()} <= {*TEMPLATES}
    assert not {*ALIASES} & {*TEMPLATES}
    assert all(
        t.count("{subject}") == t.count("{object}") == 1 and t.endswith(".") for t in TEMPLATES.values()
    )


def test_templates_beside_the_triples_win(tmp_path: Path) -> None:
    path = write(tmp_path, "graph.tsv", "France\tcapital\tParis\nFrance\tdish\tcassoulet\n")
    write(
        tmp_path,
        "templates.tsv",
        "capital\t{object} governs {subject}.\ndish\tIn {subject} people eat {object}.\n",
    )
    for corpus in (read_corpus(path), read_corpus(tmp_path)):
        assert [*corpus.texts] == ["Paris governs France.", "In France people eat cassoulet."]
    write(tmp_path, "templates.tsv", "capital\t{object} governs.\n")
    with pytest.raises(CorpusError, match=r"templates\.tsv:1 is not a template"):
        read_corpus(path)


def test_a_tab_separated_table_is_no_list_of_triples(tmp_path: Path) -> None:
    assert rows(write(tmp_path, "a.tsv", "id\ttitle\ttext\n1\tMoon\tTitan is large.\n")) == [
        ("Titan is large.", 1)
    ]
    assert rows(write(tmp_path, "b.tsv", "id\ttext\n1\tIo is hot.\n")) == [("Io is hot.", 1)]
    with pytest.raises(CorpusError, match=r"b\.tsv has no text column; it has moon, finder"):
        read_corpus(write(tmp_path, "b.tsv", "moon\tfinder\nTitan\tHuygens\n"))


# PDF.


PROSE = "Letters are sorted by their sender, and those of one sender by the date of their postmark there."


def sections(path: Path) -> list[tuple[str, str]]:
    return [(p.section, p.text) for p in read_corpus(path).passages]


def test_lines_in_larger_letters_are_headings_by_their_size(tmp_path: Path) -> None:
    pages: list[list[Line]] = [
        [("Depot", 24), ("Hours", 16), (PROSE, BODY), (PROSE.replace("sender", "weight"), BODY)],
        [("Rules", 16), (PROSE.replace("sender", "colour"), BODY)],
    ]
    parsed = sections(pdf(tmp_path / "main.pdf", pages))
    assert [section for section, _ in parsed] == ["Depot > Hours", "Depot > Rules"]
    assert parsed[1][1] == PROSE.replace("sender", "colour")


def test_a_number_tells_the_level_of_a_heading(tmp_path: Path) -> None:
    pages: list[list[Line]] = [
        [("2 Sorting", 16), (PROSE, BODY), ("2.1 By sender", 16), (PROSE.replace("sender", "name"), BODY)]
    ]
    parsed = sections(pdf(tmp_path / "main.pdf", pages))
    assert [section for section, _ in parsed] == ["2 Sorting", "2 Sorting > 2.1 By sender"]


@pytest.mark.parametrize("line", ["It is said in larger letters.", "12"])
def test_a_sentence_or_a_figure_in_larger_letters_is_no_heading(tmp_path: Path, line: str) -> None:
    [(section, _)] = sections(pdf(tmp_path / "depot.pdf", [[(PROSE, BODY), (line, 20), (PROSE[:60], BODY)]]))
    assert section == "depot"


def test_lines_of_a_table_of_contents_are_left_out(tmp_path: Path) -> None:
    pages: list[list[Line]] = [[("Sorting . . . . . . . . . 12", BODY), (PROSE, BODY)]]
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", pages))
    assert text == PROSE


def test_items_of_a_list_are_lines_of_their_own(tmp_path: Path) -> None:
    pages: list[list[Line]] = [[(PROSE, BODY), ("- open the lid", BODY), ("- close the lid", BODY)]]
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", pages))
    assert text.splitlines() == [PROSE, "- open the lid", "- close the lid"]


def test_a_path_or_an_address_divided_at_a_slash_is_whole(tmp_path: Path) -> None:
    lines = [
        f"{PROSE} It reads /etc/depot/",
        f"rules.conf, and {PROSE} See http://depot.org/-",
        "rules for more.",
    ]
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", [[(line, BODY) for line in lines]]))
    assert "/etc/depot/rules.conf," in text
    assert "http://depot.org/rules for" in text


def test_a_paragraph_cut_at_the_end_of_a_page_is_whole_and_a_header_is_no_part_of_it(tmp_path: Path) -> None:
    pages: list[list[Line | str]] = [
        ["Letters of the depot are sorted by Ada and", "sealed in the hall of the old house by Bo"],
        ["Lind, who keeps the wax in a tin box, where", "nobody looks.", "Stamps are kept apart."],
        ["Depot handbook", "Parcels are weighed in the yard."],
    ]
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", pages))
    assert text.splitlines() == [
        "Letters of the depot are sorted by Ada and sealed in the hall of the old house by Bo Lind, who keeps the wax "
        "in a tin box, where nobody looks.",
        "Stamps are kept apart.",
        "Depot handbook",
        "Parcels are weighed in the yard.",
    ]


def test_lines_of_a_narrow_column_are_one_paragraph_under_a_wide_line(tmp_path: Path) -> None:
    lines = [PROSE, "The hall of Ada", "Lind and Bo Marsh", "is open on all of", "the days of May."]
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", [[lines[0]], lines[1:]]))
    assert text.splitlines()[-1] == "The hall of Ada Lind and Bo Marsh is open on all of the days of May."


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        ("The hall was re-", "stored.", "restored"),
        ("It is made for re-", "use.", "re-use"),
        ("There is a 10-", "day wait.", "10-day"),
        ("The Anglo-", "Saxon hall.", "Anglo-Saxon"),
        ("A state-of-the-", "art hall.", "state-of-the-art"),
        ("A well-", "known hall.", "well-known"),
        ("The big work-", "shop.", "workshop"),
        ("A tug-boat and a tug-", "boat.", "a tug-boat."),
        ("The zorbling and zor-", "bling.", "and zorbling"),
        ("A USB-", "stick.", "USB-stick"),
    ],
)
def test_a_word_divided_at_a_line_end_is_whole_with_its_own_hyphen(
    tmp_path: Path, before: str, after: str, whole: str
) -> None:
    [(_, text)] = sections(pdf(tmp_path / "depot.pdf", [[before, after]]))
    assert whole in text
