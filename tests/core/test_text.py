"""Stems, small words, and which language a corpus is in."""

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcard.index import Index
from kcard.text import (
    STEMMERS,
    analyzer,
    detect,
    language_name,
    language_of_question,
    ordinals_as_in,
    pieces,
    sentence_spans,
    small_words,
    split_sentences,
    stemmer_of,
    whole,
)

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


def test_every_stemmer_that_is_named_exists_and_another_is_an_error() -> None:
    for name in set(STEMMERS.values()):
        assert len(analyzer(name)("one two")) == 2
    assert analyzer(None)("Retries retried") == ["retries", "retried"]
    with pytest.raises(ValueError, match="there is no stemmer 'klingon'"):
        analyzer("klingon")


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


def test_an_index_with_a_stemmer_finds_other_forms_and_remembers_it(tmp_path: Path) -> None:
    texts = ["It retries three times.", "The tower fell."]
    Index.write(texts, tmp_path / "stemmed", "english")
    for index in (Index.build(texts, "english"), Index.load(tmp_path / "stemmed")):
        assert [row for row, _ in index.search("Was it retried?", 1)] == [0]
    assert Index.build(["It retries."]).search("retried", 1) == []


def test_the_language_is_that_of_most_passages() -> None:
    assert detect([ENGLISH] * 3) == "en"
    assert detect([GERMAN] * 3 + [ENGLISH]) == "de"
    assert detect([GERMAN, "3 > 2", "ok"]) == "de"


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["short"],
        ["12345 67890 " * 20],
        [ENGLISH, GERMAN],
        # Names and numbers.
        ["Anna Lindqvist +46 555 0101\nBo Ekström +46 555 0102\nCarla Rossi +39 06 555 0103"],
        ["Hans Müller 555 01\nUte Schmidt 555 02\nJürgen Weiß 555 03\nKlaus Wagner 555 04"],
        ["Burner nozzle; Supplier: Kessel AG; Price: 84\nFlame sensor; Supplier: Tolm Ltd; Price: 31"],
        ["pump 12 nozzle 14 gasket 9 kettle 31 burner 7 ladder 80"],
    ],
)
def test_what_is_short_mixed_or_mere_names_and_numbers_has_no_language(texts: list[str]) -> None:
    assert detect(texts) is None


# Sentences: names keep their full stops, nothing is lost, long texts take linear time.


