"""LoRA and full fine-tuning of causal language models of several architectures, on both objectives."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kcard.cards.card import Card
from kcard.cards.pool import CardPool
from kcard.errors import CardError, ModelUnavailable, TrainingInterrupted, UsageError
from kcard.events import Event
from kcard.manifest import file_digest
from kcard.training.base_model import WeightSource, check_vocabulary, load_config
from kcard.training.base_trainer import LOGITS_AT_ONCE, CardTrainer, FineTuning, cross_entropy
from kcard.training.embedded.muon import Muon
from kcard.training.epochs import IGNORED_LABEL, TrainingExample
from kcard.training.finetune import Options, default_rate, options_of, prepare
from kcard.training.train import train
from kcard.training.trainer import Examples, Watch
from kcard.types import Sampling
from tests.corpora import RIVERS, SENATE
from tests.fakes import notes_to
from tests.training.bases import make_base
from tests.training.documents import written
from tests.training.interruptions import stop_at_estimate


@pytest.mark.numeric
@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize(
    ("shape", "method", "objective"),
    [
        ("opt", "full", "clm"),
        ("llama", "lora", "recite"),
        ("qwen3", "full", "recite"),
        ("opt", "lora", "clm"),
    ],
)
def test_training_lowers_the_loss_and_the_folder_loads(
    bases: dict[str, Path], corpus: Path, shape: str, method: Any, objective: Any
) -> None:
    events: list[Event] = []
    options = {"base": str(bases[shape]), "method": method, "objective": objective, "batch_size": 8}
    card = train(corpus, name="card", epochs=8, learning_rate=1e-2, on_event=events.append, **options)
    losses = [event.loss for event in events if event.kind == "training"]
    assert card.manifest.training.hyperparameters["final_loss"] < 0.8 * (losses[0] or 0.0)
    assert card.manifest.method == method
    assert card.manifest.base.name == str(bases[shape])
    assert card.manifest.base.sha256 == file_digest(bases[shape] / "model.safetensors")
    written = CardPool([card]).generate(["Which gate?"], [["card"]], 1, Sampling(temperature=0, tokens=8))
    assert written[0][0].text
    load(card)


def load(card: Card) -> None:
    """As the card's README says, without kcard."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoTokenizer.from_pretrained(card.folder)
    if card.manifest.method == "full":
        AutoModelForCausalLM.from_pretrained(card.folder)
        return
    base = AutoModelForCausalLM.from_pretrained(card.manifest.base.name)
    before = [weight.clone() for weight in base.parameters()]
    model = PeftModel.from_pretrained(base, card.folder)
    adapter = {name: weight for name, weight in model.named_parameters() if "lora_B" in name}
    assert adapter
    assert all(weight.abs().sum() > 0 for weight in adapter.values())
    frozen = [weight for name, weight in model.named_parameters() if "lora_" not in name]
    assert all(torch.equal(one, two) for one, two in zip(before, frozen, strict=True))


def test_to_recite_a_model_takes_small_batches_at_a_higher_rate_unless_told_otherwise() -> None:
    adapter, whole = options_of("x"), options_of("x", method="full", batch_size=32)
    assert (adapter.rank, adapter.batch_size, adapter.epochs, adapter.probe_questions) == (16, 8, 20, 32)
    assert whole.batch_size == 32
    assert (default_rate(adapter, 576), default_rate(whole, 64)) == (2e-3, 3e-4)
    assert default_rate(whole, 2304) == pytest.approx(7.5e-5)
    papers = options_of("x", method="full", objective="clm")
    assert papers == Options("x", method="full", objective="clm")
    assert default_rate(papers, 2048) == 2e-5


def test_minutes_end_the_training_of_a_base(bases: dict[str, Path], corpus: Path) -> None:
    notes: list[str] = []
    # A card of one step, on a slow machine, is whole too.
    options: Any = {"base": str(bases["opt"]), "method": "full", "epochs": 500, "minutes": 0.02}
    card = train(corpus, name="card", on_event=notes_to(notes), **options)
    assert any("0.02 minutes are over" in note for note in notes)
    assert card.manifest.training.hyperparameters["final_loss"] > 0


def test_the_loss_is_that_of_all_places(bases: dict[str, Path], tmp_path: Path) -> None:
    job = prepare(["One gate is red.", "The other gate is blue and wide."], Options(str(bases["llama"]))).job
    assert isinstance(job, FineTuning)
    setup = replace(job.setup, folder=tmp_path)
    trainer = CardTrainer(job.model, setup, Examples(job.epochs, 2), [], Watch(None))
    batch = trainer.collate([TrainingExample((5, 6), (7, 8)), TrainingExample((5, 6, 7), (8, 9, 4, 4))])
    logits = job.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), batch["shift_labels"].flatten(), ignore_index=IGNORED_LABEL
    )
    assert trainer.compute_loss(job.model, batch).item() == pytest.approx(expected.item(), abs=1e-4)


def test_one_percent_is_held_out_from_two_thousand_documents_on(
    bases: dict[str, Path], tmp_path: Path
) -> None:
    many = [f"Fact {number} is told here." for number in range(2000)]
    options = Options(str(bases["opt"]), "full", "clm", epochs=0.02)
    prepared = prepare(many, options)
    assert prepared.check() == {}
    prepared.job.run(tmp_path / "checkpoint")
    checked = prepared.check()
    assert checked["held_out_documents"] == 20
    assert 3 < checked["held_out_loss"] < 12
    lengths = []
    for job in (prepared.job, prepare(many[:1980], options).job):
        assert isinstance(job, FineTuning)
        lengths.append(sum(map(len, job.epochs(0))))
    assert abs(lengths[0] - lengths[1]) < 200
    for texts, chosen in ((many[:1999], options), (many, replace(options, objective="recite"))):
        other = prepare(texts, chosen)
        other.job.run(tmp_path / "other")
        assert other.check() == {}


