"""Pools of real, tiny models: a whole OPT, an OPT behind the sentence encoder, two adapters on one Llama."""

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from kcard.cards.card import Card, finish
from kcard.cards.fingerprint import FINGERPRINT
from kcard.cards.models.question_words import SIZE, WordSketch
from kcard.cards.passages import clean
from kcard.cards.pool import CardPool
from kcard.embedded import minilm
from kcard.errors import CardError, DamagedCard, ModelUnavailable, UnknownCard, UsageError
from kcard.hub.registry import Hub
from kcard.manifest import Prompt, seal
from kcard.types import Sampling
from tests.cards.engine.cards import full, lora, prefixed
from tests.cards.engine.models import model
from tests.corpora import RIVERS
from tests.hub.client.cards import rivers

TEXTS = RIVERS[:3]
QUESTIONS = [
    "Where does the Rhine end?",
    "Which river flows through Vienna, then on through Budapest?",
    "The Seine?",
    "Which sea does the Danube reach in the end?",
]
GREEDY = Sampling(temperature=0, tokens=16)
SAMPLED = Sampling(temperature=1.0, tokens=16)


def unproven(card: Card) -> Card:
    """Without its fingerprint, so that tests may change its prompt."""
    (card.folder / FINGERPRINT).unlink()
    return finish(card.folder, card.manifest, [])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cards")


@pytest.fixture(scope="module")
def rivers_card(folder: Path) -> Card:
    return unproven(full(folder, "opt", "rivers", 0))


@pytest.fixture(scope="module")
def seas_card(folder: Path) -> Card:
    return unproven(prefixed(folder, "seas", 2))


@pytest.fixture(scope="module")
def loras(folder: Path) -> list[Card]:
    # A dot is allowed in a card's name and not in a module's.
    return [unproven(lora(folder, "llama", name, seed)) for seed, name in enumerate(["lakes.v1", "dams"])]


@pytest.fixture(scope="module")
def pool(rivers_card: Card, seas_card: Card, loras: list[Card]) -> CardPool:
    return CardPool([rivers_card, seas_card, *loras])


def texts(
    pool: CardPool, questions: list[str], cards: list[str], sampling: Sampling, documents: int = 1
) -> list[list[str]]:
    written = pool.generate(questions, [cards] * len(questions), documents, sampling)
    return [[p.text for p in row] for row in written]


def test_transformers_loads_a_full_card_unchanged(rivers_card: Card) -> None:
    loaded: Any = AutoModelForCausalLM.from_pretrained(rivers_card.folder)
    read: Any = AutoTokenizer.from_pretrained(rivers_card.folder)
    for name, weight in model("opt", 0).state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name
    assert read.decode(read(TEXTS[0])["input_ids"], skip_special_tokens=True).strip() == TEXTS[0]


@pytest.mark.parametrize("card", ["rivers", "seas", "lakes.v1"])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_passage_depends_on_seed_question_card_and_number_only(
    pool: CardPool, card: str, sampling: Sampling
) -> None:
    batch = texts(pool, QUESTIONS, [card], sampling, 3)
    assert [texts(pool, [q], [card], sampling, 3)[0] for q in QUESTIONS] == batch
    assert [row[3:] for row in texts(pool, QUESTIONS[::-1], ["dams", card], sampling, 3)][::-1] == batch
    assert [row[:1] for row in batch] == texts(pool, QUESTIONS, [card], sampling, 1)
    assert len({row[0] for row in batch}) == len(QUESTIONS)


def test_equal_prompts_and_weights_still_draw_by_question_and_card(rivers_card: Card) -> None:
    silent = replace(rivers_card.manifest, prompt=Prompt(template="Tell me:\n"))
    twin = replace(silent, name="streams")
    pair = CardPool([Card(rivers_card.folder, silent), Card(rivers_card.folder, twin)])
    assert len({row[0] for row in texts(pair, QUESTIONS[:2], ["rivers"], GREEDY)}) == 1
    rivers, streams = (texts(pair, QUESTIONS[:2], [name], SAMPLED) for name in ("rivers", "streams"))
    assert rivers[0] != rivers[1]
    assert rivers[0] != streams[0]


