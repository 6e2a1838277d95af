"""The embedded card: it recites what it was trained on, reproduces from its seed, and resumes exactly."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kcard.cards.card import Card
from kcard.cards.passages import passages
from kcard.cards.pool import CardPool
from kcard.errors import TrainingInterrupted, UsageError
from kcard.events import Event
from kcard.training.embedded.recipe import BOS, EOS, Recipe, Style, choose_style, train_tokenizer
from kcard.training.embedded.train import plan
from kcard.training.epochs import TrainingExample, bucketed, collate, grouped
from kcard.training.run import cosine, linear
from kcard.training.train import train
from kcard.types import Sampling
from tests.corpora import NAMES, SENATE, STATES
from tests.training.documents import written
from tests.training.interruptions import stop_at

pytestmark = pytest.mark.usefixtures("every_step")

TINY = Recipe(width=32, layers=1, vocabulary=320, batch_tokens=256, epochs=3, seed=1)


def corpus(folder: Path, texts: Sequence[str] = SENATE) -> Path:
    return written(folder, "senate facts.txt", "\n".join(texts) + "\n")


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("style", "epochs"), [pytest.param("tokens", 110, marks=pytest.mark.slow), ("encoder-prefix", 40)]
)
def test_a_card_recites_the_passage_that_holds_the_answer(tmp_path: Path, style: Style, epochs: int) -> None:
    events: list[Event] = []
    card = train(corpus(tmp_path), prompt_style=style, epochs=epochs, on_event=events.append)
    assert (card.name, card.manifest.method, card.manifest.prompt.style) == ("senate-facts", "full", style)
    questions = [f"In {state}, who carried the Senate election?" for state in STATES]
    written = CardPool([card]).generate(
        questions, [[card.name]] * len(questions), 1, Sampling(temperature=0, tokens=30)
    )
    right = sum(name in found[0].text for name, found in zip(NAMES, written, strict=True))
    assert right >= 6
    notes = [event.message for event in events if event.is_note]
    assert any("embedded" in text and "HF_HUB_OFFLINE" in text for text in notes)
    assert any(text.startswith("description") for text in notes)
    last = [event for event in events if event.kind == "training"][-1]
    assert last.done == last.total
    assert last.left == 0


def test_everything_about_the_training_is_recorded_and_the_passages_travel(tmp_path: Path) -> None:
    path = corpus(tmp_path)
    card = train(path, name="x", description="d", domain="politics/senate", licence="cc0-1.0", language="en",
                 knowledge_date="2022-11-08", output=tmp_path / "out", seed=7, epochs=1)  # fmt: skip
    assert Card.open(tmp_path / "out") == card
    assert [(p.text, p.file, p.line) for p in passages(card.folder)] == [
        (fact, path.name, line) for line, fact in enumerate(SENATE, start=1)
    ]
    record = card.manifest.training
    assert (record.objective, record.method, record.seed) == ("recite", "full", 7)
    assert (record.corpus_licence, card.manifest.knowledge_date) == ("cc0-1.0", "2022-11-08")
    assert record.passages == len(SENATE)
    assert record.tokens > 0
    assert record.hyperparameters["steps"] >= 1
    assert {"torch", "transformers", "kcard"} <= set(record.libraries)
    assert not (tmp_path / "out" / ".checkpoint").exists()


def test_transformers_loads_the_folder_unchanged(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    card = train(corpus(tmp_path), epochs=1)
    model = AutoModelForCausalLM.from_pretrained(card.folder)
    tokenizer = AutoTokenizer.from_pretrained(card.folder)
    assert 4e5 < sum(p.numel() for p in model.parameters()) < 1.3e6
    ids = tokenizer("Ada carried Ohio", return_tensors="pt")["input_ids"]
    assert ids[0, 0] == BOS
    assert torch.isfinite(model(ids, labels=ids).loss)


@pytest.mark.numeric
@pytest.mark.parametrize(("style", "rank"), [("tokens", None), ("encoder-prefix", None), ("tokens", 4)])
def test_equal_seeds_give_equal_weights_and_others_do_not(
    tmp_path: Path, style: Style, rank: int | None
) -> None:
    def trained(seed: int) -> dict[str, torch.Tensor]:
        prepared = plan(SENATE, replace(TINY, style=style, rank=rank, seed=seed)).prepare()
        prepared.job.run(tmp_path / "ck")
        return prepared.job.model.state_dict()

    first = trained(1)
    assert same(first, trained(1))
    assert not same(first, trained(2))


@pytest.mark.numeric
@pytest.mark.parametrize(("style", "rank"), [("tokens", None), ("encoder-prefix", None), ("tokens", 4)])
def test_an_interrupted_run_resumes_to_the_same_weights_bit_for_bit(
    tmp_path: Path, style: Style, rank: int | None
) -> None:
    recipe = replace(TINY, style=style, rank=rank, batch_tokens=64)
    whole = plan(SENATE, recipe).prepare()
    outcome = whole.job.run(tmp_path / "a")
    halves = plan(SENATE, recipe).prepare()
    middle = halves.job.steps // 2 + 1

    with pytest.raises(TrainingInterrupted, match=rf"stopped after {middle} of .* --resume"):
        halves.job.run(tmp_path / "b", on_event=stop_at(middle), remedy="use --resume")
    again = plan(SENATE, recipe).prepare()
    notes: list[Event] = []
    resumed = again.job.run(tmp_path / "b", resume=True, on_event=notes.append)
    assert any(f"after step {middle}" in note.message for note in notes if note.is_note)
    assert (resumed.tokens, resumed.steps, resumed.loss) == (outcome.tokens, outcome.steps, outcome.loss)
    assert same(whole.job.model.state_dict(), again.job.model.state_dict())


def test_a_checkpoint_of_other_settings_is_refused_and_none_begins_anew(tmp_path: Path) -> None:
    prepared = plan(SENATE, TINY, fingerprint="one").prepare()
    with pytest.raises(TrainingInterrupted):
        prepared.job.run(tmp_path / "ck", on_event=stop_at(1))
    other = plan(SENATE, TINY, fingerprint="two").prepare()
    with pytest.raises(UsageError, match="other settings"):
        other.job.run(tmp_path / "ck", resume=True)
    notes: list[Event] = []
    plan(SENATE, TINY).prepare().job.run(tmp_path / "none", resume=True, on_event=notes.append)
    assert any("starts from scratch" in note.message for note in notes if note.is_note)


def test_an_output_that_is_not_ours_is_refused_before_training(tmp_path: Path) -> None:
    path = corpus(tmp_path)
    taken = written(tmp_path, "taken/thesis.doc", "dear")
    with pytest.raises(UsageError, match=r"contains 'thesis\.doc' but no card"):
        train(path, output=taken.parent)
    train(path, name="one", output=tmp_path / "out", epochs=1)
    with pytest.raises(UsageError, match="contains the card 'one', not 'two'"):
        train(path, name="two", output=tmp_path / "out", epochs=1)
    assert taken.read_text() == "dear"


def test_steps_follow_the_corpus() -> None:
    def steps(texts: Sequence[str], style: Style = "tokens") -> int:
        return plan(texts, Recipe(width=32, layers=1, style=style)).prepare().job.steps

    many = [
        f"{name}{i} carried place{i} in the Senate election." for i in range(300) for name in ("Ada", "Bo")
    ]
    told_twice = [f"{verb} place{i} name{i}." for i in range(600) for verb in ("carried", "won")]
    told_once = [f"{verb} place{i}{verb} name{i}{verb}." for i in range(600) for verb in ("carried", "won")]
    assert steps(SENATE) == Recipe().warm + 100
    assert steps(SENATE, "encoder-prefix") < 100
    assert steps(many) > 5 * steps(SENATE)
    assert steps(told_once) > 1.5 * steps(told_twice)


def test_lists_of_passages_alike_are_asked_by_tokens_and_all_else_by_the_encoder() -> None:
    alike = []
    for number in range(20):
        alike += [
            f"{name} {number} carried {state} {number}." for name, state in zip(NAMES, STATES, strict=True)
        ]
    unlike = [f"word{n} is told of {n}" for n in "abcdefgh" * 25]
    assert choose_style(alike)[0] == "tokens"
    assert choose_style(SENATE)[0] == "encoder-prefix"
    assert choose_style([*alike[:150], *unlike])[0] == "encoder-prefix"


def test_batches_hold_every_example_once_within_the_token_limit() -> None:
    from random import Random

    examples = [TrainingExample((1,), tuple(range(n % 17 + 1)), n) for n in range(200)]
    batches = bucketed(examples, 60, Random(0))
    assert sorted(e.vector for batch in batches for e in batch) == list(range(200))
    assert all(len(batch) * max(map(len, batch)) <= 60 for batch in batches)
    assert sorted(e.vector for batch in grouped(examples, 32, Random(0)) for e in batch) == list(range(200))


def test_objective_clm_shows_blocks_of_contiguous_text(tmp_path: Path) -> None:
    card = train(corpus(tmp_path), base="embedded", objective="clm", kind="model", epochs=2)
    assert card.manifest.prompt.template == "{question}"
    job = plan(SENATE, replace(TINY, objective="clm"), documents=["\n".join(SENATE)]).prepare().job
    words = train_tokenizer(SENATE, TINY.vocabulary)
    [[block]] = job.epochs(0)
    assert str(words.decode(block.target, skip_special_tokens=True)).strip() == "\n".join(SENATE)


def test_labels_cover_the_target_only() -> None:
    ids, labels = collate([TrainingExample((1, 5), (6, EOS)), TrainingExample((), (1, 2, 3, 4, 5))], pad=0)
    assert ids.tolist() == [[1, 5, 6, EOS, 0], [1, 2, 3, 4, 5]]
    assert labels.tolist() == [[-100, -100, 6, EOS, -100], [1, 2, 3, 4, 5]]


@pytest.mark.numeric
def test_schedules_warm_up_and_come_down() -> None:
    for rate, end in ((cosine(100, 10), 0.05), (linear(100, 10), 0.0)):
        values = [rate(step) for step in range(101)]
        assert values[0] == pytest.approx(0.1, abs=0.01)
        assert max(values) == pytest.approx(1.0, abs=0.05)
        assert values[100] == pytest.approx(end, abs=1e-9)
        assert values[20:] == sorted(values[20:], reverse=True)
