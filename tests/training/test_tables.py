"""Corpora in tables: .csv, .tsv, .parquet, data sets of Hugging Face."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from kcard.errors import CorpusError
from kcard.training.corpus import read_corpus
from kcard.training.readers.data_sets import repository
from tests.training.documents import written

MOONS = ["Titan circles Saturn.", "Io circles Jupiter.", "Triton circles Neptune."]


def rows(path: Path, field: str | None = None) -> list[tuple[str, int]]:
    return [(p.text, p.line) for p in read_corpus(path, field).passages]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_a_table_is_read_whatever_divides_its_columns(tmp_path: Path, mark: str) -> None:
    lines = [["id", "text"], ["7", "Titan, a moon; the largest."], ["8", '"Io" is | hot\tand dry.']]
    quoted = [mark.join('"' + cell.replace('"', '""') + '"' for cell in line) for line in lines]
    path = written(tmp_path, "moons.csv", "\r\n".join(quoted).encode("utf-8-sig"))
    assert rows(path) == [("Titan, a moon; the largest.", 1), ('"Io" is | hot and dry.', 2)]


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        ('n,text\n1,"Titan was\nfound early.\nIo is hot."', ["Titan was found early.\nIo is hot."]),
        # A table of one column may have no header.
        ("\n".join(MOONS), MOONS),
        # The column of text is found by its name or its sentences.
        ("id,Text\n1,Titan is large.", ["Titan is large."]),
        ("title,body\nA title of more words than it needs,Short body.", ["Short body."]),
        ("year,event\n1655,Discovery", ["Discovery"]),
        (
            "year,what happened\n1655,Huygens discovered Titan near Saturn that spring.",
            ["Huygens discovered Titan near Saturn that spring."],
        ),
        # A row is read with all of its texts.
        ("Question,Answer\nWho found Titan?,Huygens", ["Who found Titan? Huygens"]),
        ("id,q,a\n1,Titan,A moon of Saturn.", ["Titan: A moon of Saturn."]),
        (
            "moon,finder,notes\nTitan,C. Huygens,It has lakes of methane near the pole",
            ["It has lakes of methane near the pole. moon: Titan. finder: C. Huygens"],
        ),
        ("text,text,n\nTitan is large.,Io is hot.,1", ["Titan is large. Io is hot."]),
    ],
)
def test_a_row_of_a_table_is_read_with_its_texts(tmp_path: Path, table: str, texts: list[str]) -> None:
    assert [text for text, _ in rows(written(tmp_path, "moons.csv", table))] == texts


def test_rows_are_counted_where_cells_hold_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "moons.csv", 'text,n\n"Titan is large.\nIo is hot.",1\n\nTriton is cold.,2\n')
    assert rows(path) == [("Titan is large.\nIo is hot.", 1), ("Triton is cold.", 2)]


def test_rows_without_a_header_are_counted_from_the_first(tmp_path: Path) -> None:
    path = written(tmp_path, "moons.csv", "\n".join(MOONS))
    assert rows(path) == [(text, number) for number, text in enumerate(MOONS, 1)]


def test_a_column_that_was_guessed_is_said(tmp_path: Path) -> None:
    table = "year,what happened\n1655,Huygens discovered Titan near Saturn that spring.\n"
    corpus = read_corpus(written(tmp_path, "t.csv", table))
    assert "t.csv: the text is taken from its column 'what happened'" in corpus.remarks()


FACTS = "city,country,people\nParis,France,2\nOslo,Norway,\n"


def test_a_sentence_of_columns_tells_a_table_of_facts(tmp_path: Path) -> None:
    path = written(tmp_path, "cities.csv", FACTS)
    assert rows(path, "{city} is in {country}.") == [("Paris is in France.", 1), ("Oslo is in Norway.", 2)]
    assert rows(path, "country") == [("France", 1), ("Norway", 2)]
    corpus = read_corpus(path, "{city} has {people} million people.")
    assert [*corpus.texts] == ["Paris has 2 million people."]
    assert corpus.dropped == {"rows without text": 1}
    for field in ("town", "{city} and {town}"):
        with pytest.raises(CorpusError, match="no column 'town': it has city, country, people"):
            read_corpus(path, field)
    with pytest.raises(CorpusError, match=r"field 'city' names a column, but .*facts\.txt has none"):
        read_corpus(written(tmp_path, "facts.txt", "A fact."), "city")


def test_broken_rows_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    text = 'id,text\n1,Titan is large.\n2,one,too many\n3\n4,"stray" quote\n5,Io is hot.\n'
    corpus = read_corpus(written(tmp_path, "t.csv", text))
    assert [*corpus.texts] == ["Titan is large.", "Io is hot."]
    assert corpus.dropped == {"broken rows": 3}
    assert corpus.notes == ("t.csv: row 2 has 3 columns instead of 2; such rows are skipped",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FACTS, "has no text column; it has city, country, people: name one with --field"),
        ('id,text\n1,Fine.\n2,"open\n3,swallowed\n', r"t\.csv:3 opens a quote that is never closed"),
        ("\n", r"t\.csv has no header: its first row must name the columns"),
        ("id,text\n", r"t\.csv holds no text: add at least one passage"),
    ],
)
def test_a_table_that_can_not_be_read_is_refused_with_its_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        read_corpus(written(tmp_path, "t.csv", text))


def test_json_lines_take_a_field_too(tmp_path: Path) -> None:
    path = written(tmp_path, "r.jsonl", '{"q": "Who?", "a": "Huygens"}\n{"q": "When?", "a": 1655}\n')
    assert rows(path, "{q} {a}.") == [("Who? Huygens.", 1), ("When? 1655.", 2)]
    with pytest.raises(CorpusError, match=r"r\.jsonl:1 has no 'b': its keys are q, a"):
        read_corpus(path, "b")


def parquet(path: Path, columns: dict[str, list[Any]]) -> Path:
    import pyarrow
    from pyarrow.parquet import write_table

    write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


def test_parquet_is_read_by_rows_and_vectors_and_bytes_are_passed_over(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {"id": [1, 2, 3], "vector": [[0.5]] * 3, "raw": [b"\xff"] * 3}
    columns["text"] = [*MOONS[:2], None]
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

    def load_dataset(name: str, config: str | None, **_: Any) -> Any:
        requests.append((name, config))
        if name == "owner/code":
            raise RuntimeError("Dataset scripts are no longer supported, but found code.py")
        return datasets.load_from_disk(str(saved / "splits"))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    corpus = read_corpus("hf:owner/moons")
    assert next((p.text, p.file, p.line) for p in corpus.passages) == (MOONS[0], "hf:owner/moons", 1)
    assert corpus.path.name == "moons"
    assert [*read_corpus("hf:owner/moons/large:test").texts] == [MOONS[0]]
    assert requests == [("owner/moons", None), ("owner/moons", "large")]
    with pytest.raises(CorpusError, match="no split 'dev'; it has test, train"):
        read_corpus("hf:owner/moons:dev")
    with pytest.raises(CorpusError, match="hf:owner/code needs its own code, which kcard does not run"):
        read_corpus("hf:owner/code")


def test_a_data_set_lends_its_name_to_the_card() -> None:
    assert repository("hf:owner/moons.v2/config:train") == "moons.v2"
    assert repository("hf:squad") == "squad"