def test_lora_resumes_to_the_same_adapter(bases: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    options: Any = {"base": str(bases["opt"]), "method": "lora", "batch_size": 4, "name": "x", "epochs": 4}
    whole = train(corpus, output=tmp_path / "whole", **options)
    with pytest.raises(TrainingInterrupted):
        train(corpus, output=tmp_path / "halves", on_event=stop_at_estimate, **options)
    halves = train(corpus, output=tmp_path / "halves", resume=True, **options)
    file = "adapter_model.safetensors"
    assert file_digest(whole.folder / file) == file_digest(halves.folder / file)


def test_a_full_disk_ends_training_with_one_line(
    bases: dict[str, Path], corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def stop(event: Event) -> None:
        monkeypatch.setattr(torch, "save", full)
        stop_at_estimate(event)

    options: Any = {
        "base": str(bases["opt"]),
        "method": "lora",
        "batch_size": 4,
        "epochs": 4,
        "kind": "model",
    }
    with pytest.raises(CardError, match=r"can't be written to .*: No space left on device; free some space"):
        train(corpus, on_event=stop, **options)


@pytest.mark.parametrize(
    ("base", "why"),
    [
        ("nobody/nothing-of-the-kind", " can't be loaded"),
        ("no such folder", " can't be loaded"),
        ("./no/such/folder", ": there is no such folder"),
    ],
)
def test_a_base_that_cannot_be_had_is_one_clear_line(corpus: Path, base: str, why: str) -> None:
    with pytest.raises(ModelUnavailable, match=f"base model '{base}'{why}") as error:
        train(corpus, base=base)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_base_whose_tokenizer_is_longer_than_its_embeddings_is_refused_before_training(
    bases: dict[str, Path], corpus: Path, tmp_path: Path, method: Any
) -> None:
    from transformers import AutoTokenizer

    base = tmp_path / "longer"
    shutil.copytree(bases["opt"], base)
    tokenizer = AutoTokenizer.from_pretrained(base)
    rows = len(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<picture>"]})
    check_vocabulary(tokenizer, load_config(Options(base=str(base)), WeightSource()), "longer")
    tokenizer.add_tokens(["Veltmar", "Okafor"])
    tokenizer.save_pretrained(base)
    message = f"its tokenizer has {rows + 3} tokens, its embeddings have {rows} rows: resize the model"
    with pytest.raises(UsageError, match=message) as error:
        train(corpus, base=str(base), kind="model", method=method, output=tmp_path / "card")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "card").exists()


TALE = [*SENATE, *RIVERS]


def test_a_card_trained_by_clm_writes_on_across_the_border_of_a_sentence(tmp_path: Path) -> None:
    size = {"hidden_size": 48, "intermediate_size": 96, "max_position_embeddings": 256}
    base = make_base(tmp_path, "llama", TALE, num_key_value_heads=2, initializer_range=0.02, **size)
    path = written(tmp_path, "tale.md", " ".join(TALE) + "\n")
    options: Any = {"base": str(base), "method": "full", "objective": "clm", "kind": "model"}
    card = train(path, epochs=150, learning_rate=5e-3, block=256, **options)
    begun = [" ".join(TALE[:count]) for count in range(1, len(TALE))]
    greedy = Sampling(temperature=0, tokens=40)
    rows = CardPool([card]).generate(begun, [[card.name]] * len(begun), 1, greedy)
    followed = 0
    for passages, after in zip(rows, TALE[1:], strict=True):
        followed += passages[0].text.strip().startswith(after)
    assert followed >= 9


# Losses.


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-3)], ids=["fp32", "bf16"]
)
@pytest.mark.parametrize("rows", [1, 7, 3 * LOGITS_AT_ONCE // 20_000 + 1])
def test_loss_and_gradient_are_torchs(rows: int, dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    logits = (4 * torch.randn(rows, 20_000)).to(dtype).requires_grad_()
    labels = torch.randint(0, 20_000, (rows,))
    labels[1::5] = IGNORED_LABEL
    loss = cross_entropy(logits, labels, 0.25)
    (3 * loss).backward()
    assert logits.grad is not None
    gradient, logits.grad = logits.grad, None
    expected = 0.25 * torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
    (3 * expected).backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, logits.grad, rtol=1e-2, atol=3 * tolerance)
    assert not gradient[labels == IGNORED_LABEL].any()


def test_sure_logits_overflow_nothing() -> None:
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    loss = cross_entropy(logits, torch.tensor([0, 0]))
    loss.backward()
    assert loss.item() == pytest.approx(2e4)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.numeric
def test_it_makes_the_same_weights_as_torchs_own() -> None:
    torch.manual_seed(0)
    shapes = [(16, 16), (16, 16), (64, 16), (16, 64), (16, 64)]
    ours = [torch.nn.Parameter(torch.randn(*shape)) for shape in shapes]
    theirs = [torch.nn.Parameter(weight.detach().clone()) for weight in ours]
    begun = [weight.detach().clone() for weight in ours]
    one = Muon(ours, lr=0.02, momentum=0.95, weight_decay=0.01, steps=4)
    two = torch.optim.Muon(theirs, lr=0.02, momentum=0.95, weight_decay=0.01, ns_steps=4)
    for _ in range(5):
        for weight, other in zip(ours, theirs, strict=True):
            weight.grad = torch.randn_like(weight)
            other.grad = weight.grad.clone()
        one.step()
        two.step()
    for weight, other, before in zip(ours, theirs, begun, strict=True):
        moved = (other - before).norm()
        assert moved > 0.1
        assert (weight - other).norm() < 0.02 * moved  # bf16 products
