"""Stems, small words, and which language a corpus is in."""

from pathlib import Path

import pytest

from kcard.index import Index
from kcard.text import STEMMERS, STOPWORDS, analyzer, detect, small_words, stemmer_of

ENGLISH = "The lighthouse of the harbour was built by two brothers who had sailed around the world."
GERMAN = "Der Leuchtturm des Hafens wurde von zwei Brüdern gebaut, die um die Welt gesegelt waren."


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("en", "english"),
        ("EN", "english"),
        ("pt-BR", "portuguese"),
        ("nb", "norwegian"),
        ("zh", None),
        ("", None),
    ],
)
def test_a_language_has_its_stemmer(code: str, name: str | None) -> None:
    assert stemmer_of(code) == name


@pytest.mark.parametrize("name", sorted(set(STEMMERS.values())))
def test_every_stemmer_that_is_named_exists(name: str) -> None:
    assert len(analyzer(name)("one two")) == 2


@pytest.mark.parametrize(
    ("stemmer", "forms"),
    [
        ("english", "retries Retried RETRY"),
        ("russian", "башни башня"),
        ("french", "continuer continué"),
    ],
)
def test_the_forms_of_a_word_are_one(stemmer: str, forms: str) -> None:
    assert len(set(analyzer(stemmer)(forms))) == 1


@pytest.mark.parametrize(
    ("stemmer", "compound", "part"),
    [("german", "Standardpapierformat", "Papier"), ("finnish", "lentokoneen", "koneet")],
)
def test_a_compound_shares_pieces_with_its_parts(stemmer: str, compound: str, part: str) -> None:
    pieces = analyzer(stemmer)
    assert set(pieces(compound)) & set(pieces(part))
    assert not set(analyzer("english")(compound)) & set(analyzer("english")(part))


def test_without_a_stemmer_words_stay_as_they_are() -> None:
    assert analyzer(None)("Retries retried") == ["retries", "retried"]


def test_an_unknown_stemmer_is_named() -> None:
    with pytest.raises(ValueError, match="there is no stemmer 'klingon'"):
        analyzer("klingon")


def test_an_index_with_a_stemmer_finds_other_forms_and_remembers_it(tmp_path: Path) -> None:
    texts = ["It retries three times.", "The tower fell."]
    Index.write(texts, tmp_path / "stemmed", "english")
    for index in (Index.build(texts, "english"), Index.load(tmp_path / "stemmed")):
        assert [row for row, _ in index.search("Was it retried?", 1)] == [0]
    assert Index.build(["It retries."]).search("retried", 1) == []


@pytest.mark.parametrize(("language", "word"), [("en", "the"), ("de-AT", "und"), ("FR", "les")])
def test_small_words_are_those_of_the_language(language: str, word: str) -> None:
    assert word in small_words(language)
    assert "lighthouse" not in small_words(language)


def test_a_language_without_a_list_has_no_small_words() -> None:
    assert small_words("zh") == frozenset()
    assert all(small_words(language) for language in STOPWORDS)


def test_the_language_is_that_of_most_passages() -> None:
    assert detect([ENGLISH] * 3) == "en"
    assert detect([GERMAN] * 3 + [ENGLISH]) == "de"
    assert detect([GERMAN, "3 > 2", "ok"]) == "de"


@pytest.mark.parametrize("texts", [[], ["short"], ["12345 67890 " * 20], [ENGLISH, GERMAN]])
def test_what_is_too_short_or_mixed_has_no_language(texts: list[str]) -> None:
    assert detect(texts) is None