@pytest.mark.parametrize(
    "sentences",
    [
        # Initials, titles and abbreviations.
        ["Ron Wyden won the U.S. Senate race in Oregon, defeating Jo Rae Perkins.", "Sen. X was there."],
        ["J. D. Vance won in Ohio!", "He got 53.3% of the vote, i.e. more than Tim Ryan."],
        ["Thomas H. Kean Jr. won New Jersey's 7th district.", "Dr. Who lives in St. Louis."],
        ["The town was founded c. 1850.", "It grew approx. tenfold."],
        ["今天天气很好。", "我们去公园。"],
        # Full stops within a name.
        ["The file is $HOME/.local/share/app/data.", "It holds rows."],
        ["Set it in ~/.config/foo.toml or /etc/foo.conf.", "It holds rows."],
        ["See v1.2.3 of ./configure.", "It holds rows."],
        ["The option is called .hidden.", "It holds rows."],
        ["Edit ${HOME}/.bashrc and $XDG_DATA_HOME/.foo now.", "It holds rows."],
        ["Run ls ../foo or cd .. and go on.", "It holds rows."],
        ["Use the .NET library.", "It holds rows."],
        ["Names such as sorter.rules().senderName are in camel case.", "It holds rows."],
        ["A script begins with #!/bin/sh and goes on.", "It holds rows."],
        ["Open http://host/find?name=1 first.", "It holds rows."],
        # Full stops after a space.
        ["He was born in 1990 .", "She moved .", "the dog ran"],
    ],
)
def test_a_text_is_split_where_its_sentences_end(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


def test_line_breaks_end_sentences() -> None:
    assert split_sentences("A fact\nAnother fact\n\n") == ["A fact", "Another fact"]
    assert split_sentences("") == split_sentences("  \n ") == []


def test_a_last_sentence_that_was_cut_off_is_not_whole() -> None:
    assert whole("Ron Wyden won. In the 2022 elections, Oreg") == ["Ron Wyden won."]
    assert whole("In the 2022 elections, Oreg") == ["In the 2022 elections, Oreg"]
    assert whole("A list\nof things\nwithout full stops") == ["A list", "of things", "without full stops"]


def test_the_splitter_loads_without_a_warning_even_when_it_is_compiled_anew(tmp_path: object) -> None:
    code = "from kcard.text import split_sentences as split; assert split('One. Two.') == ['One.', 'Two.']"
    options = ["-X", f"pycache_prefix={tmp_path}", "-W", "error::SyntaxWarning", "-W", "error"]
    command = [sys.executable, *options, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "text",
    [
        'He said "no." She (born c. 1900) left... Really?! It cost $5.5 million, e.g. twice as much. ' * 400,
        *("a. b. c. " * 5000, "他赢了。" * 12_000, "Mr. J. R. " * 5000, "?!" * 20_000),
    ],
)
def test_a_long_text_is_split_quickly_and_whole(text: str) -> None:
    start = time.process_time()
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
    assert time.process_time() - start < 5, "pysbd takes 20 to 40 seconds"


@pytest.mark.parametrize(("language", "word"), [("en", "the"), ("de-AT", "und"), ("FR", "les"), ("zh", None)])
def test_small_words_are_those_of_the_language(language: str, word: str | None) -> None:
    assert word is None or word in small_words(language)
    assert "lighthouse" not in small_words(language)


def test_pieces_end_where_sentences_do() -> None:
    text = "Ron Wyden won the 2022 U.S. Senate race in Oregon, defeating Jo Rae Perkins. " * 40
    parts = pieces(f"{text}\nAnother line")
    assert parts[-1] == "Another line"
    assert all(piece.strip().endswith("Perkins.") and len(piece) <= 1000 for piece in parts[:-1])


# Where the sentences of a text stand in it.


SENTENCES = st.sampled_from(
    ["A fact.", "Same.", "Dr. X came!", "3.5 (or 4)?", "no stop", "他赢了。", "Ünï [*+]."]
)
BLANKS = st.sampled_from([" ", "  ", "\n", "\n\n  ", "\t"])


@settings(max_examples=60)
@given(st.lists(st.tuples(SENTENCES, BLANKS), max_size=8))
def test_the_places_are_those_of_the_sentences_in_order(parts: list[tuple[str, str]]) -> None:
    text = "".join(f"{sentence}{blank}" for sentence, blank in parts)
    places = sentence_spans(text)
    assert [" ".join(text[start:end].split()) for start, end in places] == [
        " ".join(sentence.split()) for sentence in split_sentences(text)
    ]
    assert places == sorted(places)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))


# Which language a question is in, where its few words tell.


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Wo liegt die Konfigurationsdatei?", "de"),
        ("Wie viele Runlevels hat Linux?", "de"),
        ("¿Quién mantiene el FAQ de Debian?", "es"),
        ("Où se trouve le fichier de configuration ?", "fr"),
        ("Кто основал Debian?", "ru"),
        ("Where is the configuration file?", "en"),
        ("When was the man in?", "en"),
        ("apt: freeze a package at its version", "en"),
        ("largest value for the joystick maxsteps", None),
        ("grep -R", None),
        ("", None),
    ],
)
def test_small_words_and_letters_tell_the_language_of_a_question(question: str, language: str | None) -> None:
    assert language_of_question(question) == language


def test_a_language_has_an_english_name() -> None:
    assert (language_name("pt-BR"), language_name("xx")) == ("Portuguese", None)


# Ordinals in words and in figures.


@pytest.mark.parametrize(
    ("texts", "question", "read"),
    [
        (["Ohio's 8th district"], "the eighth district", "the 8th district"),
        (["Ohio's 7th district"], "the Eighth district", "the 8th district"),
        (["Ohio's eighth district"], "the 8th district", "the eighth district"),
        (["Ohio's seventh district"], "the 8th district", "the 8th district"),
        (["the second of the 3rd kind"], "the second kind", "the second kind"),
        (["8 districts"], "the eighth of 8 districts", "the eighth of 8 districts"),
        (["the 3rd of 9 requests"], "requests per second", "requests per second"),
        ([], "who came first", "who came first"),
    ],
)
def test_ordinals_are_written_as_in_the_texts(texts: list[str], question: str, read: str) -> None:
    assert ordinals_as_in(texts, question) == read
