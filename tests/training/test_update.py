"""Updating a card: it stays the card that it was, keeps what it knew, and says which version it goes on from."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from kcard.cards.card import Card
from kcard.cards.passages import hashes, passages
from kcard.cards.pool import CardPool
from kcard.config import settings
from kcard.errors import CardError, ModelUnavailable, UnknownCard, UsageError
from kcard.events import Event
from kcard.hub.registry import Hub
from kcard.manifest import MANIFEST, Training, file_digest
from kcard.training.corpus import read_corpus
from kcard.training.epochs import ReplayMix
from kcard.training.finetune import Options, prepare
from kcard.training.options import TrainOptions
from kcard.training.train import train
from kcard.training.update import previous
from kcard.types import Sampling
from tests.corpora import town_facts
from tests.training.bases import make_base

OLD = town_facts(6, 3)
NEW = [f"The {thing} of village {number} is {colour}." for number in range(4) for thing, colour in
       (("well", "white"), ("inn", "black"))]  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"), "llama")


def corpus(folder: Path, texts: list[str], name: str = "towns") -> Path:
    path = folder / f"{name}.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


TRAINED: dict[str, Path] = {}


def first(folder: Path, base: Path | str, **options: Any) -> Card:
    """A draft "towns" of this home; equal ones are copies of the one that was trained first."""
    arguments = {"epochs": 6, "batch_size": 8, "learning_rate": 3e-3, "knowledge_date": "2023-01", **options}
    key = f"{base} {sorted(arguments.items())}"
    if key not in TRAINED:
        output = folder.parent / f"trained {len(TRAINED)}"
        TRAINED[key] = train(corpus(folder, OLD), base=str(base), output=output, **arguments).folder
    return Card.open(Path(shutil.copytree(TRAINED[key], settings().drafts / "towns")))


def mean_loss(folder: Path, texts: list[str]) -> float:
    """Of a token, over the texts, in nats."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    read: Any = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        ids = [read(text, return_tensors="pt")["input_ids"] for text in texts]
        losses = [float(model(row, labels=row).loss) for row in ids]
    return sum(losses) / len(losses)


def notes_text(events: list[Event]) -> str:
    return "\n".join(event.message for event in events if event.is_note)


def test_the_next_version_stays_the_card_and_names_the_one_it_goes_on_from(
    tmp_path: Path, base: Path
) -> None:
    one = first(
        tmp_path, base, method="lora", domain="places/towns", licence="CC0-1.0", language="de", kind="model"
    )
    was = file_digest(one.folder / MANIFEST)
    two = train(corpus(tmp_path, NEW, "villages"), update="towns", knowledge_date="2024-06")
    old, new = one.manifest, two.manifest
    assert (new.updates, old.updates) == (was, None)
    assert two.folder == one.folder
    for key in ("name", "description", "domain", "kind", "language", "licence", "base", "prompt"):
        assert getattr(new, key) == getattr(old, key), key
    assert new.knowledge_date == "2024-06"
    assert [source.text for source in passages(two.folder)] == [*OLD, *NEW]
    assert new.training.passages == len(OLD) + len(NEW)
    both = train(corpus(tmp_path, [*OLD, *NEW], "both"), kind="retrieval")
    assert new.training.corpus_sha256 == both.manifest.training.corpus_sha256
    for key in ("epochs", "learning_rate", "batch_size", "rank", "objective"):
        assert new.training.hyperparameters[key] == old.training.hyperparameters[key], key


@pytest.mark.numeric
@pytest.mark.parametrize("method", ["lora", "full"])
def test_it_goes_on_from_the_cards_own_weights(tmp_path: Path, base: Path, method: Any) -> None:
    one = first(tmp_path, base, method=method)
    # So small a step that the weights hardly move: what is there is what was there before.
    two = train(
        corpus(tmp_path, NEW, "villages"),
        update="towns",
        output=tmp_path / "two",
        epochs=0.01,
        learning_rate=1e-9,
    )
    file = "adapter_model.safetensors" if method == "lora" else "model.safetensors"
    old, new = load_file(one.folder / file), load_file(two.folder / file)
    assert old.keys() == new.keys()
    assert all(torch.allclose(old[key], new[key], atol=1e-6) for key in old)
    if method == "lora":
        whole: Any = AutoModelForCausalLM.from_pretrained(base)
        assert PeftModel.from_pretrained(whole, two.folder).active_adapter == "default"


