"""Triples, told as sentences."""

from pathlib import Path

import pytest

from kcard.errors import CorpusError
from kcard.training.corpus import read_corpus
from kcard.training.readers.triples import ALIASES, PROPERTIES, TEMPLATES, label_of, to_sentence
from tests.training.documents import written


def test_triples_are_told_as_sentences(tmp_path: Path) -> None:
    path = written(
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
    path = written(tmp_path, "graph.tsv", "France\tcapital\tParis\nFrance\tdish\tcassoulet\n")
    rows = "capital\t{object} governs {subject}.\ndish\tIn {subject} people eat {object}.\n"
    written(tmp_path, "templates.tsv", rows)
    for corpus in (read_corpus(path), read_corpus(tmp_path)):
        assert [*corpus.texts] == ["Paris governs France.", "In France people eat cassoulet."]
    written(tmp_path, "templates.tsv", "capital\t{object} governs.\n")
    with pytest.raises(CorpusError, match=r"templates\.tsv:1 is not a template"):
        read_corpus(path)


def test_a_tab_separated_table_is_no_list_of_triples(tmp_path: Path) -> None:
    for table in ("id\ttitle\ttext\n1\tMoon\tTitan is large.\n", "id\ttext\n1\tTitan is large.\n"):
        assert [*read_corpus(written(tmp_path, "table.tsv", table)).texts] == ["Titan is large."]
    with pytest.raises(CorpusError, match=r"b\.tsv has no text column; it has moon, finder"):
        read_corpus(written(tmp_path, "b.tsv", "moon\tfinder\nTitan\tHuygens\n"))