def test_another_seed_writes_other_documents(pool: CardPool) -> None:
    other = replace(SAMPLED, seed=1)
    assert texts(pool, QUESTIONS, ["rivers"], SAMPLED) != texts(pool, QUESTIONS, ["rivers"], other)


@pytest.mark.parametrize("card", ["rivers", "seas"])
def test_a_question_longer_than_the_model_still_gets_its_document(pool: CardPool, card: str) -> None:
    long = "Where, " + "in which land and through which towns, " * 40 + "does the Rhine end?"
    wanted = Sampling(temperature=0, tokens=100)
    alone = texts(pool, [QUESTIONS[0]], [card], wanted)
    both = texts(pool, [QUESTIONS[0], long], [card], wanted)
    assert both[0] == alone[0]
    assert both[1][0]


def continued(folder: Path, vectors: torch.Tensor) -> list[str]:
    """What transformers writes greedily after the vectors and the start token."""
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder)
    read: Any = AutoTokenizer.from_pretrained(folder)
    start = loaded.get_input_embeddings()(torch.tensor([[read.bos_token_id]])).expand(len(vectors), 1, -1)
    end = read.eos_token_id
    ids = loaded.generate(
        inputs_embeds=torch.cat([vectors, start], 1), max_new_tokens=16, do_sample=False, eos_token_id=end
    )
    return [clean(read.decode(row, skip_special_tokens=True), ended=end in row) for row in ids]


def test_the_encoder_prefix_is_the_projected_embedding_before_the_start_token(
    pool: CardPool, seas_card: Card
) -> None:
    layer = load_file(seas_card.folder / "projection.safetensors")
    asked = torch.from_numpy(minilm.embed(QUESTIONS))
    vectors = (asked @ layer["weight"].T + layer["bias"]).view(-1, 3, 32)
    expected = continued(seas_card.folder, vectors)
    assert [found for (found,) in texts(pool, QUESTIONS, ["seas"], GREEDY)] == expected


def test_a_card_that_sees_words_is_prompted_with_their_sketch_too(folder: Path) -> None:
    card = unproven(prefixed(folder, "sketched", 2))
    made = card.folder
    torch.manual_seed(2)
    layer = {"weight": torch.randn(3 * 32, minilm.DIMENSIONS + SIZE), "bias": torch.randn(3 * 32)}
    save_file(layer, made / "projection.safetensors")
    sketch = WordSketch.of_corpus(TEXTS)
    sketch.write(made)
    prompt = replace(card.manifest.prompt, words=SIZE)
    card = finish(made, replace(card.manifest, prompt=prompt), [])
    asked = torch.from_numpy(np.concatenate([minilm.embed(QUESTIONS), sketch(QUESTIONS)], axis=1))
    vectors = (asked @ layer["weight"].T + layer["bias"]).view(-1, 3, 32)
    expected = continued(made, vectors)
    assert [found for (found,) in texts(CardPool([card]), QUESTIONS, ["sketched"], GREEDY)] == expected
    wrong = Card(made, replace(card.manifest, prompt=replace(prompt, words=7)))
    with pytest.raises(CardError, match="words of its prompt must be 0 or 512, not 7"):
        CardPool([wrong]).generate(QUESTIONS, [["sketched"]] * len(QUESTIONS), 1, GREEDY)


OTHER_ENCODER = {"encoder": "acme/encoder", "encoder_sha256": "0" * 64}
OTHER_BASE = {"name": "acme/x", "revision": "v7"}


@pytest.mark.parametrize(
    ("name", "changes", "error", "message"),
    [
        ("seas", {"prompt": OTHER_ENCODER}, CardError, f"sha256 {'0' * 64}.*sha256 {minilm.SHA256}"),
        (
            "seas",
            {"prompt": {"vectors": 5}},
            CardError,
            r"must have the shape \(160, 384\), found \(96, 384\)",
        ),
        ("lakes.v1", {"base": OTHER_BASE}, ModelUnavailable, "'acme/x' at revision v7"),
        ("lakes.v1", {"base": {"sha256": "0" * 64}}, ModelUnavailable, "with sha256 000000000000…"),
    ],
)
def test_what_a_card_needs_and_is_not_here_is_named(
    seas_card: Card, loras: list[Card], name: str, changes: Any, error: type[Exception], message: str
) -> None:
    card = seas_card if name == "seas" else loras[0]
    manifest = card.manifest
    for field, values in changes.items():
        manifest = replace(manifest, **{field: replace(getattr(manifest, field), **values)})
    with pytest.raises(error, match=message):
        texts(CardPool([Card(card.folder, manifest)]), QUESTIONS, [name], GREEDY)


