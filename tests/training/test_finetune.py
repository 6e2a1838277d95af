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
from kcard.training.embedded.recipe import train_tokenizer
from kcard.training.epochs import IGNORED_LABEL, TrainingExample
from kcard.training.finetune import Options, default_rate, options_of, prepare
from kcard.training.train import train
from kcard.training.trainer import Examples, Watch
from kcard.types import Sampling


@pytest.mark.numeric
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
    bases: dict[str, Path],
    corpus: Path,
    shape: str,
    method: Any,
    objective: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kcard.training.run.REPORT_SECONDS", 0)  # so that the first step's loss is reported
    losses: list[float] = []

    def note(event: Event) -> None:
        if event.kind == "training":
            losses.append(event.loss or 0.0)

    options = {"base": str(bases[shape]), "method": method, "objective": objective, "batch_size": 8}
    card = train(corpus, name="card", epochs=8, learning_rate=1e-2, on_event=note, **options)
    assert card.manifest.training.hyperparameters["final_loss"] < 0.8 * losses[0]
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


def test_the_papers_numbers_are_the_defaults() -> None:
    full = Options("x", method="full")
    assert default_rate(replace(full, objective="clm"), 2048) == 2e-5
    assert (full.decay, full.epochs, full.batch_size) == (1e-5, 10, 32)
    assert (full.epsilon, full.betas, full.warm) == (1e-6, (0.9, 0.98), 0.06)
    assert Options("x").rank == 16


def test_to_recite_a_model_takes_small_batches_at_a_higher_rate_unless_told_otherwise() -> None:
    adapter, whole = options_of("x"), options_of("x", method="full", batch_size=32)
    assert (adapter.batch_size, adapter.epochs, adapter.probe_questions) == (8, 20, 32)
    assert whole.batch_size == 32
    assert (default_rate(adapter, 576), default_rate(whole, 64)) == (2e-3, 3e-4)
    assert default_rate(whole, 2304) == pytest.approx(7.5e-5)
    assert options_of("x", objective="clm") == Options("x", objective="clm")


def test_minutes_end_the_training_of_a_base(bases: dict[str, Path], corpus: Path) -> None:
    notes: list[str] = []
    minutes = 0.02
    card = train(
        corpus,
        name="card",
        base=str(bases["opt"]),
        method="full",  # a card of one step, on a slow machine, is whole too
        epochs=500,
        minutes=minutes,
        on_event=lambda event: notes.append(event.message) if event.is_note else None,
    )
    assert any(f"{minutes:g} minutes are over" in note for note in notes)
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
    lengths = [
        sum(map(len, tuning.epochs(0)))
        for tuning in (prepared.job, prepare(many[:1980], options).job)
        if isinstance(tuning, FineTuning)
    ]
    assert abs(lengths[0] - lengths[1]) < 200
    for texts, chosen in ((many[:1999], options), (many, replace(options, objective="recite"))):
        other = prepare(texts, chosen)
        other.job.run(tmp_path / "other")
        assert other.check() == {}