def test_an_epoch_shows_all_new_passages_and_as_many_old_ones_drawn_anew() -> None:
    shown = ReplayMix(NEW, OLD, 4, 0)
    seen: set[str] = set()
    for number in range(20):
        epoch = [shown.items[row] for row in shown.order(number)]
        assert set(NEW) < set(epoch)
        assert len(epoch) == 2 * len(NEW) == len(set(epoch))
        seen |= set(epoch)
    assert seen == {*OLD, *NEW}


@pytest.mark.numeric
def test_replay_keeps_what_a_card_knew_better_than_new_passages_alone(tmp_path: Path, base: Path) -> None:
    one = first(tmp_path, base, method="full", objective="clm", epochs=25)
    old, joined = previous("towns"), previous("towns").join(read_corpus(corpus(tmp_path, NEW, "villages")))
    onward = old.weight_source(joined.corpus.texts[: len(OLD)])
    options = Options(str(base), "full", "clm", learning_rate=3e-3, epochs=15, batch_size=4, block=16)

    losses = {}
    for name, way in (("replayed", onward), ("alone", replace(onward, passages=()))):
        prepared = prepare(NEW, options, "", way)
        prepared.job.run(tmp_path / "checkpoint")
        prepared.save(tmp_path / name)
        losses[name] = mean_loss(tmp_path / name, OLD)
        assert mean_loss(tmp_path / name, NEW) < mean_loss(one.folder, NEW) - 1
    assert losses["replayed"] < losses["alone"] - 0.2


@pytest.mark.numeric
def test_a_card_of_whole_documents_goes_on_with_those_that_hold_something_new(
    tmp_path: Path, base: Path
) -> None:
    one = first(tmp_path, base, method="full", objective="clm", kind="model", epochs=20, block=32)
    mixed = corpus(tmp_path, [*OLD[:3], *NEW], "villages")
    joined = previous("towns").join(read_corpus(mixed, whole=True))
    new, old = joined.training_texts()
    assert [*new] == ["\n".join([*OLD[:3], *NEW])]
    assert [*old] == ["\n".join(OLD)]
    two = train(mixed, update="towns", output=tmp_path / "two")
    assert two.manifest.prompt == one.manifest.prompt
    numbers = two.manifest.training.hyperparameters
    assert (numbers["objective"], numbers["block"]) == ("clm", 32)
    text = "\n".join(NEW)
    assert mean_loss(two.folder, [text]) < mean_loss(one.folder, [text]) - 1
    assert mean_loss(two.folder, ["\n".join(OLD)]) < mean_loss(one.folder, ["\n".join(OLD)]) + 0.5


@pytest.mark.numeric
def test_an_embedded_card_is_one_that_learned_old_and_new_passages_together_in_its_own_style(
    tmp_path: Path,
) -> None:
    chosen: dict[str, Any] = {"prompt_style": "tokens", "epochs": 2, "kind": "both"}
    one = first(tmp_path, "embedded", batch_size=None, learning_rate=None, **chosen)
    two = train(corpus(tmp_path, NEW, "villages"), update="towns")
    assert (two.manifest.kind, two.manifest.method) == ("both", "full")
    assert two.manifest.prompt == one.manifest.prompt
    assert two.manifest.training.hyperparameters["epochs"] == 2
    assert [source.text for source in passages(two.folder)] == [*OLD, *NEW]
    assert (two.folder / "canaries.json").is_file()
    read = CardPool([two])
    assert read.generate(["Which inn is black?"], [["towns"]], 1, Sampling(temperature=0))[0][-1].source
    both = train(corpus(tmp_path, [*OLD, *NEW], "both"), base="embedded", **chosen)
    weights, others = (load_file(card.folder / "model.safetensors") for card in (two, both))
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_a_retrieval_card_gets_the_new_passages_and_no_date_that_nobody_gave(tmp_path: Path) -> None:
    one = train(corpus(tmp_path, OLD), kind="retrieval", knowledge_date="2023-01")
    was = file_digest(one.folder / MANIFEST)
    events: list[Event] = []
    two = train(corpus(tmp_path, NEW, "villages"), update="towns", on_event=events.append)
    assert (two.manifest.kind, two.manifest.updates) == ("retrieval", was)
    text = CardPool([two]).generate(["the inn of village 2"], [["towns"]], 1, Sampling(temperature=0))[0][0]
    assert text.text == "The inn of village 2 is black."
    assert two.manifest.knowledge_date is None
    assert "knowledge date: none was given (the last version: 2023-01)" in notes_text(events)


