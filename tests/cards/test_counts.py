"""What a card's files claim to hold is compared with its passages, and a bad card is left out of a question to all."""

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kcard.cards.card import Card
from kcard.cards.pool import CardPool
from kcard.errors import CardError, DamagedCard
from kcard.hub.registry import Hub
from kcard.manifest import check_counts, seal
from kcard.types import Sampling
from tests.hub.client.cards import rivers

SENTENCES = ("The Rhine rises in the Alps.", "The Oder rises in the Oder Mountains.")
SAMPLED = Sampling(tokens=16)
QUESTION = "Where does the Rhine rise?"


def huge_index(folder: Path) -> None:
    path = folder / "index" / "params.index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_docs": 99_999_999_999}))


def truthy_index(folder: Path) -> None:
    path = folder / "index" / "params.index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_docs": True}))


def short_table(folder: Path) -> None:
    np.save(folder / "index" / "embeddings.npy", np.zeros((1, 256), np.int8))


def other_words(folder: Path) -> None:
    (folder / "index" / "vocab.index.json").write_text('{"rhine": 0}')


def fewer_scores(folder: Path) -> None:
    np.save(folder / "index" / "data.csc.index.npy", np.zeros(1, np.float32))


def large_profile(folder: Path) -> None:
    path = folder / "routing.json"
    terms = b64encode(bytes(4 * 3000)).decode()
    path.write_text(json.dumps({**json.loads(path.read_text()), "terms": terms}))


def no_passages(folder: Path) -> None:
    (folder / "passages.jsonl").write_text("\n")


LIES = [huge_index, truthy_index, short_table, other_words, fewer_scores, large_profile, no_passages]


def lying(folder: Path, lie: Callable[[Path], None], name: str = "evil") -> Card:
    card = rivers(folder, *SENTENCES, name=name)
    lie(card.folder)
    return Card(card.folder, seal(card.folder, card.manifest))


def test_the_counts_of_an_honest_card_pass(tmp_path: Path) -> None:
    card = rivers(tmp_path / "card", *SENTENCES)
    check_counts(card.name, card.manifest.files, lambda path: (card.folder / path).open("rb"))


@pytest.mark.parametrize("lie", LIES)
def test_a_card_that_claims_other_counts_than_its_passages_is_not_published(
    tmp_path: Path, lie: Callable[[Path], None]
) -> None:
    card = lying(tmp_path / "card", lie)
    hub = Hub(tmp_path / "home")
    with pytest.raises(CardError, match="card 'evil'") as error:
        hub.publish(card.folder)
    assert "\n" not in str(error.value)
    assert len(hub) == 0


@pytest.mark.parametrize("lie", [huge_index, truthy_index, short_table])
def test_such_a_card_is_refused_before_its_index_is_loaded(
    tmp_path: Path, lie: Callable[[Path], None]
) -> None:
    card = lying(tmp_path / "card", lie)
    with pytest.raises(DamagedCard, match=r"but the card has 2 passages: train the card again"):
        CardPool([card]).write([QUESTION], ["evil"], 1, SAMPLED)


def test_a_question_to_all_cards_is_answered_without_the_broken_one_which_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = CardPool(
        [lying(tmp_path / "evil", huge_index), rivers(tmp_path / "good", *SENTENCES, name="good")]
    )
    with caplog.at_level("WARNING"):
        (written,) = pool.write([QUESTION], ["evil", "good"], 2, SAMPLED)
    assert [(passage.card, passage.text) for passage in written[:3]] == [
        ("evil", ""),
        ("evil", ""),
        ("good", SENTENCES[0]),
    ]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("card evil is left out: ")
    assert "\n" not in line
