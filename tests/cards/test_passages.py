"""The dense index of a card beside its words, and the reader that ranks what both find."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kcard.cards import passages
from kcard.cards.card import Card, finish
from kcard.cards.generators.retrieval import CANDIDATES, FIRST_ROUND, RetrievalCard
from kcard.cards.passages import INDEX, clean
from kcard.embedded import static_embeddings as static
from kcard.embedded.reader import PassageReading
from kcard.errors import CardError
from kcard.manifest import Manifest
from kcard.types import Passage, Sampling, Source

ANIMALS = [
    "The mastiff is a huge hound that guards houses.",
    "A trout lives in cold brooks.",
    "Oaks may stand for a thousand years.",
]


def made(folder: Path, texts: list[str], language: str = "en", kind: str = "retrieval") -> Card:
    folder.mkdir(exist_ok=True)
    sources = [Source(text, "notes.md", line) for line, text in enumerate(texts, 1)]
    return finish(folder, Manifest("notes", "Notes", kind=kind, language=language), sources)


def written(card: Card, question: str, documents: int = 1) -> list[Passage]:
    return RetrievalCard(card).generate([question], documents, Sampling())[0]


@pytest.fixture(scope="module")
def animals(tmp_path_factory: pytest.TempPathFactory) -> Card:
    return made(tmp_path_factory.mktemp("animals"), ANIMALS)


def test_embeddings_are_bytes_that_tell_cosines_to_two_places(animals: Card) -> None:
    folder = animals.folder / INDEX
    vectors = np.load(folder / "embeddings.npy", allow_pickle=False)
    assert (vectors.dtype, vectors.shape) == (np.int8, (3, static.DIMENSIONS))
    loaded = passages.load_dense(folder)
    assert loaded is not None
    asked, exact = static.embed(["Which dog is big?", "trees"]), static.embed(ANIMALS)
    assert loaded.cosines(asked) == pytest.approx(asked @ exact.T, abs=0.01)


def test_of_passages_with_the_same_words_the_one_that_answers_comes_first(tmp_path: Path) -> None:
    texts = [
        "The lighthouse of Port Callow is painted, and a house was built in front of it.",
        "Visitors of the lighthouse of Port Callow climb to what was built on top of it.",
        "The lighthouse of Port Callow was built by Halden & Co.",
    ]
    (first,) = written(made(tmp_path / "card", texts), "Who built the lighthouse of Port Callow?")
    assert first.text == texts[2]


def test_the_headings_of_a_passage_are_found_and_read_with_it(tmp_path: Path) -> None:
    sources = [
        Source("The default is 2.", "m.md", 1, section=f"Settings > {name}")
        for name in ("fetch-retries", "log-size", "colour-depth")
    ]
    card = finish(tmp_path, Manifest("settings", "Settings", kind="retrieval", language="en"), sources)
    (found,) = written(card, "What is the default of log-size?")
    assert found.source is not None
    assert found.source.section == "Settings > log-size"


def test_more_documents_than_are_read_at_most_are_still_written(tmp_path: Path) -> None:
    texts = [f"Room {number} of the mill is empty." for number in range(CANDIDATES + 4)]
    found = written(made(tmp_path / "card", texts), "Which room is empty?", CANDIDATES + 4)
    assert len({passage.text for passage in found}) == CANDIDATES + 4


def test_passages_with_the_numbers_of_the_question_come_first(tmp_path: Path) -> None:
    texts = [
        f"{name} won the {n}th district of Callow in 2022." for n, name in enumerate("ABCDEFGHIJKLMNOPQR", 4)
    ]
    texts += [f"{name} won the {n}th district of Tarn in 2022." for n, name in enumerate("STUVWXYZ", 4)]
    (first,) = written(made(tmp_path / "card", texts), "Who won the 17th district of Callow in 2022?")
    assert first.text == "N won the 17th district of Callow in 2022."


def test_candidates_are_read_until_one_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kcard.embedded import reader

    texts: list[str] = []

    def read_all(pairs: Sequence[tuple[str, Sequence[str]]]) -> list[list[PassageReading]]:
        texts.extend(text for _, passages in pairs for text in passages)
        return real(pairs)

    real = reader.read_all
    monkeypatch.setattr(reader, "read_all", read_all)
    mills = [f"The mill of Upper Tarn has room {number}, which is empty." for number in range(2 * CANDIDATES)]
    card = made(tmp_path / "card", ["Osric & Sons built the mill of Upper Tarn in 1871.", *mills])
    assert written(card, "Who built the mill of Upper Tarn?")[0].text.startswith("Osric & Sons")
    assert len(texts) == FIRST_ROUND
    texts.clear()
    written(card, "Who sold the mill of Upper Tarn?")
    assert len(texts) == CANDIDATES


def test_a_card_in_another_language_is_searched_by_its_words(tmp_path: Path) -> None:
    card = made(tmp_path / "karte", ["Der Hund bellt laut.", "Die Eiche steht lange."], "de")
    assert not (card.folder / INDEX / "embeddings.npy").exists()
    assert written(card, "Welche Eichen stehen?")[0].text == "Die Eiche steht lange."
    assert written(card, "Which tree is old?")[0] == Passage("notes", "")


def test_embeddings_of_another_encoder_are_passed_over(tmp_path: Path) -> None:
    card = made(tmp_path / "card", ANIMALS)
    (card.folder / INDEX / "embeddings.json").write_text(json.dumps({"encoder": "other", "sha256": "0" * 64}))
    assert passages.load_dense(card.folder / INDEX) is None
    assert written(card, "Which hound guards houses?")[0].text == ANIMALS[0]


def saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"", r"is damaged: .*train the card again"),
        (b"\x93NUMPY", r"is damaged: .*train the card again"),
        (b"{}", r"is damaged: .*train the card again"),
        (saved(np.zeros((3, 5), np.int8)), "its embeddings have shape"),
        (saved(np.zeros((3, static.DIMENSIONS), np.float32)), "its embeddings have shape"),
    ],
)
def test_embeddings_that_are_damaged_or_of_another_shape_are_one_clear_line(
    tmp_path: Path, damage: bytes, message: str
) -> None:
    card = made(tmp_path / "card", ANIMALS)
    (card.folder / INDEX / "embeddings.npy").write_bytes(damage)
    with pytest.raises(CardError, match=message) as error:
        passages.load_dense(card.folder / INDEX)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (" Ron Wyden won in Oregon. He had held the", "Ron Wyden won in Oregon."),
        ("他赢了。他赢", "他赢了。"),
        ("「彼は勝った。」そして彼", "「彼は勝った。」"),
        ("वह जीता। उसने", "वह जीता।"),
        ("هل فاز؟ نعم لقد", "هل فاز؟"),
        # No other sentence is whole.
        ("won the race in", "won the race in"),
        ("Ron Wyden won the 2022 U.S. senate race in", "Ron Wyden won the 2022 U.S. senate race in"),
        ("Dr. No was a film of", "Dr. No was a film of"),
        ("Ron Wyden won. Then he spoke.", "Ron Wyden won. Then he spoke."),
        ('He said: "I won."', 'He said: "I won."'),
        ("", ""),
    ],
)
def test_a_sentence_that_was_cut_off_is_dropped_where_a_whole_one_precedes_it(text: str, kept: str) -> None:
    assert clean(text, ended=False) == kept
    assert clean(text, ended=True) == text.strip()