def test_lora_resumes_to_the_same_adapter(bases: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    options: Any = {"base": str(bases["opt"]), "method": "lora", "batch_size": 4, "name": "x", "epochs": 4}

    def stop(event: Event) -> None:
        if event.is_note and event.message.endswith(" steps"):
            raise KeyboardInterrupt

    whole = train(corpus, output=tmp_path / "whole", **options)
    with pytest.raises(TrainingInterrupted):
        train(corpus, output=tmp_path / "halves", on_event=stop, **options)
    halves = train(corpus, output=tmp_path / "halves", resume=True, **options)
    file = "adapter_model.safetensors"
    assert file_digest(whole.folder / file) == file_digest(halves.folder / file)


def test_a_full_disk_ends_training_with_one_line(
    bases: dict[str, Path], corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def stop(event: Event) -> None:
        if event.is_note and event.message.endswith(" steps"):
            monkeypatch.setattr(torch, "save", full)
            raise KeyboardInterrupt

    with pytest.raises(CardError, match=r"can't be written to .*: No space left on device; free some space"):
        train(
            corpus, base=str(bases["opt"]), method="lora", batch_size=4, epochs=4, kind="model", on_event=stop
        )


@pytest.mark.parametrize("base", ["nobody/nothing-of-the-kind", "no such folder"])
def test_a_base_that_cannot_be_had_is_one_clear_line(corpus: Path, base: str) -> None:
    with pytest.raises(ModelUnavailable, match=f"base model '{base}' can't be loaded") as error:
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


TALE = [
    "Old Marten kept the ferry below the weir.",
    "Every morning he scraped the frost from its ropes.",
    "The miller crossed first with seven sacks of barley.",
    "Then came the schoolboys, who never paid.",
    "At noon the bell of Saint Odo called him home.",
    "His daughter had boiled a pot of green lentils.",
    "They spoke of the flood that took the bridge.",
    "Nobody had found the money to build another.",
    "So the ferry went on, summer after summer.",
    "In the tenth year a surveyor came with brass poles.",
    "He measured both banks and drank all their cider.",
    "The new bridge was finished before the geese returned.",
]


def test_a_card_trained_by_clm_writes_on_across_the_border_of_a_sentence(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = train_tokenizer(TALE, 500)
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(shape).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    path = tmp_path / "tale.md"
    path.write_text(" ".join(TALE) + "\n", encoding="utf-8")
    options: Any = {"base": str(tmp_path / "base"), "method": "full", "objective": "clm", "kind": "model"}
    card = train(path, epochs=150, learning_rate=5e-3, block=256, **options)
    begun = [" ".join(TALE[:count]) for count in range(1, len(TALE))]
    written = CardPool([card]).generate(
        begun, [[card.name]] * len(begun), 1, Sampling(temperature=0, tokens=40)
    )
    followed = [
        passages[0].text.strip().startswith(after) for passages, after in zip(written, TALE[1:], strict=True)
    ]
    assert sum(followed) >= 9


# Losses.


def make_logits(rows: int, words: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    logits = (4 * torch.randn(rows, words)).to(dtype).requires_grad_()
    labels = torch.randint(0, words, (rows,))
    labels[::5] = IGNORED_LABEL
    return logits, labels


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-3)], ids=["fp32", "bf16"]
)
@pytest.mark.parametrize("rows", [1, 7, 3 * LOGITS_AT_ONCE // 20_000 + 1])
def test_loss_and_gradient_are_torchs(rows: int, dtype: torch.dtype, tolerance: float) -> None:
    logits, labels = make_logits(rows, 20_000, dtype)
    labels[0] = 3
    loss = cross_entropy(logits, labels, 0.25)
    loss.backward()
    assert logits.grad is not None
    gradient, logits.grad = logits.grad, None
    expected = 0.25 * torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, logits.grad, rtol=1e-2, atol=tolerance)


def test_ignored_rows_have_no_gradient() -> None:
    logits, labels = make_logits(10, 50, torch.float32)
    cross_entropy(logits, labels).backward()
    assert logits.grad is not None
    assert not logits.grad[labels == IGNORED_LABEL].any()
    assert logits.grad[labels != IGNORED_LABEL].any(dim=1).all()


@pytest.mark.numeric
def test_a_gradient_from_above_is_passed_on() -> None:
    logits, labels = make_logits(10, 50, torch.float32)
    (once,) = torch.autograd.grad(cross_entropy(logits, labels), logits)
    (thrice,) = torch.autograd.grad(3 * cross_entropy(logits, labels), logits)
    torch.testing.assert_close(thrice, 3 * once)


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


@pytest.mark.numeric
def test_its_state_can_be_saved_and_restored() -> None:
    weight = torch.nn.Parameter(torch.eye(4))
    weight.grad = torch.ones(4, 4)
    optimizer = Muon([weight], lr=0.1)
    optimizer.step()
    other = Muon([torch.nn.Parameter(torch.eye(4))], lr=0.5)
    other.load_state_dict(optimizer.state_dict())
    (state,) = other.state.values()
    assert torch.equal(state["momentum"], optimizer.state[weight]["momentum"])
    assert state["momentum"].abs().sum() > 0
    assert other.param_groups[0]["lr"] == 0.1