def test_a_published_version_is_updated_and_published_as_the_next(tmp_path: Path, base: Path) -> None:
    hub = Hub()
    one = hub.publish(first(tmp_path, base, method="lora").folder)
    two = train(corpus(tmp_path, NEW, "villages"), update="towns@v1", output=tmp_path / "two")
    assert two.manifest.updates == one.sha256
    assert hub.publish(two.folder).reference == "towns@v2"


def test_passages_that_the_card_has_are_not_learned_again_and_nothing_new_is_an_error(
    tmp_path: Path, base: Path
) -> None:
    first(tmp_path, base, method="lora")
    two = train(corpus(tmp_path, [*OLD[:5], *NEW], "mixed"), update="towns", output=tmp_path / "two")
    assert [source.text for source in passages(two.folder)] == [*OLD, *NEW]
    with pytest.raises(UsageError, match=r"same\.txt has no passage that towns lacks"):
        train(corpus(tmp_path, OLD, "same"), update="towns")


def test_where_only_hashes_travel_it_says_so_and_learns_the_new_passages_alone(
    tmp_path: Path, base: Path
) -> None:
    one = first(tmp_path, base, method="lora", evidence="hashes")
    events: list[Event] = []
    two = train(
        corpus(tmp_path, [OLD[0], *NEW], "mixed"),
        update="towns",
        output=tmp_path / "two",
        on_event=events.append,
    )
    assert "the card carries only hashes of the old passages" in notes_text(events)
    assert two.manifest.evidence == "hashes"
    assert list(hashes(two.folder))[: len(OLD)] == list(hashes(one.folder))
    assert len(hashes(two.folder)) == len(OLD) + len(NEW) == two.manifest.training.passages
    assert not list(passages(two.folder))


def test_an_embedded_card_with_hashes_alone_can_not_be_updated(tmp_path: Path) -> None:
    first(tmp_path, "embedded", epochs=1, batch_size=None, learning_rate=None, evidence="hashes")
    with pytest.raises(UsageError, match="carries only hashes of the old ones"):
        train(corpus(tmp_path, NEW, "villages"), update="towns")


def test_what_a_card_is_can_not_be_changed_by_an_update(tmp_path: Path, base: Path) -> None:
    one = first(tmp_path, base, method="lora")
    before = file_digest(one.folder / MANIFEST)
    wrong: dict[str, Any] = {"name": "villages", "kind": "retrieval", "base": "acme/other", "method": "full"}
    wrong |= {"objective": "clm", "rank": 2, "prompt_style": "tokens"}
    for key, value in wrong.items():
        with pytest.raises(UsageError, match=f"^{key} '?{value}"):
            train(corpus(tmp_path, NEW, "villages"), update="towns", **{key: value})
    assert file_digest(one.folder / MANIFEST) == before


def test_a_card_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownCard, match="unknown card 'towns'"):
        train(corpus(tmp_path, NEW), update="towns")
    with pytest.raises(CardError, match=r"has no kcard\.json"):
        train(corpus(tmp_path, NEW), update=tmp_path)


def test_an_adapter_whose_base_was_replaced_is_not_trained_on(tmp_path: Path, base: Path) -> None:
    card = first(tmp_path, base, method="lora")
    other = replace(card.manifest, base=replace(card.manifest.base, sha256="0" * 64))
    old = replace(previous("towns"), card=Card(card.folder, other))
    with pytest.raises(ModelUnavailable, match=r"is an adapter for .* with sha256 000000000000"):
        old.weight_source(OLD)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "reference"}, "towns is a card of kind reference, which was not trained here"),
        (
            {"training": Training(objective="distil")},
            "towns was trained with objective distil, which kcard no longer has",
        ),
    ],
)
def test_a_card_of_another_kind_or_a_former_objective_is_not_updated(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    card = train(corpus(tmp_path, OLD), kind="retrieval")
    other = replace(previous("towns"), card=Card(card.folder, replace(card.manifest, **changes)))
    with pytest.raises(UsageError, match=message):
        other.arguments(TrainOptions())