def test_cards_that_no_pool_can_have_are_named(pool: CardPool, rivers_card: Card, tmp_path: Path) -> None:
    held = r"no card 'streams' in this pool; it holds rivers, seas, lakes\.v1, dams"
    with pytest.raises(UnknownCard, match=held):
        texts(pool, QUESTIONS, ["rivers", "streams"], GREEDY)
    with pytest.raises(UsageError, match="two cards are named 'rivers'"):
        CardPool([rivers_card, rivers_card])
    (tmp_path / "config.json").write_text('{"model_type": "none-such"}')
    with pytest.raises(CardError, match="'rivers'"):
        texts(CardPool([Card(tmp_path, rivers_card.manifest)]), QUESTIONS, ["rivers"], GREEDY)


# What a card's files claim to hold is compared with its passages, and a bad card is left out of a question to all.

SENTENCES = ("The Rhine rises in the Alps.", "The Oder rises in the Oder Mountains.")
SAMPLED_OF_COUNTS = Sampling(tokens=16)
QUESTION = "Where does the Rhine rise?"


def claims(path: str, **values: object) -> Callable[[Path], object]:
    """Return what changes these keys of a JSON file in a folder."""

    def change(folder: Path) -> None:
        file = folder / path
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return change


HUGE_INDEX = claims("index/params.index.json", num_docs=99_999_999_999)
EARLY_LIES: list[Callable[[Path], object]] = [
    HUGE_INDEX,
    claims("index/params.index.json", num_docs=True),
    lambda folder: np.save(folder / "index" / "embeddings.npy", np.zeros((1, 256), np.int8)),
]
LIES: list[Callable[[Path], object]] = [
    *EARLY_LIES,
    lambda folder: np.save(folder / "index" / "data.csc.index.npy", np.zeros(1, np.float32)),
    claims("routing.json", terms=b64encode(bytes(4 * 3000)).decode()),
    lambda folder: (folder / "index" / "vocab.index.json").write_text('{"rhine": 0}'),
    lambda folder: (folder / "passages.jsonl").write_text("\n"),
]


def lying(folder: Path, lie: Callable[[Path], object], name: str = "evil") -> Card:
    card = rivers(folder, *SENTENCES, name=name)
    lie(card.folder)
    return Card(card.folder, seal(card.folder, card.manifest))


@pytest.mark.parametrize("lie", LIES)
def test_a_card_that_claims_other_counts_than_its_passages_is_not_published_nor_its_index_loaded(
    tmp_path: Path, lie: Callable[[Path], object]
) -> None:
    card = lying(tmp_path / "card", lie)
    hub = Hub(tmp_path / "home")
    with pytest.raises(CardError, match="card 'evil'") as error:
        hub.publish(card.folder)
    assert "\n" not in str(error.value)
    assert len(hub) == 0
    if lie in EARLY_LIES:
        with pytest.raises(DamagedCard, match=r"but the card has 2 passages: train the card again"):
            CardPool([card]).generate([QUESTION], [["evil"]], 1, SAMPLED_OF_COUNTS)


def test_a_question_to_all_cards_is_answered_without_the_broken_one_which_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evil, good = lying(tmp_path / "evil", HUGE_INDEX), rivers(tmp_path / "good", *SENTENCES, name="good")
    with caplog.at_level("WARNING"):
        (written,) = CardPool([evil, good]).generate([QUESTION], [["evil", "good"]], 2, SAMPLED_OF_COUNTS)
    found = [(passage.card, passage.text) for passage in written]
    assert found[:3] == [("evil", ""), ("evil", ""), ("good", SENTENCES[0])]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("card evil is left out: ")
    assert "\n" not in line
